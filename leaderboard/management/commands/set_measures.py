"""`manage.py set_measures DATASET PRIMARY [MEASURE …]`: which measures a board shows."""

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Dataset
from leaderboard.results.measures import describe_shown, set_measures


class Command(CurationCommand):
    """Changes a dataset's list of measures."""

    help = (
        "Show these measures on a dataset's board, the first one is primary. Stored results follow at once."
    )
    subjects = ("dataset",)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("measures", nargs="+", metavar="MEASURE", help="the primary one first")

    def curate(self, dataset: Dataset, measures: list[str], **options: Any) -> str:
        return describe_shown(dataset, set_measures(dataset, measures[0], measures[1:]))
