"""A competition, from submission to verdict: what is told, what is held, and that nothing goes around the Ladder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from django.core import mail
from django.test import Client
from django.utils import timezone

from evaluation.judgements import splits as judged_parts
from leaderboard.core.audit import acting
from leaderboard.datasets.qrels import load_parts
from leaderboard.models import (
    AuditRecord,
    BoardChange,
    Dataset,
    Entry,
    EntryVersion,
    Membership,
    Round,
    Team,
    User,
)
from leaderboard.results.publishing.protection import request_change
from leaderboard.rounds.lifecycle import save_round
from submissions.accounts.teams import create_team
from submissions.jobs.changes import set_public, withdraw
from submissions.models import Submission
from submissions.queue.queue import create_requested_jobs
from tests.curating import filled
from tests.factories import make_user
from tests.submissions.clients import Answer, Api, upload
from tests.submissions.collections import JUDGED, QUERIES, add_baseline, make_collection
from tests.submissions.outcomes import outcome_of
from tests.submissions.workers import work

DEPTH = 12


def compete(dataset: Dataset) -> None:
    """Make the dataset a competition, the way a curator does; which queries are public is the same every time."""
    drawn = SimpleNamespace(token_bytes=bytes)
    with acting(None, "a competition"), patch.object(judged_parts, "secrets", drawn):
        request_change(dataset, competition=True, share=0.5)
        create_requested_jobs()
        work()
    dataset.refresh_from_db()
    assert dataset.protection == "competition"


@pytest.fixture
def contest(db: None, tmp_path: Path) -> Dataset:
    """A competition of ten judged queries, five of them public, with a baseline that finds nothing relevant."""
    dataset = make_collection(tmp_path, "contest", hidden=True, measures=["nDCG@10", "RR@10"])
    add_baseline(dataset, tmp_path, skip=4)
    Dataset.objects.update(daily_quota=None, monthly_quota=None)
    compete(dataset)
    return dataset


def public_queries(dataset: Dataset) -> list[str]:
    """Which queries are public: what nobody outside knows."""
    assert dataset.current_qrels is not None
    parts = load_parts(dataset.current_qrels)
    return [query for query in JUDGED if parts.public[query]]


def run_of(good: Sequence[str], tag: str = "test", place: int = 1) -> str:
    """A run that has what is relevant for some queries, from a place on, and nothing relevant for the others."""
    lines = []
    for query in QUERIES:
        documents = [f"d{number}" for number in range(20, 20 + DEPTH)]
        if query in good:
            documents[place - 1 : place + 1] = ["d3", "d1"]
        lines += [f"{query} Q0 {name} {rank} {100 - rank}.5 {tag}" for rank, name in enumerate(documents, 1)]
    return "\n".join(lines) + "\n"


def submit(api: Api, good: Sequence[str], place: int = 1, **fields: str) -> Submission:
    """A run that was sent and scored."""
    answer = api.submit(run_of(good, place=place), dataset="contest", **fields)
    assert answer.status == 201, answer.body
    work()
    return Submission.objects.get(pk=answer.body["id"])


def told(api: Api, submission: Submission) -> Answer:
    """What the API says of it."""
    return api.get(f"submissions/{submission.pk}/")


def entry_of(submission: Submission) -> Entry:
    """Its entry on the contest."""
    return Entry.objects.get(submission_reference=submission.pk, dataset__slug="contest")


def test_the_board_shows_the_public_part_and_nothing_of_the_private_one(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    private = [query for query in JUDGED if query not in public]
    assert len(public) == 5
    half = submit(api, [*private, *public[:2]])
    assert entry_of(half).scores == {"nDCG@10": 0.4}
    whole = submit(api, [*private, *public], configuration="more")
    assert told(api, whole).body["jobs"][0]["scores"] == {"nDCG@10": 1.0}
    assert Entry.objects.get(pk=entry_of(whole).pk).private_scores == {}


def test_a_result_that_is_no_significant_change_moves_nothing_and_is_told_to_nobody(
    contest: Dataset, api: Api, client: Client, signed_in: Client
) -> None:
    public = public_queries(contest)
    submit(api, public[:4])
    client.get("/datasets/contest/")
    before = Dataset.objects.get(pk=contest.pk).board_revision
    board = client.get("/api/v1/datasets/contest/board/").content
    worse = submit(api, public[:3], configuration="worse")

    entry = entry_of(worse)
    assert (entry.visibility, entry.scores, entry.deviations) == ("held", {}, {})
    assert Dataset.objects.get(pk=contest.pk).board_revision == before
    assert client.get("/api/v1/datasets/contest/board/").content == board

    job = told(api, worse).body["jobs"][0]
    assert job["held"] is True
    assert job["scores"] == {"nDCG@10": 0.8}
    assert "No significant change" in job["meaning"]
    page = signed_in.get(f"/submissions/{worse.pk}/").content.decode()
    assert "No significant change" in page
    for text in (page, json.dumps(job), outcome_of(worse), signed_in.get("/submissions/").content.decode()):
        assert re.search(r"(?<!\d)0\.8", text)
        assert not re.search(r"(?<!\d)0\.6", text)  # within a number it is a part of a second
    assert "no significant change" in outcome_of(worse)
    assert client.get(f"/submissions/{worse.pk}/").status_code == 404


def test_a_better_result_takes_the_place_of_its_teams_earlier_one(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    first = submit(api, public[:2])
    better = submit(api, public, configuration="better")
    assert entry_of(first).visibility == "superseded"
    assert entry_of(better).visibility == "public"
    assert Entry.objects.public().filter(dataset=contest, is_baseline=False).count() == 1
    withdraw(better, "a mistake", better.submitter)
    assert entry_of(first).visibility == "public"


def test_visible_entries_are_counted_by_team(contest: Dataset, api: Api, stranger: Api) -> None:
    public = public_queries(contest)
    submit(api, public[:4])
    other = submit(stranger, public[:2], system="Theirs")
    assert entry_of(other).visibility == "public", "the first result of a team is told"


def test_a_persons_results_for_several_teams_take_the_same_place(
    contest: Dataset, api: Api, stranger: Api, alice: User
) -> None:
    public = public_queries(contest)
    teams = [create_team(f"Team {number}", alice) for number in range(2)]
    colleague = User.objects.get(pk=stranger.user.pk)
    Membership.objects.create(team=teams[0], user=colleague)
    theirs = submit(stranger, public, 6, system="Colleague", team=teams[0].slug)
    first = submit(api, public, 4, system="First", team=teams[0].slug)
    assert [entry_of(each).visibility for each in (theirs, first)] == ["superseded", "public"]
    second = submit(api, public, system="Second", team=teams[1].slug)
    # The first team's place is free again, and its other member's result takes it.
    standing = [entry_of(each).visibility for each in (theirs, first, second)]
    assert standing == ["public", "superseded", "public"]
    withdraw(second, "a mistake", alice)
    assert [entry_of(each).visibility for each in (theirs, first)] == ["superseded", "public"]


@pytest.mark.parametrize("way", ["private", "withdrawn", "left team", "another system"])
def test_what_was_told_once_counts_whatever_became_of_it(contest: Dataset, api: Api, alice: User, way: str) -> None:
    public = public_queries(contest)
    first = submit(api, public[:4], public="no" if way == "private" else "yes")
    system = "My system"
    if way == "withdrawn":
        withdraw(first, "again", alice)
    if way == "left team":
        Membership.objects.filter(user=alice).delete()
        system = "Elsewhere"
    if way == "another system":
        system = "Elsewhere"
    second = submit(api, public[1:], configuration="again", system=system)
    assert entry_of(second).visibility == "held"


def test_making_it_public_shows_no_held_result(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    submit(api, public[:4])
    held = submit(api, public[:2], configuration="held", public="no")
    set_public(held, True)
    entry = entry_of(held)
    assert (entry.visibility, entry.scores, entry.public_wanted) == ("held", {}, True)
    withdraw(held, "enough", held.submitter)
    assert entry_of(held).visibility == "held"


def test_a_private_result_that_is_told_can_be_shown_later(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    kept = submit(api, public[:4], public="no")
    assert told(api, kept).body["jobs"][0]["scores"]["nDCG@10"] == 0.8
    set_public(kept, True)
    assert entry_of(kept).visibility == "public"


def test_a_seed_set_is_held_by_its_mean_and_tells_no_seed(contest: Dataset, api: Api, signed_in: Client) -> None:
    public = public_queries(contest)
    submit(api, public[:4])
    files = [
        upload(run_of(public[:2], "a"), "contest.1.txt"),
        upload(run_of(public[2:5], "b"), "contest.2.txt"),
    ]
    answer = api.post(
        "submissions/", kind="run", system="Seeds", architecture="dense", dataset=["contest"] * 2, file=files
    )
    assert answer.status == 201, answer.body
    submission = Submission.objects.get(pk=answer.body["id"])
    work()
    body = told(api, submission).body
    assert [job["scores"] for job in body["jobs"]] == [{}, {}]
    seeds = body["seed_sets"][0]
    assert (seeds["held"], seeds["published"], seeds["deviations"]) == (True, False, {})
    assert seeds["scores"] == {"nDCG@10": 0.8}
    entry = entry_of(submission)
    assert [seed.scores for seed in entry.seeds.all()] == [{}, {}]
    page = signed_in.get(f"/submissions/{submission.pk}/").content.decode()
    assert "No significant change" in page
    assert "0.400" not in page
    assert "0.600" not in page

    with acting(None, "back"):
        request_change(contest, competition=False, although_reveals=True)
    create_requested_jobs()
    work()
    entry.refresh_from_db()
    assert (entry.dataset.protection, entry.visibility, entry.scores) == ("standard", "held", {})
    assert [job["scores"] for job in told(api, submission).body["jobs"]] == [{}, {}]
    page = signed_in.get(f"/submissions/{submission.pk}/").content.decode()
    assert "0.200" not in page, "of the first seed, over all judged queries"
    assert "0.300" not in page


def test_seeds_are_not_told_one_by_one_before_their_set(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    files = [
        upload(run_of(public[:2], "a"), "contest.1.txt"),
        upload(run_of(public[:3], "b"), "contest.2.txt"),
    ]
    answer = api.post(
        "submissions/", kind="run", system="Seeds", architecture="dense", dataset=["contest"] * 2, file=files
    )
    submission = Submission.objects.get(pk=answer.body["id"])
    second = submission.jobs.get(seed="2")
    type(second).objects.filter(pk=second.pk).update(state="cancelled")
    work()
    assert [job["scores"] for job in told(api, submission).body["jobs"]] == [{}, {}]


def test_of_two_results_at_once_the_second_is_held_against_the_first(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    first = api.submit(run_of(public[:4]), dataset="contest")
    second = api.submit(run_of(public[1:]), dataset="contest", configuration="same value")
    work()
    seen = [Entry.objects.get(submission_reference=each.body["id"]).visibility for each in (first, second)]
    assert seen == ["public", "held"]


def test_the_same_run_under_another_name_is_held(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    submit(api, public[:4])
    again = submit(api, public[:4], system="Another name")
    assert entry_of(again).visibility == "held"


def test_nothing_of_a_held_result_is_news(contest: Dataset, api: Api, client: Client) -> None:
    public = public_queries(contest)
    submit(api, public[:4])
    changes = BoardChange.objects.count()
    held = submit(api, public[:3], system="Quiet one")
    assert BoardChange.objects.count() == changes
    slug = entry_of(held).system.slug
    assert client.get(f"/systems/{slug}/").status_code == 404
    for path in ("/news/", "/feed/", "/datasets/contest/", "/systems/", "/teams/"):
        assert "Quiet one" not in client.get(path).content.decode()
    assert not mail.outbox or all("0.6" not in message.body for message in mail.outbox)


def test_the_log_of_the_job_says_no_score(contest: Dataset, api: Api) -> None:
    public = public_queries(contest)
    submit(api, public[:4])
    held = submit(api, public[:3], configuration="held")
    log = "\n".join(told(api, held).body["jobs"][0]["log"])
    assert "no significant change" in log
    assert "0." not in log


def test_another_persons_team_is_not_told_what_the_submitter_knows_from_elsewhere(
    contest: Dataset, api: Api, alice: User
) -> None:
    public = public_queries(contest)
    submit(api, public[:4], public="no")
    bob = make_user("Bert")
    shared = Team.objects.create(slug="shared", name="Shared")
    for user in (alice, bob):
        Membership.objects.create(user=user, team=shared)
    first = submit(api, public[:2], system="Ours")
    system = entry_of(first).system
    system.team = shared
    system.save()
    first.team = shared
    first.save()
    job = told(Api(bob), first).body["jobs"][0]
    assert (job["held"], job["scores"]) == (True, {})


def test_a_round_that_gives_teams_more_places_shows_more_of_their_results_at_once(
    contest: Dataset, api: Api, curator: User, client: Client
) -> None:
    now = timezone.now()
    ends = now + timedelta(days=1)
    times = {"opens_at": now - timedelta(days=1), "closes_at": ends, "reveals_at": ends}
    row = save_round(Round(slug="r", name="R", dataset=contest, **times))
    public = public_queries(contest)
    for count, place in ((1, 5), (3, 1)):
        submit(api, public, place, configuration=f"c{count}", run_type="automatic", tag=f"tag{count}")

    standing = Entry.objects.filter(visibility="public", is_baseline=False)

    def shown() -> list[str]:
        return [entry.configuration for entry in standing.order_by("pk")]

    def changes() -> list[tuple[str, int]]:
        rows = BoardChange.objects.filter(dataset=contest)
        return list(rows.order_by("pk").values_list("kind", "revision"))

    assert shown() == ["c3"]
    before = changes()
    row.visible_per_team = 2
    with acting(curator, "two places"):
        save_round(row)
    assert shown() == ["c1", "c3"]
    assert changes() == [*before, ("visibility", before[-1][1] + 1)]
    assert EntryVersion.objects.filter(entry__configuration="c1", until_revision=None).exists()
    row.description = "Nothing about places."
    save_round(row)
    assert len(changes()) == len(before) + 1

    client.force_login(curator)
    page = f"/admin/leaderboard/round/{row.pk}/change/"
    data = {**filled(client, page), "visible_per_team": "1", "why": "one place again"}
    assert client.post(page, data).status_code == 302
    assert shown() == ["c3"]
    assert AuditRecord.objects.filter(entry__configuration="c1", actor=curator).exists()
