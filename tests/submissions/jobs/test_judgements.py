"""Pools and judgements that come back, from the request to the dataset's next qrels."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from evaluation.core.problems import InvalidContent
from evaluation.judgements.merge import Judge
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, path_of, put
from leaderboard.datasets.qrels import load_qrels
from leaderboard.judgements import pools
from leaderboard.judgements.comparing import list_conflicts
from leaderboard.judgements.imports import (
    State,
    compare_again,
    discard_import,
    import_judgements,
    request_merge,
)
from leaderboard.judgements.pools import ConcurrentChange, JudgingRefused
from leaderboard.models import (
    AuditRecord,
    Dataset,
    Entry,
    JudgementImport,
    Pool,
    Qrels,
    Rescore,
    Run,
    User,
    WorkRequest,
)
from leaderboard.results.publishing.visibility import withdraw_entries
from submissions.jobs.runner import drain_queue
from submissions.models import Job, Submission
from submissions.queue.queue import ATTEMPTS, create_requested_jobs
from tests.factories import make_user
from tests.submissions.clients import Api
from tests.submissions.collections import DOCUMENTS, HEADER, JUDGED, QUERIES, run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

Policy = JudgementImport.Conflicts


@pytest.fixture
def curator(db: None) -> User:
    """Somebody who may judge."""
    return make_user("Cora", is_staff=True, is_superuser=True)


def scorer() -> None:
    """Take up what was asked for, and do it."""
    create_requested_jobs()
    drain_queue("score", "test-worker")


def give_texts(dataset: Dataset, folder: Path) -> None:
    """Let the dataset have a corpus: some of its documents have texts that a spreadsheet might run."""
    corpus = folder / "corpus.jsonl.gz"
    lines = (
        json.dumps({"_id": name, "title": f"=Title of {name}", "text": f'first line,\n"{name}"'}) for name in DOCUMENTS
    )
    corpus.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert dataset.current_version is not None
    dataset.current_version.corpus_sha256 = put(Area.FILES, corpus)
    dataset.current_version.save()


def rows_of(pool: Pool) -> list[dict[str, str]]:
    """The pool's CSV."""
    text = path_of(Area.CURATION, pool.files["csv"]).read_text("utf-8-sig")
    return list(csv.DictReader(io.StringIO(text, newline="")))


ASSESSORS = Judge("people", "NIST assessors")


def bring(
    dataset: Dataset, curator: User, tmp_path: Path, text: str, judge: Judge = ASSESSORS, **more: Any
) -> JudgementImport:
    """Bring judgements, and have them compared."""
    path = tmp_path / "judged.qrels"
    path.write_text(text)
    with acting(curator, "for a test"):
        brought = import_judgements(dataset, path, judge, **more)
    scorer()
    brought.refresh_from_db()
    return brought


def merged(brought: JudgementImport, curator: User, policy: Policy = Policy.KEEP) -> JudgementImport:
    """Merge, and have that done."""
    with acting(curator, "for a test"):
        request_merge(brought, policy)
    scorer()
    brought.refresh_from_db()
    return brought


def test_a_pool_has_unjudged_pairs_with_texts_and_no_trace_of_runs(
    demo: Dataset, api: Api, stranger: Api, curator: User, tmp_path: Path
) -> None:
    give_texts(demo, tmp_path)
    api.submit(run_text(depth=5), system="Secret name of a system")
    stranger.submit(run_text(skip=2, depth=5, tag="mine"), system="Another")
    work()
    with acting(curator, "the pool of October"):
        pool = pools.request_pool(demo, depth=4)
    scorer()
    pool.refresh_from_db()
    assert pool.state == Pool.State.READY
    # Documents 1 to 4 and 3 to 6, of which 1 and 3 are judged for all but two queries.
    expected = {
        (query, f"d{number}") for query in QUERIES for number in ((2, 4, 5, 6) if query in JUDGED else range(1, 7))
    }
    rows = rows_of(pool)
    assert {(row["query_id"], row["document_id"]) for row in rows} == expected
    assert len(rows) == len(expected) == pool.statistics["pairs"]
    assert list(rows[0]) == ["item", "query_id", "query", "document_id", "title", "text", "grade"]
    assert all(row["grade"] == "" and row["query"] == "a question" for row in rows)
    assert rows[0]["title"] == f"'=Title of {rows[0]['document_id']}"
    assert rows[0]["text"] == f'first line,\n"{rows[0]["document_id"]}"'
    lines = path_of(Area.CURATION, pool.files["trec"]).read_text().splitlines()
    assert lines == [f"{row['query_id']} 0 {row['document_id']} -1" for row in rows]
    everything = str(pool.statistics) + "".join(path_of(Area.CURATION, key).read_text() for key in pool.files.values())
    assert not any(name in everything for name in ("Secret", "Another", "mine", "test"))
    assert pool.statistics["by_run"] == [38, 28]
    assert pool.statistics["judged"] == 20
    record = AuditRecord.objects.get(action="pool requested")
    assert (record.actor, record.reason) == (curator, "the pool of October")


def test_runs_are_chosen_by_team_and_priority_and_none_that_was_taken_off(
    demo: Dataset, api: Api, stranger: Api, curator: User
) -> None:
    for number in range(3):
        api.submit(run_text(skip=number), system=f"Mine {number}")
    other = stranger.submit(run_text(skip=4), system="Theirs")
    gone = stranger.submit(run_text(skip=5), system="Gone")
    work()
    Run.objects.filter(system__name="Mine 2").update(priority=1)
    Run.objects.filter(system__name="Mine 1").update(priority=2)
    withdraw_entries(gone.body["id"], "a mistake")
    assert other.status == 201
    with acting(curator):
        pool = pools.request_pool(demo, runs_per_team=2)
    assert set(pool.runs.values_list("system__name", flat=True)) == {"Mine 2", "Mine 1", "Theirs"}
    with acting(curator), pytest.raises(JudgingRefused, match=r"removed from the board.*: Gone"):
        pools.request_pool(demo, runs=Run.objects.all())
    with acting(curator), pytest.raises(JudgingRefused, match="from 1 to 1,000 documents"):
        pools.request_pool(demo, depth=0)


def test_participants_of_one_team_each_get_their_runs_into_the_pool(demo: Dataset, api: Api, curator: User) -> None:
    for number in range(4):
        fields = {"system": f"Run {number}", "participant": "Waterloo" if number < 3 else "Glasgow"}
        assert api.submit(run_text(skip=number), **fields).status == 201
    work()
    with acting(curator):
        pool = pools.request_pool(demo, runs_per_team=2)
    assert set(pool.runs.values_list("system__name", flat=True)) == {"Run 0", "Run 1", "Run 3"}


def test_a_pool_without_runs_is_refused(demo: Dataset) -> None:
    with pytest.raises(JudgingRefused, match="has no runs"):
        pools.request_pool(demo)
    assert not Pool.objects.exists()


def test_a_file_with_problems_is_listed_whole_and_nothing_is_stored(
    demo: Dataset, curator: User, tmp_path: Path
) -> None:
    path = tmp_path / "judged.qrels"
    path.write_text("q1 0 d2 1\nq1 0 d2 1\nq99 0 d2 1\nq1 0 nowhere 1\nq1 0 d4 eleven\n")
    with acting(curator), pytest.raises(InvalidContent) as caught:
        import_judgements(demo, path, ASSESSORS, strict=True)
    assert [each.code for each in caught.value.report.problems] == [
        "duplicate",
        "unknown_query",
        "unknown_document",
        "grade",
    ]
    assert not JudgementImport.objects.exists()
    assert not WorkRequest.objects.filter(kind=WorkRequest.Kind.MERGE).exists()


CONFLICTING = "q1 0 d1 2\nq1 0 d3 0\nq2 0 d1 1\nq1 0 d2 1\nq11 0 d7 1\nq12 0 d8 -1\n"


@pytest.mark.parametrize(("policy", "d1", "d3"), [(Policy.KEEP, 1, 2), (Policy.REPLACE, 2, 0), (Policy.HIGHEST, 2, 2)])
def test_conflicts_are_listed_and_the_curator_says_which_grade_counts(
    demo: Dataset, curator: User, tmp_path: Path, policy: Policy, d1: int, d3: int
) -> None:
    brought = bring(demo, curator, tmp_path, CONFLICTING, note="assessors of October")
    assert brought.state == State.READY
    assert brought.counts == {
        "lines": 6, "pairs": 5, "unjudged": 1, "new": 2, "same": 1, "conflicts": 2, "raised": 1, "lowered": 1,
        "queries": 3, "new_queries": 1,
        # 1 → 2, 2 → 0, 1 → 1: a third is the same, as many as by chance, 2/3 · 1/3 + 1/3 · 1/3.
        "agreement": [
            {"judges": ["judges not named", "NIST assessors"], "pairs": 3, "kappa": 0.0, "kappa_relevant": 0.0}
        ],
    }  # fmt: skip
    assert list(list_conflicts(brought)) == [("q1", "d1", 1, 2), ("q1", "d3", 2, 0)]
    merged(brought, curator, policy)
    demo.refresh_from_db()
    assert brought.state == State.MERGED
    assert brought.qrels is not None
    assert brought.qrels == demo.current_qrels  # no result stood on the old ones
    assert (brought.qrels.number, brought.qrels.note) == (2, "assessors of October")
    assert brought.qrels.made_from == brought.against
    assert brought.qrels.statistics["judged_queries"] == 11
    grades = load_qrels(brought.qrels).as_dict()
    assert grades["q1"] == {"d1": d1, "d2": 1, "d3": d3, "d900": 0}
    assert grades["q11"] == {"d7": 1}
    assert "q12" not in grades
    record = AuditRecord.objects.get(action="judgements merged")
    assert (record.actor, record.before, record.after) == (
        curator, {"qrels": 1}, {"qrels": 2, "conflicts": policy},
    )  # fmt: skip


def test_results_that_stand_on_judgements_are_rescored(demo: Dataset, api: Api, curator: User, tmp_path: Path) -> None:
    api.submit()
    work()
    brought = merged(bring(demo, curator, tmp_path, "q1 0 d2 1\n"), curator)
    rescore = Rescore.objects.get()
    demo.refresh_from_db()
    assert (rescore.to_qrels, rescore.created_by) == (brought.qrels, curator)
    assert demo.current_qrels != brought.qrels
    later = bring(demo, curator, tmp_path, "q1 0 d4 1\n")
    with (
        acting(curator),
        pytest.raises(JudgingRefused, match="switch its board or discard that rescore first"),
    ):
        request_merge(later, Policy.KEEP)


def test_the_first_judgements_of_a_collection_score_what_waited(
    demo: Dataset, api: Api, curator: User, tmp_path: Path
) -> None:
    Dataset.objects.update(current_qrels=None, state=Dataset.State.COLLECTING)
    Qrels.objects.all().delete()
    demo.refresh_from_db()
    api.submit()
    merged(bring(demo, curator, tmp_path, "q1 0 d2 1\nq2 0 d3 0\n"), curator)
    demo.refresh_from_db()
    assert demo.current_qrels is not None
    assert load_qrels(demo.current_qrels).as_dict() == {"q1": {"d2": 1}, "q2": {"d3": 0}}
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE).exists()
    scorer()
    assert Submission.objects.get().jobs.get().state == "done"
    assert demo.current_version is not None
    offered = demo.current_version.files.get(name="qrels.test.tsv.gz")
    assert (
        gzip.decompress(path_of(Area.FILES, offered.sha256).read_bytes())
        == (HEADER + "q1\td2\t1\nq2\td3\t0\n").encode()
    )


def test_hidden_judgements_are_offered_to_nobody(secret: Dataset, curator: User, tmp_path: Path) -> None:
    merged(bring(secret, curator, tmp_path, "q1 0 d2 1\n"), curator)
    secret.refresh_from_db()
    assert secret.current_version is not None
    assert secret.current_qrels is not None
    assert secret.current_qrels.number == 2
    assert not secret.current_version.files.exists()
    said = "".join(f"{each.before} {each.after} {each.subject}" for each in AuditRecord.objects.all())
    said += "".join(f"{job.log} {job.payload}" for job in Job.objects.all())
    assert "d2" not in said


def test_what_is_known_already_changes_nothing(demo: Dataset, curator: User, tmp_path: Path) -> None:
    brought = bring(demo, curator, tmp_path, "q1 0 d1 1\nq1 0 d3 2\n")
    assert (brought.state, brought.counts["same"]) == (State.DISCARDED, 2)
    only_conflicts = bring(demo, curator, tmp_path, "q1 0 d1 0\n")
    for policy in (Policy.KEEP, Policy.HIGHEST):
        with acting(curator), pytest.raises(JudgingRefused, match="would not change the judgments"):
            request_merge(only_conflicts, policy)
    assert Qrels.objects.count() == 1


def test_of_two_curators_the_second_is_told_and_the_judgements_are_compared_again(
    demo: Dataset, curator: User, tmp_path: Path
) -> None:
    first = bring(demo, curator, tmp_path, "q1 0 d2 1\nq1 0 d4 1\n")
    second = bring(demo, curator, tmp_path, "q1 0 d2 2\n")
    assert second.counts["new"] == 1
    merged(first, curator)
    with acting(curator), pytest.raises(ConcurrentChange, match="already decided: this import is merged"):
        request_merge(first, Policy.REPLACE)
    with acting(curator), pytest.raises(ConcurrentChange, match="have changed since"):
        request_merge(second, Policy.KEEP)
    scorer()
    second.refresh_from_db()
    assert (second.state, second.counts["new"], second.counts["conflicts"]) == (State.READY, 0, 1)
    merged(second, curator, Policy.REPLACE)
    demo.refresh_from_db()
    assert demo.current_qrels is not None
    assert load_qrels(demo.current_qrels).as_dict()["q1"] == {"d1": 1, "d2": 2, "d3": 2, "d4": 1, "d900": 0}
    assert demo.current_qrels.number == 3
    with acting(curator), pytest.raises(ConcurrentChange):
        discard_import(second)


def test_judgements_that_change_while_a_merge_waits_are_compared_again(
    demo: Dataset, curator: User, tmp_path: Path
) -> None:
    first, second = (bring(demo, curator, tmp_path, f"q1 0 {name} 1\n") for name in ("d2", "d4"))
    with acting(curator):
        request_merge(first, Policy.KEEP)
        request_merge(second, Policy.KEEP)
    scorer()
    scorer()
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == (State.MERGED, State.READY)
    assert second.against == first.qrels


def test_queries_that_were_no_topics_become_topics(demo: Dataset, curator: User, tmp_path: Path) -> None:
    topics = tmp_path / "topics.jsonl"
    topics.write_text("".join(json.dumps({"_id": query, "text": "a question"}) + "\n" for query in JUDGED))
    assert demo.current_version is not None
    version = demo.current_version
    version.topics_sha256 = put(Area.FILES, topics)
    version.save()
    merged(bring(demo, curator, tmp_path, "q11 0 d2 1\n"), curator)
    version.refresh_from_db()
    text = gzip.decompress(path_of(Area.FILES, version.topics_sha256).read_bytes()).decode()
    assert [json.loads(line)["_id"] for line in text.splitlines()] == [*JUDGED, "q11"]
    assert version.statistics["queries"] == 11


def test_a_fault_of_ours_is_said_and_can_be_tried_again(demo: Dataset, curator: User, tmp_path: Path) -> None:
    path = tmp_path / "judged.qrels"
    path.write_text("q1 0 d2 1\n")
    with acting(curator):
        brought = import_judgements(demo, path, ASSESSORS)
    lost = path_of(Area.CURATION, brought.sha256)
    content = lost.read_bytes()
    lost.unlink()
    create_requested_jobs()
    for _ in range(ATTEMPTS):
        Job.objects.update(not_before=None)
        drain_queue("score", "test-worker")
    brought.refresh_from_db()
    assert brought.state == State.FAILED
    lost.write_bytes(content)
    with acting(curator):
        compare_again(brought)
    scorer()
    brought.refresh_from_db()
    assert brought.state == State.READY
    with acting(curator):
        discard_import(brought)
    assert (brought.state, Entry.objects.count()) == (State.DISCARDED, 0)
