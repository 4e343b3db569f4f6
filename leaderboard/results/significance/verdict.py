"""What may be said of a board as a whole: which system is best, which tie with it, how many beat the baseline.

Such a sentence selects systems by their scores, so that chance favours it: of a hundred copies of one system some are
better than it at p < 0.05. It therefore follows corrected tests, and holds for one state of the board, whose revision
and date it has. A row's own facts are in `EntryCertainty`.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from leaderboard.core.measures import better
from leaderboard.results.significance.types import BoardCertainty


class Verdict(NamedTuple):
    """What the corrected tests of one measure tell, by the ids of entries.

    `best` has the highest mean, `ties` are the others that may be the best: their ranks begin with 1. Of the `compared`
    ones with the baseline, `better` are better and `worse` are worse. Systems that are ranked apart do not count.
    """

    best: int
    ties: frozenset[int]
    baseline: int | None
    compared: int
    better: frozenset[int]
    worse: frozenset[int]
    revision: int
    at: datetime.datetime


def verdict_of(board: BoardCertainty, measure: str) -> Verdict | None:
    """The verdict on one measure; None where the board has changed since, and where nothing or no rank was found."""
    found = board.of(measure)
    if found is None or found.best is None or not board.current:
        return None
    ranked = {entry: one for entry, one in found.entries.items() if one.rank_low is not None}
    if not ranked:
        return None
    sign = -1 if better(measure) == "lower" else 1
    compared = [entry for entry, one in ranked.items() if one.p_baseline_corrected is not None]
    apart = {
        entry: sign * (ranked[entry].delta or 0)
        for entry in compared
        if (ranked[entry].p_baseline_corrected or 0) < board.settings.alpha
    }
    return Verdict(
        best=found.best,
        ties=frozenset(entry for entry, one in ranked.items() if one.rank_low == 1 and entry != found.best),
        baseline=found.baseline,
        compared=len(compared),
        better=frozenset(entry for entry, delta in apart.items() if delta > 0),
        worse=frozenset(entry for entry, delta in apart.items() if delta < 0),
        revision=board.from_revision,
        at=board.computed_at,
    )
