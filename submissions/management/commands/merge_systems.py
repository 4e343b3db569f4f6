"""`manage.py merge_systems DUPLICATE INTO`: two systems that are one."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_system
from submissions.intake.merge_systems import merge_systems


class Command(CurationCommand):
    """Merges a duplicate into the system that it is."""

    help = "Move all results and submissions of a duplicate to the other system; its address leads there from then on."

    def add_more(self, parser: CommandParser) -> None:
        """Both."""
        parser.add_argument("duplicate", help="the slug of the one that goes")
        parser.add_argument("into", help="the slug of the one that stays")

    def curate(self, **options: Any) -> str:
        """Merge them."""
        duplicate, into = find_system(options["duplicate"]), find_system(options["into"])
        named = str(duplicate)
        merge_systems(duplicate, into)
        return f"{named} is {into} ({into.slug}) now."
