"""Aggregates over the datasets of a benchmark: means, comparisons with the baseline, and ranks.

All functions work on arrays with one row per line of the board and one column per counted dataset. NaN is a missing
value, which never counts as 0; an aggregate that needs a missing value is NaN, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from leaderboard.core.text.numbers import DIGITS

Table = npt.NDArray[np.float64]
Figures = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tables:
    """Scores and baselines of all lines, with one column per dataset.

    `counted_columns` has the columns of the counted datasets, `kinds` the kind of each line, and `rankings` the key of
    the lines that it is ranked among.
    """

    scores: Table
    baselines: Table
    counted_columns: Sequence[int]
    kinds: Sequence[str]
    rankings: Sequence[str]
    lower_is_better: bool

    @property
    def on_counted_datasets(self) -> tuple[Table, Table]:
        """Scores and baselines on the counted datasets."""
        if len(self.counted_columns) == self.scores.shape[1]:
            return self.scores, self.baselines
        return self.scores[:, self.counted_columns], self.baselines[:, self.counted_columns]

    @property
    def is_complete(self) -> bool:
        return not np.isnan(self.on_counted_datasets[0]).any()


def to_table(rows: Sequence[Sequence[float | None]], width: int) -> Table:
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def to_values(figures: Figures) -> list[float | None]:
    """Return the numbers as values of a board, with None for NaN."""
    return [None if value != value else value for value in figures.tolist()]


def means(scores: Table) -> Figures:
    with np.errstate(invalid="ignore"):  # Without datasets this is 0 / 0.
        return np.round(scores.sum(axis=1) / scores.shape[1], DIGITS)


def coverage(scores: Table) -> list[int]:
    """Return the number of datasets on which each row has a score."""
    return (scores.shape[1] - np.isnan(scores).sum(axis=1)).tolist()


class CommonMeans(NamedTuple):
    """Positions of the datasets that a selection of rows has in common, and every row's mean over them."""

    positions: list[int]
    means: Figures


def common_means(scores: Table, selected_rows: Sequence[int]) -> CommonMeans:
    """Return the means over the datasets that all `selected_rows` have, the largest set that is fair to all of them.

    The set depends on the selection, so always show it together with the means.
    """
    has_all_scores = ~np.isnan(scores[list(selected_rows)]).any(axis=0)
    positions = np.flatnonzero(has_all_scores).tolist() if selected_rows else []
    return CommonMeans(positions, means(scores[:, positions]))


def differences(scores: Table, baselines: Table) -> Table:
    return np.round(scores - baselines, DIGITS)


def ratios(scores: Table, baselines: Table) -> Table:
    """Return (score − baseline) / baseline, NaN if the baseline is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        result = np.round((scores - baselines) / baselines, DIGITS)
    result[~np.isfinite(result)] = np.nan
    return result


def ratio_of_means(scores: Table, baselines: Table) -> Figures:
    """Return each row's mean relative to its baseline's mean, both over all datasets.

    Table 2 of the BEIR paper ends with an "average performance vs. BM25" without a formula. This candidate is closer
    to the printed values than the mean of ratios: computed from the table's own cells, it is off by 1.1 points on
    average (at most 3.7, DPR), the other by 2.0 (at most 5.5). Neither reproduces the printed line.
    """
    return ratios(means(scores), means(baselines))


def mean_of_ratios(scores: Table, baselines: Table) -> Figures:
    return means(ratios(scores, baselines))


class Wins(NamedTuple):
    """Number of datasets, by row, on which it is better than, equal to, and worse than its baseline.

    All three are 0 if nothing can be compared.
    """

    wins: list[int]
    ties: list[int]
    losses: list[int]


def wins(scores: Table, baselines: Table, *, lower_is_better: bool = False) -> Wins:
    """Count wins, ties, and losses over the datasets where both sides have a value (Figure 3 of the BEIR paper)."""
    signs = np.sign(baselines - scores if lower_is_better else scores - baselines)
    return Wins(*((signs == sign).sum(axis=1).tolist() for sign in (1, 0, -1)))


class RankFigures(NamedTuple):
    """Borda count and mean rank by row, NaN if the row lacks a dataset."""

    borda: Figures
    mean_rank: Figures


def rank_figures(scores: Table, kinds: Sequence[str], *, lower_is_better: bool = False) -> RankFigures:
    """Return Borda counts and mean ranks of the complete rows, among those of the same kind.

    On each dataset a system gets one point for each system below it and half a point for each equal one; equal systems
    share the mean of their ranks (1.5, 1.5, 3). With n systems and m datasets the mean rank is n − Borda / m: both
    express the same order, as points and as a rank. Rows that lack a dataset have neither and do not count as beaten.

    Borda: Colombo, Noiry, Irurozki and Clémençon 2022, "What are the best systems? New perspectives on NLP
    benchmarking". Mean ranks: Demšar 2006, "Statistical comparisons of classifiers over multiple data sets".
    """
    points, mean_ranks = np.full((2, len(scores)), np.nan)
    width = scores.shape[1]
    is_complete = np.isnan(scores).sum(axis=1) == (0 if width else -1)
    for members in _rows_by_kind(kinds):
        rows = members[is_complete[members]]
        smaller, not_greater = _count_below(-scores[rows] if lower_is_better else scores[rows], "left", "right")
        points[rows] = (smaller + not_greater - 1).sum(axis=1) / 2
        mean_ranks[rows] = np.round(len(rows) - points[rows] / width, DIGITS)
    return RankFigures(points, mean_ranks)


def ranks(scores: Table, kinds: Sequence[str], *, lower_is_better: bool = False) -> Table:
    """Return the rank of each row among those of its kind on each dataset: 1, 1, 3. Missing values get NaN."""
    result = np.full(scores.shape, np.nan)
    for members in _rows_by_kind(kinds):
        result[members] = 1 + _count_below(scores[members] if lower_is_better else -scores[members], "left")[0]
    return np.where(np.isnan(scores), np.nan, result)


def _count_below(scores: Table, *sides: Literal["left", "right"]) -> npt.NDArray[np.intp]:
    """Return, by side and value, the number of smaller (left) or not greater (right) values in its column.

    Missing values count as the greatest.
    """
    columns = [(np.sort(column), column) for column in scores.T]
    counts = [[np.searchsorted(*column, side=side) for column in columns] for side in sides]
    return np.array(counts, np.intp).reshape(len(sides), *scores.T.shape).swapaxes(1, 2)


def _rows_by_kind(kinds: Sequence[str]) -> list[npt.NDArray[np.intp]]:
    kind_array = np.array(kinds)
    return [np.flatnonzero(kind_array == kind) for kind in dict.fromkeys(kinds)]
