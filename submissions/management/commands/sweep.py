"""`manage.py sweep`: removes what crashes left on disk, as the dispatcher does every hour."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from submissions.jobs.cleanup import GRACE, remove_unreferenced


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 <= hours < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no number of hours")
    return hours


class Command(BaseCommand):
    """Removes files that no row names and nobody touched for a while."""

    help = "Remove stored files that no row names, and unfinished ones."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=_hours,
            default=GRACE / 3600,
            metavar="HOURS",
            help="24 if not said. Less is for a site that is stopped: a file may wait for its row as long as an upload "
            "or a job takes.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Sweep and say how many."""
        self.stdout.write(f"{remove_unreferenced(options['older_than'] * 3600)} removed")
