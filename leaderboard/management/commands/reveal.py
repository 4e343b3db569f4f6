"""`manage.py reveal SLUG`: publish the private part of a competition."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from leaderboard.management.curators import add_curator_arguments, curator_of
from leaderboard.models import Dataset, Round
from leaderboard.publishing import CannotReveal, reveal_private


class Command(BaseCommand):
    """Reveals the private part of the results on a competition's board."""

    help = (
        "Publish the private part of a competition's results: of a round, or of all. It cannot be taken back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """The dataset, the round, and who does it."""
        parser.add_argument("slug")
        parser.add_argument("--round", metavar="SLUG", help="its results alone; default: all")
        parser.add_argument(
            "--show-held", action="store_true", help="tell the results that were no significant change, too"
        )
        add_curator_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Reveal, and say how much."""
        dataset = Dataset.objects.filter(slug=options["slug"]).first()
        if dataset is None:
            raise CommandError(f"there is no dataset {options['slug']}")
        chosen = None
        if options["round"]:
            chosen = Round.objects.filter(slug=options["round"]).first()
            if chosen is None:
                raise CommandError(f"there is no round {options['round']}")
        with curator_of(options, "leaderboard.reveal_dataset"):
            try:
                found = reveal_private(dataset, chosen, show_held=options["show_held"])
            except CannotReveal as error:
                raise CommandError(str(error)) from error
        self.stdout.write(f"Revealed: {found.results} results; {found.held} that were held are told now.")
