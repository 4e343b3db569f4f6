"""How sure scores and differences are, as columns of a dataset's board and in words below it.

Everything is of the whole board: no filter moves an interval, a p-value or a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaderboard.boards.columns.baseline import difference_to
from leaderboard.boards.model import EFFECTIVENESS, Board, Column, Row
from leaderboard.boards.state import BoardState
from leaderboard.core.measures import better
from leaderboard.results.kinds import SCORED
from leaderboard.results.significance.types import BoardCertainty, EntryCertainty, MeasureCertainty, Settings

INTERVAL, GROUP, P_BEST = "interval", "group", "p-best"
P_BASELINE, WINS = "p-baseline", "wins"
#: What is called how in words: all columns of this module.
CALLED = {INTERVAL: "interval", GROUP: "group", P_BEST: "p (best)", P_BASELINE: "p", WINS: "W/T/L"}
#: Decimals of the ends of an interval: they are drawn, so that further ones would say nothing.
INTERVAL_DECIMALS = 3

WITHHELD = (
    "Intervals, tests and wins by query are withheld: over hidden judgements they would tell more than the rounded "
    "means."
)
AWAITED = "Intervals and tests are being computed: a moment after a result is published they are here."
OUTDATED = "The board has changed: its tests, groups and wins by query are being computed anew."


@dataclass(frozen=True, slots=True)
class CertaintyColumns:
    """The columns of one measure: those beside its score, and those beside its differences to the `baseline`."""

    board: BoardCertainty | None
    baseline: str
    found: MeasureCertainty | None
    beside_score: Sequence[Column]
    beside_difference: Sequence[Column]

    @classmethod
    def of(cls, board: BoardCertainty | None, measure: str, baseline: str) -> CertaintyColumns:
        """Those that the board has anything to say in."""
        found = board.of(measure) if board is not None else None
        if board is None or found is None:
            return cls(board, baseline, None, (), ())
        if not board.current:
            return cls(board, baseline, found, (_interval(board.settings, measure),), ())
        corrected = f"{board.settings.test}, {board.settings.correction}-corrected over the board"
        beside_score = (
            _interval(board.settings, measure),
            Column(GROUP, "Group", EFFECTIVENESS, "text", note="a: not separable from the best; see below"),
            Column(P_BEST, "p (best)", EFFECTIVENESS, "figure", note=f"against the best: {corrected}"),
        )
        head = difference_to([baseline])
        beside_difference = (
            Column(P_BASELINE, "p", head, "figure", note=f"against {baseline}: {corrected}"),
            Column(WINS, "W/T/L", head, "count", note=f"queries won, tied and lost against {baseline}"),
        )
        return cls(
            board, baseline, found, beside_score, beside_difference if found.baseline is not None else ()
        )

    def place(self, row: Row, entry: int, focus: int, score: int, difference: int) -> None:
        """Put what was found of an entry into its row.

        The measure stands at `focus`; the columns beside the score and the difference begin at the other places.
        """
        found = self.found.of(entry) if self.found is not None else None
        if found is None or self.board is None:
            return
        row.certainty = found
        self._place_interval(row, found, focus, score)
        if not self.board.current:
            return
        row.values[score + 1] = found.group or None
        _place_p(row, score + 2, found.p_best, found.raw_p_best)
        if self.beside_difference:
            _place_p(row, difference, found.p_baseline, found.raw_p_baseline)
            if not row.entry.is_baseline:
                row.values[difference + 1] = found.wins
                row.shown[difference + 1] = f"{found.wins}/{found.ties}/{found.losses}"

    def _place_interval(self, row: Row, found: EntryCertainty, focus: int, score: int) -> None:
        low, high = found.low, found.high
        column = self.beside_score[0]
        # Ordered by the end that is the worse one: by what the system has at the least.
        row.values[score] = high if column.better == "lower" else low
        row.shown[score] = interval_text(low, high)
        row.intervals[focus] = (low, high)

    def awaited(self, *, scored: bool, hidden: bool) -> frozenset[str]:
        """Columns that the board has once they are found, and does not have now; addresses that name them hold.

        `scored`: whether any row was, on judgements of the dataset itself.
        """
        if hidden or not scored or (self.board is not None and self.board.current):
            return frozenset()
        return frozenset(CALLED) - {column.key for column in self.beside_score}

    def notes(self, *, scored: bool, hidden: bool) -> list[str]:
        """What a reader has to know of it; nothing where nothing is found of the measure."""
        if not scored:
            return []
        if hidden:
            return [WITHHELD]
        if self.board is None or self.found is None:
            return [] if self.board is not None and self.board.current else [AWAITED]
        intervals = _about_intervals(self.board.settings, self.found)
        if not self.board.current:
            return [intervals, OUTDATED]
        return [
            f"{intervals} {_about_tests(self.board.settings, self.found, self.baseline)}".rstrip(),
            _about_groups(self.board.settings),
        ]


def _interval(settings: Settings, measure: str) -> Column:
    return Column(
        INTERVAL,
        f"{settings.level:.0%} interval".replace("%", " %"),
        EFFECTIVENESS,
        "count",
        better(measure),
        note=f"{settings.interval} of the mean; ordered by its worse end",
        arrow=False,
    )


def _place_p(row: Row, place: int, corrected: float | None, raw: float | None) -> None:
    row.values[place] = corrected
    if corrected is not None and raw is not None:
        row.shown[place] = written_p(corrected)
        row.titles[place] = f"uncorrected {written_p(raw, 4)}"


def interval_text(low: float, high: float) -> str:
    """An interval as text."""
    return f"{low:.{INTERVAL_DECIMALS}f}–{high:.{INTERVAL_DECIMALS}f}"


def written_p(p: float, decimals: int = 3) -> str:
    """A p-value as text; one that the decimals do not show is below the least that they do."""
    least = 10.0**-decimals
    return f"{p:.{decimals}f}" if p >= least else f"<{least:.{decimals}f}"


def _about_intervals(settings: Settings, found: MeasureCertainty) -> str:
    return (
        f"{settings.level * 100:.0f} % interval of a mean over the {found.queries:,} judged queries: "
        f"{settings.interval}, {settings.resamples:,} resamples of the queries, seed {settings.seed}."
    )


def _about_tests(settings: Settings, found: MeasureCertainty, baseline: str) -> str:
    with_best = sum(one.raw_p_best is not None for one in found.entries.values())
    with_baseline = sum(one.raw_p_baseline is not None for one in found.entries.values())
    over = [
        f"{number:,} comparison{'' if number == 1 else 's'} with {whom}"
        for number, whom in ((with_baseline, baseline), (with_best, "the best"))
        if number
    ]
    if not over:
        return ""
    wins = f" W/T/L: queries won, tied and lost against {baseline}." if found.baseline is not None else ""
    return (
        f"p: two-sided {settings.test} by query, {settings.permutations:,} permutations, seed {settings.seed}, "
        f"{settings.correction}-corrected over this board’s {', and over its '.join(over)}. An "
        f"uncorrected p below 1/{settings.permutations + 1:,} is Hoeffding’s bound, which the exact one cannot "
        f"exceed.{wins}"
    )


def _about_groups(settings: Settings) -> str:
    return (
        f"Group a: the best system, and all that the test does not separate from it at {settings.alpha:g} after "
        "correction; b: the same for the best of the others, and so on. A letter says nothing of two systems of which "
        "neither is the best of its group. Filters move none of this."
    )


def any_scored(rows: Sequence[Row], focus: int) -> bool:
    """Whether any row was scored here by the measure at this place."""
    return any(row.ranked_in == SCORED and row.values[focus] is not None for row in rows)


def not_applied(board: Board, state: BoardState) -> list[str]:
    """What the address asks of columns that the board awaits, in words; empty where it asks nothing of them."""
    asked = [f"order by {CALLED[sort.key]}" for sort in state.sorts if sort.key in board.awaited]
    asked += [f"bounds of {CALLED[one.key]}" for one in state.ranges if one.key in board.awaited]
    if not asked:
        return []
    return [f"Not applied, for the board has these columns only once they are computed: {', '.join(asked)}."]
