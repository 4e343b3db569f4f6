"""A result that is being published while the request it relies on is taken up: it is looked at all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from django.db import connection, connections, transaction

from leaderboard.models import Dataset, Entry, RunProfile, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed
from leaderboard.results.profiles.store import find_overlaps, store_overlaps
from leaderboard.results.significance.computing import analyse_board
from leaderboard.results.significance.statements import read_certainty
from submissions.jobs.kinds import datasets as significance_jobs
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.leaderboard.entries import scored_dataset
from tests.leaderboard.entries_by_query import score_queries, spread
from tests.submissions.jobs.test_profiles import imported

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@contextmanager
def under_way(change: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Within, the change is made and not committed; the function that is given commits it."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite lets one transaction write at a time: nothing is taken up meanwhile")
    made, go = Event(), Event()

    def publish() -> None:
        try:
            with transaction.atomic():
                change()
                made.set()
                go.wait(120)
        finally:
            made.set()
            connections.close_all()

    def commit() -> None:
        go.set()
        thread.join()

    thread = Thread(target=publish)
    thread.start()
    try:
        assert made.wait(120)
        yield commit
    finally:
        commit()


def waiting(kind: str) -> int:
    return WorkRequest.objects.filter(kind=kind, taken_at=None).count()


@pytest.mark.parametrize("known", [False, True])
def test_intervals_of_a_result_that_was_not_committed_yet_are_asked_for_again(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True)
    if known:
        create_requested_jobs()
        drain_queue("score", "worker")
        board_changed(dataset, Kind.SYSTEM)
    with under_way(lambda: score_queries(dataset, "Newcomer", spread(0.6, 3))) as commit:
        assert create_requested_jobs() == 1

        def find_and_commit(board: Dataset, report: Callable[[float], None]) -> object:
            finding = analyse_board(board, report)
            commit()
            return finding

        monkeypatch.setattr(significance_jobs, "analyse_board", find_and_commit)
        assert drain_queue("score", "worker") == 1
    monkeypatch.undo()
    assert waiting("certainty") == 1
    create_requested_jobs()
    drain_queue("score", "worker")
    assert read_certainty([dataset.pk])[dataset.pk].current
    assert waiting("certainty") == 0


def test_a_run_that_was_not_committed_yet_is_looked_at_later(tmp_path: Path) -> None:
    dataset = imported(tmp_path).dataset
    create_requested_jobs()
    drain_queue("cpu", "worker")
    assert Entry.objects.exists()
    RunProfile.objects.all().delete()
    Entry.objects.update(visibility=Entry.Visibility.PRIVATE)
    WorkRequest.objects.all().delete()
    board_changed(dataset, Kind.DESCRIPTION)
    assert waiting("statistics") == 1

    def show() -> None:
        Entry.objects.update(visibility=Entry.Visibility.PUBLIC)
        board_changed(dataset, Kind.VISIBILITY)

    with under_way(show) as commit:
        create_requested_jobs()
        found = find_overlaps(dataset)
        assert not found[1]
        commit()
    with transaction.atomic():
        store_overlaps(dataset, found)
    assert waiting("statistics") == 1
    create_requested_jobs()
    drain_queue("cpu", "worker")
    assert RunProfile.objects.exists()
    assert waiting("statistics") == 0
