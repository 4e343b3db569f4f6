"""What curators make of flags. Within `audit.acting`, whose reason is the note."""

from __future__ import annotations

from django.utils import timezone

from leaderboard.core.audit import actor, record
from submissions.models import Flag


def settle_flag(flag: Flag, state: Flag.State) -> None:
    """Clear the flag, confirm it, or open it again. Nothing else follows: that is the curator's to say."""
    before, who = flag.state, actor()
    flag.state, flag.note = state, who.reason[:300]
    opened = state == Flag.State.OPEN
    flag.settled_by, flag.settled_at = (None, None) if opened else (who.person, timezone.now())
    flag.save(update_fields=["state", "note", "settled_by", "settled_at"])
    record(
        f"flag {Flag.State(state).label}", flag, dataset=flag.dataset_id,
        before={"state": before}, after={"state": state},
    )  # fmt: skip


def figures_of(flag: Flag) -> str:
    """What gave rise to it, in words: never a score, a query or a document."""
    details = flag.details
    if flag.kind == Flag.Kind.FEW_QUERIES:
        return f"{details['answered']} of {details['topics']} queries answered"
    if flag.kind == Flag.Kind.FEW_DOCUMENTS:
        return f"{details['usual_documents']:g} documents for most queries"
    if flag.kind == Flag.Kind.SAME_SCORES:
        return f"as submission {details['submission']}"
    text = (
        f"{details['same_documents']} of {details['compared']} queries have the same first ten documents as "
        f"submission {details['submission']}, {details['same_order']} in the same order"
    )
    linked = len(details.get("chain", ()))
    return f"{text}; a chain of {linked + 1} submissions" if linked > 1 else text
