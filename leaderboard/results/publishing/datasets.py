"""What changes a dataset after its import."""

from __future__ import annotations

from django.db import transaction

from leaderboard.models import Dataset
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards


@transaction.atomic
def mark_published(dataset: Dataset) -> None:
    """Show the dataset: its baseline is there. One known from papers alone, or collecting runs, opens by this too."""
    lock_boards([dataset.pk])
    waiting = Dataset.objects.filter(pk=dataset.pk, current_qrels__isnull=False).exclude(
        state=Dataset.State.PUBLISHED
    )
    if waiting.update(state=Dataset.State.PUBLISHED):
        board_changed(dataset, Kind.IMPORTED)
