"""`manage.py merge_systems DUPLICATE INTO`: two systems that are one."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand, find_by_slug
from leaderboard.models import System
from submissions.intake.merge_systems import merge_systems


class Command(CurationCommand):
    """Merges a duplicate into the system that it is."""

    help = "Move all results and submissions of a duplicate to the other system; its address leads there from then on."

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("duplicate", help="the slug of the one that goes")
        parser.add_argument("into", help="the slug of the one that stays")

    def curate(self, **options: Any) -> str:
        duplicate, into = (find_by_slug(System, options[name]) for name in ("duplicate", "into"))
        named = str(duplicate)
        merge_systems(duplicate, into)
        return f"{named} is {into} ({into.slug}) now."
