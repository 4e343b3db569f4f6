"""`manage.py load_reported`: load the published figures as reported entries."""

from typing import Any

from django.core.management.base import BaseCommand

from leaderboard.importing.reported.loader import load_reported


class Command(BaseCommand):
    """Command that loads the reported boards; loading again changes nothing."""

    help = "Load the published figures of the repository as reported entries."

    def handle(self, *args: Any, **options: Any) -> None:
        """Load the reported figures, and print the numbers of entries, systems, datasets, and sources."""
        counts = load_reported()
        self.stdout.write(
            "{entries} reported entries ({changed} new or changed) of {systems} systems on {datasets} datasets "
            "from {sources} sources".format_map(counts)
        )
