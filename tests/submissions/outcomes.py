"""How a submission ended, as mails and webhooks say it."""

from __future__ import annotations

from submissions.models import Submission
from submissions.status.description import describe_with_standing, outcome_text, with_jobs


def outcome_of(submission: Submission) -> str:
    """The text, from the rows as they are now."""
    row = with_jobs(Submission.objects.filter(pk=submission.pk)).get()
    return outcome_text(describe_with_standing(row, complete=True))
