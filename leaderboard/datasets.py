"""What changes a dataset after its import."""

from __future__ import annotations

from leaderboard.models import Dataset


def mark_published(dataset: Dataset) -> None:
    """Show the dataset: its baseline is there. One known from papers alone, or collecting runs, opens by this too."""
    Dataset.objects.filter(pk=dataset.pk, current_qrels__isnull=False).update(state=Dataset.State.PUBLISHED)
