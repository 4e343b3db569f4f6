"""Which of a dataset's results are present ones, and whom a row is ranked among."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.models import Entry
from leaderboard.results.kinds import CLOSED, REPORTED, SCORED, STALE


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


CLOSED_NOTE = "c: a rank among systems behind a closed interface, which nobody can repeat; ranked apart."


def ranked_in(provenance: str, group: str, present: str, *, closed_api: bool = False) -> str:
    """Whom a row is ranked among: reported figures and closed interfaces apart, stale results not at all."""
    if provenance == Entry.Provenance.REPORTED:
        return REPORTED
    if group != present:
        return STALE
    return CLOSED if closed_api else SCORED
