"""`manage.py redact_challenge NUMBER [--text TEXT]`: take words out of what a challenge says."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Challenge
from leaderboard.systems.challenges import redact


class Command(CurationCommand):
    """Redacts a challenge."""

    help = (
        "Take words out of a challenge's text, such as the name of an anonymous team. They are kept nowhere."
    )

    def add_more(self, parser: CommandParser) -> None:
        """Which one, and what stands there instead."""
        parser.add_argument("challenge", type=int, help="its number, as in the admin or the API (key)")
        parser.add_argument("--text", default="", help="what everyone reads from now on, in Markdown")

    def curate(self, **options: Any) -> str:
        """Redact it."""
        found = Challenge.objects.select_related("system").filter(pk=options["challenge"]).first()
        if found is None:
            raise CommandError(f"There is no challenge {options['challenge']}.")
        return f"{redact(found, options['text'])}: redacted."
