"""The board of one dataset: systems × measures, with differences to BM25, efficiency, and where each row comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import NamedTuple

from django.utils.translation import gettext_noop as _

from evaluation.measures.registry import upper_bound_of
from leaderboard.boards.columns import gap as gaps
from leaderboard.boards.columns import marks
from leaderboard.boards.columns.about import ABOUT_SYSTEM, DECLARED, SIZE, TRAINING
from leaderboard.boards.columns.baseline import BaselineColumns
from leaderboard.boards.columns.costs import BoardCosts, CostLine, fill_costs
from leaderboard.boards.columns.judging import LEFT_OUT_COLUMN, judging_notes, notes_on_judges
from leaderboard.boards.columns.measures import (
    PRIVATE_PART,
    REVEALED,
    add_judged_measures,
    measure_column,
    other_column,
    private_columns,
)
from leaderboard.boards.columns.reported import figure_columns
from leaderboard.boards.columns.significance import SignificanceColumns, any_scored, ignored_filters
from leaderboard.boards.columns.weighted import fill_weighted
from leaderboard.boards.dataset_notes import notes_on_results
from leaderboard.boards.facets import facets_of
from leaderboard.boards.facts import DatasetFacts
from leaderboard.boards.filtering import SharedRows, apply_view, assign_ranks, filter_rows, leave_out_empty
from leaderboard.boards.model import (
    ABOUT,
    DELTA,
    RELATIVE,
    SYSTEM,
    Board,
    Column,
    Row,
    Summary,
    Value,
    fill_cells,
)
from leaderboard.boards.state import BoardState
from leaderboard.boards.summary import summarise
from leaderboard.core.cache.memory import LONG_LIFETIME, TTLCache
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better, canonical_name
from leaderboard.core.text import deltas
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.measurements import MeasuredEntry
from leaderboard.results.kinds import (
    CLOSED,
    PRIVATE,
    QUARANTINED,
    REPORTED,
    SCORED,
    STALE,
    present_group,
    ranked_in,
)
from leaderboard.results.significance.gaps import Gap
from leaderboard.results.significance.statements import NOTHING_SAID, BoardStatements, differs
from leaderboard.results.significance.types import (
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
    verdict_of,
)
from leaderboard.results.values import JUDGED_MEASURES, is_about_judging
from leaderboard.systems.baselines import BM25


class EntryLine(NamedTuple):
    """What the cells of a row are made from: an entry, what the measure in focus is compared with, and its tests."""

    about: EntryRow
    scores: Mapping[str, float]
    deviations: Mapping[str, float]
    ranked_in: str
    decimals: int
    baseline: float | None
    certainty: EntryCertainty | None
    gap: Gap | None = None

    @property
    def provenance(self) -> str:
        """How its numbers were obtained."""
        return self.about.provenance

    @property
    def parameters(self) -> int | None:
        """Number of the model's weights; None if unknown."""
        return self.about.parameters


@dataclass(frozen=True, slots=True)
class _SharedBoard:
    """What all views of a board by one measure share. It is remembered with the very objects that it was made of."""

    made_of: tuple[DatasetFacts, Mapping[int, Gap] | None, Sequence[EntryRow], BoardCertainty | None]
    shown: Sequence[EntryRow]
    measures: Sequence[str]
    versus: BaselineColumns
    sure: SignificanceColumns
    bm25: int | None
    before_costs: Sequence[Column]
    after_costs: Sequence[Column]
    last: Sequence[Column]
    rows: SharedRows
    on_judging: Sequence[str]


#: Twenty large boards, or many small ones.
_remembered: TTLCache[_SharedBoard] = TTLCache(20_000, lambda base: 100 + len(base.rows.rows))


def dataset_board(
    facts: DatasetFacts,
    entries: Sequence[EntryRow],
    state: BoardState,
    measured: Sequence[MeasuredEntry] = (),
    certainty: BoardCertainty | None = None,
    said: BoardStatements = NOTHING_SAID,
) -> Board:
    """Return the view of the board that `state` asks for.

    `measured` has the entries' costs, `certainty` their tests, and `said` what may be said of these in words. Private
    entries are those of the reader's own teams; no other row depends on them.
    Raises UnknownChoice for a column, a measure or hardware that it does not have.
    """
    shown = [entry for entry in entries if entry.visibility in _SHOWN]
    measures = _measures(facts, [entry.scores for entry in shown if entry.visibility != QUARANTINED])
    measure = _measure_in_focus(state, measures)
    of_gaps = _gaps_in(measure, said, state)
    base = _shared_board(
        facts, entries, shown, measures, measure, certainty if not facts.hidden else None, of_gaps
    )
    sure, costs = base.sure, BoardCosts.of_dataset(measured, base.bm25, state)
    verdict = verdict_of(sure.board, measure) if sure.board is not None else None
    board = Board(
        title=facts.name,
        columns=[*base.before_costs, *costs.columns, *base.after_costs],
        rows=[],
        measure=measure,
        measures=list(measures),
        baseline=base.versus.shown,
        certainty=sure.board if sure.found is not None else None,
        verdict=verdict,
        named={entry.pk: entry for entry in base.shown} if verdict is not None else {},
    )
    costs.describe(board)
    scored = facts.qrels_id is not None and any_scored(base.rows.rows, measure)
    board.awaited = sure.awaited(scored=scored, hidden=facts.hidden)
    _give_rows(board, base, costs, state)
    if facts.hidden:
        _colour_hidden(board, said)
    board.missing_from_all = marks.missing_from_all(board.rows)
    board.statements, rows = said, board.rows
    on_weights = _weigh(board, base, state)
    revealed = [REVEALED] if any(column.group == PRIVATE_PART for column in board.columns) else []
    board.summary = _summary(board, facts, state)
    board.compared = sum(row.certainty is not None and row.certainty.delta is not None for row in board.rows)
    found = filter_rows(board, board.rows, state)
    leave_out_empty(board, found or board.rows, state, measure, every_kind=bool(found))
    apply_view(board, state, measure)
    board.notes = [
        *notes_on_results(facts, rows, board, base.versus),
        *revealed,
        *sure.notes(verdict, scored=scored, hidden=facts.hidden),
        *gaps.notes(bool(of_gaps), base.versus.shown),
        *base.on_judging,
        *notes_on_judges(facts),
        *ignored_filters(board, state),
        *on_weights,
        *costs.notes(),
    ]
    return board


def _summary(board: Board, facts: DatasetFacts, state: BoardState) -> Summary | None:
    """What the board says in words; none of a measure that is about judging and so names no winner."""
    measure = board.measure
    if measure != facts.primary_measure and is_about_judging(measure):
        return None
    lower = better(measure) == "lower"
    return summarise(board, measure, board.statements, lower_is_better=lower, filtered=state.filtered)


def _gaps_in(measure: str, said: BoardStatements, state: BoardState) -> Mapping[int, Gap] | None:
    """The gaps of this measure; none, which is not None, where an address orders by them and the board has none."""
    # As that of a permalink.
    keys = {sort.key for sort in state.sorts}.union(bounds.key for bounds in state.ranges)
    return said.gaps if measure == said.gaps_in else {} if keys & gaps.KEYS else None


def _give_rows(board: Board, base: _SharedBoard, costs: BoardCosts, state: BoardState) -> None:
    """Give the board its rows, with what was measured of them and what publications state, and the columns of it."""
    stated = [(entry.figures, entry.scores) for entry in base.shown if entry.figures]
    taken = {column.key for column in (*board.columns, *base.last)}
    figures = figure_columns(stated, taken)
    board.columns += [*figures, *base.last]
    fills = bool(costs.measured or figures)
    base.rows.give_to(board, copies=fills or bool(state.weights))
    if fills:
        lines = (CostLine(costs.measured.get(entry.pk), entry.figures) for entry in base.shown)
        fill_costs(board.rows, [*costs.columns, *figures], lines)


def _colour_hidden(board: Board, said: BoardStatements) -> None:
    """Mark the rows that are better than the baseline by what was published of them."""
    board.rows = [row.copy() for row in board.rows]
    for row in board.rows:
        row.differs = bool(said.of(row.entries[0], board.measure).better)


def _weigh(board: Board, base: _SharedBoard, state: BoardState) -> list[str]:
    """Fill the weighted score where the view has weights; what is to be said of it."""
    if not state.weights:
        return []
    effectiveness = [entry.scores.get(board.measure) for entry in base.shown]
    return fill_weighted(board, effectiveness, state, lower_is_better=better(board.measure) == "lower")


def _shared_board(
    facts: DatasetFacts,
    entries: Sequence[EntryRow],
    shown: Sequence[EntryRow],
    measures: Sequence[str],
    measure: str,
    certainty: BoardCertainty | None,
    of_gaps: Mapping[int, Gap] | None,
) -> _SharedBoard:
    key = f"{facts.name}|{facts.version_id}|{measure}"
    known = _remembered.get(key)
    if (
        known is not None
        and known.made_of[:2] == (facts, of_gaps)
        and all(map(is_, known.made_of[2:], (entries, certainty)))
    ):
        return known
    shown = [_without_numbers(entry) for entry in shown]
    current = _current_group(facts, shown)
    versus = BaselineColumns.of(shown, current, facts.name)
    sure = SignificanceColumns.of(certainty, measure, versus.shown)
    before_costs = [*_focus_columns(measure, sure, versus.head), *private_columns(shown, measure)]
    expected, judged = {*measures, *facts.measures}, facts.qrels_id is not None and not facts.hidden
    if judged:
        expected.update([*JUDGED_MEASURES, upper_bound_of(facts.primary_measure) or ""])
    after_costs = [other_column(name) for name in _measures(facts, [expected]) if name != measure]
    after_costs += [LEFT_OUT_COLUMN] if judged else []
    of_public = gaps.gap_columns(versus.shown) if of_gaps is not None else ()
    last = [
        *of_public,
        *ABOUT_SYSTEM,
        TRAINING,
        *DECLARED,
        SIZE,
        *_PUBLISHED,
    ]
    lines = list(_lines(facts, shown, measure, current, sure.found, of_gaps))
    rows, columns = [_row(line) for line in lines], [*before_costs, *after_costs, *last]
    fill_cells(rows, columns, lines)
    assign_ranks(rows, measure, lower_is_better=better(measure) == "lower")
    on_judging = list(judging_notes(rows, measure, sure.found))
    base = _SharedBoard(
        (facts, of_gaps, entries, certainty), shown, measures, versus, sure, _bm25(shown, current), before_costs,
        after_costs, last, SharedRows.of(rows, columns), on_judging,
    )  # fmt: skip
    _remembered.put(key, base, LONG_LIFETIME)
    return base


def _without_numbers(entry: EntryRow) -> EntryRow:
    """The entry; under quarantine it keeps its place and the curator's reason, and nothing of what was found."""
    if entry.visibility != QUARANTINED:
        return entry
    return entry._replace(
        scores={},
        figures=(),
        deviations={},
        private_scores={},
        seed_count=0,
        missing_queries=None,
        is_baseline=0,
        submission="",
    )


def _bm25(entries: Sequence[EntryRow], current: str) -> int | None:
    """The entry of our own BM25 that present results are compared with."""
    found = (
        entry.pk
        for entry in entries
        if entry.is_baseline and entry.slug == BM25.slug and entry.comparison_group == current
    )
    return next(found, None)


def _current_group(facts: DatasetFacts, entries: Sequence[EntryRow]) -> str:
    public = [
        (entry.comparison_group, entry.is_baseline) for entry in entries if entry.visibility == "public"
    ]
    return present_group(facts.version_id, facts.qrels_id, public)


def _measures(facts: DatasetFacts, scores: Iterable[Iterable[str]]) -> list[str]:
    """The dataset's measures that any row has; the primary one is always there, those of judging come last."""
    had = set[str]().union(*scores)
    own = [name for name in facts.measures or [facts.primary_measure] if name in had]
    return add_judged_measures(own or [facts.primary_measure], had, hidden=facts.hidden)


def _measure_in_focus(state: BoardState, measures: Sequence[str]) -> str:
    if state.measure:
        if state.measure not in measures:
            raise UnknownChoice("measure", state.measure, measures)
        return state.measure
    sort = canonical_name(state.sorts[0].key) if state.sorts else ""
    return sort if sort in measures else measures[0]


def _focus_columns(measure: str, sure: SignificanceColumns, difference: str) -> list[Column]:
    """The system, the measure in focus, and its differences to the baseline, each with how sure it is."""
    good = better(measure)

    def delta(line: EntryLine) -> Value:
        return deltas.absolute(line.scores.get(measure), line.baseline)

    def relative(line: EntryLine) -> Value:
        return deltas.relative(line.scores.get(measure), line.baseline)

    return [
        Column(SYSTEM, _("System"), "", "text", cell=lambda line: line.about.system),
        measure_column(measure, in_focus=True),
        *sure.beside_score,
        Column(
            DELTA, "Δ", difference, "delta", good,
            note=_("difference to the baseline of the same group"), cell=delta,
        ),
        Column(
            RELATIVE, "Δ %", difference, "relative", good,
            note=_("relative difference to the same baseline"), cell=relative,
        ),
        *sure.beside_difference,
    ]  # fmt: skip


#: What the last columns say of a result.
_PUBLISHED = (
    Column(
        "published",
        _("Date"),
        ABOUT,
        "date",
        cell=lambda line: None if line.provenance == REPORTED else line.about.published[:10],
    ),
    Column("submission", _("Submission"), ABOUT, "text", cell=lambda line: line.about.submission or None),
)
#: Entries that have a row.
_SHOWN = ("public", "private", QUARANTINED)


def _lines(
    facts: DatasetFacts,
    entries: Sequence[EntryRow],
    measure: str,
    current: str,
    certainty: MeasureCertainty | None,
    of_gaps: Mapping[int, Gap] | None,
) -> Iterator[EntryLine]:
    """What rows are made from, by entry."""
    baselines = {
        entry.comparison_group: entry.scores.get(measure)
        for entry in entries
        if entry.is_baseline and entry.visibility == "public"
    }
    for entry in entries:
        kind = _kind(entry, current)
        yield EntryLine(
            entry,
            entry.scores,
            entry.deviations,
            kind,
            3 if entry.provenance == REPORTED or facts.hidden else 4,
            baselines.get(entry.comparison_group),
            certainty.of(entry.pk) if certainty is not None and kind in (SCORED, CLOSED) else None,
            of_gaps.get(entry.pk) if of_gaps is not None else None,
        )


def _row(line: EntryLine) -> Row:
    about = line.about
    return Row(
        about,
        line.ranked_in,
        line.decimals,
        facets=facets_of(about, (about.provenance,), (about.training,), gaps.facet_value(line.gap)),
        entries=(about.pk,),
        certainty=line.certainty,
        differs=differs(line.certainty),
    )


def _kind(entry: EntryRow, current: str) -> str:
    """Whom the entry's row is ranked among."""
    kind = ranked_in(entry.provenance, entry.comparison_group, current, closed_api=bool(entry.closed_api))
    if entry.visibility == "private" and kind != STALE:
        return PRIVATE
    return QUARANTINED if entry.visibility == QUARANTINED else kind
