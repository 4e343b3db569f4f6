"""Three months of many accounts against hidden judgements: the bounds, and that the site tells what the model tells.

`make attack` plays all of it and prints the tables of docs/measurements/attack.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
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
)
from tests.attack.prober import synthetic_collection
from tests.attack.ramp import climb
from tests.attack.site import SLUG, Account, bring, candidates_text, import_answers, run_text
from tests.attack.tasks import TASKS, rankings
from tests.attack.worlds import world
from tests.factories import make_user, team_of
from tests.submissions.workers import work

MEASURE = pytest.mark.parametrize("measure", TASKS)
POLICY = pytest.mark.parametrize("competition", [False, True], ids=["standard", "competition"])
PARTIES = [(SOCK_PUPPETS, False), (INSIDERS, True)]


def test_the_model_tells_as_many_measures_as_a_hidden_dataset_does() -> None:
    assert len(shown_measures("nDCG@10", [], hidden=True)) == MEASURES == MAX_MEASURES
    for measure, competition in product(TASKS, (False, True)):
        policy = get_policy(
            Dataset(
                hidden=True,
                measures=[measure, "CiteP", "R@100"],
                protection=Protection.COMPETITION if competition else Protection.STANDARD,
            )
        )
        rules = Rules(competition, measure=measure)
        assert [policy.steps.get(name, 10.0**-DECIMALS) for name in policy.published_measures] == [
            rules.step,
            *rules.further,
        ]


def mean_gain(rules: Rules, teams: int, splits: int, days: int = 90) -> tuple[float, float]:
    played = [attack(rules, teams, split, days) for split in range(splits)]
    return float(np.mean([each.shown for each in played])), float(np.mean([each.private for each in played]))


@MEASURE
@POLICY
def test_many_accounts_gain_nothing_that_holds_and_did_before(competition: bool, measure: str) -> None:
    rules = partial(Rules, competition, measure=measure)
    for teams, approved, splits in ((SOCK_PUPPETS, False, 1), (INSIDERS, True, 12)):
        shown, private = mean_gain(rules(approved=approved), teams, splits)
        assert shown <= SHOWN * TASKS[measure].scale
        assert private <= PRIVATE
    sliced, _ = mean_gain(rules(approved=True, slices=9), INSIDERS, 12)
    assert sliced > SHOWN * TASKS[measure].scale, "boards with hidden judgments may show scores by slice, too"
    # The same reader reads where the protections are those of the release before: it knows how.
    earlier = before(competition=competition, measure=measure)
    assert mean_gain(earlier, SOCK_PUPPETS, 1, days=24)[0] >= CONTROL
    # In a competition five teams were told a dozen results, worth as much over all of the long test's splits alone.
    control = rules(approved=True, ladder=False) if competition else earlier
    assert mean_gain(control, INSIDERS, 4)[0] >= CONTROL


@POLICY
def test_certainty_and_the_contamination_gap_add_little(competition: bool) -> None:
    for teams, approved, splits in ((SOCK_PUPPETS, False, 1), (INSIDERS, True, 12)):
        shown, _ = mean_gain(Rules(competition, approved=approved), teams, splits)
        silent, _ = mean_gain(Rules(competition, approved=approved, certainty=False), teams, splits)
        assert shown <= silent + CERTAINTY
    without, _ = mean_gain(Rules(competition, approved=True, gap=False), INSIDERS, 12)
    assert shown <= without + CERTAINTY, "a contamination gap tells hidden judgements"


def test_answers_need_the_limit_in_standard_errors_and_coarse_further_measures() -> None:
    rules = partial(Rules, False, approved=True, measure="EM")
    bound = SHOWN * TASKS["EM"].scale
    assert mean_gain(rules(wide=False), INSIDERS, 12)[0] > bound
    assert mean_gain(rules(coarse=False), INSIDERS, 12)[0] > bound


@MEASURE
def test_teams_gain_little_by_adding_queries_to_their_runs(measure: str) -> None:
    """By exact match they may gain twice the bound: a few more correct answers pass the Ladder."""
    played = [climb(Rules(False, approved=True, measure=measure), INSIDERS, split) for split in range(20)]
    without = [climb(Rules(False, approved=True, measure=measure, baseline=False), INSIDERS, n) for n in range(20)]
    gain, gain_without = (float(np.mean([each.shown for each in games])) for games in (played, without))
    assert gain <= SHOWN * TASKS[measure].scale * (2 if measure == "EM" else 1)
    assert gain_without > max(gain, SHOWN * TASKS[measure].scale)
    contest = [climb(Rules(True, approved=True, measure=measure), INSIDERS, split) for split in range(20)]
    assert np.mean([each.shown for each in contest]) <= SHOWN * TASKS[measure].scale
    assert np.mean([each.private for each in contest]) <= PRIVATE


@pytest.mark.long
@pytest.mark.parametrize(("teams", "approved"), PARTIES, ids=["sock puppets", "insiders"])
@MEASURE
@POLICY
def test_three_months_of_an_attack_gain_nothing_that_holds(
    competition: bool, measure: str, teams: int, approved: bool
) -> None:
    rules = partial(Rules, competition, approved=approved, measure=measure)
    splits, certainty = 100 if approved else 10, CERTAINTY * TASKS[measure].scale
    shown, private = mean_gain(rules(), teams, splits)
    assert shown <= SHOWN * TASKS[measure].scale
    assert private <= PRIVATE
    assert shown <= mean_gain(rules(certainty=False), teams, splits)[0] + certainty
    assert shown <= mean_gain(rules(gap=False), teams, splits)[0] + certainty
    assert mean_gain(before(competition=competition, measure=measure), teams, splits)[0] >= CONTROL


@MEASURE
@POLICY
def test_honest_teams_that_were_approved_see_a_score_within_a_day(competition: bool, measure: str) -> None:
    rules = partial(Rules, competition, approved=True, measure=measure)
    assert np.mean([serve(rules(), number).teams for number in range(3)]) >= 0.95
    # The daily budget is what could keep them waiting.
    assert serve(rules(budget=1)).teams < 0.95


@pytest.mark.django_db(transaction=True)
@MEASURE
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
    measure: str, competition: bool, approved: bool, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [datetime(2026, 3, 1, 9, tzinfo=UTC)]
    monkeypatch.setattr(timezone, "now", lambda: clock[0])
    monkeypatch.setattr(judged_parts, "secrets", SimpleNamespace(token_bytes=lambda _: secret(0)))
    settings.TEAM_APPROVAL, settings.YOUNG_TEAM_DAYS, settings.YOUNG_TEAM_READINGS = approved, 90, 2
    rules = Rules(competition, approved=approved, budget=2, measure=measure)
    given, is_ranked = world(rules, 0), measure == "nDCG@10"
    dataset = bring(synthetic_collection(), tmp_path) if is_ranked else import_answers(given.systems, tmp_path)
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
    board = Board(rules, given.public, given.systems.baseline)
    random = np.random.default_rng(7)
    sent = {}
    for day in range(3):
        for number, account in enumerate(accounts):
            # The second day's runs are far better for some: more than a day's budget passes.
            better = given.systems.change > 0
            choice = better if day == 1 and number % 2 else random.random(len(better)) < 0.5
            account.submit(run_text(rankings(choice)) if is_ranked else candidates_text(choice))
            result = board.submit(number, given.values(choice))
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
    measure, said = board.rules.measure, statements([dataset.pk])[dataset.pk]
    assert said.least_difference(measure) == pytest.approx(board.least_difference)
    entries = {entry.submission_reference: entry for entry in Entry.objects.filter(dataset__slug=SLUG)}
    for result, submission in sent.items():
        entry = entries[submission]
        told = entry.visibility != Entry.Visibility.HELD
        assert told == (result.told_on is not None), (result.team, result.day)
        assert entry.scores == ({measure: pytest.approx(result.score)} if told else {})
        assert said.for_entry(entry.pk, measure).better == (board.is_better(result) if told else None)
        assert entry.waits_for_its_turn == (result in board.waiting)
