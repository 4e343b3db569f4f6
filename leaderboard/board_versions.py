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

Kind = BoardChange.Kind


@transaction.atomic
def board_changed(dataset: Dataset, kind: BoardChange.Kind, entry: Entry | None = None) -> int:
    """Give the dataset's board its next revision, which is returned. The row stays locked until the commit."""
    Dataset.objects.filter(pk=dataset.pk).update(board_revision=F("board_revision") + 1)
    revision = Dataset.objects.values_list("board_revision", flat=True).get(pk=dataset.pk)
    BoardChange.objects.create(dataset=dataset, revision=revision, kind=kind, entry=entry, at=timezone.now())
    return revision


@transaction.atomic
def boards_changed(datasets: Iterable[int], kind: BoardChange.Kind) -> None:
    """The same for several boards, by their datasets' ids; in one order, so that two never wait for each other."""
    for dataset in Dataset.objects.filter(pk__in=set(datasets)).order_by("pk"):
        board_changed(dataset, kind)
