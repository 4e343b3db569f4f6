"""`manage.py withdraw SUBMISSION`: withdraw a submission on behalf of its team."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from leaderboard.core.audit import actor
from leaderboard.management.curating import CurationCommand
from submissions.jobs.changes import withdraw
from submissions.models import Submission


class Command(CurationCommand):
    """Command that withdraws a submission."""

    help = "Remove a submission from all boards permanently; a tombstone with the reason remains."

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("submission", help="id of the submission, as in the URL of its page")

    def curate(self, **options: Any) -> str:
        """Withdraw the submission with the given reason.

        Raises CommandError if it does not exist or is withdrawn already.
        """
        try:
            submission = Submission.objects.filter(pk=options["submission"]).first()
        except (ValueError, ValidationError):
            submission = None
        person = actor().person
        if submission is None or person is None:
            raise CommandError(f"There is no submission {options['submission']}. Enter the id of a submission.")
        if not withdraw(submission, options["why"].strip(), person):
            raise CommandError("The submission is already withdrawn. Its reason was not changed.")
        return f"Submission {submission.pk} of {submission.system} was withdrawn."
