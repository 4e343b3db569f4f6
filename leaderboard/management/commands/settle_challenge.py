"""`manage.py settle_challenge NUMBER --uphold|--reject`: decide on a doubt, publicly."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.management.curating import CurationCommand
from leaderboard.models import Challenge
from leaderboard.systems.challenges import TrainingCorrection, settle_challenge
from leaderboard.systems.records import canonical_datasets


class Command(CurationCommand):
    """Settles a challenge."""

    help = "Settle a challenge: --decision is public, on the system's page; --why is for the record."

    subjects = ("challenge",)

    def add_more(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--uphold", action="store_true", help="the doubt is right")
        how.add_argument("--reject", action="store_true", help="the claim stands")
        parser.add_argument("--decision", required=True, help="what everyone reads, in Markdown")
        parser.add_argument(
            "--trained-on", metavar="NAMES", help="correct the system: slugs or names by commas, or “none”"
        )
        parser.add_argument("--adapted-to", metavar="NAMES", help="the same for corpora that it had seen")

    def curate(self, challenge: Challenge, **options: Any) -> str:
        trained, adapted = options["trained_on"], options["adapted_to"]
        correction = None
        if trained is not None or adapted is not None:
            system = challenge.system
            correction = TrainingCorrection(
                training_declared=system.training_declared or trained is not None,
                training_datasets=_named(trained) if trained is not None else system.training_datasets,
                adapted_to=_named(adapted) if adapted is not None else system.adapted_to,
            )
        settled = settle_challenge(
            challenge, upheld=options["uphold"], decision=options["decision"], correction=correction
        )
        return f"{settled}: {settled.get_state_display()}."


def _named(text: str) -> list[str]:
    return [] if text.strip().casefold() == "none" else canonical_datasets(text.split(","))
