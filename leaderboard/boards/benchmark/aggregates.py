"""What a benchmark's board says over several datasets: means, comparisons with BM25, and ranks.

Everything is computed for all rows at once, from arrays with a row for each line of the board and a column for each
counted dataset. NaN is a missing value, never 0; where a figure needs a value that is not there, it is NaN too.
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
    """All lines' scores and their baselines, a column for each dataset; `counted` says which columns count.

    `kinds` is whom each line is ranked among.
    """

    scores: Table
    baselines: Table
    counted: Sequence[int]
    kinds: Sequence[str]
    lower_is_better: bool

    @property
    def of_counted(self) -> tuple[Table, Table]:
        """Scores and baselines on the datasets that count."""
        if len(self.counted) == self.scores.shape[1]:
            return self.scores, self.baselines
        return self.scores[:, self.counted], self.baselines[:, self.counted]

    @property
    def complete(self) -> bool:
        """Whether every line has every counted dataset."""
        return not np.isnan(self.of_counted[0]).any()


def table(rows: Sequence[Sequence[float | None]], width: int) -> Table:
    """Rows of `width` values as an array; None becomes NaN."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


def plain(figures: Figures) -> list[float | None]:
    """The figures as a board's values: None where there is none."""
    return [None if value != value else value for value in figures.tolist()]


def means(scores: Table) -> Figures:
    """The mean of each row that has every dataset."""
    with np.errstate(invalid="ignore"):  # 0 / 0 of no datasets
        return np.round(scores.sum(axis=1) / scores.shape[1], DIGITS)


def coverage(scores: Table) -> list[int]:
    """How many of the datasets each row has."""
    return (scores.shape[1] - np.isnan(scores).sum(axis=1)).tolist()


class Common(NamedTuple):
    """The datasets that all rows looked at have, by place, and every row's mean over them."""

    places: list[int]
    means: Figures


def common(scores: Table, looked_at: Sequence[int]) -> Common:
    """The means over the datasets that each of the rows `looked_at` has: the largest choice that is fair to all.

    It moves with the rows looked at, and is therefore never told without its datasets.
    """
    everywhere = ~np.isnan(scores[list(looked_at)]).any(axis=0)
    places = np.flatnonzero(everywhere).tolist() if looked_at else []
    return Common(places, means(scores[:, places]))


def differences(scores: Table, baselines: Table) -> Table:
    """score − baseline, each of its own comparison group."""
    return np.round(scores - baselines, DIGITS)


def ratios(scores: Table, baselines: Table) -> Table:
    """(score − baseline) / baseline; missing where the baseline is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.round((scores - baselines) / baselines, DIGITS)
    found[~np.isfinite(found)] = np.nan
    return found


def ratio_of_means(scores: Table, baselines: Table) -> Figures:
    """How much more a row's mean is than its baseline's mean, both over every dataset.

    The BEIR paper's Table 2 ends with an "average performance vs. BM25" and gives no formula. Of the two candidates
    this one is closer to what is printed there: from the table's own cells it is off by 1.1 points on average (3.7 at
    most, DPR), the mean of the ratios by 2.0 (5.5 at most). Neither reproduces the printed line.
    """
    return ratios(means(scores), means(baselines))


def mean_of_ratios(scores: Table, baselines: Table) -> Figures:
    """The mean of the relative differences, of rows that have every dataset and its baseline."""
    return means(ratios(scores, baselines))


class Wins(NamedTuple):
    """By row: on how many datasets it is better than its baseline, equal to it, and worse. All 0: none compared."""

    wins: list[int]
    ties: list[int]
    losses: list[int]


def wins(scores: Table, baselines: Table, *, lower_is_better: bool = False) -> Wins:
    """Wins, ties and losses over the datasets where both sides have a value (Figure 3 of the BEIR paper)."""
    signs = np.sign(baselines - scores if lower_is_better else scores - baselines)
    return Wins(*((signs == sign).sum(axis=1).tolist() for sign in (1, 0, -1)))


class RankFigures(NamedTuple):
    """By row its Borda count and its mean rank, missing where it lacks a dataset."""

    borda: Figures
    mean_rank: Figures


def rank_figures(scores: Table, kinds: Sequence[str], *, lower_is_better: bool = False) -> RankFigures:
    """Borda counts and mean ranks of the complete rows, among those of the same kind.

    On each dataset a system gets a point for each system below it and half a point for each equal one; equal systems
    have the mean of their ranks (1.5, 1.5, 3). With n systems and m datasets the mean rank is n − Borda / m: both
    tell the same order, once as points and once as a rank. Rows that lack a dataset have neither, and are not
    counted as beaten.

    Borda: Colombo, Noiry, Irurozki and Clémençon 2022, "What are the best systems? New perspectives on NLP
    benchmarking". Mean ranks: Demšar 2006, "Statistical comparisons of classifiers over multiple data sets".
    """
    points, mean_ranks = np.full((2, len(scores)), np.nan)
    width = scores.shape[1]
    complete = np.isnan(scores).sum(axis=1) == (0 if width else -1)
    for members in _by_kind(kinds):
        rows = members[complete[members]]
        below, up_to = _places(-scores[rows] if lower_is_better else scores[rows], "left", "right")
        points[rows] = (below + up_to - 1).sum(axis=1) / 2
        mean_ranks[rows] = np.round(len(rows) - points[rows] / width, DIGITS)
    return RankFigures(points, mean_ranks)


def ranks(scores: Table, kinds: Sequence[str], *, lower_is_better: bool = False) -> Table:
    """By dataset the rank of each row among those of its kind: 1, 1, 3. Missing values have none."""
    found = np.full(scores.shape, np.nan)
    for members in _by_kind(kinds):
        found[members] = 1 + _places(scores[members] if lower_is_better else -scores[members], "left")[0]
    return np.where(np.isnan(scores), np.nan, found)


def _places(scores: Table, *sides: Literal["left", "right"]) -> npt.NDArray[np.intp]:
    """By side and value how many of its column are less (left) or no more (right); missing ones stand last."""
    columns = [(np.sort(column), column) for column in scores.T]
    found = [[np.searchsorted(*column, side=side) for column in columns] for side in sides]
    return np.array(found, np.intp).reshape(len(sides), *scores.T.shape).swapaxes(1, 2)


def _by_kind(kinds: Sequence[str]) -> list[npt.NDArray[np.intp]]:
    named = np.array(kinds)
    return [np.flatnonzero(named == kind) for kind in dict.fromkeys(kinds)]
