"""Where judgements are hidden every number that leaves is made of rounded values: looked for on every page."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from statistics import stdev

import pytest
from django.test import Client

from leaderboard.models import Dataset, Entry, Evaluation, EvaluationPart, User
from leaderboard.results.publishing.visibility import name_baseline
from leaderboard.systems.baselines import BM25, configuration_system
from submissions.jobs.changes import withdraw
from submissions.models import Submission
from tests.factories import make_user
from tests.leaks.routes import routes
from tests.leaks.walking import Search, walk
from tests.submissions.clients import Api, upload
from tests.submissions.collections import JUDGED, QUERIES, add_baseline, make_collection
from tests.submissions.jobs.test_ladder import compete
from tests.submissions.outcomes import outcome_of
from tests.submissions.workers import work

#: How far down each query's two relevant documents stand: no mean of these is a round number.
PLACES = (1, 2, 3, 5, 7, 4, 6, 9, 8, 11)


def uneven_run(shift: int, tag: str = "test") -> str:
    """A run whose values have many digits; a greater shift makes it worse."""
    lines = []
    for number, query in enumerate(QUERIES):
        names = [f"d{each}" for each in range(20, 40)]
        names.insert(PLACES[number % 10] + shift - 1, "d3")
        names.insert(PLACES[(3 * number) % 10] + shift, "d1")
        lines += [f"{query} Q0 {name} {rank} {100 - rank}.5 {tag}" for rank, name in enumerate(names, 1)]
    return "\n".join(lines) + "\n"


@pytest.fixture(params=[pytest.param("standard", marks=pytest.mark.long), "competition"])
def dataset(request: pytest.FixtureRequest, db: None, tmp_path: Path) -> Dataset:
    """A hidden dataset under either policy, without quota."""
    found = make_collection(tmp_path, "contest", hidden=True, measures=["nDCG@10", "RR@10"])
    Dataset.objects.update(daily_quota=None, monthly_quota=None)
    if request.param == "competition":
        add_baseline(found, tmp_path, skip=4)
        compete(found)
    found.refresh_from_db()
    return found


def send(api: Api, *files: str, system: str, **fields: str) -> Submission:
    """Runs that were sent and scored: several are seeds."""
    answer = api.post(
        "submissions/", kind="run", system=system, architecture="dense", dataset=["contest"] * len(files),
        file=[upload(text, f"contest.{number}.txt") for number, text in enumerate(files, 1)], **fields,
    )  # fmt: skip
    assert answer.status == 201, answer.body
    work()
    return Submission.objects.get(pk=answer.body["id"])


def digits_of(values: list[float]) -> Iterator[str]:
    """Each value, and each difference and ratio of two, as nobody may see it: with five digits."""
    pairs = list(permutations(values, 2))
    derived = [abs(a - b) for a, b in pairs] + [a / b for a, b in pairs if b] + [stdev(pair) for pair in pairs]
    for value in [*values, *derived]:
        if abs(round(value, 3) - value) > 2e-5:
            yield f"{value:.6f}"[:7]


def unrounded() -> dict[str, str]:
    """What must be nowhere, by what it is."""
    means = [each.means["nDCG@10"] for each in Evaluation.objects.all()]
    means += [each.means["nDCG@10"] for each in EvaluationPart.objects.all()]
    return {f"{place}: {text}": text for place, text in enumerate(dict.fromkeys(digits_of(means)))}


@pytest.mark.long
def test_no_number_on_any_page_is_finer_than_its_rounded_values(dataset: Dataset, api: Api, alice: User) -> None:
    house = Api(make_user("House"))
    base = send(house, uneven_run(4), system="Base")
    name_baseline(Entry.objects.get(submission_reference=base.pk))
    first = send(api, uneven_run(1), system="First")
    seeds = send(api, uneven_run(0, "a"), uneven_run(2, "b"), system="Seeds")
    gone = send(house, uneven_run(3), system="Gone")
    withdraw(gone, "a mistake", gone.submitter)
    private = send(house, uneven_run(0, "c"), system="Private", public="no")
    if dataset.protection == "competition":
        assert Entry.objects.filter(visibility="held", scores={}).exists()

    member, script = Client(), Client(headers=api.headers)
    member.force_login(alice)
    search = Search(unrounded())
    assert len(search.markers) > 10
    # What curators and accounts see is walked by the leak test.
    outward = {each.name for each in routes() if not each.text.startswith(("admin/", "accounts/"))}
    answered = walk(search, {"nobody": Client(), "its team": member, "a script": script}, only=outward)
    assert {"dataset", "system", "submission", "benchmarks", "news"} <= answered
    for each in (base, first, seeds, gone, private):
        search.look(outcome_of(each).encode(), "outcome")
        for job in each.jobs.all():
            search.look(f"{job.log} {job.report} {job.payload}".encode(), "job")
    assert not search.hits, "\n".join(map(str, search.hits[:20]))


def test_no_page_counts_judged_queries_or_says_anything_by_query(dataset: Dataset, api: Api) -> None:
    few = "".join(line for line in uneven_run(1).splitlines(keepends=True) if not line.startswith("q1 "))
    sent = send(api, few, system="Misses one")
    job = api.get(f"submissions/{sent.pk}/").body["jobs"][0]
    assert job["missing_queries"] is None
    assert Entry.objects.get(submission_reference=sent.pk).missing_queries is None
    assert [problem["code"] for problem in job["problems"]] == ["queries_missing"], "of all topics, judged or not"
    checked = api.check(few, dataset="contest").body
    assert not any(
        "judged" in problem["code"] for file in checked.get("files", [checked]) for problem in file["problems"]
    )
    rows = api.get("datasets/contest/board/").body["rows"]
    row = next(row for row in rows if row["system"] == "Misses one")
    assert row["missing_queries"] is None
    assert row["certainty"] is None
    assert row["intervals"] == {}
    for path in ("queries/", f"queries/{JUDGED[0]}/"):
        assert Client().get(f"/datasets/contest/{path}").status_code == 404
    text = Client().get("/datasets/contest/").content.decode()
    assert "no results for" not in text
    assert "Judged@10" not in text


def test_the_sites_own_bm25_is_told_whatever_the_ladder_says(dataset: Dataset) -> None:
    assert configuration_system(BM25).team_id is None
