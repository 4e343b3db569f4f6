"""Three months of many accounts against hidden judgements: the bounds, and that the site tells what the model tells.

`make attack` plays all of it and prints the tables of docs/measurements/attack.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.utils import timezone

from evaluation.judgements import splits as judged_parts
from leaderboard.core.audit import acting
from leaderboard.models import Dataset, Entry, Protection, Team
from leaderboard.results.measures import shown_measures
from leaderboard.results.protection import MAX_MEASURES, get_policy
from leaderboard.results.publishing.protection import request_change
from leaderboard.results.publishing.publication import publish_due
from leaderboard.results.significance.statements import statements
from submissions.queue.queue import create_requested_jobs
from tests.attack.board import DECIMALS, MEASURES, SHARE, Board, Rules, before, secret
from tests.attack.campaign import (
    CERTAINTY,
    CONTROL,
    INSIDERS,
    PRIVATE,
    SHOWN,
    SOCK_PUPPETS,
    attack,
    serve,
    world,
)
from tests.attack.reader import rankings
from tests.attack.site import SLUG, Account, bring
from tests.factories import make_user, team_of
from tests.submissions.workers import work

PARTIES = [(SOCK_PUPPETS, False), (INSIDERS, True)]


def test_the_model_tells_as_many_measures_as_a_hidden_dataset_does() -> None:
    assert len(shown_measures("nDCG@10", [], hidden=True)) == MEASURES == MAX_MEASURES
    for competition in (False, True):
        policy = get_policy(
            Dataset(
                hidden=True,
                measures=list("abc"),
                protection=Protection.COMPETITION if competition else Protection.STANDARD,
            )
        )
        rules = Rules(competition)
        assert [policy.steps.get(name, 10.0**-DECIMALS) for name in policy.published_measures] == [
            rules.step,
            *rules.further,
        ]


def mean_gain(rules: Rules, teams: int, splits: int, days: int = 90) -> tuple[float, float]:
    played = [attack(rules, teams, split, days) for split in range(splits)]
    return float(np.mean([each.shown for each in played])), float(np.mean([each.private for each in played]))


@pytest.mark.parametrize("competition", [False, True], ids=["standard", "competition"])
def test_many_accounts_gain_nothing_that_holds_and_did_before(competition: bool) -> None:
    for teams, approved, splits in ((SOCK_PUPPETS, False, 1), (INSIDERS, True, 12)):
        shown, private = mean_gain(Rules(competition, approved=approved), teams, splits)
        assert shown <= SHOWN
        assert private <= PRIVATE
        silent, _ = mean_gain(Rules(competition, approved=approved, certainty=False), teams, splits)
        assert shown <= silent + CERTAINTY
    without, _ = mean_gain(Rules(competition, approved=True, gap=False), INSIDERS, 12)
    assert shown <= without + CERTAINTY, "a contamination gap tells hidden judgements"
    sliced, _ = mean_gain(Rules(competition, approved=True, slices=9), INSIDERS, 12)
    assert sliced > SHOWN, "boards with hidden judgments may show scores by slice, too"
    # The same reader reads where the protections are those of the release before: it knows how.
    assert mean_gain(before(competition=competition), SOCK_PUPPETS, 1, days=24)[0] >= CONTROL
    # In a competition five teams were told a dozen results, worth as much over all of the long test's splits alone.
    control = Rules(True, approved=True, ladder=False) if competition else before(competition=False)
    assert mean_gain(control, INSIDERS, 4)[0] >= CONTROL


@pytest.mark.long
@pytest.mark.parametrize(("teams", "approved"), PARTIES, ids=["sock puppets", "insiders"])
@pytest.mark.parametrize("competition", [False, True], ids=["standard", "competition"])
def test_three_months_of_an_attack_gain_nothing_that_holds(competition: bool, teams: int, approved: bool) -> None:
    splits = 100 if approved else 10
    shown, private = mean_gain(Rules(competition, approved=approved), teams, splits)
    assert shown <= SHOWN
    assert private <= PRIVATE
    assert shown <= mean_gain(Rules(competition, approved=approved, certainty=False), teams, splits)[0] + CERTAINTY
    without, _ = mean_gain(Rules(competition, approved=approved, gap=False), teams, splits)
    assert shown <= without + CERTAINTY
    assert mean_gain(before(competition=competition), teams, splits)[0] >= CONTROL


@pytest.mark.parametrize("competition", [False, True], ids=["standard", "competition"])
def test_honest_teams_that_were_approved_see_a_score_within_a_day(competition: bool) -> None:
    served = [serve(Rules(competition, approved=True), number) for number in range(3)]
    assert np.mean([each.teams for each in served]) >= 0.95
    # The daily budget is what could keep them waiting.
    assert serve(Rules(competition, approved=True, budget=1)).teams < 0.95


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("competition", "approved"),
    [
        pytest.param(False, False, marks=pytest.mark.long, id="standard, unapproved"),
        pytest.param(False, True, marks=pytest.mark.long, id="standard, approved"),
        pytest.param(True, False, marks=pytest.mark.long, id="competition, unapproved"),
        pytest.param(True, True, id="competition, approved"),
    ],
)
def test_the_site_tells_what_the_model_tells(
    competition: bool, approved: bool, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [datetime(2026, 3, 1, 9, tzinfo=UTC)]
    monkeypatch.setattr(timezone, "now", lambda: clock[0])
    monkeypatch.setattr(judged_parts, "secrets", SimpleNamespace(token_bytes=lambda _: secret(0)))
    settings.TEAM_APPROVAL, settings.YOUNG_TEAM_DAYS, settings.YOUNG_TEAM_READINGS = approved, 90, 2
    given = world(competition=competition, number=0)
    dataset = bring(given.collection, tmp_path)
    if competition:
        with acting(None, "the attack"):
            request_change(dataset, competition=True, share=SHARE)
        create_requested_jobs()
        work()
    people = [make_user(name) for name in ("Mallory", "Trudy", "Eve", "Oscar")]
    Team.objects.update(created_at=clock[0])
    if approved:
        listed = tmp_path / "teams.csv"
        listed.write_text("team\n" + "".join(f"{team_of(person).slug}\n" for person in people))
        call_command("approve_teams", listed, by=people[0].email, why="a track")
    accounts = [Account(person) for person in people]
    board = Board(Rules(competition, approved=approved, budget=2), given.public, given.baseline)
    random = np.random.default_rng(7)
    sent = {}
    for day in range(3):
        for number, account in enumerate(accounts):
            # The second day's runs are far better for some: more than a day's budget passes.
            better = given.other > given.plain
            choice = better if day == 1 and number % 2 else random.random(len(better)) < 0.5
            account.submit(rankings(choice))
            result = board.submit(number, np.where(choice, given.other, given.plain))
            sent[result] = account.submissions[-1]
        _require_same(sent, board)
        clock[0] += timedelta(days=1)
        publish_due()
        board.next_day()
        _require_same(sent, board)
    clock[0] += timedelta(days=90)  # the teams are young no longer: what was held of them is still not told
    publish_due()
    assert not board.waiting
    _require_same(sent, board)
    told = [each for each in board.results if each.told_on is not None]
    assert len(told) >= (2 if approved else 1)
    assert not approved or any(each.told_on != each.day for each in told), "nobody had to wait: it proves little"


def _require_same(sent: Any, board: Board) -> None:
    dataset = Dataset.objects.get(slug=SLUG)
    said = statements([dataset.pk])[dataset.pk]
    assert said.least_difference("nDCG@10") == pytest.approx(board.least_difference)
    entries = {entry.submission_reference: entry for entry in Entry.objects.filter(dataset__slug=SLUG)}
    for result, submission in sent.items():
        entry = entries[submission]
        told = entry.visibility != Entry.Visibility.HELD
        assert told == (result.told_on is not None), (result.team, result.day)
        assert entry.scores == ({"nDCG@10": pytest.approx(result.score)} if told else {})
        assert said.for_entry(entry.pk, "nDCG@10").better == (board.is_better(result) if told else None)
        assert entry.waits_for_its_turn == (result in board.waiting)
