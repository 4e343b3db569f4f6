"""Boards of benchmarks: systems × datasets for one measure, with aggregates over the counted datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.utils.translation import gettext_noop as _

from leaderboard.boards.benchmark.aggregates import Tables, means, to_values
from leaderboard.boards.benchmark.columns import (
    AVERAGE,
    BORDA,
    COMMON,
    MEAN,
    PRIVATE_NOTE,
    RANKING_KEYS,
    VIEW_DEPENDENT,
    ViewOptions,
    build_columns,
    build_rows,
    compute_aggregates,
    default_sort,
    fill_common_means,
    over_datasets,
    private_rows,
)
from leaderboard.boards.benchmark.lines import (
    IN_DOMAIN,
    available_measures,
    build_tables,
    collect_lines,
    find_baselines,
    line_costs,
    line_kinds,
)
from leaderboard.boards.benchmark.significance import add_tests, find_tested_rows
from leaderboard.boards.columns.baseline import difference_head, notes_on_baselines
from leaderboard.boards.columns.costs import BoardCosts, fill_costs, fill_weighted
from leaderboard.boards.columns.marks import DOUBTFUL_NOTE, SEEDS_NOTE, has_seeds, notes_on_cells, notes_on_challenges
from leaderboard.boards.columns.reported import has_doubtful
from leaderboard.boards.columns.significance import WITHHELD_NOTE, format_p_value, ignored_filters, ranks_text
from leaderboard.boards.facets import DATASET_FACETS, matches_facet
from leaderboard.boards.filtering import (
    apply_view,
    assign_ranks,
    best_values,
    count_rows,
    reported_rankings,
    resolve_sorts,
)
from leaderboard.boards.model import SEPARATED, BenchmarkFacts, Board, Cell, Column, Member
from leaderboard.boards.state import VIEWS, BoardState
from leaderboard.boards.summary import summarize
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.text.baselines import baselines_label
from leaderboard.results.board_rows.entry_rows import CLOSED, CLOSED_NOTE, PRIVATE, REPORTED, EntryRow
from leaderboard.results.board_rows.rows import BoardRows
from leaderboard.results.significance.types import (
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
    TestSettings,
)
from leaderboard.systems.baselines import BM25


@dataclass(frozen=True, slots=True)
class RankedBenchmark:
    """The ranked board of the datasets that a view selects, with the sources of its notes.

    Private rows of the reader's teams are last. `baselines` has, by position of a dataset, the name of the baseline
    and whether it is the site's own BM25.
    """

    board: Board
    facts: BenchmarkFacts
    tables: Tables
    baselines: Mapping[int, tuple[str, bool]]
    costs: BoardCosts
    any_in_domain: bool
    notes_on_weights: Sequence[str]
    notes_on_tests: Sequence[str]

    def view(self, state: BoardState, certainty: Mapping[int, BoardCertainty]) -> Board:
        """Return the rows and columns that a view shows, with each dataset's tests and the notes.

        If the view sorts by a column that can determine ranks, ranks are assigned by it. Raises UnknownChoice for a
        column, range, or facet value that the board does not have.
        """
        facts, board, state = self.facts, self.board, _without_omitted_datasets(self.facts, state)
        columns = {column.key: column for column in board.columns}
        default_key = default_sort(facts, columns)
        sort = resolve_sorts(board, state, default_key)[0].key
        datasets = {member.slug for member in facts.members}
        rank_column = columns[sort if sort in RANKING_KEYS or sort in datasets else default_key]
        rows = [row.copy() for row in board.rows]
        if state.sorts:
            assign_ranks(rows, rank_column.key, lower_is_better=rank_column.better == "lower")
        board = replace(board, rows=rows)
        omitted_keys: Sequence[str] = ()
        if COMMON in columns:
            board, says_enough = fill_common_means(facts, board, self.tables, state)
            omitted_keys = () if says_enough else (COMMON,)
        completeness_key = sort if sort == COMMON or sort in datasets else MEAN
        if facts.all_counted > 1 and any(row.value(completeness_key) is not None for row in rows):
            board = replace(board, completeness_key=completeness_key)
        # Values that are not zero-shot have already been removed, cell by cell.
        board = apply_view(board, replace(state, zero_shot=False), default_key, omitted_keys, copies_rows=False)
        names = {position: name for position, (name, _) in self.baselines.items()}
        test_settings, test_notes = add_significance(board, facts, certainty, names)
        notes = [
            *_rank_notes(facts, board, rank_column),
            *notes_on_baselines(facts, self.baselines),
            *_dataset_notes(facts, board),
            *self._notes_on_rows(board, state),
            *self.notes_on_tests,
            *test_notes,
            *ignored_filters(board, state),
            *self.notes_on_weights,
            *([PRIVATE_NOTE] if any(row.ranked_in == PRIVATE for row in rows) else []),
            *self.costs.notes(),
        ]
        return replace(board, found_with=test_settings, notes=notes)

    def _notes_on_rows(self, board: Board, state: BoardState) -> list[str]:
        """Return the notes on kinds of rows and on marks, for public rows, including those that the view hides."""
        notes = []
        rows = [row for row in self.board.rows if row.ranked_in != PRIVATE]
        datasets = {member.slug for member in self.facts.members}
        visible_datasets = {column.key for column in board.columns if column.key in datasets}
        if any(row.ranked_in == REPORTED for row in rows):
            notes.append(_REPORTED_NOTE)
        if any(row.ranked_in == CLOSED for row in rows):
            notes.append(CLOSED_NOTE)
        if visible_datasets and self.any_in_domain:
            notes.append(_("‡ in-domain: trained on that dataset."))
        notes += notes_on_cells(rows)
        if has_seeds(rows, visible_datasets):
            notes.append(SEEDS_NOTE)
        if state.zero_shot:
            notes.append(_ZERO_SHOT_NOTE)
        if has_doubtful(rows, board.columns):
            notes.append(DOUBTFUL_NOTE)
        return notes + notes_on_challenges(rows)


_REPORTED_NOTE = _(
    "Reported: figures taken from publications, not recomputed, and ranked separately from results scored by Runboard."
)
_ZERO_SHOT_NOTE = _(
    "Zero-shot only: values of systems that were trained on the dataset, or do not declare their training data, are "
    "omitted from cells and aggregates; unsupervised adaptation to the corpus counts as zero-shot."
)


def benchmark_view_key(state: BoardState) -> str:
    """Return a text key of all properties of a view on which the ranked board depends."""
    costs = state.hardware, state.cpu_only, state.corpus, state.weights
    datasets = [state.selected_values(facet) for facet in DATASET_FACETS]
    return f"{state.measure} {state.view} {state.zero_shot} {costs} {state.filtered} {datasets}"


def rank_benchmark(
    facts: BenchmarkFacts,
    entries: Mapping[int, BoardRows],
    state: BoardState,
    own_entries: Mapping[int, Sequence[EntryRow]],
) -> RankedBenchmark:
    """Return the ranked board for the measure, datasets, hardware, and weights of a view.

    `entries` are by dataset. `own_entries` are those of the reader's own teams, which get rows of their own and do not
    affect others. Raises UnknownChoice for a measure, hardware, or facet of datasets that the board does not have.
    """
    measure, measures = state.measure or facts.measure, available_measures(facts, entries)
    if measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    facts = _select_datasets(facts, state)
    lines = collect_lines(facts, entries, measure, zero_shot=state.zero_shot)
    tables, baselines = build_tables(facts, lines, line_kinds(lines), measure), find_baselines(facts, lines)
    names = {name for name, _ in baselines.values()}
    if any(line.baseline_on and line.ranked_in == REPORTED for line in lines):
        names.add(BM25.name)  # Reported figures are compared with their publication's BM25.
    costs, costs_of_lines = line_costs(facts, entries, lines, state)
    options = ViewOptions(measure, state.view, difference_head(names), bool(state.weights), costs.columns)
    columns = {column.key: column for column in build_columns(facts, options, compute_aggregates(tables))}
    view_dependent_keys = VIEW_DEPENDENT.union(column.key for column in costs.columns)
    line_columns = [column for key, column in columns.items() if key not in view_dependent_keys]
    rows = build_rows(facts, options, line_columns, lines, tables)
    fill_costs(rows, costs.columns, costs_of_lines)
    default = default_sort(facts, columns)
    assign_ranks(rows, default, lower_is_better=columns[default].better == "lower")
    effectiveness, lower_is_better = to_values(means(tables.on_counted_datasets[0])), tables.lower_is_better
    weights = dict(state.weights)
    weight_notes = fill_weighted(rows, effectiveness, weights, costs.machine, lower_is_better=lower_is_better)
    board = Board(
        facts.name,
        list(columns.values()),
        rows,
        measure,
        measures,
        baselines_label(names),
        machine=costs.machine,
        machines=costs.machines,
        cost_group=costs.head,
        counted=count_rows(rows),
        rankings=reported_rankings(rows, default),
        views=VIEWS,
        view=state.view,
        member_facets=[member.facets for member in (*facts.members, *facts.left_out)],
    )
    tests = find_tested_rows(facts, tables, rows) if measure == facts.measure and not state.zero_shot else []
    board, test_notes = add_tests(board, facts, tests)
    any_in_domain = any(matches_facet(row.facets, "training", (IN_DOMAIN,)) for row in rows)
    best, second = best_values(board.columns, rows)
    if own_entries:
        rows += private_rows(facts, own_entries, lines, options, zero_shot=state.zero_shot)
    label = f"mean {measure}" if facts.all_counted > 1 else measure
    summary = summarize(board, measure=label, key=default, relative=AVERAGE, is_filtered=state.filtered)
    board = replace(board, best=best, second=second, summary=summary)
    return RankedBenchmark(board, facts, tables, baselines, costs, any_in_domain, weight_notes, test_notes)


def _select_datasets(facts: BenchmarkFacts, state: BoardState) -> BenchmarkFacts:
    """Return the benchmark with only the datasets that the view's facets select.

    Raises UnknownChoice for a language, domain, or task that none of its datasets has.
    """
    selection = {facet: state.selected_values(facet) for facet in DATASET_FACETS if state.selected_values(facet)}
    for facet, values in selection.items():
        known_values = sorted({member.facets[facet] for member in facts.members} - {""})
        for value in values:
            if value not in known_values:
                raise UnknownChoice(facet, value, known_values)
    if not selection:
        return facts

    def fits(member: Member) -> bool:
        return all(member.facets[facet] in values for facet, values in selection.items())

    return replace(
        facts,
        members=[member for member in facts.members if fits(member)],
        left_out=[member for member in facts.members if not fits(member)],
    )


def _without_omitted_datasets(facts: BenchmarkFacts, state: BoardState) -> BoardState:
    """Return the view without sorts and ranges by datasets that it does not show."""
    hidden_slugs = {member.slug for member in facts.left_out}
    if not hidden_slugs:
        return state
    return replace(
        state,
        sorts=tuple(sort for sort in state.sorts if sort.key not in hidden_slugs),
        ranges=tuple(bounds for bounds in state.ranges if bounds.key not in hidden_slugs),
    )


def _rank_notes(facts: BenchmarkFacts, board: Board, rank_column: Column) -> list[str]:
    """Return the notes on ranking, means, differences, and Borda counts; `rank_column` determines the ranks."""
    keys = {column.key: column for column in board.columns}
    is_multiple = facts.all_counted > 1
    notes = [f"Ranked by {rank_column.label}; equal values share a rank, missing values always sort last."]
    if is_multiple:
        notes.append(f"Means are {over_datasets(facts)}, for complete rows only; missing values are excluded.")
    if COMMON in keys:
        notes.append(f"Common mean: {keys[COMMON].note}; it changes with the filters.")
    notes.append(
        "Δ compares with the baseline of the same source, dataset version, and judgments."
        + (
            " Δ mean (%) is the ratio of the two means, Mean of Δ (%) the mean of the ratios; W/T/L: counted "
            "datasets won, tied, and lost."
            if is_multiple
            else ""
        )
    )
    if BORDA in keys:
        notes.append(
            _("Borda count and mean rank are among all complete rows of one ranking; filters do not change them.")
        )
    return notes


def _dataset_notes(facts: BenchmarkFacts, board: Board) -> list[str]:
    """Return the notes on omitted and uncounted datasets, replaced measures, and composite datasets."""
    notes = []
    if facts.left_out:
        notes.append(
            f"Filtered by language, domain, or task: {len(facts.members)} of "
            f"{len(facts.members) + len(facts.left_out)} datasets; all aggregates are over these."
        )
    uncounted_names = [member.facts.name for member in facts.members if not member.counted]
    if uncounted_names:
        notes.append(f"Shown, but not part of any aggregate: {', '.join(uncounted_names)}.")
    for member in facts.members:
        stand_in = member.measure(board.measure)
        if stand_in != board.measure:
            notes.append(f"{member.facts.name} shows {stand_in} instead of {board.measure}.")
        if member.parts:
            notes.append(
                f"{member.facts.name}: scored results are means over its {len(member.parts)} parts, for systems that "
                "have all of them."
            )
    return notes


#: Fallback name of a baseline.
BASELINE = "the baseline"


class _TestedDataset(NamedTuple):
    """A dataset's column with its test results and their settings; its values are at `position` in a line."""

    key: str
    position: int
    certainty: MeasureCertainty
    settings: TestSettings
    baseline: str


def add_significance(
    board: Board, facts: BenchmarkFacts, certainty: Mapping[int, BoardCertainty], baselines: Mapping[int, str]
) -> tuple[TestSettings | None, list[str]]:
    """Add each dataset's own test results to the visible cells, and return their settings and the notes on them.

    `certainty` is by dataset, `baselines` are names by position of the dataset. Reported figures, private rows, hidden
    judgments, and boards without computed tests get no results.
    """
    datasets = _tested_datasets(board, facts, certainty, baselines)
    cached_results = [
        (dataset, dataset.certainty.cell_statements.setdefault(dataset.baseline, {})) for dataset in datasets
    ]
    has_results = has_marks = False
    for row in board.rows if cached_results else ():
        if row.ranked_in in (REPORTED, PRIVATE):
            continue
        for dataset, results_by_entry in cached_results:
            key, entry = dataset.key, row.entries[dataset.position]
            result = results_by_entry.get(entry) or _cell_certainty(dataset, entry)
            if result is None:
                continue
            cell, (entry_certainty, title, differs) = row[key], result
            is_marked, mark = differs and board.view != "rank", cell.mark
            if is_marked:
                mark = f"{mark}{SEPARATED}" if mark in ("", "‡") else f"{SEPARATED} {mark}"
            row[key] = Cell(
                cell.value,
                cell.text,
                mark,
                f"{cell.title}; {title}" if cell.title else title,
                cell.spread,
                certainty=entry_certainty,
            )
            has_results, has_marks = True, has_marks or is_marked
    settings = datasets[0].settings if datasets else None
    return settings, _test_notes(facts, datasets, has_marks=has_marks) if has_results else []


def _cell_certainty(dataset: _TestedDataset, entry: int) -> tuple[EntryCertainty, str, bool] | None:
    """Return an entry's test results, their description, and whether it differs significantly.

    Results are cached with the dataset's certainty. Returns None if the entry was not tested.
    """
    certainty, settings = dataset.certainty.entries.get(entry), dataset.settings
    if certainty is None:
        return None
    corrected_p = certainty.p_baseline_corrected
    differs = corrected_p is not None and corrected_p < settings.alpha
    result = certainty, describe_result(certainty, settings, dataset.baseline), differs
    dataset.certainty.cell_statements[dataset.baseline][entry] = result
    return result


def _tested_datasets(
    board: Board,
    facts: BenchmarkFacts,
    certainties: Mapping[int, BoardCertainty],
    baselines: Mapping[int, str],
) -> Sequence[_TestedDataset]:
    """Return the visible datasets with test results. Composite datasets have none of their own."""
    visible_keys = {column.key for column in board.columns}
    datasets = []
    for position, member in enumerate(facts.members):
        board_certainty = certainties.get(member.dataset_id)
        measure = board_certainty.for_measure(member.measure(board.measure)) if board_certainty is not None else None
        if board_certainty is not None and measure is not None and member.slug in visible_keys and not member.parts:
            name = baselines.get(position, BASELINE)
            datasets.append(_TestedDataset(member.slug, position, measure, board_certainty.settings, name))
    return datasets


def describe_result(certainty: EntryCertainty, settings: TestSettings, baseline: str = BASELINE) -> str:
    """Return the text that a cell shows on hover: interval, rank range, and comparison with the baseline."""
    text = f"{settings.level * 100:.0f}% interval {certainty.low:.4f} to {certainty.high:.4f}"
    if certainty.rank_low is not None:
        text += f"; rank {ranks_text(certainty)}"
    if certainty.p_baseline is not None:
        text += f"; p {format_p_value(certainty.p_baseline)} vs {baseline}"
    if certainty.p_baseline_corrected is not None:
        text += f", {format_p_value(certainty.p_baseline_corrected)} corrected ({settings.correction})"
    return text


def _test_notes(facts: BenchmarkFacts, datasets: Sequence[_TestedDataset], *, has_marks: bool) -> list[str]:
    """Return the notes on intervals and tests, and on datasets whose hidden judgments allow none.

    `has_marks` tells whether a cell has the mark of a significant difference, which is then explained.
    """
    settings, names = datasets[0].settings, {dataset.baseline for dataset in datasets}
    baseline = names.pop() if len(names) == 1 else "that dataset’s baseline"
    notes = [
        f"Hover over a score to see its {settings.level * 100:.0f}% interval and its tests on that dataset; the "
        "dataset’s own board explains them."
    ]
    if has_marks:
        notes[0] = (
            f"{SEPARATED} differs from {baseline}: p < {settings.alpha:g} in a two-sided {settings.test} by "
            f"query, {settings.correction}-corrected over the dataset’s own board, not over datasets. {notes[0]}"
        )
    hidden = [member.facts.name for member in facts.members if member.facts.hidden]
    return notes + ([f"{', '.join(hidden)}: {WITHHELD_NOTE[0].lower()}{WITHHELD_NOTE[1:]}"] if hidden else [])
