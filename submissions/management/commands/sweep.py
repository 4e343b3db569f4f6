"""`manage.py sweep`: remove files left by crashes, as the dispatcher does every hour."""

from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from submissions.jobs.cleanup import GRACE, remove_unreferenced


def _parse_hours(text: str) -> float:
    """Parse a number of hours, which may be a fraction. Raises ArgumentTypeError if it is negative or infinite."""
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not 0 <= hours < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number of hours")
    return hours


class Command(BaseCommand):
    """Command that removes old unreferenced files."""

    help = "Remove unreferenced and unfinished files from the store."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=_parse_hours,
            default=GRACE / 3600,
            metavar="HOURS",
            help="minimum age in hours (default: 24). Use less only while the site is stopped, because "
            "files of running uploads and jobs are not referenced yet.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(f"{remove_unreferenced(options['older_than'] * 3600)} removed")
