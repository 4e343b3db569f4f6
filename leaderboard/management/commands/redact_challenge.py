"""`manage.py redact_challenge NUMBER [--text TEXT]`: take words out of what a challenge says."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Challenge
from leaderboard.systems.challenges import redact_challenge


class Command(CurationCommand):
    """Redacts a challenge."""

    help = (
        "Take words out of a challenge's text, such as the name of an anonymous team. They are kept nowhere."
    )
    subjects = ("challenge",)

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("--text", default="", help="what everyone reads from now on, in Markdown")

    def curate(self, challenge: Challenge, text: str, **options: Any) -> str:
        return f"{redact_challenge(challenge, text)}: redacted."
