"""Judged@10 and Hole@10 on a dataset's board: how much of what systems show was judged, wherever that is open."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from leaderboard.boards.columns.measures import measure_column
from leaderboard.boards.model import JUDGED_SHARE, OTHER_MEASURES, Column
from leaderboard.results.judged_shares import JUDGED_MEASURES

_NOTES = {
    "Judged@10": "share of the first ten documents that is judged",
    "Hole@10": "share of the first ten documents that is not judged: what a system is not credited for may be there",
}


def with_judged(measures: Sequence[str], had: Collection[str], *, hidden: bool) -> list[str]:
    """The measures of a board, and last those of judging that any row has; none of these over hidden judgements."""
    last = [name for name in JUDGED_MEASURES if name in had and not hidden]
    first = measures[:1]  # a board may be about holes
    return [
        *first,
        *(name for name in measures[1:] if name not in last),
        *(name for name in last if name not in first),
    ]


def other_column(measure: str) -> Column:
    """The column of a measure that is not in focus, in its group."""
    if measure in JUDGED_MEASURES:
        return measure_column(measure, JUDGED_SHARE, _NOTES[measure])
    return measure_column(measure, OTHER_MEASURES)
