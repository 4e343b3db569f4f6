"""`manage.py load_reported`: the published figures, as reported entries."""

from typing import Any

from django.core.management.base import BaseCommand

from leaderboard.importing.reported.loader import load_reported


class Command(BaseCommand):
    """Loads the reported boards; loading again changes nothing."""

    help = "Load the committed published figures as reported entries."

    def handle(self, *args: Any, **options: Any) -> None:
        """Load and say how much."""
        loaded = load_reported()
        self.stdout.write(
            "{entries} reported entries ({changed} new or changed) of {systems} systems on {datasets} datasets "
            "from {sources} sources".format_map(loaded)
        )
