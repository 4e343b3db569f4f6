"""The board of one dataset: systems × measures, with differences to BM25, efficiency, and where each row comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leaderboard.boards.columns import round_marks
from leaderboard.boards.columns.baseline import Versus
from leaderboard.boards.columns.challenged import notes_on_challenges
from leaderboard.boards.columns.costs import CostColumns, cost_group
from leaderboard.boards.columns.dataset_costs import DatasetCosts
from leaderboard.boards.columns.declared import DeclaredColumns
from leaderboard.boards.columns.judged import other_column, with_judged
from leaderboard.boards.columns.measures import measure_column
from leaderboard.boards.columns.private import PrivateColumns
from leaderboard.boards.columns.quarantined import without_numbers
from leaderboard.boards.columns.reported import FigureKey, figure_columns, place_figures
from leaderboard.boards.columns.seeds import NOTE as SEEDS
from leaderboard.boards.columns.seeds import has_seeds, show_seeds
from leaderboard.boards.columns.significance import CertaintyColumns, any_scored, not_applied
from leaderboard.boards.columns.weighted import fill_weighted
from leaderboard.boards.facets import HOUSE, facets_of
from leaderboard.boards.facts import DatasetFacts
from leaderboard.boards.filtering import arrange, in_view, resolved_sorts
from leaderboard.boards.model import ABOUT, DELTA, RELATIVE, SYSTEM_COLUMN, Board, Column, Row, Value
from leaderboard.boards.ranking import assign_ranks
from leaderboard.boards.state import BoardState
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better, canonical_name
from leaderboard.core.text import deltas
from leaderboard.models import Architecture
from leaderboard.results.groups import CLOSED_NOTE, present_group, ranked_in
from leaderboard.results.history.entry_rows import EntryRow
from leaderboard.results.history.measurements import Measured
from leaderboard.results.kinds import CLOSED, PRIVATE, QUARANTINED, REPORTED, SCORED, STALE
from leaderboard.results.significance import BoardCertainty, verdict_of
from leaderboard.systems.baselines import BM25

#: The place of the measure in focus: right after the system.
FOCUS = 1


class _Read(NamedTuple):
    """An entry with its JSON read once."""

    entry: EntryRow
    scores: Mapping[str, float]
    figures: Sequence[Mapping[str, Any]]


def dataset_board(
    facts: DatasetFacts,
    entries: Sequence[EntryRow],
    state: BoardState,
    measured: Sequence[Measured] = (),
    certainty: BoardCertainty | None = None,
) -> Board:
    """The view of the board that `state` asks for.

    `measured` is what was measured of the entries, `certainty` how sure their scores are. Private entries are those
    of the reader's own teams: nothing of the other rows depends on them.

    Raises UnknownChoice for a column, a measure or hardware that it does not have.
    """
    read = _read(entries)
    measures = _measures(facts, read)
    measure = _measure_in_focus(state, measures)
    figures = figure_columns([(row.figures, row.scores) for row in read if row.figures])
    shown = [measure, *(name for name in measures if name != measure)]
    costs = DatasetCosts.of(measured, _bm25(facts, read), state)
    versus = Versus.of((row.entry for row in read), _current_group(facts, read), facts.name)
    sure = CertaintyColumns.of(certainty if not facts.hidden else None, measure, versus.shown)
    declared = DeclaredColumns.of([row.entry for row in read])
    private = PrivateColumns.of([row.entry for row in read], measure)
    layout = _Layout(shown, sure, private, costs.columns, figures, declared)
    columns = _columns(layout, versus.head)
    rows = _rows(facts, read, layout, costs.on_machine)
    scored = facts.qrels_id is not None and any_scored(rows, FOCUS)
    lower = better(measure) == "lower"
    assign_ranks(rows, FOCUS, lower_is_better=lower)
    verdict = verdict_of(sure.board, measure) if sure.board is not None else None
    board = Board(
        title=facts.name,
        columns=columns,
        rows=rows,
        measure=measure,
        measures=list(measures),
        baseline=versus.shown,
        machine=costs.machine,
        machines=costs.machines,
        cost_group=cost_group(costs.machine) if costs.machine else "",
        certainty=sure.board if sure.found is not None else None,
        verdict=verdict,
        named={row.entry.pk: row.entry for row in read} if verdict is not None else {},
        awaited=sure.awaited(scored=scored, hidden=facts.hidden),
    )
    effectiveness = [row.scores.get(measure) for row in read]
    on_weights = fill_weighted(board, effectiveness, state, lower_is_better=lower) if state.weights else []
    _leave_out_empty(board, state)
    arrange(board, state, measure)
    board.notes = [
        *_notes(facts, rows, measure, versus),
        *private.notes(),
        *sure.notes(verdict, board.named, scored=scored, hidden=facts.hidden),
        *not_applied(board, state),
        *on_weights,
        *costs.notes(),
    ]
    return board


def _read(entries: Sequence[EntryRow]) -> list[_Read]:
    return [
        _Read(entry, entry.scores, entry.figures)
        for entry in without_numbers(entries)
        if entry.visibility in ("public", "private", QUARANTINED)
    ]


def _leave_out_empty(board: Board, state: BoardState) -> None:
    """Leave out the columns that no row of the view fills, but for what it is ordered by."""
    needed = {board.index(sort.key) for sort in resolved_sorts(board, state, board.measure)}
    kept = _with_values(in_view(board, board.rows, state), board.columns, {*needed, FOCUS})
    if len(kept) < len(board.columns):
        board.columns = [board.columns[place] for place in kept]
        for row in board.rows:
            row.keep_only(kept)


def _bm25(facts: DatasetFacts, read: Sequence[_Read]) -> int | None:
    """The entry of our own BM25 that present results are compared with."""
    current = _current_group(facts, read)
    for row in read:
        entry = row.entry
        if entry.is_baseline and entry.slug == BM25.slug and entry.comparison_group == current:
            return entry.pk
    return None


def _current_group(facts: DatasetFacts, read: Sequence[_Read]) -> str:
    return present_group(
        facts.version_id,
        facts.qrels_id,
        [
            (row.entry.comparison_group, row.entry.is_baseline)
            for row in read
            if row.entry.visibility == "public"
        ],
    )


def _measures(facts: DatasetFacts, read: Sequence[_Read]) -> list[str]:
    """The dataset's measures that any row has; the primary one is always there, those of judging come last."""
    had = set().union(*(row.scores for row in read))
    own = [name for name in facts.measures or [facts.primary_measure] if name in had]
    return with_judged(own or [facts.primary_measure], had, hidden=facts.hidden)


def _measure_in_focus(state: BoardState, measures: Sequence[str]) -> str:
    if state.measure:
        if state.measure not in measures:
            raise UnknownChoice("measure", state.measure, measures)
        return state.measure
    sort = canonical_name(state.sorts[0].key) if state.sorts else ""
    return sort if sort in measures else measures[0]


def _columns(layout: _Layout, difference: str) -> list[Column]:
    """All columns; the first measure is the one in focus, and its differences and what it costs stand beside it."""
    first, *others = layout.measures
    sure, figures = layout.sure, layout.figures
    good = better(first)
    return [
        SYSTEM_COLUMN,
        measure_column(first),
        *sure.beside_score,
        Column(DELTA, "Δ", difference, "delta", good, note="difference to the baseline of the same group"),
        Column(
            RELATIVE, "Δ %", difference, "relative", good, note="relative difference to the same baseline"
        ),
        *sure.beside_difference,
        *layout.private.columns,
        *layout.costs.columns,
        *map(other_column, others),
        *figures.values(),
        Column("architecture", "Architecture", ABOUT, "text"),
        Column("provenance", "Provenance", ABOUT, "text", note="how the numbers were obtained"),
        Column("by", "By", ABOUT, "text", note="the team, or the publication that reports it"),
        *layout.declared.columns,
        Column("published", "Date", ABOUT, "date"),
        Column("submission", "Submission", ABOUT, "text"),
    ]


def _with_values(rows: Sequence[Row], columns: Sequence[Column], needed: set[int]) -> list[int]:
    """The places of the columns that any of the rows fills, and of those needed; all where there is no row."""
    if not rows:
        return list(range(len(columns)))
    shown = needed.union(*(row.shown for row in rows))
    by_column = zip(*(row.values for row in rows), strict=True)
    return [
        place
        for place, values in enumerate(by_column)
        if place in shown or any(value is not None for value in values)
    ]


class _Layout(NamedTuple):
    """The columns between a row's name and what it says of its system; the first measure is the one in focus."""

    measures: Sequence[str]
    sure: CertaintyColumns
    private: PrivateColumns
    costs: CostColumns
    figures: Mapping[FigureKey, Column]
    declared: DeclaredColumns

    @property
    def first_cost(self) -> int:
        """The place after the system, the measure in focus and its differences, each with how sure it is."""
        sure = len(self.sure.beside_score) + len(self.sure.beside_difference)
        return 4 + sure + len(self.private.columns)

    @property
    def of_measures(self) -> dict[str, int]:
        """The places of the measures."""
        first, *others = self.measures
        return {first: FOCUS} | {
            name: place for place, name in enumerate(others, self.first_cost + len(self.costs.columns))
        }

    @property
    def of_figures(self) -> dict[FigureKey, int]:
        """The places of the figures, which come after the measures."""
        first = self.first_cost + len(self.costs.columns) + len(self.measures) - 1
        return {key: place for place, key in enumerate(self.figures, first)}


def _rows(
    facts: DatasetFacts, read: Sequence[_Read], layout: _Layout, measured: Mapping[int, Measured]
) -> list[Row]:
    """A row for each entry, with what was `measured` of it on the machine that is shown, by its id."""
    baselines = {
        row.entry.comparison_group: row.scores.get(layout.measures[0])
        for row in read
        if row.entry.is_baseline and row.entry.visibility == "public"
    }
    current = _current_group(facts, read)
    of_measures, of_figures, first_cost = layout.of_measures, layout.of_figures, layout.first_cost
    beside_difference = first_cost - len(layout.private.columns) - len(layout.sure.beside_difference)
    rows = []
    for item in read:
        entry = item.entry
        kind = ranked_in(entry.provenance, entry.comparison_group, current, closed_api=bool(entry.closed_api))
        if entry.visibility == "private" and kind != STALE:
            kind = PRIVATE
        elif entry.visibility == QUARANTINED:
            kind = QUARANTINED
        decimals = 3 if entry.provenance == REPORTED or facts.hidden else 4
        row = Row(entry, kind, decimals, _values(item, layout, baselines.get(entry.comparison_group)))
        row.facets = facets_of(entry, (entry.provenance,), (entry.training,))
        if item.figures:
            place_figures(row, item.figures, of_figures)
        if entry.pk in measured:
            layout.costs.place(row, measured[entry.pk], first_cost)
        if entry.seed_count:
            show_seeds(row, entry.seed_count, entry.deviations, of_measures)
        if kind in (SCORED, CLOSED):
            layout.sure.place(row, entry.pk, FOCUS, FOCUS + 1, beside_difference)
        rows.append(row)
    return rows


def _values(item: _Read, layout: _Layout, baseline: float | None) -> list[Value]:
    """All cells of a row; what is placed later is None still."""
    entry, (measure, *others) = item.entry, layout.measures
    value, reported = item.scores.get(measure), entry.provenance == REPORTED
    return [
        entry.system,
        value,
        *[None] * len(layout.sure.beside_score),
        deltas.absolute(value, baseline),
        deltas.relative(value, baseline),
        *[None] * len(layout.sure.beside_difference),
        *layout.private.values(entry, value),
        *[None] * len(layout.costs.columns),
        *map(item.scores.get, others),
        *[None] * len(layout.figures),
        ARCHITECTURES.get(entry.architecture, entry.architecture),
        entry.provenance,
        entry.source if reported else entry.team or HOUSE,
        *layout.declared.values(entry),
        None if reported else entry.published[:10],
        entry.submission or None,
    ]


ARCHITECTURES = {value: str(label) for value, label in Architecture.choices}


def _notes(facts: DatasetFacts, rows: Sequence[Row], measure: str, versus: Versus) -> list[str]:
    kinds = {row.ranked_in for row in rows}
    notes = [f"Ranks follow {measure}; equal values share a rank, and the earlier published stands first."]
    if REPORTED in kinds:
        sources = {row.entry.source_key for row in rows if row.ranked_in == REPORTED}
        papers = "one publication" if len(sources) == 1 else f"{len(sources)} publications"
        notes.append(
            f"r: a rank among reported figures, which {papers} printed and nobody here recomputed; "
            "they are ranked apart from results scored here."
        )
    if CLOSED in kinds:
        notes.append(CLOSED_NOTE)
    if any(row.entry.visibility == "private" for row in rows):
        notes.append(
            "Private: only your team sees these rows. They have no rank, move no rank and no mark, and are in no "
            "export, figure or feed."
        )
    if STALE in kinds:
        notes.append(
            "Stale: scored on earlier judgements or an earlier version; not ranked and not compared until rescored."
        )
    if QUARANTINED in kinds:
        notes.append(
            "Quarantined: taken out of the ranking by a curator, for the reason given; without numbers."
        )
    notes += versus.notes(facts.language)
    if any(row.entry.training == "in-domain" for row in rows):
        notes.append("‡ in-domain: trained on this dataset.")
    notes += round_marks.notes(row.entry for row in rows)
    if has_seeds(rows):
        notes.append(f"{SEEDS} Tests use each query’s mean over them.")
    if any("?" in row.marks.values() for row in rows):
        notes.append("? as printed, but doubtful: never used to sort or plot.")
    if facts.hidden:
        of_part = " over the public part of the judged queries" if facts.competition else ""
        notes.append(
            f"The judgements are hidden: every value is a mean{of_part}, published with three decimals."
        )
    if any(row.entry.missing_queries for row in rows):
        notes.append("Judged queries that a run misses score 0; how many is said under the system's name.")
    return notes + notes_on_challenges(rows)
