"""Results of young teams over hidden judgements: told once, then in turn, or where far better."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.models import Dataset, Entry, Team
from leaderboard.results.publishing.publication import publish_due
from submissions.accounts.approval import withdraw_approval
from submissions.notifications.events import finished_submissions
from tests.factories import make_a_curator, make_user, team_of
from tests.submissions.clients import Api
from tests.submissions.collections import JUDGED, QUERIES, add_baseline, make_collection
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    now = [datetime(2026, 3, 1, 9, tzinfo=UTC)]
    monkeypatch.setattr(timezone, "now", lambda: now[0])
    return now


@pytest.fixture
def hidden(db: None, clock: list[datetime], tmp_path: Path, settings: Any) -> Dataset:
    """A dataset with ten judged queries, of which one result of young teams is told a day."""
    settings.YOUNG_TEAM_DAYS, settings.YOUNG_TEAM_READINGS = 90, 1
    dataset = make_collection(tmp_path, "contest", hidden=True, measures=["nDCG@10"])
    Dataset.objects.update(daily_quota=None, monthly_quota=None)
    return dataset


def member(name: str, clock: list[datetime], *, approved: bool = True) -> Api:
    person = make_user(name)
    since = {"created_at": clock[0], "approved_at": clock[0] if approved else None}
    Team.objects.filter(pk=team_of(person).pk).update(**since)
    return Api(person)


def run_of(good: Sequence[str], tag: str) -> str:
    """A run that has the relevant documents first for some queries, and none for the others."""
    lines = []
    for query in QUERIES:
        documents = ["d3", "d1"] if query in good else []
        documents += [f"d{number}" for number in range(20, 32 - len(documents))]
        lines += [f"{query} Q0 {name} {rank} {100 - rank}.5 {tag}" for rank, name in enumerate(documents, 1)]
    return "\n".join(lines) + "\n"


def send(api: Api, good: Sequence[str], label: str = "a") -> str:
    answer = api.submit(run_of(good, label), dataset="contest", system=f"{api.user} {label}")
    assert answer.status == 201, answer.body
    work()
    return str(answer.body["id"])


def told(api: Api, submission: str) -> dict[str, float]:
    scores: dict[str, float] = api.get(f"submissions/{submission}/").body["jobs"][0]["scores"]
    return scores


def test_beyond_a_days_budget_results_wait_and_are_told_the_next_day(hidden: Dataset, clock: list[datetime]) -> None:
    alice, bob = member("Alice", clock), member("Bob", clock)
    assert told(alice, send(alice, JUDGED[:5])) == {"nDCG@10": 0.5}
    later = send(bob, JUDGED[:7])
    job = bob.get(f"submissions/{later}/").body["jobs"][0]
    assert (job["state"], job["held"], job["told_later"], job["scores"]) == ("done", True, True, {})
    assert "waits for its release" in job["meaning"]
    page = Client()
    page.force_login(bob.user)  # type: ignore[arg-type]
    assert "waits for its release" in page.get(f"/submissions/{later}/").content.decode()
    assert "not released yet" in page.get("/submissions/").content.decode()
    assert later not in [each.pk for each in finished_submissions()], "the mail would come without a score"
    assert "0.700" not in Client().get("/datasets/contest/").content.decode()
    assert publish_due() == 0
    clock[0] += timedelta(days=1)
    assert publish_due() == 1
    assert told(bob, later) == {"nDCG@10": 0.7}
    assert later in [each.pk for each in finished_submissions()]
    assert "0.700" in Client().get("/datasets/contest/").content.decode()


def test_what_waits_is_not_compared_before_its_turn(hidden: Dataset, clock: list[datetime]) -> None:
    """With the budget spent a poor result and a good one wait alike, though the poor one is older."""
    alice, bob = member("Alice", clock), member("Bob", clock)
    send(alice, JUDGED[:5])
    poor, good = send(alice, JUDGED[:1], "b"), send(bob, JUDGED[:7])
    waiting = [
        api.get(f"submissions/{submission}/").body["jobs"][0] for api, submission in ((alice, poor), (bob, good))
    ]
    assert waiting[0]["meaning"] == waiting[1]["meaning"]
    assert all(job["told_later"] for job in waiting)
    clock[0] += timedelta(days=1)
    assert publish_due() == 1
    assert told(bob, good) == {"nDCG@10": 0.7}
    clock[0] += timedelta(days=1)
    assert publish_due() == 0
    assert "No significant change" in alice.get(f"submissions/{poor}/").body["jobs"][0]["meaning"]


def test_a_team_with_many_results_takes_turns_with_others(
    hidden: Dataset, clock: list[datetime], settings: Any
) -> None:
    alice, bob, carol = (member(name, clock) for name in ("Alice", "Bob", "Carol"))
    send(carol, JUDGED[:1])
    first, further = send(alice, JUDGED[:2]), send(alice, JUDGED, "b")
    last = send(bob, JUDGED[:5])
    settings.YOUNG_TEAM_READINGS = 2
    clock[0] += timedelta(days=1)
    assert publish_due() == 2
    assert (told(alice, first), told(bob, last)) == ({"nDCG@10": 0.2}, {"nDCG@10": 0.5})
    clock[0] += timedelta(days=1)
    assert publish_due() == 1
    assert told(alice, further) == {"nDCG@10": 1.0}


def test_a_further_result_is_told_where_it_is_far_better_and_else_not_even_when_the_team_is_young_no_longer(
    hidden: Dataset, clock: list[datetime]
) -> None:
    """Told all at once on the ninetieth day, what was held would be as many readings of the judgements."""
    alice = member("Alice", clock)
    send(alice, JUDGED[:2])
    clock[0] += timedelta(days=1)
    worse = send(alice, JUDGED[:1], "b")
    job = alice.get(f"submissions/{worse}/").body["jobs"][0]
    assert (job["told_later"], job["scores"]) == (False, {"nDCG@10": 0.2})
    assert "No significant change" in job["meaning"]
    assert told(alice, send(alice, JUDGED, "c")) == {"nDCG@10": 1.0}
    clock[0] += timedelta(days=89)
    assert publish_due() == 0
    assert Entry.objects.get(submission_reference=worse).scores == {}
    again = alice.submit(run_of(JUDGED[:1], "b"), dataset="contest", system=f"{alice.user} b", configuration="2")
    work()
    assert told(alice, again.body["id"]) == {"nDCG@10": 0.1}


def test_a_further_result_has_to_improve_on_the_baseline(
    hidden: Dataset, clock: list[datetime], settings: Any, tmp_path: Path
) -> None:
    """Otherwise a team could begin with no relevant documents and read a score off each part that it adds."""
    settings.YOUNG_TEAM_READINGS = 10
    add_baseline(hidden, tmp_path, text=run_of(JUDGED[:8], "bm25"))
    alice = member("Alice", clock)
    assert told(alice, send(alice, [])) == {"nDCG@10": 0.0}
    further = send(alice, JUDGED[:9], "b")
    assert "No significant change" in alice.get(f"submissions/{further}/").body["jobs"][0]["meaning"]
    assert Entry.objects.get(submission_reference=further).scores == {}


def test_teams_that_nobody_approved_count_as_one_until_they_are(
    hidden: Dataset, clock: list[datetime], settings: Any, tmp_path: Path
) -> None:
    settings.YOUNG_TEAM_READINGS = 10
    alice, bob = member("Alice", clock, approved=False), member("Bob", clock, approved=False)
    assert told(alice, send(alice, JUDGED[:7])) == {"nDCG@10": 0.7}
    again = send(bob, JUDGED[:5])
    assert told(bob, again) == {}
    assert Entry.objects.get(submission_reference=again).visibility == Entry.Visibility.HELD
    listed = tmp_path / "teams.csv"
    listed.write_text(f"email\n{bob.user.email}\n")  # type: ignore[union-attr]
    call_command("approve_teams", listed, by=make_a_curator().email, why="registered")
    publish_due()
    assert told(bob, again) == {"nDCG@10": 0.5}


def test_a_team_whose_approval_is_withdrawn_is_told_nothing_that_was_held(
    hidden: Dataset, clock: list[datetime], settings: Any
) -> None:
    settings.TEAM_APPROVAL, settings.YOUNG_TEAM_READINGS = True, 10
    alice = member("Alice", clock)
    team = team_of(alice.user)  # type: ignore[arg-type]
    Team.objects.filter(pk=team.pk).update(created_at=clock[0] - timedelta(days=100))
    assert told(alice, send(alice, JUDGED[:5])) == {"nDCG@10": 0.5}
    held = send(alice, JUDGED[:4], "b")
    with acting(make_a_curator(), "it probes"):
        withdraw_approval(team)
    assert publish_due() == 0
    job = alice.get(f"submissions/{held}/").body["jobs"][0]
    assert (job["held"], job["told_later"]) == (True, False)
    clock[0] += timedelta(days=400)
    assert publish_due() == 0
    assert Entry.objects.get(submission_reference=held).scores == {}


def test_who_was_told_least_is_told_first(hidden: Dataset, clock: list[datetime]) -> None:
    alice, bob = member("Alice", clock), member("Bob", clock)
    send(alice, JUDGED[:1])
    second, first = send(alice, JUDGED, "b"), send(bob, JUDGED[:3])
    for expected in (({}, {"nDCG@10": 0.3}), ({"nDCG@10": 1.0}, {"nDCG@10": 0.3})):
        clock[0] += timedelta(days=1)
        assert publish_due() == 1
        shown = told(alice, second)
        assert (shown if shown != {"nDCG@10": 0.1} else {}, told(bob, first)) == expected
