"""`manage.py switch_board DATASET`: its board stands on the judgements that its runs were rescored on."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from leaderboard.judgements.rescoring.campaigns import under_way
from leaderboard.judgements.rescoring.switch import switch_board
from leaderboard.management.curating import CurationCommand
from leaderboard.models import Dataset


class Command(CurationCommand):
    """Switches a board."""

    help = "Let a dataset's board stand on the judgements of its rescore, with all new numbers at once."
    subjects = ("dataset",)

    def curate(self, dataset: Dataset, **options: Any) -> str:
        rescore = under_way(dataset)
        if rescore is None:
            raise CommandError(
                f"{dataset} is not being rescored: begin with manage.py rescore {dataset.slug}."
            )
        switch_board(rescore)
        moved, stayed = len(rescore.comparison["rows"]), len(rescore.comparison["stays"])
        return (
            f"The board of {dataset} stands on qrels v{rescore.to_qrels.number}: {moved:,} results moved, {stayed:,} "
            "stay as they were."
        )
