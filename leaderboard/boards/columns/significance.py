"""Certainty of scores and differences, as columns of a dataset's board and as notes below it.

A row's own facts do not depend on other rows: its two intervals, its p-value against the baseline, and the queries
won, tied, and lost. Rank ranges and p-values against the best depend on the whole board; filters do not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from leaderboard.boards.columns.baseline import difference_head
from leaderboard.boards.model import EFFECTIVENESS, Board, Cell, Column, Row
from leaderboard.boards.state import BoardState
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.dates import format_day
from leaderboard.results.board_rows.entry_rows import SCORED
from leaderboard.results.significance.types import (
    ALPHA,
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
    TestSettings,
    Verdict,
)

INTERVAL, RANKS, P_BEST = "interval", "ranks", "p-best"
DELTA_INTERVAL, P_BASELINE, WINS = "delta-interval", "p-baseline", "wins"
#: Names of all columns of this module in sentences.
COLUMN_NAMES = {
    INTERVAL: "interval",
    RANKS: "rank range",
    P_BEST: "p vs best",
    DELTA_INTERVAL: "Δ interval",
    P_BASELINE: "p vs the baseline",
    WINS: "W/T/L",
}
#: Decimals of the ends of an interval; more would not be visible in its drawing.
INTERVAL_DECIMALS = 3

WITHHELD_NOTE = _("Confidence intervals and per-query results are not published, to protect the hidden judgments.")
PENDING_NOTE = _("Intervals and tests are being computed and will appear shortly.")
OUTDATED_NOTE = _("The board has changed: rank ranges, p vs best, and corrected tests are being recomputed.")


@dataclass(frozen=True, slots=True)
class SignificanceColumns:
    """Columns of one measure, next to its score and next to its differences from the `baseline`."""

    board: BoardCertainty | None
    baseline: str
    measure_certainty: MeasureCertainty | None
    beside_score: Sequence[Column]
    beside_difference: Sequence[Column]

    @classmethod
    def for_measure(
        cls, board: BoardCertainty | None, measure: str, baseline: str, scope: str = "board"
    ) -> SignificanceColumns:
        """Return the columns of a measure: none without results, and no differences without a baseline.

        `scope` names the rows that are tested together.
        """
        certainty = board.for_measure(measure) if board is not None else None
        if board is None or certainty is None:
            return cls(board, baseline, None, (), ())
        beside_score = _score_columns(board.settings, measure, scope, current=board.current)
        beside_difference = (
            _difference_columns(board.settings, measure, baseline, scope) if certainty.baseline is not None else ()
        )
        return cls(board, baseline, certainty, beside_score, beside_difference)

    def pending_columns(self, *, has_scored_rows: bool, hidden: bool) -> frozenset[str]:
        """Return the columns that will exist once the tests are computed; URLs that name them are valid.

        `has_scored_rows` tells whether any row was scored on judgments of the dataset itself.
        """
        if hidden or not has_scored_rows or (self.board is not None and self.board.current):
            return frozenset()
        return frozenset(COLUMN_NAMES) - {column.key for column in (*self.beside_score, *self.beside_difference)}

    def notes(self, verdict: Verdict | None, *, has_scored_rows: bool, hidden: bool) -> list[str]:
        """Return the notes on the tests of the measure: their verdict, and how they were computed.

        Other notes tell that results are withheld, pending, or outdated. There are none if no row was scored on the
        dataset's judgments, or if the tests do not cover the measure.
        """
        if not has_scored_rows:
            return []
        if hidden:
            return [WITHHELD_NOTE]
        if self.board is None or self.measure_certainty is None:
            return [] if self.board is not None and self.board.current else [PENDING_NOTE]
        sentences = [verdict_sentence(verdict, self.baseline, self.board.settings)] if verdict is not None else []
        sentences.append(_describe_own_facts(self.board.settings, self.measure_certainty, self.baseline))
        return [*sentences, describe_pair_tests([self.board.settings]) if self.board.current else OUTDATED_NOTE]


def _test_cell(cell: Callable[[EntryCertainty], Cell | None]) -> Callable[[Any], Cell | None]:
    """Return a function that makes a cell from a line's test results, and None for an untested line."""
    return lambda line: None if line.certainty is None else cell(line.certainty)


def _score_columns(settings: TestSettings, measure: str, scope: str, *, current: bool) -> list[Column]:
    """Return the columns of interval, rank range, and p-value against the best; only the first unless `current`."""
    lower, correction = better(measure) == "lower", f"{settings.pairs_correction} over all pairs of the {scope}"
    interval = Column(
        INTERVAL, f"{settings.level:.0%} interval", EFFECTIVENESS, "count", better(measure),
        note=f"{settings.interval} of the mean; sorted by its worse end",
        arrow=False,
        cell=_test_cell(lambda test: Cell(test.high if lower else test.low, interval_text(test.low, test.high))),
    )  # fmt: skip
    ranks = Column(
        RANKS, _("Rank range"), EFFECTIVENESS, "count", "lower",
        note=f"ranks that the tests leave open: {correction}; sorted by the first rank",
        arrow=False,
        cell=_test_cell(lambda test: None if test.rank_low is None else Cell(test.rank_low, ranks_text(test))),
    )  # fmt: skip
    p_best = Column(
        P_BEST, _("p vs best"), EFFECTIVENESS, "figure",
        note=f"against the best: {correction}",
        cell=_test_cell(lambda test: _p(test.p_best_corrected, "uncorrected", test.p_best)),
    )  # fmt: skip
    return [interval, ranks, p_best] if current else [interval]


def _difference_columns(settings: TestSettings, measure: str, baseline: str, scope: str) -> Sequence[Column]:
    """Return the columns of the difference's interval, the p-value against the baseline, and wins.

    Rows that were not compared with the baseline have no cells there.
    """
    head, lower = difference_head([baseline]), better(measure) == "lower"
    corrected = f"{settings.correction}-corrected over the {scope}"

    def compared_cell(cell: Callable[[EntryCertainty], Cell | None]) -> Callable[[Any], Cell | None]:
        return _test_cell(lambda test: None if test.p_baseline is None else cell(test))

    def interval(certainty: EntryCertainty) -> Cell | None:
        worse_end = certainty.delta_high if lower else certainty.delta_low
        return None if certainty.delta_low is None else Cell(worse_end, difference_interval_text(certainty))

    return (
        Column(
            DELTA_INTERVAL, f"Δ {settings.level:.0%} interval", head, "count",
            note=f"{settings.interval} of the difference from {baseline}; sorted by its worse end",
            cell=compared_cell(interval),
        ),
        Column(
            P_BASELINE, f"p vs {baseline}", head, "figure",
            note=f"against {baseline}: {settings.test}, not corrected",
            cell=compared_cell(lambda test: _p(test.p_baseline, corrected, test.p_baseline_corrected)),
        ),
        Column(
            WINS, "W/T/L", head, "count",
            note=f"queries won, tied, and lost against {baseline}",
            cell=compared_cell(lambda test: Cell(test.wins, f"{test.wins}/{test.ties}/{test.losses}")),
        ),
    )  # fmt: skip


def _p(p: float | None, label: str, other_p: float | None) -> Cell:
    title = "" if other_p is None else f"{label} {format_p_value(other_p, 4)}"
    return Cell(p, "" if p is None else format_p_value(p), title=title)


def interval_text(low: float, high: float) -> str:
    return f"{low:.{INTERVAL_DECIMALS}f}–{high:.{INTERVAL_DECIMALS}f}"


def difference_interval_text(certainty: EntryCertainty) -> str:
    """Return the interval of a difference with the signs of both ends, empty if there is none."""
    if certainty.delta_low is None or certainty.delta_high is None:
        return ""
    ends = (round(end, INTERVAL_DECIMALS) for end in (certainty.delta_low, certainty.delta_high))
    return " to ".join(numbers.signed(end, INTERVAL_DECIMALS) for end in ends)


def ranks_text(certainty: EntryCertainty) -> str:
    """Return `2–4`, or `1` if the tests leave one rank; empty for a system that is ranked separately."""
    return "" if certainty.ranks is None else "–".join(map(str, dict.fromkeys(certainty.ranks)))


def format_p_value(p: float, decimals: int = 3) -> str:
    """Return a p-value as text: `0.214`, `<0.001`, or `just below 0.05` if it would round to the significance level."""
    min_shown, text = 10.0**-decimals, f"{p:.{decimals}f}"
    if p < ALPHA <= float(text):
        return gettext("just below %(alpha)s") % {"alpha": ALPHA}
    return text if p >= min_shown else f"<{min_shown:.{decimals}f}"


def verdict_sentence(verdict: Verdict, baseline: str, settings: TestSettings) -> str:
    """Return sentences on how many systems are better and worse than the baseline, and on the tests' date."""
    day = format_day(verdict.at)
    as_of = f"As of {day}, revision {verdict.revision:,} of the board."
    if not verdict.compared:
        return as_of
    system_count = "1 other system" if verdict.compared == 1 else f"{verdict.compared:,} other systems"
    return (
        f"Of {system_count}, {len(verdict.better):,} {'is' if len(verdict.better) == 1 else 'are'} better and "
        f"{len(verdict.worse):,} worse than {baseline} at {settings.alpha:g} ({settings.correction}-corrected). {as_of}"
    )


def _describe_own_facts(settings: TestSettings, certainty: MeasureCertainty, baseline: str) -> str:
    """Return a note on how intervals, and the comparison with the baseline if there is one, are computed."""
    intervals = (
        f"{settings.level * 100:.0f}% interval: {settings.interval} over the {certainty.queries:,} judged queries, "
        f"{settings.resamples:,} resamples, seed {settings.seed}"
    )
    if certainty.baseline is None:
        return f"{intervals}."
    bound = "" if settings.is_exact else f"; below 1/{settings.permutations + 1:,} it is Hoeffding’s upper bound"
    return (
        f"{intervals}; beside Δ, of the paired difference. p vs {baseline}: two-sided {settings.test} by query, "
        f"{settings.describe_patterns(settings.permutations)}, not corrected{bound}. W/T/L: queries won, tied, and "
        f"lost against {baseline}. These values do not change when others submit."
    )


def describe_pair_tests(tests: Sequence[TestSettings], scope: str = "board") -> str:
    """Return a note on how rank ranges and p-values against the best are computed with any of these settings.

    `scope` names the rows that are tested together.
    """
    settings = tests[0]
    patterns = " or ".join(dict.fromkeys(each.describe_patterns(each.pairs_permutations) for each in tests))
    return (
        f"Rank range and p vs best come from tests of all pairs of the {scope}, corrected together "
        f"({settings.pairs_correction}, {patterns}, level {settings.alpha:g}). A "
        "system’s first rank follows all systems that are significantly better, its last rank precedes all that are "
        "significantly worse; systems with a range that starts at 1 are not separable from the best. Both may change "
        "when others submit; filters do not change them."
    )


def any_scored(rows: Sequence[Row], measure: str) -> bool:
    return any(row.ranked_in == SCORED and row.value(measure) is not None for row in rows)


def ignored_filters(board: Board, state: BoardState) -> list[str]:
    """Return a note on filters and sort columns that are ignored because their columns are still being computed."""
    names = [f"order by {COLUMN_NAMES[sort.key]}" for sort in state.sorts if sort.key in board.pending_columns]
    names += [f"bounds of {COLUMN_NAMES[bounds.key]}" for bounds in state.ranges if bounds.key in board.pending_columns]
    if not names:
        return []
    return [f"Not applied yet, because these columns are still being computed: {', '.join(names)}."]
