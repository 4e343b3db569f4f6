"""The board of a benchmark: systems × datasets for one measure, with aggregates over the datasets that count."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.utils.translation import gettext_noop as _

from leaderboard.boards.benchmark.aggregates import Tables, means, plain
from leaderboard.boards.benchmark.columns import (
    AVERAGE,
    BORDA,
    COMMON,
    MEAN,
    NOTE,
    OF_VIEW,
    RANKING,
    Look,
    aggregates_of,
    columns_of,
    default_sort,
    fill_common,
    over,
    private_rows,
    rows_of,
)
from leaderboard.boards.benchmark.lines import (
    IN_DOMAIN,
    available_measures,
    collect_lines,
    get_baselines,
    kinds_of,
    line_costs,
    tables_of,
)
from leaderboard.boards.columns.baseline import difference_to, notes_on_baselines
from leaderboard.boards.columns.costs import BoardCosts, fill_costs, fill_weighted, has_doubtful
from leaderboard.boards.columns.marks import DOUBTFUL, SEEDS, has_seeds, notes_on_challenges
from leaderboard.boards.columns.significance import WITHHELD, format_p_value, ranks_text
from leaderboard.boards.facets import OF_DATASETS, matches_facet
from leaderboard.boards.filtering import apply_view, assign_ranks, best_values, count_rows, resolved_sorts
from leaderboard.boards.model import SEPARATED, BenchmarkFacts, Board, Cell, Column, Member
from leaderboard.boards.state import VIEWS, BoardState
from leaderboard.boards.summary import summarise
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
    """The ranked board of the datasets that a view chooses, with the sources of its notes.

    Private rows of a team are last. `baselines` has, by place of a dataset, the name of the baseline, and whether it is
    the site's own BM25.
    """

    board: Board
    facts: BenchmarkFacts
    tables: Tables
    baselines: Mapping[int, tuple[str, bool]]
    costs: BoardCosts
    any_in_domain: bool
    notes_on_weights: Sequence[str]

    def view(self, state: BoardState, certainty: Mapping[int, BoardCertainty]) -> Board:
        """Return the view of the board, with the tests of each dataset. Raises UnknownChoice."""
        facts, board, state = self.facts, self.board, _without_left_out(self.facts, state)
        columns = {column.key: column for column in board.columns}
        default = default_sort(facts, columns)
        sort = resolved_sorts(board, state, default)[0].key
        datasets = {member.slug for member in facts.members}
        ranked_by = columns[sort if sort in RANKING or sort in datasets else default]
        rows = [row.copy() for row in board.rows]
        if state.sorts:
            assign_ranks(rows, ranked_by.key, lower_is_better=ranked_by.better == "lower")
        board = replace(board, rows=rows)
        omitted: Sequence[str] = ()
        if COMMON in columns:
            board, says_enough = fill_common(facts, board, self.tables, state)
            omitted = () if says_enough else (COMMON,)
        complete_by = sort if sort == COMMON or sort in datasets else MEAN
        if facts.all_counted > 1 and any(row.value(complete_by) is not None for row in rows):
            board = replace(board, complete_by=complete_by)
        # Values that are not zero-shot are left out already, one by one.
        board = apply_view(board, replace(state, zero_shot=False), default, omitted)
        names = {place: name for place, (name, _) in self.baselines.items()}
        found_with, on_tests = add_significance(board, facts, certainty, names)
        notes = [
            *_on_ranks(facts, board, ranked_by),
            *notes_on_baselines(facts, self.baselines),
            *_on_datasets(facts, board),
            *self._on_kinds(board, state),
            *on_tests,
            *self.notes_on_weights,
            *([NOTE] if any(row.ranked_in == PRIVATE for row in rows) else []),
            *self.costs.notes(),
        ]
        return replace(board, found_with=found_with, notes=notes)

    def _on_kinds(self, board: Board, state: BoardState) -> list[str]:
        notes = []
        rows = [row for row in self.board.rows if row.ranked_in != PRIVATE]
        datasets = {member.slug for member in self.facts.members}
        shown = {column.key for column in board.columns if column.key in datasets}
        if any(row.ranked_in == REPORTED for row in rows):
            notes.append(_REPORTED_NOTE)
        if any(row.ranked_in == CLOSED for row in rows):
            notes.append(CLOSED_NOTE)
        if shown and self.any_in_domain:
            notes.append(_("‡ in-domain: trained on that dataset."))
        if has_seeds(rows, shown):
            notes.append(SEEDS)
        if state.zero_shot:
            notes.append(_ZERO_SHOT_NOTE)
        if has_doubtful(rows, board.columns):
            notes.append(DOUBTFUL)
        return notes + notes_on_challenges(rows)


_REPORTED_NOTE = _(
    "Reported: figures taken from publications, not recomputed here, and ranked separately from results scored here."
)
_ZERO_SHOT_NOTE = _(
    "Zero-shot only: values of systems that were trained on the dataset, or do not declare their training data, are "
    "left out of cells and aggregates; unsupervised adaptation to the corpus is kept."
)


def benchmark_view_key(state: BoardState) -> str:
    """Return text that changes with everything in a view that the ranked board depends on."""
    costs = state.hardware, state.cpu_only, state.corpus, state.weights
    datasets = [state.chosen(facet) for facet in OF_DATASETS]
    return f"{state.measure} {state.view} {state.zero_shot} {costs} {state.filtered} {datasets}"


def rank_benchmark(
    facts: BenchmarkFacts,
    entries: Mapping[int, BoardRows],
    state: BoardState,
    private: Mapping[int, Sequence[EntryRow]],
) -> RankedBenchmark:
    """Return the ranked board for the measure, the datasets, the hardware, and the weights of a view.

    `entries` are those of the datasets, by id, `private` those of the reader's own teams, which have rows of their own
    and change no others.
    Raises UnknownChoice for a measure, hardware, or facet of datasets that the board does not have.
    """
    measure, measures = state.measure or facts.measure, available_measures(facts, entries)
    if measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    facts = _chosen(facts, state)
    lines = collect_lines(facts, entries, measure, zero_shot=state.zero_shot)
    tables, baselines = tables_of(facts, lines, kinds_of(lines), measure), get_baselines(facts, lines)
    names = {name for name, _ in baselines.values()}
    if any(line.baseline_on and line.ranked_in == REPORTED for line in lines):
        names.add(BM25.name)  # reported figures are compared with their publication's BM25
    costs, costs_of_lines = line_costs(facts, entries, lines, state)
    look = Look(measure, state.view, difference_to(names), bool(state.weights), costs.columns)
    columns = {column.key: column for column in columns_of(facts, look, aggregates_of(tables))}
    of_costs = OF_VIEW.union(column.key for column in costs.columns)
    of_lines = [column for key, column in columns.items() if key not in of_costs]
    rows = rows_of(facts, look, of_lines, lines, tables)
    fill_costs(rows, costs.columns, costs_of_lines)
    default = default_sort(facts, columns)
    assign_ranks(rows, default, lower_is_better=columns[default].better == "lower")
    effectiveness, lower = plain(means(tables.of_counted[0])), tables.lower_is_better
    weights = dict(state.weights)
    on_weights = fill_weighted(rows, effectiveness, weights, costs.machine, lower_is_better=lower)
    in_domain = any(matches_facet(row.facets, "training", (IN_DOMAIN,)) for row in rows)
    best = best_values(columns.values(), rows)
    if private:
        rows += private_rows(facts, private, lines, look, zero_shot=state.zero_shot)
    board = Board(
        facts.name, list(columns.values()), rows, measure, measures, baselines_label(names), *best,
        costs.machine, costs.machines, costs.head, counted=count_rows(rows), views=VIEWS, view=state.view,
        of_datasets=[member.facets for member in (*facts.members, *facts.left_out)],
    )  # fmt: skip
    label = f"mean {measure}" if facts.all_counted > 1 else measure
    summary = summarise(board, measure=label, key=default, relative=AVERAGE, filtered=state.filtered)
    board = replace(board, summary=summary)
    return RankedBenchmark(board, facts, tables, baselines, costs, in_domain, on_weights)


def _chosen(facts: BenchmarkFacts, state: BoardState) -> BenchmarkFacts:
    """The benchmark with the datasets that the view's facets choose.

    Raises UnknownChoice for a language, domain or task that none of its datasets has.
    """
    wanted = {facet: state.chosen(facet) for facet in OF_DATASETS if state.chosen(facet)}
    for facet, values in wanted.items():
        known = sorted({member.facets[facet] for member in facts.members} - {""})
        for value in values:
            if value not in known:
                raise UnknownChoice(facet, value, known)
    if not wanted:
        return facts

    def fits(member: Member) -> bool:
        return all(member.facets[facet] in values for facet, values in wanted.items())

    return replace(
        facts,
        members=[member for member in facts.members if fits(member)],
        left_out=[member for member in facts.members if not fits(member)],
    )


def _without_left_out(facts: BenchmarkFacts, state: BoardState) -> BoardState:
    """The view without orders and ranges by datasets that it does not show."""
    gone = {member.slug for member in facts.left_out}
    if not gone:
        return state
    return replace(
        state,
        sorts=tuple(sort for sort in state.sorts if sort.key not in gone),
        ranges=tuple(each for each in state.ranges if each.key not in gone),
    )


def _on_ranks(facts: BenchmarkFacts, board: Board, ranked_by: Column) -> list[str]:
    keys = {column.key: column for column in board.columns}
    several = facts.all_counted > 1
    notes = [f"Ranked by {ranked_by.label}; equal values share a rank, missing values always sort last."]
    if several:
        notes.append(
            f"Means are {over(facts)}, for complete rows only; missing values are excluded, never 0."
        )
    if COMMON in keys:
        notes.append(f"Common mean: {keys[COMMON].note}; it changes with the filters.")
    notes.append(
        "Δ compares with the baseline of the same source, dataset version and judgements."
        + (
            " Δ mean (%) is the ratio of the two means, Mean of Δ (%) the mean of the ratios; W/T/L counts counted "
            "datasets won, tied and lost."
            if several
            else ""
        )
    )
    if BORDA in keys:
        notes.append(
            _(
                "Borda count and mean rank are among all complete rows of the same kind; filters do not change them."
            )
        )
    return notes


def _on_datasets(facts: BenchmarkFacts, board: Board) -> list[str]:
    notes = []
    if facts.left_out:
        notes.append(
            f"Filtered by language, domain or task: {len(facts.members)} of "
            f"{len(facts.members) + len(facts.left_out)} datasets; all aggregates are over these."
        )
    shown = [member.facts.name for member in facts.members if not member.counted]
    if shown:
        notes.append(f"Shown, but not part of any aggregate: {', '.join(shown)}.")
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


#: Where it has no other name.
BASELINE = "the baseline"


class _Dataset(NamedTuple):
    """The key of a dataset's column, what was found there and with what; `place` is that of a line's values."""

    key: str
    place: int
    found: MeasureCertainty
    how: TestSettings
    baseline: str


def add_significance(
    board: Board,
    facts: BenchmarkFacts,
    found: Mapping[int, BoardCertainty],
    baselines: Mapping[int, str],
) -> tuple[TestSettings | None, list[str]]:
    """Add test results to the cells of the rows that the board shows, and return their settings and the notes on them.

    Nothing is tested over several datasets: each cell shows what its dataset's own board found.

    `found` is by dataset, `baselines` are names of baselines by place of the dataset. Nothing is said of reported
    figures, of private rows, of hidden judgements, and of boards of which nothing has been found yet.
    """
    datasets = _datasets(board, facts, found, baselines)
    known = [
        (each.key, each.place, each, each.found.cell_statements.setdefault(each.baseline, {}))
        for each in datasets
    ]
    any_found = any_marked = False
    for row in board.rows if known else ():
        if row.ranked_in in (REPORTED, PRIVATE):
            continue
        for key, place, dataset, made in known:
            entry = row.entries[place]
            told = made.get(entry) or _cell_certainty(dataset, entry)
            if told is None:
                continue
            cell, (of_entry, title, differs) = row[key], told
            marked, mark = differs and board.view != "rank", cell.mark
            if marked:
                mark = f"{mark}{SEPARATED}" if mark in ("", "‡") else f"{SEPARATED} {mark}"
            row[key] = Cell(
                cell.value,
                cell.text,
                mark,
                f"{cell.title}; {title}" if cell.title else title,
                cell.spread,
                certainty=of_entry,
            )
            any_found, any_marked = True, any_marked or marked
    settings = datasets[0].how if datasets else None
    return settings, _notes(facts, datasets, marked=any_marked) if any_found else []


def _cell_certainty(dataset: _Dataset, entry: int) -> tuple[EntryCertainty, str, bool] | None:
    """What was found of an entry, how it is said, and whether it differs from the baseline; None of others."""
    found, how = dataset.found.entries.get(entry), dataset.how
    if found is None:
        return None
    corrected = found.p_baseline_corrected
    differs = corrected is not None and corrected < how.alpha
    told = found, describe_result(found, how, dataset.baseline), differs
    dataset.found.cell_statements[dataset.baseline][entry] = told
    return told


def _datasets(
    board: Board, facts: BenchmarkFacts, found: Mapping[int, BoardCertainty], baselines: Mapping[int, str]
) -> Sequence[_Dataset]:
    """The columns of which something was found. One that is the mean of its parts has nothing of its own."""
    shown = {column.key for column in board.columns}
    datasets = []
    for place, member in enumerate(facts.members):
        of_board = found.get(member.dataset_id)
        measure = of_board.of(member.measure(board.measure)) if of_board is not None else None
        if of_board is not None and measure is not None and member.slug in shown and not member.parts:
            name = baselines.get(place, BASELINE)
            datasets.append(_Dataset(member.slug, place, measure, of_board.settings, name))
    return datasets


def describe_result(found: EntryCertainty, how: TestSettings, baseline: str = BASELINE) -> str:
    """What a cell says on hover: the interval, the ranks that tests leave open, and how it compares."""
    text = f"{how.level * 100:.0f}% interval {found.low:.4f} to {found.high:.4f}"
    if found.rank_low is not None:
        text += f"; rank {ranks_text(found)}"
    if found.p_baseline is not None:
        text += f"; p {format_p_value(found.p_baseline)} vs {baseline}"
    if found.p_baseline_corrected is not None:
        text += f", {format_p_value(found.p_baseline_corrected)} corrected ({how.correction})"
    return text


def _notes(facts: BenchmarkFacts, datasets: Sequence[_Dataset], *, marked: bool) -> list[str]:
    how, names = datasets[0].how, {each.baseline for each in datasets}
    baseline = names.pop() if len(names) == 1 else "that dataset’s baseline"
    notes = [
        f"Hover over a score to see its {how.level * 100:.0f}% interval and its tests on that dataset; the dataset’s "
        "own board explains them."
    ]
    if marked:
        notes[0] = (
            f"{SEPARATED} differs from {baseline}: p < {how.alpha:g} in a two-sided {how.test} by "
            f"query, {how.correction}-corrected over the dataset’s own board, not over datasets. {notes[0]}"
        )
    hidden = [member.facts.name for member in facts.members if member.facts.hidden]
    return notes + ([f"{', '.join(hidden)}: {WITHHELD[0].lower()}{WITHHELD[1:]}"] if hidden else [])
