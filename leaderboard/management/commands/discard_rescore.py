"""`manage.py discard_rescore DATASET`: no board changes; what was evaluated stays."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from leaderboard.judgements.rescoring.campaigns import discard_rescore, under_way
from leaderboard.management.curating import CurationCommand
from leaderboard.models import Dataset, Rescore


class Command(CurationCommand):
    """Discards a rescore."""

    help = "Throw a dataset's rescore away."
    subjects = ("dataset",)

    def curate(self, dataset: Dataset, **options: Any) -> str:
        failed = dataset.rescores.filter(state=Rescore.State.FAILED).first()
        rescore = under_way(dataset) or failed
        if rescore is None:
            raise CommandError(f"{dataset} is not being rescored.")
        discard_rescore(rescore)
        return f"Thrown away: the board of {dataset} stays on qrels v{rescore.from_qrels.number}."
