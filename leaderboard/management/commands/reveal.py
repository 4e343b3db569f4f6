"""`manage.py reveal SLUG`: publish the private part of a competition."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from leaderboard.management.curating import CurationCommand, find_dataset, require_right
from leaderboard.models import Round
from leaderboard.results.publishing import reveal_private


class Command(CurationCommand):
    """Reveals the private part of the results on a competition's board."""

    help = (
        "Publish the private part of a competition's results: of a round, or of all. It cannot be taken back."
    )

    def add_more(self, parser: CommandParser) -> None:
        """The dataset and the round."""
        parser.add_argument("slug")
        parser.add_argument("--round", metavar="SLUG", help="its results alone; default: all")
        parser.add_argument(
            "--show-held", action="store_true", help="tell the results that were no significant change, too"
        )

    def curate(self, **options: Any) -> str:
        """Reveal, and say how much."""
        require_right("leaderboard.reveal_dataset")
        dataset, chosen = find_dataset(options["slug"]), None
        if options["round"]:
            chosen = Round.objects.filter(slug=options["round"]).first()
            if chosen is None:
                raise CommandError(f"There is no round {options['round']}: give its slug.")
        found = reveal_private(dataset, chosen, show_held=options["show_held"])
        return f"Revealed: {found.results} results; {found.held} that were held are told now."
