"""`manage.py reveal SLUG`: publish the private part of a competition."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_by_slug
from leaderboard.models import Dataset, Round
from leaderboard.results.publishing.protection import reveal_private


class Command(CurationCommand):
    """Reveals the private part of the results on a competition's board."""

    help = (
        "Publish the private part of a competition's results: of a round, or of all. It cannot be taken back."
    )

    subjects = ("dataset",)
    right = "leaderboard.reveal_dataset"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("--round", metavar="SLUG", help="its results alone; default: all")
        parser.add_argument(
            "--show-held", action="store_true", help="tell the results that were no significant change, too"
        )

    def curate(self, dataset: Dataset, **options: Any) -> str:
        chosen = find_by_slug(Round, options["round"]) if options["round"] else None
        revealed = reveal_private(dataset, chosen, show_held=options["show_held"])
        return f"Revealed: {revealed.results} results; {revealed.held} that were held are told now."
