"""`manage.py settle_challenge NUMBER --uphold|--reject`: decide on a doubt, publicly."""

from typing import Any

from django.core.management.base import CommandParser

from leaderboard.admin.results import ChallengeAdmin
from leaderboard.management.curating import CurationCommand
from leaderboard.models import Challenge


class Command(CurationCommand):
    help = "Settle a challenge: --decision is public, on the system's page; --why is for the record."
    subjects = ("challenge",)

    def add_more(self, parser: CommandParser) -> None:
        verdict = parser.add_mutually_exclusive_group(required=True)
        verdict.add_argument("--uphold", action="store_true", help="the doubt is right")
        verdict.add_argument("--reject", action="store_true", help="the claim stands")
        parser.add_argument("--decision", required=True, help="what everyone reads, in Markdown")
        parser.add_argument(
            "--trained-on", metavar="NAMES", help="correct the system: slugs or names by commas, or “none”"
        )
        parser.add_argument("--adapted-to", metavar="NAMES", help="the same for corpora that it had seen")

    def curate(self, challenge: Challenge, **options: Any) -> str:
        trained, adapted = (
            "" if names is not None and names.strip().casefold() == "none" else names
            for names in (options["trained_on"], options["adapted_to"])
        )
        operation = ChallengeAdmin.uphold if options["uphold"] else ChallengeAdmin.reject
        values = {"decision": options["decision"], "training_datasets": trained, "adapted_to": adapted}
        return operation.run(challenge, {**values, "correct": True})
