"""`manage.py set_measures DATASET PRIMARY [MEASURE …]`: choose the measures of a board."""

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Dataset
from leaderboard.results.measures import describe_shown, set_measures


class Command(CurationCommand):
    help = "Show these measures on a dataset's board, the first as primary measure. Stored results are updated at once."
    subjects = ("dataset",)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("measures", nargs="+", metavar="MEASURE", help="measures, primary one first")

    def curate(self, dataset: Dataset, measures: list[str], **options: Any) -> str:
        return describe_shown(dataset, set_measures(dataset, measures[0], measures[1:]))
