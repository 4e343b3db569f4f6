"""What changes a dataset after its import."""

from __future__ import annotations

from leaderboard.models import Dataset


def mark_published(dataset: Dataset) -> None:
    """Show the dataset: its baseline is there."""
    Dataset.objects.filter(pk=dataset.pk, state=Dataset.State.PREPARING).update(state=Dataset.State.PUBLISHED)
