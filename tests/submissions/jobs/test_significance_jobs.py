"""The job that finds intervals and tests: who asks for it, when its turn is, and what a lost claim leaves behind."""

from __future__ import annotations

import datetime

import pytest
from django.utils import timezone

from leaderboard.models import Certainty, Dataset, DatasetVersion, Entry
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from leaderboard.results.significance.statements import read_certainty
from submissions.jobs.kinds import datasets as significance_jobs
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State
from submissions.queue.lease import Lease, LeaseLost
from submissions.queue.queue import claim, create_requested_jobs, queue_position, requeue
from submissions.tasks import dispatch
from tests.factories import make_dataset, make_job
from tests.leaderboard.entries import scored_dataset
from tests.leaderboard.entries_by_query import certainty_at, score_queries, spread

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture
def board() -> Dataset:
    """A board of two, whose intervals are asked for."""
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True)
    score_queries(dataset, "Dense", spread(0.5, 2))
    return dataset


def jobs_of(dataset: Dataset) -> list[str]:
    """The states of its jobs of this kind."""
    return list(Job.objects.filter(dataset=dataset, kind="certainty").values_list("state", flat=True))


def claimed() -> Job:
    job = claim(["score"], "worker")
    assert job is not None
    return job


def test_publishing_leads_to_one_job_that_a_worker_does(board: Dataset) -> None:
    dispatch()
    assert jobs_of(board) == ["queued"]
    assert drain_queue("score", "worker") == 1
    assert jobs_of(board) == ["done"]
    assert read_certainty([board.pk])[board.pk].current
    dispatch()
    assert jobs_of(board) == ["done"]


def test_a_job_that_waits_serves_later_changes_too(board: Dataset) -> None:
    create_requested_jobs()
    score_queries(board, "Newcomer", spread(0.6, 3))
    create_requested_jobs()
    assert jobs_of(board) == ["queued"]
    drain_queue("score", "worker")
    assert read_certainty([board.pk])[board.pk].current


def test_a_change_while_it_runs_leads_to_another(board: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    create_requested_jobs()
    found = significance_jobs.analyse_board

    def find_and_publish(*arguments: object) -> object:
        finding = found(*arguments)  # type: ignore[arg-type]
        if not Entry.objects.filter(system__name="Newcomer").exists():
            score_queries(board, "Newcomer", spread(0.6, 3))
            create_requested_jobs()
        return finding

    monkeypatch.setattr(significance_jobs, "analyse_board", find_and_publish)
    assert drain_queue("score", "worker") == 2
    assert jobs_of(board) == ["done", "done"]
    assert Certainty.objects.count() == 1
    assert read_certainty([board.pk])[board.pk].current
    assert "changed in the meantime" in Job.objects.filter(kind="certainty").order_by("pk")[0].log


def test_verdicts_come_before_it(board: Dataset) -> None:
    create_requested_jobs()
    waits = Job.objects.get(kind="certainty")
    run = make_job(make_dataset())
    assert run.pk > waits.pk
    assert (queue_position(run), queue_position(waits)) == (0, 1)
    assert claimed().pk == run.pk
    assert claimed().pk == waits.pk


def test_a_lost_claim_keeps_nothing(board: Dataset) -> None:
    create_requested_jobs()
    zombie = claimed()
    assert requeue(zombie, counts_attempt=True)
    heir = claimed()
    with pytest.raises(LeaseLost):
        significance_jobs.certainty_job(zombie, Lease(zombie))
    assert not Certainty.objects.exists()
    significance_jobs.certainty_job(heir, Lease(heir))
    assert Certainty.objects.count() == 1
    assert jobs_of(board) == ["done"]


def test_a_board_whose_last_result_is_withdrawn_has_nothing_to_find() -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    entry = score_queries(dataset, "Alone", spread(0.4))
    withdraw_entries(entry.submission_reference, "A mistake.")
    create_requested_jobs()
    drain_queue("score", "worker")
    assert jobs_of(dataset) == ["done"]
    assert "up to date" in Job.objects.get(dataset=dataset, kind="certainty").log
    assert not Certainty.objects.exists()


@pytest.mark.parametrize("kind", ["certainty", "statistics"])
def test_what_failed_is_asked_for_again_after_an_hour_then_after_two_and_not_once_it_is_done(
    board: Dataset, kind: str
) -> None:
    DatasetVersion.objects.update(corpus_sha256="c" * 64)
    dispatch()

    def states() -> list[str]:
        dispatch()
        return list(Job.objects.filter(kind=kind).order_by("pk").values_list("state", flat=True))

    def end(state: str, hours: float) -> None:
        ended = timezone.now() - datetime.timedelta(hours=hours)
        Job.objects.filter(kind=kind, state=State.QUEUED).update(state=state, finished_at=ended)

    assert states() == ["queued"]
    end("failed", 0.9)
    assert states() == ["failed"]
    Job.objects.update(finished_at=timezone.now() - datetime.timedelta(hours=1.1))
    assert states() == ["failed", "queued"]
    end("timed_out", 1.9)
    assert states() == ["failed", "timed_out"]
    Job.objects.filter(kind=kind).update(finished_at=timezone.now() - datetime.timedelta(hours=2.1))
    assert states() == ["failed", "timed_out", "queued"]
    end("done", 99)
    assert states() == ["failed", "timed_out", "done"]


def test_a_board_that_is_again_what_it_was_has_what_was_found_then_and_keeps_it_once(board: Dataset) -> None:
    newest = score_queries(board, "Newcomer", spread(0.6, 3))
    seen = []
    for public in (True, False, True, False, True):
        set_visibility(newest.submission_reference, public=public)
        create_requested_jobs()
        drain_queue("score", "worker")
        found = read_certainty([board.pk])[board.pk]
        assert found.current
        seen.append(len(found.content["nDCG@10"]["entries"]))
    assert seen == [3, 2, 3, 2, 3]
    kept = Certainty.objects.all()
    assert [bool(each.content) for each in kept] == [True, True, False, False, False]
    past = certainty_at(board, kept[2].from_revision)
    assert past is not None
    assert past.current
