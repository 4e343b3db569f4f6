"""What ends with a password that is no longer good, or an account that is closed."""

from __future__ import annotations

from leaderboard.models import User
from submissions.accounts.sessions import end_sessions
from submissions.accounts.tokens import revoke_all


def end_access(person: User, *, keep: str | None = None) -> dict[str, int]:
    """End the person's sessions, but for the one to keep, and their tokens; how many of each, in words for a record."""
    return {"sessions ended": end_sessions(person, keep=keep), "tokens ended": revoke_all(person)}
