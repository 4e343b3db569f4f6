"""What two transactions do to boards at one time: nobody waits in a circle, and nothing is published twice.

They meet where rows are locked: on SQLite, which lets one write at a time, these pass in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from threading import Thread
from typing import Any

import pytest
from django.db import connections
from django.db.models import QuerySet

from leaderboard.models import Dataset, Entry, Seed
from leaderboard.results.board_rows import revisions
from leaderboard.results.board_rows.revisions import Kind, boards_changed
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from leaderboard.results.significance.computing import analyse_board, store_certainty
from tests.factories import make_dataset
from tests.leaderboard.entries import evaluate, make_system, score, scored_dataset
from tests.leaderboard.entries_by_query import score_queries, spread

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def at_once(*works: Callable[[], Any]) -> list[str]:
    """Do these in a thread each, and return what was raised."""
    raised: list[str] = []

    def do(work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            raised.append(repr(error))
        finally:
            connections.close_all()

    threads = [Thread(target=do, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.fixture
def slow_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the locks of one transaction there is time for another's."""
    locked = revisions._lock_query

    def slowly(datasets: Collection[int]) -> QuerySet[Dataset]:
        parts = Dataset.objects.filter(pk__in=datasets, part_of__isnull=False)
        for key in sorted({*datasets, *parts.values_list("part_of_id", flat=True)}):
            list(Dataset.objects.filter(pk=key).select_for_update(no_key=True))
            time.sleep(0.2)
        return locked(datasets)

    monkeypatch.setattr(revisions, "_lock_query", slowly)


def whole_and_others() -> tuple[Dataset, Dataset, Dataset]:
    """A whole, a dataset of no whole, and a part of the whole: the part's board is locked after the other's."""
    whole = make_dataset(slug="whole", state="reported", hidden=False, measures=["nDCG@10"])
    other = scored_dataset(slug="other", measures=["nDCG@10"])
    return whole, other, scored_dataset(slug="part", part_of=whole, measures=["nDCG@10"])


@pytest.mark.parametrize("change", ["withdraw", "keep back"])
def test_a_submission_on_several_datasets_and_a_change_of_them_all_never_wait_in_a_circle(
    slow_locks: None, change: str
) -> None:
    _, other, part = whole_and_others()
    system = make_system("A")
    for dataset in (other, part):
        score(dataset, system, ndcg=0.2)
    Entry.objects.update(submission_reference="sent")
    ids = [other.pk, part.pk]
    changes = {
        "withdraw": lambda: withdraw_entries("sent", "A mistake."),
        "keep back": lambda: set_visibility("sent", public=False),
    }
    assert at_once(changes[change], lambda: boards_changed(ids, Kind.DESCRIPTION)) == []
    assert not Entry.objects.public().exists()


def test_what_is_found_of_a_part_and_a_change_of_its_whole_never_wait_in_a_circle(slow_locks: None) -> None:
    whole, _, part = whole_and_others()
    score_queries(part, "BM25", spread(0.4, 1), baseline=True)
    finding = analyse_board(part)
    assert finding is not None
    changed = [whole.pk, part.pk]
    assert at_once(lambda: boards_changed(changed, Kind.PRICE), lambda: store_certainty(finding)) == []


def test_of_two_who_publish_one_seed_set_the_second_finds_it() -> None:
    dataset, system = scored_dataset(), make_system("A")
    seeds = {str(number): evaluate(dataset, system, ndcg=0.1 * number) for number in (1, 2)}

    def publish() -> None:
        publish_entry(Entry(provenance=Entry.Provenance.SCORED, submission_reference="sent"), seeds)

    assert at_once(publish, publish, publish) == []
    assert (Entry.objects.count(), Seed.objects.count()) == (1, 2)
