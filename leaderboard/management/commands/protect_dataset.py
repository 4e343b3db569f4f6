"""`manage.py protect_dataset SLUG --competition`: change how hidden judgements are protected."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Dataset
from leaderboard.results.publishing.protection import request_change


class Command(CurationCommand):
    """Asks the scorer to change a dataset's policy and all its published values."""

    help = "Make a hidden dataset a competition (public and private part, Ladder), or put it under the standard policy."

    subjects = ("dataset",)
    right = "leaderboard.reveal_dataset"

    def add_more(self, parser: CommandParser) -> None:
        policy = parser.add_mutually_exclusive_group(required=True)
        policy.add_argument("--competition", action="store_true", help="the board shows a public part")
        policy.add_argument(
            "--standard", action="store_true", help="the board shows means over all judged queries"
        )
        parser.add_argument(
            "--share", type=float, metavar="SHARE", help="of the judged queries that are public; default 1/3"
        )
        parser.add_argument(
            "--although-told",
            action="store_true",
            help="even where results were told over all queries: their private part can then be computed",
        )
        parser.add_argument(
            "--although-reveals",
            action="store_true",
            help="leave a competition even where this tells a private part that was not revealed",
        )

    def curate(self, dataset: Dataset, **options: Any) -> str:
        names = ("competition", "share", "although_told", "although_reveals")
        request_change(dataset, **{name: options[name] for name in names})
        return f"Asked for. A worker changes {dataset} and its board at once when the parts are drawn."
