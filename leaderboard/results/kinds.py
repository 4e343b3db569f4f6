"""The groups that results are ranked in, which of them are present ones, and the reasons why one is not ranked."""

from collections.abc import Iterable

from leaderboard.models import Entry

#: Values of `Row.ranked_in`.
REPORTED = "reported"
SCORED = "scored"
#: Scored, but behind somebody's paid interface: nobody can repeat it.
CLOSED = "closed"
STALE = "stale"
#: Of the reader's own team, for their eyes alone.
PRIVATE = "private"
#: Taken out of the ranking by a curator: it stands last, with the reason and without a number.
QUARANTINED = "quarantined"
#: On an old board: shown then, and by now no longer, of which no reason is public. It has no mark.
GONE = "gone"
#: These rows have no rank, and move neither those of others nor what is best.
UNRANKED = frozenset({STALE, PRIVATE, QUARANTINED})
CLOSED_NOTE = "c: closed APIs, which cannot be reproduced; ranked separately."


def present_group(
    version_id: int | None, qrels_id: int | None, found: Iterable[tuple[str, bool | int]]
) -> str:
    """The comparison group that the dataset's present version, judgements and measures give; others are stale.

    `found` are the entries' groups, each with whether the entry is the group's baseline, by date of publication.
    Empty where there is none.
    """
    prefix = f"scored:{version_id}:{qrels_id}:"
    groups = [(group, is_baseline) for group, is_baseline in found if group.startswith(prefix)]
    chosen = [group for group, is_baseline in groups if is_baseline] or [group for group, _ in groups]
    return chosen[-1] if chosen else ""


def ranked_in(provenance: str, group: str, present: str, *, closed_api: bool = False) -> str:
    """Whom a row is ranked among: reported figures and closed interfaces apart, stale results not at all."""
    if provenance == Entry.Provenance.REPORTED:
        return REPORTED
    if group != present:
        return STALE
    return CLOSED if closed_api else SCORED


def rank_values(values: Iterable[float], *, lower_is_better: bool = False) -> dict[float, int]:
    """The place of each value, the best has 1; equal values share theirs: 1, 1, 3."""
    found: dict[float, int] = {}
    for place, value in enumerate(sorted(values, reverse=not lower_is_better), start=1):
        found.setdefault(value, place)
    return found
