"""What only a curator does to a result: quarantine it with a public reason, take it off, and show it again.

Call within `leaderboard.core.audit.acting`, which names the person; the reasons here are what others read. The board,
its record and its past follow from `board_changed`.
"""

from __future__ import annotations

from django.db import transaction

from leaderboard.core.audit import record
from leaderboard.models import Entry
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards
from leaderboard.results.publishing.ladder_places import settle_places

Visibility = Entry.Visibility
#: The longest reason that is kept.
LONGEST_REASON = 300


class CannotModerate(ValueError):
    """A result that this cannot be done to, with what would be right."""


def quarantine(entry: Entry, reason: str) -> Entry:
    """Leave the result its place on the board, unranked and without scores, with the reason for everyone to read.

    Raises CannotModerate for one that is not on the board, or that others are compared with, or without a reason.
    """
    return _take_off(entry, reason, Visibility.QUARANTINED, Kind.QUARANTINED, (Visibility.PUBLIC,))


def unpublish(entry: Entry, reason: str) -> Entry:
    """Take the result off the board: nothing of it stays there. Its team sees that and the reason.

    Raises CannotModerate as `quarantine` does.
    """
    moved = (Visibility.PUBLIC, Visibility.PRIVATE, Visibility.SUPERSEDED, Visibility.QUARANTINED)
    return _take_off(entry, reason, Visibility.UNPUBLISHED, Kind.UNPUBLISHED, moved)


@transaction.atomic
def restore(entry: Entry) -> Entry:
    """Show the result again, or give it back to its team where that keeps it back, or withdrew it meanwhile.

    Raises CannotModerate for one that no curator took off.
    """
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    if entry.visibility not in (Visibility.QUARANTINED, Visibility.UNPUBLISHED):
        raise CannotModerate(
            f"{_named(entry)} is {entry.get_visibility_display()}: there is nothing to restore."
        )
    was = Visibility(entry.visibility)
    entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
    entry.moderation_reason = ""
    entry.save(update_fields=["visibility", "moderation_reason"])
    _tell(entry, was, Kind.RESTORED)
    return entry


@transaction.atomic
def _take_off(
    entry: Entry, reason: str, to: Entry.Visibility, kind: Kind, moved: tuple[Entry.Visibility, ...]
) -> Entry:
    lock_boards([entry.dataset_id])
    entry.refresh_from_db()
    reason = reason.strip()
    if not reason:
        raise CannotModerate("Say why: the reason is what its team and readers are told.")
    if len(reason) > LONGEST_REASON:
        raise CannotModerate(f"The reason has {len(reason)} characters; {LONGEST_REASON} are kept.")
    if entry.visibility not in moved:
        states = " or ".join(state.label for state in moved)
        raise CannotModerate(
            f"{_named(entry)} is {entry.get_visibility_display()}; it would have to be {states}."
        )
    if entry.is_baseline and entry.visibility == Visibility.PUBLIC:
        raise CannotModerate(
            f"{_named(entry)} is the baseline that others are compared with. Name another baseline first."
        )
    was = Visibility(entry.visibility)
    if was == Visibility.PRIVATE:
        entry.public_wanted = False
    entry.visibility, entry.moderation_reason = to, reason
    entry.save(update_fields=["visibility", "moderation_reason", "public_wanted"])
    _tell(entry, was, kind)
    return entry


def _tell(entry: Entry, was: Entry.Visibility, kind: Kind) -> None:
    """Change the board where it showed the result or does now; what no board shows is written down alone.

    In a competition another result of its team may take its place, or lose it.
    """
    moved = {entry.pk}
    if entry.system.team_id is not None:
        moved |= settle_places(entry.dataset)
        entry.refresh_from_db()
    if was in Entry.SEEN or entry.visibility in Entry.SEEN:
        board_changed(entry.dataset, kind, entry, Entry.objects.filter(pk__in=moved))
        return
    record(
        kind, _named(entry), dataset=entry.dataset_id, entry=entry,
        before={"visibility": was}, after={"visibility": entry.visibility},
    )  # fmt: skip


def _named(entry: Entry) -> str:
    configuration = f" ({entry.configuration})" if entry.configuration else ""
    return f"{entry.system}{configuration} on {entry.dataset}"
