"""`manage.py protect_dataset SLUG --competition`: change how hidden judgements are protected."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.management.curators import add_curator_arguments, curator_of
from leaderboard.models import Dataset
from leaderboard.protection.changing import CannotProtect, request_change


class Command(BaseCommand):
    """Asks the scorer to change a dataset's policy and all its published values."""

    help = "Make a hidden dataset a competition (public and private part, Ladder), or put it under the standard policy."

    def add_arguments(self, parser: CommandParser) -> None:
        """The dataset, the policy, and who asks."""
        parser.add_argument("slug")
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
        add_curator_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask for it, or say what is in the way."""
        dataset = Dataset.objects.filter(slug=options["slug"]).first()
        if dataset is None:
            raise CommandError(f"there is no dataset {options['slug']}")
        with curator_of(options, "leaderboard.reveal_dataset"):
            try:
                request_change(
                    dataset,
                    competition=options["competition"],
                    share=options["share"],
                    although_told=options["although_told"],
                )
            except CannotProtect as error:
                raise CommandError(str(error)) from error
        self.stdout.write(
            f"Asked for. A worker changes {dataset} and its board at once when the parts are drawn."
        )
