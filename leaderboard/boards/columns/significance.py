"""How sure scores and differences are, as columns of a dataset's board and in words below it.

A row's own facts are its two intervals, its p-value against the baseline, and the queries it won, tied and lost: no
other row moves them. Rank ranges and p-values against the best are of the whole board; no filter moves these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_noop as _

from leaderboard.boards.columns.baseline import difference_to
from leaderboard.boards.model import EFFECTIVENESS, Board, Cell, Column, Row
from leaderboard.boards.state import BoardState
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.results.board_rows.entry_rows import SCORED
from leaderboard.results.significance.types import (
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
    TestSettings,
    Verdict,
)

INTERVAL, RANKS, P_BEST = "interval", "ranks", "p-best"
DELTA_INTERVAL, P_BASELINE, WINS = "delta-interval", "p-baseline", "wins"
#: What is called how in words: all columns of this module.
CALLED = {
    INTERVAL: "interval",
    RANKS: "rank range",
    P_BEST: "p vs best",
    DELTA_INTERVAL: "Δ interval",
    P_BASELINE: "p vs the baseline",
    WINS: "W/T/L",
}
#: Decimals of the ends of an interval: they are drawn, so that further ones would say nothing.
INTERVAL_DECIMALS = 3

WITHHELD = _(
    "Confidence intervals and per-query results are not published, to protect the hidden judgements."
)
AWAITED = _("Intervals and tests are being computed and will appear shortly.")
OUTDATED = _("The board has changed: rank ranges, p vs best and corrected tests are being recomputed.")


@dataclass(frozen=True, slots=True)
class SignificanceColumns:
    """The columns of one measure: those beside its score, and those beside its differences to the `baseline`."""

    board: BoardCertainty | None
    baseline: str
    found: MeasureCertainty | None
    beside_score: Sequence[Column]
    beside_difference: Sequence[Column]

    @classmethod
    def of(cls, board: BoardCertainty | None, measure: str, baseline: str) -> SignificanceColumns:
        """Those that the board has anything to say in."""
        found = board.of(measure) if board is not None else None
        if board is None or found is None:
            return cls(board, baseline, None, (), ())
        beside_score = _beside_score(board.settings, measure, current=board.current)
        compared = _beside_difference(board.settings, measure, baseline) if found.baseline is not None else ()
        return cls(board, baseline, found, beside_score, compared)

    def awaited(self, *, scored: bool, hidden: bool) -> frozenset[str]:
        """Columns that the board has once they are found, and does not have now; addresses that name them hold.

        `scored`: whether any row was, on judgements of the dataset itself.
        """
        if hidden or not scored or (self.board is not None and self.board.current):
            return frozenset()
        return frozenset(CALLED) - {column.key for column in (*self.beside_score, *self.beside_difference)}

    def notes(self, verdict: Verdict | None, *, scored: bool, hidden: bool) -> list[str]:
        """What a reader has to know of it; nothing where nothing is found of the measure."""
        if not scored:
            return []
        if hidden:
            return [WITHHELD]
        if self.board is None or self.found is None:
            return [] if self.board is not None and self.board.current else [AWAITED]
        told = [verdict_sentence(verdict, self.baseline, self.board.settings)] if verdict is not None else []
        told.append(_about_own_facts(self.board.settings, self.found, self.baseline))
        return [*told, _about_the_board(self.board.settings) if self.board.current else OUTDATED]


def _of_tested(cell: Callable[[EntryCertainty], Cell | None]) -> Callable[[Any], Cell | None]:
    return lambda line: None if line.certainty is None else cell(line.certainty)


def _beside_score(settings: TestSettings, measure: str, *, current: bool) -> list[Column]:
    """Return the interval, and what the tests of all pairs say if they are those of the present board."""
    lower, corrected = better(measure) == "lower", f"{settings.pairs_correction} over all pairs of the board"
    interval = Column(
        INTERVAL,
        f"{settings.level:.0%} interval",
        EFFECTIVENESS,
        "count",
        better(measure),
        note=f"{settings.interval} of the mean; sorted by its worse end",
        arrow=False,
        cell=_of_tested(lambda one: Cell(one.high if lower else one.low, interval_text(one.low, one.high))),
    )
    ranks = Column(
        RANKS,
        _("Rank range"),
        EFFECTIVENESS,
        "count",
        "lower",
        note=f"ranks that the tests leave open: {corrected}; sorted by the first rank",
        arrow=False,
        cell=_of_tested(lambda one: None if one.rank_low is None else Cell(one.rank_low, ranks_text(one))),
    )
    p_best = Column(
        P_BEST,
        _("p vs best"),
        EFFECTIVENESS,
        "figure",
        note=f"against the best: {corrected}",
        cell=_of_tested(lambda one: _p(one.p_best_corrected, "uncorrected", one.p_best)),
    )
    return [interval, ranks, p_best] if current else [interval]


def _beside_difference(settings: TestSettings, measure: str, baseline: str) -> Sequence[Column]:
    head, lower = difference_to([baseline]), better(measure) == "lower"

    def of_compared(cell: Callable[[EntryCertainty], Cell | None]) -> Callable[[Any], Cell | None]:
        return _of_tested(lambda one: None if one.p_baseline is None else cell(one))

    def interval(one: EntryCertainty) -> Cell | None:
        worse = one.delta_high if lower else one.delta_low
        return None if one.delta_low is None else Cell(worse, difference_interval_text(one))

    return (
        Column(
            DELTA_INTERVAL,
            f"Δ {settings.level:.0%} interval",
            head,
            "count",
            note=f"{settings.interval} of the difference to {baseline}; sorted by its worse end",
            cell=of_compared(interval),
        ),
        Column(
            P_BASELINE,
            f"p vs {baseline}",
            head,
            "figure",
            note=f"against {baseline}: {settings.test}, not corrected",
            cell=of_compared(
                lambda one: _p(one.p_baseline, "corrected over the board", one.p_baseline_corrected)
            ),
        ),
        Column(
            WINS,
            "W/T/L",
            head,
            "count",
            note=f"queries won, tied and lost against {baseline}",
            cell=of_compared(lambda one: Cell(one.wins, f"{one.wins}/{one.ties}/{one.losses}")),
        ),
    )


def _p(p: float | None, called: str, other: float | None) -> Cell:
    """The cell of a p-value, which says another one on hover."""
    title = "" if other is None else f"{called} {format_p_value(other, 4)}"
    return Cell(p, "" if p is None else format_p_value(p), title=title)


def interval_text(low: float, high: float) -> str:
    """An interval as text."""
    return f"{low:.{INTERVAL_DECIMALS}f}–{high:.{INTERVAL_DECIMALS}f}"


def difference_interval_text(found: EntryCertainty) -> str:
    """The interval of a difference as text, both ends with their sign; empty where there is none."""
    if found.delta_low is None or found.delta_high is None:
        return ""
    ends = (round(end, INTERVAL_DECIMALS) for end in (found.delta_low, found.delta_high))
    return " to ".join(numbers.signed(end, INTERVAL_DECIMALS) for end in ends)


def ranks_text(found: EntryCertainty) -> str:
    """`2–4`, or `1` where the tests leave one rank; empty for a system that is ranked apart."""
    if found.rank_low is None:
        return ""
    return f"{found.rank_low}" if found.rank_low == found.rank_high else f"{found.rank_low}–{found.rank_high}"


def format_p_value(p: float, decimals: int = 3) -> str:
    """A p-value as text; one that the decimals do not show is below the least that they do."""
    least = 10.0**-decimals
    return f"{p:.{decimals}f}" if p >= least else f"<{least:.{decimals}f}"


def verdict_sentence(verdict: Verdict, baseline: str, settings: TestSettings) -> str:
    """How many beat the baseline by corrected tests, and of which date that is."""
    day = f"{verdict.at.day} {verdict.at:%B %Y}"
    dated = f"As of {day}, revision {verdict.revision:,} of the board."
    if not verdict.compared:
        return dated
    others = "1 other system" if verdict.compared == 1 else f"{verdict.compared:,} other systems"
    return (
        f"Of {others}, {len(verdict.better):,} {'is' if len(verdict.better) == 1 else 'are'} better and "
        f"{len(verdict.worse):,} worse than {baseline} at {settings.alpha:g} ({settings.correction}-corrected). {dated}"
    )


def _about_own_facts(settings: TestSettings, found: MeasureCertainty, baseline: str) -> str:
    intervals = (
        f"{settings.level * 100:.0f}% interval: {settings.interval} over the {found.queries:,} judged queries, "
        f"{settings.resamples:,} resamples, seed {settings.seed}"
    )
    if found.baseline is None:
        return f"{intervals}."
    return (
        f"{intervals}; beside Δ, of the paired difference. p vs {baseline}: two-sided {settings.test} by query, "
        f"{settings.permutations:,} permutations, seed {settings.seed}, not corrected; below "
        f"1/{settings.permutations + 1:,} it is Hoeffding’s upper bound. W/T/L: queries won, tied and lost against "
        f"{baseline}. These values do not change when others submit."
    )


def _about_the_board(settings: TestSettings) -> str:
    return (
        "Rank range and p vs best come from tests of all pairs on this board, corrected together "
        f"({settings.pairs_correction}, {settings.pairs_permutations:,} permutations, level {settings.alpha:g}). A "
        "system’s first rank follows all systems that are significantly better, its last rank precedes all that are "
        "significantly worse; systems whose range begins with 1 are not separable from the best. Both may change when "
        "others submit; filters do not change them."
    )


def any_scored(rows: Sequence[Row], measure: str) -> bool:
    """Whether any row was scored here by the measure."""
    return any(row.ranked_in == SCORED and row.value(measure) is not None for row in rows)


def ignored_filters(board: Board, state: BoardState) -> list[str]:
    """What the address asks of columns that the board awaits, in words; empty where it asks nothing of them."""
    asked = [f"order by {CALLED[sort.key]}" for sort in state.sorts if sort.key in board.awaited]
    asked += [f"bounds of {CALLED[one.key]}" for one in state.ranges if one.key in board.awaited]
    if not asked:
        return []
    return [f"Not applied yet, because these columns are still being computed: {', '.join(asked)}."]
