"""Profiles of collections and runs, made by a worker: when they are asked for, what is kept, and what never is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leaderboard.datasets.qrels import copy_open_judgements
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.rescoring.switch import switch_board
from leaderboard.models import (
    BoardChange,
    CollectionProfile,
    Dataset,
    Entry,
    Overlap,
    Rescore,
    RunProfile,
    WorkRequest,
)
from leaderboard.results.board_rows.revisions import board_changed
from leaderboard.results.profiles.store import request_missing_statistics
from leaderboard.results.publishing.visibility import mark_published, set_visibility
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.queue.lease import Lease, LeaseLost
from submissions.queue.queue import claim, create_requested_jobs
from tests.leaderboard.tiny_collection import good_files, lines_of, write_folder

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def imported(folder: Path, slug: str = "tiny", **options: Any) -> ImportResult:
    """A tiny collection with open judgements, unless told otherwise."""
    done = import_dataset(write_folder(folder), ImportOptions(slug=slug, **{"hidden": False, **options}))
    mark_published(done.dataset)
    done.dataset.refresh_from_db()
    return done


def work() -> None:
    """Take up every request and do all jobs."""
    create_requested_jobs()
    drain_queue("cpu", "test-worker")
    create_requested_jobs()
    drain_queue("cpu", "test-worker")


def statistics_requests() -> int:
    return WorkRequest.objects.filter(kind=WorkRequest.Kind.STATISTICS, taken_at=None).count()


def test_an_import_asks_once_and_a_worker_finds_words_lengths_and_an_example(tmp_path: Path) -> None:
    done = imported(tmp_path)
    assert statistics_requests() == 1
    work()
    profile = CollectionProfile.objects.get(version=done.version)
    assert (profile.tokens, profile.dropped) == (24, 0)
    assert profile.document_lengths["mean"] == pytest.approx(24 / 5)
    assert profile.relevance_by_length["lengths"]["counts"] == [3]
    assert profile.example["query"]["id"] == "q1"
    assert (profile.example["document"]["id"], profile.example["grade"]) == ("d1", 2)
    jobs = Job.objects.filter(kind=Job.Kind.STATISTICS)
    assert {job.state for job in jobs} == {State.DONE}
    assert "24 words" in jobs[0].log


def test_the_baseline_that_is_published_is_looked_at(tmp_path: Path) -> None:
    imported(tmp_path)
    work()
    (profile,) = RunProfile.objects.all()
    assert profile.run.system.slug == "bm25"
    assert profile.depth == 10
    assert sum(profile.document_lengths["counts"]) > 0
    assert statistics_requests() == 0


def test_hidden_judgements_are_not_read_and_no_run_over_them_is_looked_at(tmp_path: Path) -> None:
    done = imported(tmp_path, hidden=True)
    work()
    profile = CollectionProfile.objects.get(version=done.version)
    assert profile.relevance_by_length == {}
    assert profile.example["grade"] is None
    assert profile.example["document"]["id"] == "d1"  # the first of the corpus, whatever is relevant
    assert not RunProfile.objects.exists()
    assert Entry.objects.filter(dataset=done.dataset).exists()


def test_what_finds_no_judgements_laid_out_yet_waits_and_costs_no_attempt(
    tmp_path: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    imported(tmp_path)
    settings.PRIVATE_STORAGE = False  # a retriever, before the dispatcher's next turn
    create_requested_jobs()
    for _ in range(4):
        Job.objects.update(not_before=None)
        drain_queue("cpu", "a-retriever")
    job = Job.objects.get(kind=Job.Kind.STATISTICS)
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    assert job.not_before is not None
    assert job.log.count("not available here yet") == 1
    assert "fault" not in caplog.text
    settings.PRIVATE_STORAGE = True
    copy_open_judgements()
    settings.PRIVATE_STORAGE = False
    Job.objects.update(not_before=None)
    drain_queue("cpu", "a-retriever")
    job.refresh_from_db()
    assert job.state == State.DONE


@pytest.mark.parametrize("kept_back", ["queries_visibility", "documents_visibility"])
def test_no_example_is_kept_of_texts_that_are_not_everyones(tmp_path: Path, kept_back: str) -> None:
    imported(tmp_path, **{kept_back: "curators"})
    work()
    assert set(CollectionProfile.objects.get().example) == {"basis"}


def test_an_example_comes_and_goes_with_what_everyone_may_see(tmp_path: Path) -> None:
    dataset = imported(tmp_path, documents_visibility="curators").dataset
    work()
    for visibility, shown in (("public", True), ("participants", False)):
        Dataset.objects.filter(pk=dataset.pk).update(documents_visibility=visibility)
        board_changed(dataset, BoardChange.Kind.DESCRIPTION)
        work()
        assert ("document" in CollectionProfile.objects.get().example) == shown


def test_each_pair_of_collections_is_compared_once(tmp_path: Path) -> None:
    first = imported(tmp_path / "1", "one")
    second = imported(tmp_path / "2", "two")
    other = good_files()["corpus.jsonl"] + lines_of([{"_id": "d6", "text": "entirely different"}])
    third = import_dataset(
        write_folder(tmp_path / "3", {"corpus.jsonl": other}), ImportOptions(slug="three", hidden=False)
    )
    work()
    pairs = {(pair.first_id, pair.second_id): pair.weighted_jaccard for pair in Overlap.objects.all()}
    assert pairs[first.version.pk, second.version.pk] == pytest.approx(1)
    assert pairs[first.version.pk, third.version.pk] == pytest.approx(24 / 28)
    assert len(pairs) == 3


def test_other_judgements_change_what_follows_from_them_and_nothing_else(tmp_path: Path) -> None:
    imported(tmp_path / "1")
    work()
    before = CollectionProfile.objects.get()
    qrels = "query-id\tcorpus-id\tscore\nq2\td4\t1\n"
    folder = write_folder(tmp_path / "2", {"qrels/test.tsv": qrels})
    import_dataset(folder, ImportOptions(slug="tiny", hidden=False))
    work()
    drain_queue("score", "test-worker")
    switch_board(Rescore.objects.get())
    work()
    after = CollectionProfile.objects.get()
    assert after.terms_sha256 == before.terms_sha256
    assert (after.example["query"]["id"], after.example["document"]["id"]) == ("q2", "d4")
    assert after.relevance_by_length["lengths"]["counts"] == [1]


def test_requests_that_come_while_a_job_waits_make_no_second_one(tmp_path: Path) -> None:
    done = imported(tmp_path)
    create_requested_jobs()
    WorkRequest.objects.create(kind=WorkRequest.Kind.STATISTICS, dataset=done.dataset)
    create_requested_jobs()
    assert Job.objects.filter(kind=Job.Kind.STATISTICS).count() == 1


def test_a_worker_that_lost_its_claim_writes_nothing(tmp_path: Path) -> None:
    from submissions.jobs.kinds.datasets import statistics_job

    imported(tmp_path)
    create_requested_jobs()
    Job.objects.exclude(kind=Job.Kind.STATISTICS).delete()
    zombie = claim(["cpu"], "first")
    assert zombie is not None
    Job.objects.filter(pk=zombie.pk).update(fence=zombie.fence + 1)
    with pytest.raises(LeaseLost):
        statistics_job(zombie, Lease(zombie))
    assert not CollectionProfile.objects.exists()


def test_a_job_done_again_changes_nothing(tmp_path: Path) -> None:
    done = imported(tmp_path)
    work()
    before = list(CollectionProfile.objects.values()), list(RunProfile.objects.values())
    WorkRequest.objects.create(kind=WorkRequest.Kind.STATISTICS, dataset=done.dataset)
    work()
    assert (list(CollectionProfile.objects.values()), list(RunProfile.objects.values())) == before


def test_collections_of_an_earlier_release_are_asked_for_once(tmp_path: Path) -> None:
    imported(tmp_path)
    WorkRequest.objects.all().delete()
    assert request_missing_statistics() == 1
    assert request_missing_statistics() == 0
    create_requested_jobs()
    assert request_missing_statistics() == 0  # whether that job succeeds or fails


def test_a_dataset_without_texts_here_asks_for_nothing(tmp_path: Path) -> None:
    done = imported(tmp_path, runs_only=True)
    assert statistics_requests() == 0
    assert request_missing_statistics() == 0
    assert done.dataset.state == Dataset.State.PUBLISHED


def test_a_result_that_becomes_public_is_looked_at_then(tmp_path: Path) -> None:
    done = imported(tmp_path)
    work()
    RunProfile.objects.all().delete()
    entry = Entry.objects.get(dataset=done.dataset)
    Entry.objects.filter(pk=entry.pk).update(visibility="private", submission_reference="reference")
    work()
    assert not RunProfile.objects.exists()
    set_visibility("reference", public=True)
    work()
    assert RunProfile.objects.count() == 1
