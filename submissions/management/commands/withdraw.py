"""`manage.py withdraw SUBMISSION`: a submission taken back for its team."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from leaderboard.core.audit import actor
from leaderboard.management.curating import CurationCommand
from submissions.jobs.changes import withdraw
from submissions.models import Submission


class Command(CurationCommand):
    """Withdraws a submission."""

    help = "Take a submission off every board for good, as its team may; a tombstone with the reason remains."

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("submission", help="its id, as in the address of its page")

    def curate(self, **options: Any) -> str:
        try:
            found = Submission.objects.filter(pk=options["submission"]).first()
        except (ValueError, ValidationError):
            found = None
        person = actor().person
        if found is None or person is None:
            raise CommandError(f"There is no submission {options['submission']}: give its id.")
        if not withdraw(found, options["why"].strip(), person):
            raise CommandError("It was withdrawn before; its reason stays.")
        return f"Submission {found.pk} of {found.system} is withdrawn."
