"""Rounds from a submitter's side: phases, places, what is asked of a run, what comes late, and what may change."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.models import AuditRecord, Benchmark, Dataset, Entry, Membership, Round, Run, User
from leaderboard.rounds.lifecycle import RunCounts, count_runs, current_round, reveal, save_round
from submissions.accounts.teams import create_team
from submissions.core.errors import Refused
from submissions.intake.rounds import (
    RoundEntry,
    check_admission,
    counted_submissions,
)
from submissions.jobs.changes import set_priority, withdraw
from submissions.models import Submission
from tests.factories import make_a_curator, team_of
from tests.submissions.clients import Api, upload
from tests.submissions.collections import make_collection, run_text
from tests.submissions.models import with_corpus
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

OPENS = datetime(2026, 9, 1, 12, tzinfo=UTC)
CLOSES = OPENS + timedelta(days=30)
REVEALS = CLOSES + timedelta(days=14)
IN_TIME, AFTER = OPENS + timedelta(days=1), CLOSES + timedelta(hours=1)

Clock = Callable[[datetime], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Sets the time of the whole site; it stands still then."""

    def at(moment: datetime) -> None:
        monkeypatch.setattr(timezone, "now", lambda: moment)

    return at


@pytest.fixture
def held(demo: Dataset) -> Round:
    """A round of the open dataset with two runs a team."""
    return make_round(demo)


def make_round(dataset: Dataset, **fields: Any) -> Round:
    """A round that runs through September 2026."""
    values = {
        "slug": "autumn",
        "name": "Autumn 2026",
        "dataset": dataset,
        "opens_at": OPENS,
        "closes_at": CLOSES,
        "reveals_at": REVEALS,
        "runs_per_team": 2,
    }
    return save_round(Round(**{**values, **fields}))


def send(api: Api, number: int = 1, **fields: Any) -> Any:
    """A run with a text, a tag and a label of its own."""
    content = run_text(depth=10 + number, tag=f"run{number}")
    return api.submit(content, **{"configuration": f"c{number}", "run_type": "automatic", **fields})


def codes(answer: Any) -> set[str]:
    """The codes of all its problems."""
    return {problem["code"] for problem in answer.body["problems"]}


def test_before_it_opens_a_round_takes_nothing_and_says_when_it_will(held: Round, api: Api, clock: Clock) -> None:
    clock(OPENS - timedelta(days=3))
    answer = send(api)
    assert answer.status == 400
    problem = answer.problem("round_not_open")
    assert "1 Sep 2026, 12:00 UTC" in problem["message"]
    assert "in 3 days" in problem["message"]
    assert Submission.objects.count() == 0


def test_a_run_in_time_gets_its_round_its_type_and_the_next_priority(held: Round, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    first, second = send(api, 1), send(api, 2, run_type="manual", tag="by-hand")
    assert (first.status, second.status) == (201, 201), second.body
    work()
    runs = {run.tag: run for run in Run.objects.all()}
    assert {tag: run.priority for tag, run in runs.items()} == {"run1": 1, "by-hand": 2}
    assert all(run.round == held and not run.late for run in runs.values())
    entry = Entry.objects.get(evaluation__run=runs["by-hand"])
    assert (entry.round, entry.run_type, entry.late) == (held, "manual", False)


def test_a_round_counts_the_participants_of_one_team_as_teams(held: Round, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    for number, participant in ((1, "Waterloo"), (2, "Glasgow")):
        fields = {"system": f"Run of {participant}", "participant": participant}
        assert send(api, number, **fields).status == 201
    work()
    assert count_runs([held])[held.pk] == RunCounts(runs=2, teams=2, late=0)


def test_everything_that_is_wrong_is_told_at_once(held: Round, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    bad = run_text(tag="test").replace("1000", "NaN") + "q1 Q0\n"
    answer = api.submit(bad, priority=7, tag="not a tag")
    found = codes(answer)
    assert {"run_type_needed", "invalid_tag", "invalid_priority"} <= found
    assert len(found) > 3  # and what is wrong with the file
    assert Submission.objects.count() == 0


def test_a_team_has_so_many_places_and_withdrawing_frees_one(held: Round, api: Api, alice: User, clock: Clock) -> None:
    clock(IN_TIME)
    first = send(api, 1)
    send(api, 2)
    full = send(api, 3)
    assert full.status == 400
    problem = full.problem("round_full")
    assert "accepts 2 runs per team" in problem["message"]
    assert first.body["id"] in problem["hint"]
    withdraw(Submission.objects.get(pk=first.body["id"]), "wrong index", alice)
    again = send(api, 3)
    assert again.status == 201
    assert Submission.objects.get(pk=again.body["id"]).priority == 1  # the place that came free


def test_more_teams_give_a_person_no_more_places(
    held: Round, api: Api, stranger: Api, alice: User, signed_in: Client, clock: Clock
) -> None:
    clock(IN_TIME)
    teams = [create_team(f"Team {number}", alice) for number in range(3)]
    sent = [send(api, number, system=f"System {number}", team=team.slug) for number, team in enumerate(teams)]
    assert [answer.status for answer in sent] == [201, 201, 400]
    problem = sent[2].problem("round_full")
    assert "accepts 2 runs per user over all teams, and you have submitted 2" in problem["message"]
    assert sent[0].body["id"] in problem["hint"]
    assert "<b>2</b> of 2 runs in this round" in signed_in.get("/submit/").content.decode()
    # A colleague's places in one of these teams are left.
    colleague = User.objects.get(pk=stranger.user.pk)
    Membership.objects.create(team=teams[0], user=colleague)
    theirs = send(stranger, 7, system="Another", team=teams[0].slug)
    assert theirs.status == 201, theirs.body
    withdraw(Submission.objects.get(pk=sent[0].body["id"]), "wrong index", alice)
    assert send(api, 9, system="System 9", team=teams[2].slug).status == 201


def test_a_refused_large_file_takes_no_place(held: Round, api: Api, clock: Clock, settings: Any) -> None:
    clock(IN_TIME)
    settings.VALIDATE_AT_ONCE_BYTES = 100
    without_tag = api.submit(run_text() + "broken\n", run_type="automatic")
    assert "the file is only read later" in without_tag.problem("tag_needed")["message"]
    sent = api.submit(run_text() + "broken\n", run_type="automatic", tag="large")
    assert sent.status == 201, sent.body
    work()
    assert api.get(f"submissions/{sent.body['id']}/").body["state"] == "rejected"
    assert not counted_submissions(held, team=team_of(api.user)).exists()  # type: ignore[arg-type]


def test_priorities_and_tags_are_unique_within_a_team(held: Round, api: Api, stranger: Api, clock: Clock) -> None:
    clock(IN_TIME)
    send(api, 1, priority=1)
    same = send(api, 2, priority=1, tag="run1")
    assert codes(same) == {"priority_taken", "tag_taken"}
    assert send(stranger, 1, priority=1).status == 201


def test_priorities_change_until_the_round_closes(held: Round, api: Api, stranger: Api, clock: Clock) -> None:
    clock(IN_TIME)
    one, two = send(api, 1).body["id"], send(api, 2).body["id"]
    work()
    assert api.post(f"submissions/{two}/priority/", priority=1).status == 200
    assert {row.pk: row.priority for row in Submission.objects.all()} == {one: 2, two: 1}
    assert Run.objects.get(submission_reference=two).priority == 1
    assert stranger.post(f"submissions/{two}/priority/", priority=2).status in (403, 404)
    clock(AFTER)
    late = api.post(f"submissions/{two}/priority/", priority=2)
    assert late.status == 400
    assert "closed at 1 Oct 2026, 12:00 UTC" in late.body["detail"]


def test_what_comes_late_is_marked_and_takes_no_place(held: Round, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    send(api, 1)
    send(api, 2)
    clock(AFTER)
    assert send(api, 3, priority=1).status == 201
    work()
    late = Entry.objects.get(late=True)
    assert late.round == held
    assert late.evaluation is not None
    assert late.evaluation.run.priority is None


def test_a_round_may_take_nothing_late(held: Round, api: Api, clock: Clock) -> None:
    held.takes_late = False
    save_round(held)
    clock(AFTER)
    assert "accepts no late runs" in send(api).problem("round_closed")["message"]


@pytest.mark.parametrize(
    ("days", "code", "reason"),
    [
        (-3, "round_not_open", "Autumn 2026 opens at 1 Sep 2026, 12:00 UTC (in 3 days)"),
        (1, "", ""),
        (31, "round_closed", "Autumn 2026 closed at 1 Oct 2026, 12:00 UTC and accepts no late runs"),
        (45, "", ""),
    ],
)
def test_pages_offer_to_submit_exactly_when_the_api_takes_a_run(
    demo: Dataset,
    tmp_path: Path,
    api: Api,
    signed_in: Client,
    clock: Clock,
    days: int,
    code: str,
    reason: str,
) -> None:
    with_corpus(demo, tmp_path)
    row = make_round(demo, takes_late=False)
    if days == 45:
        reveal(row, REVEALS)
    clock(OPENS + timedelta(days=days))
    page = signed_in.get(demo.get_absolute_url()).content.decode()
    offered = [f'href="/submit/{kind}?dataset={demo.slug}"' in page for kind in ("", "model/")]
    assert offered == [not code] * 2
    assert (f"Runs are currently not accepted: {reason}" in page) == bool(code)
    for address, field in (
        (f"/submit/?dataset={demo.slug}", f'option value="{demo.slug}"'),
        (f"/submit/model/?engine=bm25&dataset={demo.slug}", f'value="{demo.slug}" id="dataset-'),
    ):
        form = signed_in.get(address).content.decode()
        inputs = [tag for tag in re.findall(r"<(?:input|option)[^>]*>", form) if field in tag]
        assert [" disabled" in tag for tag in inputs] == [bool(code)]
        assert [" checked" in tag or " selected" in tag for tag in inputs] == [not code]
        assert not code or f"<b>Runs are not accepted at present:</b> {reason}" in form
    answer = send(api)
    assert answer.status == (400 if code else 201), answer.body
    assert not code or answer.problem(code)["message"].startswith(reason)


def test_after_the_reveal_runs_come_outside_of_the_round(held: Round, demo: Dataset, alice: User, clock: Clock) -> None:
    Round.objects.update(revealed_at=REVEALS)
    clock(REVEALS + timedelta(days=1))
    found = check_admission(alice, team_of(alice), [demo], RoundEntry(), [""])
    assert (found.round, found.late) == (None, False)


def test_a_benchmark_round_counts_a_submission_once(
    demo: Dataset, tmp_path: Any, api: Api, alice: User, clock: Clock
) -> None:
    other = make_collection(tmp_path, "other")
    outside = make_collection(tmp_path, "outside")
    benchmark = Benchmark.objects.create(slug="both", name="Both")
    for position, dataset in enumerate((demo, other)):
        benchmark.members.create(dataset=dataset, position=position)
    held = make_round(None, benchmark=benchmark)  # type: ignore[arg-type]
    assert current_round(other, IN_TIME) == held
    clock(IN_TIME)
    files = [upload(run_text(tag="both")), upload(run_text(tag="both"))]
    sent = api.submit(dataset=["demo", "other"], file=files, run_type="automatic")
    assert sent.status == 201, sent.body
    assert [row.priority for row in counted_submissions(held, team=team_of(alice))] == [1]
    entry = RoundEntry(run_type="automatic")
    (problem,) = check_admission(alice, team_of(alice), [demo, outside], entry, ["a", "a"]).problems
    assert "not in the same round" in problem.message


def test_the_page_names_the_round_and_the_places_that_are_left(
    held: Round, signed_in: Client, api: Api, clock: Clock
) -> None:
    clock(IN_TIME)
    send(api, 1)
    page = signed_in.get("/submit/").content.decode()
    assert "Autumn 2026" in page
    assert "<b>1</b> of 2 runs in this round" in page
    assert "1 Oct 2026, 12:00 UTC" in page
    form = {
        "action": "submit", "new-name": "By page", "new-architecture": "dense", "public": "yes",
        "run:demo": upload(run_text(depth=30, tag="paged")),
    }  # fmt: skip
    refused = signed_in.post("/submit/", form)
    assert refused.status_code == 400
    assert "requires the type of the run" in refused.content.decode()
    form["run:demo"] = upload(run_text(depth=30, tag="paged"))
    accepted = signed_in.post("/submit/", {**form, "run_type": "manual"})
    assert accepted.status_code == 302, accepted.content.decode()
    submission = Submission.objects.get(run_type="manual")
    assert (submission.round, submission.priority) == (held, 2)
    status = signed_in.get(submission.get_absolute_url()).content.decode()
    assert "Autumn 2026" in status
    assert "manual" in status
    assert "Priority" in status
    moved = signed_in.post(f"{submission.get_absolute_url()}priority/", {"priority": "1"})
    assert moved.status_code == 302
    submission.refresh_from_db()
    assert submission.priority == 1


def test_seeds_are_one_run_of_the_round(held: Round, demo: Dataset, alice: User, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    seeds = [upload(run_text(depth=10 + n, tag=f"seed{n}"), f"{n}.txt") for n in range(3)]
    sent = api.submit(dataset=["demo"] * 3, file=seeds, run_type="automatic")
    assert sent.status == 201, sent.body
    work()
    assert counted_submissions(held, team=team_of(alice)).count() == 1
    assert Entry.objects.get(seed_count=3).round == held


def test_a_priority_that_a_curator_gives_is_recorded(held: Round, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    cora = make_a_curator()
    sent = send(api, 1)
    assert Api(cora).post(f"submissions/{sent.body['id']}/priority/", priority=2).status == 200
    record = AuditRecord.objects.get(actor=cora)
    assert (record.action, record.subject) == ("priority", f"submission {sent.body['id']}")
    assert (record.before, record.after) == ({"priority": 1}, {"priority": 2})
    assert api.post(f"submissions/{sent.body['id']}/priority/", priority=1).status == 200
    assert AuditRecord.objects.filter(action="priority").count() == 1


def test_both_runs_that_a_curator_swaps_are_recorded(held: Round, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    cora = make_a_curator()
    first, second = (send(api, number).body["id"] for number in (1, 2))
    assert Api(cora).post(f"submissions/{first}/priority/", priority=2).status == 200
    found = AuditRecord.objects.filter(actor=cora, action="priority")
    assert {each.subject: (each.before["priority"], each.after["priority"]) for each in found} == {
        f"submission {first}": (1, 2),
        f"submission {second}": (2, 1),
    }


def test_a_priority_that_cannot_be_is_refused(held: Round, alice: User, api: Api, clock: Clock) -> None:
    clock(IN_TIME)
    sent = send(api, 1)
    with pytest.raises(Refused, match="not between 1 and 2"):
        set_priority(Submission.objects.get(pk=sent.body["id"]), 3, alice)
