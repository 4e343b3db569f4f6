"""`manage.py set_measures DATASET PRIMARY [MEASURE …]`: which measures a board shows."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_dataset
from leaderboard.results.measures import set_measures


class Command(CurationCommand):
    """Changes a dataset's list of measures."""

    help = (
        "Show these measures on a dataset's board, the first one is primary. Stored results follow at once."
    )

    def add_more(self, parser: CommandParser) -> None:
        """The dataset, and the measures."""
        parser.add_argument("dataset", help="its slug")
        parser.add_argument("measures", nargs="+", metavar="MEASURE", help="the primary one first")

    def curate(self, **options: Any) -> str:
        """Change the list."""
        dataset = find_dataset(options["dataset"])
        shown = set_measures(dataset, options["measures"][0], options["measures"][1:])
        return f"{dataset} shows {', '.join(shown)} now."
