"""Boards of single datasets: systems × measures, with differences from the baseline, costs, and provenance."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.utils.translation import gettext_noop as _

from evaluation.measures.registry import upper_bound_name
from leaderboard.boards.columns import gap as gaps
from leaderboard.boards.columns import marks
from leaderboard.boards.columns.about import ABOUT_SYSTEM, DECLARED_COLUMNS, FILE_SIZE, SIZE, TRAINING
from leaderboard.boards.columns.agreement import agreement_notes, published_columns
from leaderboard.boards.columns.baseline import BaselineColumns, difference_head
from leaderboard.boards.columns.costs import BoardCosts, CostLine, fill_costs, fill_weighted
from leaderboard.boards.columns.judging import LEFT_OUT_COLUMN, judging_notes, notes_on_judges
from leaderboard.boards.columns.marks import seeds_title
from leaderboard.boards.columns.reported import figure_columns, has_doubtful
from leaderboard.boards.columns.significance import SignificanceColumns, any_scored, ignored_filters
from leaderboard.boards.facets import row_facets
from leaderboard.boards.filtering import apply_view, assign_ranks, best_values, count_rows, reported_rankings
from leaderboard.boards.model import (
    ABOUT,
    DELTA,
    EFFECTIVENESS,
    JUDGED_SHARE,
    OTHER_MEASURES,
    RELATIVE,
    SYSTEM,
    Board,
    Cell,
    Column,
    DatasetFacts,
    Row,
    Value,
    fill_cells,
)
from leaderboard.boards.state import BoardState
from leaderboard.boards.summary import summarize_dataset
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better, canonical_name
from leaderboard.core.text import numbers
from leaderboard.results.board_rows.entry_rows import (
    CLOSED,
    CLOSED_NOTE,
    PRIVATE,
    QUARANTINED,
    REFERENCE,
    REPORTED,
    SCORED,
    STALE,
    EntryRow,
    present_group,
    ranking_group,
)
from leaderboard.results.board_rows.measurements import MeasuredEntry
from leaderboard.results.significance.statements import BoardStatements, Gap, differs
from leaderboard.results.significance.types import EntryCertainty, get_verdict
from leaderboard.results.slices import MIN_TESTED, QuerySlice
from leaderboard.results.values import JUDGED_MEASURES, is_about_judging
from leaderboard.systems.baselines import BM25


class EntryLine(NamedTuple):
    """Input for a row's cells: an entry, the score of its baseline, and its test results.

    `is_marked`: whether the scores have a revision placeholder or deviations over seeds.
    """

    entry: EntryRow
    ranked_in: str
    decimals: int
    baseline: float | None
    certainty: EntryCertainty | None
    gap: Gap | None = None
    revision_placeholder: str = ""
    is_marked: bool = False

    @property
    def provenance(self) -> str:
        return self.entry.provenance

    @property
    def parameters(self) -> int | None:
        return self.entry.parameters

    @property
    def model_bytes(self) -> int | None:
        return self.entry.model_bytes


@dataclass(frozen=True, slots=True)
class RankedDataset:
    """The ranked board of a dataset, with the sources of its notes."""

    board: Board
    facts: DatasetFacts
    baseline: BaselineColumns
    tests: SignificanceColumns
    costs: BoardCosts
    gaps: Mapping[int, Gap] | None
    notes_on_judging: Sequence[str]
    notes_on_weights: Sequence[str]

    @property
    def has_scored_rows(self) -> bool:
        """Whether any row was scored on judgments of the dataset itself."""
        return self.facts.qrels_id is not None and any_scored(self.board.rows, self.board.measure)

    def view(self, state: BoardState) -> Board:
        """Return the rows and columns that a view shows, with the notes below the board.

        Raises UnknownChoice for a column, range, or facet value that the board does not have.
        """
        board, hidden = apply_view(self.board, state, self.board.measure), self.facts.hidden
        notes = [
            *self._notes_on_results(board),
            *([PRIVATE_PART_NOTE] if any(column.group == PRIVATE_PART for column in self.board.columns) else []),
            *self.tests.notes(board.verdict, has_scored_rows=self.has_scored_rows, hidden=hidden),
            *gaps.notes(bool(self.gaps), self.baseline.display_name),
            *agreement_notes(board),
            *self.notes_on_judging,
            *ignored_filters(board, state),
            *self.notes_on_weights,
            *self.costs.notes(),
        ]
        return replace(board, notes=notes)

    def _notes_on_results(self, board: Board) -> list[str]:
        """Return the notes on the ranking, on kinds of rows, and on marks.

        All rows count, including those that the view hides. Notes on spreads and doubtful figures depend on the visible
        columns.
        """
        facts, rows = self.facts, self.board.rows
        kinds = {row.ranked_in for row in rows}
        notes = [f"Ranked by {board.measure}; equal values share a rank, the earlier submission first."]
        if facts.slice is not None:
            notes = [*slice_notes(facts.slice, is_tested=self.tests.measure_certainty is not None), *notes]
        if REPORTED in kinds:
            sources = {row.entry.source_key for row in rows if row.ranked_in == REPORTED}
            papers = "one publication" if len(sources) == 1 else f"{len(sources)} publications"
            apart = ", each source and dataset revision on its own" if len(self.board.rankings) > 1 else ""
            notes.append(
                f"Reported: figures taken from {papers}, not recomputed, and ranked separately from results scored by "
                f"Runboard{apart}."
            )
        if any(row.entry.visibility == "private" for row in rows):
            kinds.add(PRIVATE)
        notes += [note for kind, note in _NOTES_ON_KINDS.items() if kind in kinds]
        notes += self.baseline.notes(facts.language)
        if any(row.entry.training == "in-domain" for row in rows):
            notes.append(_("‡ in-domain: trained on this dataset."))
        notes += marks.notes_on_cells(rows) + marks.notes(row.entry for row in rows)
        visible_keys = [column.key for column in board.columns]
        if board.measure in visible_keys and marks.has_seeds(rows, [board.measure]):
            notes.append(f"{marks.SEEDS_NOTE} Tests use each query’s mean over the seeds.")
        if has_doubtful(rows, board.columns):
            notes.append(marks.DOUBTFUL_NOTE)
        if facts.hidden:
            public_part = " over the public part of the judged queries" if facts.competition else ""
            notes.append(f"The judgments are hidden: scores are means{public_part}, published with three decimals.")
        if any(row.entry.missing_queries for row in rows):
            notes.append(marks.MISSING_QUERIES)
        return notes + marks.notes_on_challenges(rows)


def slice_notes(queries: QuerySlice, *, is_tested: bool) -> list[str]:
    """Return the notes on a board over a slice; `is_tested` tells whether it has intervals and tests."""
    notes = [
        f"Exploratory: not corrected for the choice of slice. Scores and tests are over {queries.text}: "
        f"{queries.definition}. Reported results and results on earlier judgments have no per-query values on these "
        "judgments, and therefore no score here. Costs are those of all queries."
    ]
    if not queries.has_enough_queries:
        notes.append(f"Slices of fewer than {MIN_TESTED} queries have no intervals or tests.")
    elif not is_tested:
        notes.append("This slice has no intervals or tests, because the board has too many systems and queries.")
    return notes


_NOTES_ON_KINDS = {
    CLOSED: CLOSED_NOTE,
    PRIVATE: _(
        "Private: only your team sees these rows. They are not ranked, do not change other rows, and are in no "
        "export, figure, or feed."
    ),
    REFERENCE: _(
        "Reference: answers without retrieval (closed book) or from the relevant documents (gold evidence); not "
        "ranked. They show the range in which other systems are expected."
    ),
    STALE: _("Stale: scored with earlier judgments or an earlier version; not ranked or compared until rescored."),
    QUARANTINED: _("Quarantined: removed from the ranking by a curator for the reason given; scores are not shown."),
}


def rank_dataset(
    facts: DatasetFacts,
    entries: Sequence[EntryRow],
    measurements: Sequence[MeasuredEntry],
    statements: BoardStatements,
    state: BoardState,
) -> RankedDataset:
    """Return the ranked board for the measure, the hardware, and the weights of a view.

    `measurements` are the costs of the entries, `statements` their test results. Only public, private, and quarantined
    entries get a row; private ones belong to the reader's teams and do not affect other rows. Raises UnknownChoice for
    a measure or hardware that the board does not have.
    """
    shown_entries = [_hide_quarantined_results(entry) for entry in entries if entry.visibility in _ROW_VISIBILITIES]
    measures, measure = select_measures(facts, shown_entries, state)
    known_gaps = statements.gaps if measure == statements.gap_measure else {} if _uses_gaps(state) else None
    groups = [(entry.comparison_group, entry.is_baseline) for entry in shown_entries if entry.visibility == "public"]
    current_group = present_group(facts.version_id, facts.qrels_id, groups)
    baseline = BaselineColumns.from_entries(shown_entries, current_group, facts.name)
    tests = SignificanceColumns.for_measure(
        statements.certainty if not facts.hidden else None, measure, baseline.display_name
    )
    lines = list(_entry_lines(facts, shown_entries, measure, current_group, tests, known_gaps))
    bm25_ids = (
        entry.pk
        for entry in shown_entries
        if entry.is_baseline and entry.slug == BM25.slug and entry.comparison_group == current_group
    )
    costs = BoardCosts.for_dataset(measurements, next(bm25_ids, None), state)
    focus_columns = [
        *_focus_columns(measure, tests, difference_head([baseline.display_name])),
        *private_columns(shown_entries, measure),
    ]
    agreement = published_columns(shown_entries, current_group, measure)
    other_columns = [*agreement, *_other_columns(facts, measures, measure)]
    last_columns = [*(gaps.gap_columns(baseline.display_name) if known_gaps is not None else ()), *_LAST_COLUMNS]
    used_keys = {column.key for column in (*focus_columns, *costs.columns, *other_columns, *last_columns)}
    figures = figure_columns([(entry.figures, entry.scores) for entry in shown_entries if entry.figures], used_keys)
    rows = [_build_row(line, statements if facts.hidden else None, measure) for line in lines]
    fill_cells(rows, [*focus_columns, *other_columns, *last_columns], lines)
    if costs.measured or figures:
        cost_lines = (CostLine(costs.measured.get(entry.pk), entry.figures) for entry in shown_entries)
        fill_costs(rows, [*costs.columns, *figures], cost_lines)
    lower_is_better = better(measure) == "lower"
    assign_ranks(rows, measure, lower_is_better=lower_is_better)
    scores = [entry.scores.get(measure) for entry in shown_entries]
    weight_notes = fill_weighted(rows, scores, dict(state.weights), costs.machine, lower_is_better=lower_is_better)
    columns = [*focus_columns, *costs.columns, *other_columns, *figures, *last_columns]
    board = Board(facts.title, columns, rows, measure, measures, statements=statements)
    notes_on_judging = [*judging_notes(rows, measure, tests.measure_certainty), *notes_on_judges(facts)]
    ranked_board = RankedDataset(board, facts, baseline, tests, costs, known_gaps, notes_on_judging, weight_notes)
    return replace(ranked_board, board=_add_summary(ranked_board, state))


def dataset_view_key(facts: DatasetFacts, state: BoardState) -> str:
    """Return a text key of all properties of a view on which the ranked board depends."""
    sort = canonical_name(state.sorts[0].key) if state.sorts else ""
    is_measure = sort in (facts.primary_measure, *facts.measures) or is_about_judging(sort)
    measure = state.measure or (sort if is_measure else "")
    costs = state.hardware, state.cpu_only, state.corpus, state.weights
    return f"{measure} {costs} {state.filtered} {_uses_gaps(state)}"


def _uses_gaps(state: BoardState) -> bool:
    """Return whether a view sorts or filters by gaps, which a permalink may do even if the board has none."""
    keys = {sort.key for sort in state.sorts} | {bounds.key for bounds in state.ranges}
    return not gaps.KEYS.isdisjoint(keys)


def _add_summary(ranked_board: RankedDataset, state: BoardState) -> Board:
    """Return the board with its best values, counts, test results, hardware, and summary.

    A measure about judging has no summary, unless it is the dataset's primary measure.
    """
    board, facts, tests, costs = ranked_board.board, ranked_board.facts, ranked_board.tests, ranked_board.costs
    rows, measure = board.rows, board.measure
    best, second = best_values(board.columns, rows)
    verdict = get_verdict(tests.board, measure) if tests.board is not None else None
    board = replace(
        board,
        baseline=ranked_board.baseline.display_name,
        best=best,
        second=second,
        counted=count_rows(rows),
        total=len(rows),
        rankings=reported_rankings(rows, measure),
        certainty=tests.board if tests.measure_certainty is not None else None,
        verdict=verdict,
        verdict_entries={row.entry.pk: row.entry for row in rows} if verdict is not None else {},
        pending_columns=tests.pending_columns(has_scored_rows=ranked_board.has_scored_rows, hidden=facts.hidden),
        machine=costs.machine,
        machines=costs.machines,
        cost_group=costs.head,
        usual_missing_count=marks.usual_missing_count(rows),
        compared=sum(row.certainty is not None and row.certainty.delta is not None for row in rows),
    )
    if measure != facts.primary_measure and is_about_judging(measure):
        return board  # Such a measure has no winner.
    return replace(board, summary=summarize_dataset(board, facts, is_filtered=state.filtered))


def _hide_quarantined_results(entry: EntryRow) -> EntryRow:
    """Return the entry, without scores, figures, and submission if it is quarantined."""
    if entry.visibility != QUARANTINED:
        return entry
    return entry._replace(
        scores={}, figures=(), deviations={}, private_scores={}, seed_count=0, missing_queries=None, is_baseline=0,
        submission="",
    )  # fmt: skip


def _board_measures(facts: DatasetFacts, scores: Iterable[Iterable[str]]) -> list[str]:
    """Return the dataset's measures that any row has, then those about judging.

    `scores` has the measures of each row. If no row has any of the dataset's measures, the primary measure comes first.
    """
    available = set[str]().union(*scores)
    dataset_measures = [name for name in facts.measures or [facts.primary_measure] if name in available]
    return add_judged_measures(dataset_measures or [facts.primary_measure], available, hidden=facts.hidden)


def select_measures(facts: DatasetFacts, entries: Sequence[EntryRow], state: BoardState) -> tuple[Sequence[str], str]:
    """Return the board's measures, and the one in focus.

    The latter is the measure that the view names, else the measure that it sorts by, else the first one. Raises
    UnknownChoice if the view names another measure.
    """
    measures = _board_measures(facts, [entry.scores for entry in entries if entry.visibility != QUARANTINED])
    if state.measure:
        if state.measure not in measures:
            raise UnknownChoice("measure", state.measure, measures)
        return measures, state.measure
    sort = canonical_name(state.sorts[0].key) if state.sorts else ""
    return measures, sort if sort in measures else measures[0]


def _focus_columns(measure: str, tests: SignificanceColumns, difference: str) -> list[Column]:
    """Return the columns of the system, the measure in focus, and its differences, with their tests.

    `difference` is the head of the group of differences.
    """
    direction = better(measure)

    def delta(line: EntryLine) -> Value:
        return numbers.difference(line.entry.scores.get(measure), line.baseline)

    def relative(line: EntryLine) -> Value:
        return numbers.relative_difference(line.entry.scores.get(measure), line.baseline)

    return [
        Column(SYSTEM, _("System"), "", "text", cell=lambda line: line.entry.system),
        measure_column(measure, in_focus=True),
        *tests.beside_score,
        Column(
            DELTA, "Δ", difference, "delta", direction,
            note=_("difference from the baseline of the same group"), cell=delta,
        ),
        Column(
            RELATIVE, "Δ %", difference, "relative", direction,
            note=_("relative difference to the same baseline"), cell=relative,
        ),
        *tests.beside_difference,
    ]  # fmt: skip


def _other_columns(facts: DatasetFacts, measures: Sequence[str], measure: str) -> list[Column]:
    """Return the columns of all measures except the one in focus, whether or not any row has them.

    If the dataset has open judgments, they include the measures about judging, and the score without documents that
    were judged only because of the own team's runs.
    """
    expected_names = {*measures, *facts.measures}
    has_open_judgements = facts.qrels_id is not None and not facts.hidden
    if has_open_judgements:
        expected_names.update([*JUDGED_MEASURES, upper_bound_name(facts.primary_measure) or ""])
    names = _board_measures(facts, [expected_names])
    return [other_column(name) for name in names if name != measure] + [LEFT_OUT_COLUMN] * has_open_judgements


#: Last columns of the board.
_LAST_COLUMNS = (
    *ABOUT_SYSTEM,
    TRAINING,
    *DECLARED_COLUMNS,
    SIZE,
    FILE_SIZE,
    Column(
        "published",
        _("Date"),
        ABOUT,
        "date",
        cell=lambda line: None if line.provenance == REPORTED else line.entry.published[:10],
    ),
    Column("submission", _("Submission"), ABOUT, "text", cell=lambda line: line.entry.submission or None),
)
#: Visibilities of entries that have a row.
_ROW_VISIBILITIES = ("public", "private", QUARANTINED)


def _entry_lines(
    facts: DatasetFacts,
    entries: Sequence[EntryRow],
    measure: str,
    current_group: str,
    tests: SignificanceColumns,
    known_gaps: Mapping[int, Gap] | None,
) -> Iterator[EntryLine]:
    """Yield the line of each entry: the kind that it is ranked in, its baseline's score, and its test results.

    The baseline is the public one of the entry's comparison group. Only scored results on current judgments have test
    results.
    """
    baselines = {
        entry.comparison_group: entry.scores.get(measure)
        for entry in entries
        if entry.is_baseline and entry.visibility == "public"
    }
    for entry in entries:
        kind = ranking_group(entry, current_group)
        if entry.visibility == QUARANTINED:
            kind = QUARANTINED
        elif entry.visibility == "private" and kind != STALE:
            kind = PRIVATE
        certainty = tests.measure_certainty if kind in (SCORED, CLOSED, REFERENCE) else None
        placeholder = entry.revision_placeholder
        yield EntryLine(
            entry,
            kind,
            3 if entry.provenance == REPORTED or facts.hidden else 4,
            baselines.get(entry.comparison_group),
            None if certainty is None else certainty.entries.get(entry.pk),
            known_gaps.get(entry.pk) if known_gaps is not None else None,
            placeholder,
            bool(placeholder or entry.deviations),
        )


def _build_row(line: EntryLine, statements: BoardStatements | None, measure: str) -> Row:
    """Return the row of an entry, still without values and cells.

    `statements` decide significance if the judgments are hidden; otherwise they are None.
    """
    entry, gap = line.entry, line.gap
    gap_value = "" if gap is None else gaps.SHOWN if gap.shown else gaps.NOT_SHOWN
    return Row(
        entry,
        line.ranked_in,
        line.decimals,
        facets=row_facets(entry, (entry.provenance,), (entry.training,), gap_value),
        entries=(entry.pk,),
        certainty=line.certainty,
        differs=differs(line.certainty) if statements is None else bool(statements.for_entry(entry.pk, measure).better),
    )


def measure_column(measure: str, group: str = EFFECTIVENESS, note: str = "", *, in_focus: bool = False) -> Column:
    """Return the column of a measure in a group.

    If `in_focus`, its cells show the interval and the spread over seeds; otherwise they show the spread on hover.
    """

    def cells(lines: Iterable[EntryLine]) -> Iterable[Cell | Value]:
        return [cell(line) if in_focus or line.is_marked else line.entry.scores.get(measure) for line in lines]

    def cell(line: EntryLine) -> Cell | Value:
        """Return the score, as a cell if it has an interval or a deviation over seeds to show."""
        value: Value = line.entry.scores.get(measure)
        if value is not None and (revision := line.revision_placeholder):
            mark, title = marks.REVISION_MARKS[revision]
            return Cell(value, mark=mark, title=_(title))
        certainty = line.certainty if in_focus else None
        ends = None if certainty is None else (certainty.low, certainty.high)
        if value is None or measure not in line.entry.deviations:
            return Cell(value, interval=ends) if ends else value
        deviation, seeds = line.entry.deviations[measure], line.entry.seed_count
        spread = f"± {deviation:.{line.decimals}f} ({seeds})" if in_focus else ""
        return Cell(value, title=seeds_title(seeds, deviation, line.decimals), spread=spread, interval=ends)

    label, _separator, judge = measure.removesuffix("')").partition("(judge='")
    label += f" ({judge})" if judge else ""
    return Column(measure, label, group, "score", better(measure), note=note, cells=cells)


_JUDGED_MEASURE_NOTES = {
    "Judged@10": _("share of the top 10 that is judged"),
    "Hole@10": _("share of the top 10 that is unjudged: relevant documents may be missing from the judgments"),
}
_UPPER_BOUND_NOTE = _("the maximum of the score for any grades of the unjudged documents in this top k")


def add_judged_measures(measures: Sequence[str], available: Collection[str], *, hidden: bool) -> list[str]:
    """Return a board's measures, followed by those about judging that any row has.

    `available` are the measures that any row has. The first of `measures` stays first. If the judgments are hidden, no
    measures about judging are added.
    """
    judging_measures = [*JUDGED_MEASURES, *sorted(name for name in available if name not in JUDGED_MEASURES)]
    last_measures = [name for name in judging_measures if is_about_judging(name) and name in available and not hidden]
    first_measures = measures[:1]  # A board's main measure may be about judging.
    return [
        *first_measures,
        *(name for name in measures[1:] if name not in last_measures),
        *(name for name in last_measures if name not in first_measures),
    ]


def other_column(measure: str) -> Column:
    """Return the column of a measure that is not in focus, in the group “Judged” or “Other measures”."""
    if measure in JUDGED_MEASURES:
        return measure_column(measure, JUDGED_SHARE, _JUDGED_MEASURE_NOTES[measure])
    if is_about_judging(measure):
        return replace(measure_column(measure, JUDGED_SHARE, _UPPER_BOUND_NOTE), label="Upper bound", better="")
    return measure_column(measure, OTHER_MEASURES)


PRIVATE_PART = _("Private part")

PRIVATE_PART_NOTE = _(
    "Private part: the mean over the judged queries that the ranking does not use, published when the round was "
    "revealed. Δ is private minus public: a much larger loss than for others suggests overfitting to the public part. "
    "A dash marks results submitted after the reveal, or in a round that is not revealed yet."
)


def private_columns(entries: Iterable[EntryRow], measure: str) -> list[Column]:
    """Return the columns of a measure's score on the private part, and of its difference from the public score.

    There are none unless an entry has such a score, which is published when its round is revealed. Cells of other
    entries are empty.
    """
    if not any(measure in entry.private_scores for entry in entries):
        return []
    direction = better(measure)
    return [
        Column(
            "private", measure, PRIVATE_PART, "score", direction,
            note=_("mean over the private part"),
            cell=lambda line: line.entry.private_scores.get(measure),
        ),
        Column(
            "private_difference", "Δ", PRIVATE_PART, "delta", direction,
            note=_("private part minus public part"),
            cell=lambda line: numbers.difference(
                line.entry.private_scores.get(measure), line.entry.scores.get(measure)
            ),
        ),
    ]  # fmt: skip
