"""`manage.py discard_rescore DATASET`: no board changes; what was evaluated stays."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from leaderboard.judgements import rescoring
from leaderboard.management.curating import CurationCommand, find_dataset
from leaderboard.models import Rescore


class Command(CurationCommand):
    """Throws a rescore away."""

    help = "Throw a dataset's rescore away."

    def add_more(self, parser: CommandParser) -> None:
        """Which one."""
        parser.add_argument("dataset", help="its slug")

    def curate(self, **options: Any) -> str:
        """Throw it away."""
        dataset = find_dataset(options["dataset"])
        failed = dataset.rescores.filter(state=Rescore.State.FAILED).first()
        rescore = rescoring.under_way(dataset) or failed
        if rescore is None:
            raise CommandError(f"{dataset} is not being rescored.")
        rescoring.discard(rescore)
        return f"Thrown away: the board of {dataset} stays on qrels {rescore.from_qrels.number}."
