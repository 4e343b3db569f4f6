"""Every change of a board gives it a new revision with a date: the only writer of revisions and `BoardChange`.

Call `board_changed` in the transaction that changes anything a board shows, after the change. Kept pages, permalinks
and the news all follow from the row it makes.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from leaderboard.models import BoardChange, Dataset, Entry
from leaderboard.work import request_certainty

Kind = BoardChange.Kind

#: What may change the set of public results, or what they are compared with: intervals and tests are to be found anew.
_COMPARED = frozenset(
    {
        Kind.IMPORTED,
        Kind.PUBLISHED,
        Kind.WITHDRAWN,
        Kind.VISIBILITY,
        Kind.BASELINE,
        Kind.MEASURES,
        Kind.DESCRIPTION,
    }
)


@transaction.atomic
def board_changed(dataset: Dataset, kind: BoardChange.Kind, entry: Entry | None = None) -> int:
    """Give the dataset's board its next revision, which is returned. The row stays locked until the commit."""
    Dataset.objects.filter(pk=dataset.pk).update(board_revision=F("board_revision") + 1)
    facts = Dataset.objects.values_list("board_revision", "hidden", "current_qrels_id")
    revision, hidden, qrels = facts.get(pk=dataset.pk)
    BoardChange.objects.create(dataset=dataset, revision=revision, kind=kind, entry=entry, at=timezone.now())
    if kind in _COMPARED and qrels is not None and not hidden:
        request_certainty(dataset.pk)
    return revision


@transaction.atomic
def boards_changed(datasets: Iterable[int], kind: BoardChange.Kind) -> None:
    """The same for several boards, by their datasets' ids; in one order, so that two never wait for each other."""
    for dataset in Dataset.objects.filter(pk__in=set(datasets)).order_by("pk"):
        board_changed(dataset, kind)
