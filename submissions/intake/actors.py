"""Who does something to a submission: its submitter, its team, or a curator, whose act is recorded."""

from typing import Any

from leaderboard.core.audit import acting, actor, record
from leaderboard.models import User
from submissions.models import Submission


def is_team_member(submission: Submission, person: User) -> bool:
    """Whether the person is in the submission's team."""
    return submission.team.memberships.filter(user=person).exists()


def actor_label(submission: Submission, person: User) -> str:
    """Return the person's role for the submission's log, which its team reads: never a name."""
    if not is_team_member(submission, person):
        return "a curator"
    return "the submitter" if person.pk == submission.submitter_id else "its team"


def record_curator_action(
    action: str, submission: Submission, by: User, *, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Write down what somebody who is not in its team did to a submission; a team's own acts are its own business."""
    if before == after or is_team_member(submission, by):
        return
    with acting(by, actor().reason):
        record(action, f"submission {submission.pk}", before=before, after=after)
