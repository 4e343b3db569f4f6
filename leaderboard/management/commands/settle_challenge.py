"""`manage.py settle_challenge NUMBER --uphold|--reject`: decide a challenge publicly."""

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.admin.results import ChallengeAdmin
from leaderboard.management.curating import CurationCommand
from leaderboard.models import Challenge


class Command(CurationCommand):
    help = "Settle a challenge. --decision appears on the system's page; --why goes to the audit log."
    subjects = ("challenge",)

    def add_more(self, parser: CommandParser) -> None:
        verdict = parser.add_mutually_exclusive_group(required=True)
        verdict.add_argument("--uphold", action="store_true", help="the challenge is justified")
        verdict.add_argument("--reject", action="store_true", help="the claim remains valid")
        parser.add_argument("--decision", required=True, help="public explanation, in Markdown")
        parser.add_argument(
            "--trained-on",
            metavar="NAMES",
            help="correct the system's training data: comma-separated slugs or names, or “none”",
        )
        parser.add_argument(
            "--adapted-to",
            metavar="NAMES",
            help="correct the corpora that the system was adapted to, likewise",
        )

    def curate(self, challenge: Challenge, **options: Any) -> str:
        """Uphold or reject the challenge, optionally with a correction of the system, and return a message."""
        trained, adapted = (
            "" if names is not None and names.strip().casefold() == "none" else names
            for names in (options["trained_on"], options["adapted_to"])
        )
        operation = ChallengeAdmin.uphold if options["uphold"] else ChallengeAdmin.reject
        values = {"decision": options["decision"], "training_datasets": trained, "adapted_to": adapted}
        return operation.run(challenge, {**values, "correct": True})
