"""How many results differ from the baseline by more than chance, before and after a rescore: for the scorer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluation.statistics.randomisation import randomisation_test
from leaderboard.core.measures import better
from leaderboard.judgements.rescoring.comparison import moved_entries
from leaderboard.models import Entry, Evaluation, Rescore
from leaderboard.results.records import per_query_values
from leaderboard.results.significance.types import ALPHA

#: By `better` and `worse`, how many public results are so on the old judgements and on the new.
Marks = dict[str, tuple[int, int]]


def count_marks(rescore: Rescore) -> Marks:
    """Count the results that are significantly better and worse than the baseline, as the board marks them.

    In the primary measure, of the public results that move. Nothing over hidden judgements, where a test would
    tell more than rounded scores do, and without a baseline.
    """
    moves = [each for each in moved_entries(rescore)[0] if each.entry.visibility == Entry.Visibility.PUBLIC]
    baseline = next((place for place, each in enumerate(moves) if each.is_baseline), None)
    if rescore.dataset.hidden or baseline is None:
        return {}
    measure = rescore.dataset.primary_measure
    old = _count([each.before for each in moves], baseline, measure)
    new = _count([each.after for each in moves], baseline, measure)
    return {"better": (old[0], new[0]), "worse": (old[1], new[1])}


def _count(evaluations: Sequence[Sequence[Evaluation]], baseline: int, measure: str) -> tuple[int, int]:
    values = np.column_stack(
        [
            np.mean([per_query_values(each)[:, each.measures.index(measure)] for each in seeds], axis=0)
            for seeds in evaluations
        ]
    )
    differences = values.mean(axis=0) - values[:, baseline].mean()
    clear = differences[randomisation_test(values, baseline) < ALPHA]
    above, below = int(np.count_nonzero(clear > 0)), int(np.count_nonzero(clear < 0))
    return (below, above) if better(measure) == "lower" else (above, below)
