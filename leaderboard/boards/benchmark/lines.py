"""Lines of a benchmark's board, collected from the entries of its datasets: each system's scores and costs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, count
from operator import attrgetter
from typing import NamedTuple

from leaderboard.boards.benchmark.aggregates import Tables, to_table
from leaderboard.boards.columns.costs import BoardCosts, CostLine, cost_columns
from leaderboard.boards.columns.reported import figure_columns
from leaderboard.boards.filtering import ZERO_SHOT
from leaderboard.boards.model import BenchmarkFacts, Member
from leaderboard.boards.state import BoardState
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baseline_label
from leaderboard.models import REFERENCE_TYPES, Entry
from leaderboard.results.board_rows.entry_rows import CLOSED, REFERENCE, REPORTED, SCORED, EntryRow, publication_order
from leaderboard.results.board_rows.measurements import (
    MeasuredEntry,
    add_baseline_measurement,
    chosen_machine,
    list_machines,
)
from leaderboard.results.board_rows.rows import BoardRows, LineKey, matches_source
from leaderboard.systems.baselines import BM25

IN_DOMAIN = Entry.Training.IN_DOMAIN.value

#: Publication time and id of an entry, the order of every board.
PublicationOrder = tuple[str, int]
#: Fields of results that lines have by dataset.
_FIELDS = ("comparison_group", "is_baseline")
#: Placeholder for a missing result.
NO_RESULT = EntryRow("", "", "", "", {}, "", "", "", "", 0)


@dataclass(slots=True)
class SystemLine:
    """Data of one row. Lists have one item per dataset of the benchmark; sets have positions of datasets.

    `entry` is one of the results, used for properties of the system; `published` is the order key of the first one.
    `results` are the results with the row's scores, or `NO_RESULT`.
    """

    key: LineKey
    entry: EntryRow
    published: PublicationOrder
    results: Sequence[EntryRow]
    scores: list[float | None]
    groups: list[str]
    baseline_on: set[int]
    baselines: Sequence[float | None] = ()
    #: Positions of values that a zero-shot view omits.
    omitted_positions: Sequence[int] = ()
    #: Reported values by position on other revisions of the dataset, which are shown and not used.
    other_values: Mapping[int, float] = field(default_factory=dict)

    @property
    def configuration(self) -> str:
        return self.key[1]

    @property
    def ranked_in(self) -> str:
        """Kind in which the row is ranked: `REPORTED` or `SCORED`."""
        return self.key[2]

    @property
    def reference_type(self) -> str:
        """Type of run of the first scored result that is a reference, or an empty string."""
        if self.ranked_in != SCORED:
            return ""
        run_types = filter(None, map(attrgetter("run_type"), self.results))
        return next((run_type for run_type in run_types if run_type in REFERENCE_TYPES), "")

    @property
    def parameters(self) -> int | None:
        """Number of the model's parameters, counted for a result or else declared."""
        for result in self.results:
            if (result.measured or result.parameter_count) and (number := result.parameters):
                return number
        return self.entry.parameters

    @property
    def model_bytes(self) -> int | None:
        """Size of the model's files, as known from a result."""
        measured_results = filter(attrgetter("measured"), self.results)
        return next(filter(None, map(attrgetter("model_bytes"), measured_results)), self.entry.model_bytes)


class BenchmarkLine(NamedTuple):
    """Input for the cells of a row: the line with this `number` and its system.

    `values` are the values in the dataset columns of the view. `annotations` has text, mark, title, and spread of cells
    that need any of them, by position of the dataset. Costs depend on the view and are not included.
    """

    entry: EntryRow
    ranked_in: str
    decimals: int
    provenance: str
    number: int
    values: Sequence[float | None]
    annotations: Mapping[int, tuple[str, str, str, str]]
    parameters: int | None
    model_bytes: int | None
    measured: None = None
    figures: tuple[()] = ()


#: First and current result of each line on a dataset.
_Results = tuple[Mapping[LineKey, EntryRow], Mapping[LineKey, EntryRow]]


def collect_lines(
    facts: BenchmarkFacts,
    rows: Mapping[int, BoardRows],
    measure: str,
    *,
    zero_shot: bool = False,
    reference_lines: Sequence[SystemLine] = (),
) -> list[SystemLine]:
    """Return one line per system, configuration, and kind, in order of first publication.

    A later entry replaces an earlier one, and lines without any score are omitted. `zero_shot` omits values of systems
    that were trained on the dataset or do not declare their training. If there are `reference_lines`, they provide the
    baselines and the current comparison groups.
    """
    names = [member.measure(measure) for member in facts.members]
    results_by_dataset = [
        _line_results(facts, member, rows[member.dataset_id], name)
        for member, name in zip(facts.members, names, strict=True)
    ]
    lines = sorted(_build_lines(results_by_dataset, names), key=attrgetter("published"))
    if facts.all_counted > 1:
        _separate_other_revisions([line for line in lines if line.ranked_in == REPORTED])
    baseline_lines = reference_lines or lines
    # A value is compared with the baseline of its own comparison group.
    baselines: list[dict[str, float | None]] = [{} for _ in names]
    for line in baseline_lines:
        for position in line.baseline_on:
            baselines[position][line.groups[position]] = line.scores[position]
    current_groups = _current_groups(baseline_lines, len(names))
    baselines_by_groups: dict[tuple[str, ...], list[float | None]] = {}  # Most lines have the same groups.
    for line in lines:
        if line.ranked_in == SCORED and line.groups != current_groups:
            line.scores = [
                score if group == current_group else None
                for score, group, current_group in zip(line.scores, line.groups, current_groups, strict=True)
            ]
        groups = tuple(line.groups)
        if groups not in baselines_by_groups:
            baselines_by_groups[groups] = [
                group_baselines.get(group) for group_baselines, group in zip(baselines, groups, strict=True)
            ]
        line.baselines = baselines_by_groups[groups]
    lines = [line for line in lines if line.other_values or line.scores.count(None) < len(line.scores)]
    return _keep_zero_shot(lines) if zero_shot else lines


def _separate_other_revisions(lines: Sequence[SystemLine]) -> None:
    """Move reported values on other revisions of a dataset than most lines of the same source out of the scores."""
    counts: defaultdict[tuple[int | None, int], Counter[str]] = defaultdict(Counter)
    for line in lines:
        for position, (score, result) in enumerate(zip(line.scores, line.results, strict=True)):
            if score is not None:
                counts[line.entry.source_id, position][result.reported_group] += 1
    main_groups = {key: groups.most_common(1)[0][0] for key, groups in counts.items()}
    for line in lines:
        line.other_values = {
            position: score
            for position, (score, result) in enumerate(zip(line.scores, line.results, strict=True))
            if score is not None and result.reported_group != main_groups[line.entry.source_id, position]
        }
        for position in line.other_values:
            line.scores[position] = None


def _keep_zero_shot(lines: Sequence[SystemLine]) -> list[SystemLine]:
    """Remove the values that are not zero-shot from the lines, and return the lines that still have a value."""
    remaining_lines = []
    for line in lines:
        line.omitted_positions = [
            position
            for position, (score, result) in enumerate(zip(line.scores, line.results, strict=True))
            if score is not None and result.training not in ZERO_SHOT
        ]
        for position in line.omitted_positions:
            line.scores[position] = None
        if line.scores.count(None) < len(line.scores):
            remaining_lines.append(line)
    return remaining_lines


def _build_lines(results_by_dataset: Sequence[_Results], names: Sequence[str]) -> Iterator[SystemLine]:
    """Yield the lines, with each dataset's score by the measure of this name.

    Reading ten thousand results by column is faster than by row.
    """
    keys = list(dict.fromkeys(chain.from_iterable(current_results for _, current_results in results_by_dataset)))
    current_columns = [list(map(current.get, keys)) for _, current in results_by_dataset]
    first_columns = [
        column if first_results is current else list(map(first_results.get, keys))
        for column, (first_results, current) in zip(current_columns, results_by_dataset, strict=True)
    ]
    columns = [[result or NO_RESULT for result in column] for column in current_columns]
    named_columns = zip(names, columns, strict=True)
    score_columns = [[result.scores.get(name) for result in column] for name, column in named_columns]
    parts = [zip(*part_columns, strict=True) for part_columns in (first_columns, columns, score_columns)]
    parts += [zip(*(list(map(attrgetter(name), column)) for column in columns), strict=True) for name in _FIELDS]
    for key, first_results, results, scores, groups, is_baseline in zip(keys, *parts, strict=True):
        first_entries = list(filter(None, first_results))
        baseline_on = set(compress(count(), is_baseline)) if any(is_baseline) else set()
        order = min(map(publication_order, first_entries))
        yield SystemLine(key, first_entries[0], order, results, list(scores), list(groups), baseline_on)


def _line_results(facts: BenchmarkFacts, member: Member, rows: BoardRows, measure: str) -> _Results:
    """Return the first and the current result with the measure, each by line, on a dataset.

    Results of other publications, and on earlier versions or judgments, are ignored.
    """
    current_prefix = f"scored:{member.facts.version_id}:{member.facts.qrels_id}:"
    valid_kinds = {
        (source, group)
        for source, group in rows.kinds
        if (group.startswith(current_prefix) if source is None else matches_source(source, facts.source_id))
    }
    results = [result for result in rows.results if measure in result[1].scores]
    if valid_kinds != rows.kinds:
        results = [(key, row) for key, row in results if (row.reported_by, row.comparison_group) in valid_kinds]
    current_results = dict(results)
    if len(current_results) == len(results):
        return current_results, current_results
    # A baseline is only replaced by a baseline, or by a result of another comparison group, which then counts as the
    # baseline.
    current_results = {}
    for key, row in results:
        previous = current_results.get(key)
        if previous is None or not previous.is_baseline or row.is_baseline:
            current_results[key] = row
        elif row.comparison_group != previous.comparison_group:
            current_results[key] = row._replace(is_baseline=previous.is_baseline)
    return dict(reversed(results)), current_results


def _current_groups(lines: Sequence[SystemLine], dataset_count: int) -> list[str]:
    """Return the comparison group of current scored values for each dataset.

    It is the baseline's group, or the newest one if there is no baseline, and empty if there are no scored results.
    """
    current_groups = [""] * dataset_count
    baseline_positions: set[int] = set()
    for line in lines:
        if line.ranked_in == REPORTED:
            continue
        if line.groups == current_groups and not line.baseline_on:
            continue  # This is the case for most lines.
        baseline_positions |= line.baseline_on
        for position, group in enumerate(line.groups):
            if group and (position not in baseline_positions or position in line.baseline_on):
                current_groups[position] = group
    return current_groups


def available_measures(facts: BenchmarkFacts, rows: Mapping[int, BoardRows]) -> list[str]:
    """Return the benchmark's own measure, then those that at least half of the counted datasets have.

    A measure that stands in for another one on a dataset counts as the other one.
    """
    measures_by_dataset = {
        dataset: dataset_rows.get_measures(facts.source_id) for dataset, dataset_rows in rows.items()
    }
    candidates = {name for names in measures_by_dataset.values() for name in names}
    candidates -= {name for member in facts.members for name in member.stand_ins.values()}
    candidates |= {name for member in facts.members for name in member.stand_ins}

    def is_common(measure: str) -> bool:
        count = sum(member.measure(measure) in measures_by_dataset[member.dataset_id] for member in facts.counted)
        return count > 0 and 2 * count >= len(facts.counted)

    return [facts.measure, *sorted(name for name in candidates if name != facts.measure and is_common(name))]


def line_kinds(lines: Sequence[SystemLine]) -> list[str]:
    """Return the kind that each line is ranked in."""
    kinds = []
    for line in lines:
        kind = REFERENCE if line.reference_type else CLOSED if line.entry.closed_api else SCORED
        kinds.append(kind if line.ranked_in == SCORED else line.ranked_in)
    return kinds


def find_baselines(facts: BenchmarkFacts, lines: Sequence[SystemLine]) -> dict[int, tuple[str, bool]]:
    """Return the baselines of scored values, by position of the dataset.

    Each is the name and whether it is the site's own BM25.
    """
    return {
        position: (
            baseline_label(line.entry.system, facts.members[position].facts.name),
            line.entry.slug == BM25.slug,
        )
        for line in lines
        if line.ranked_in == SCORED
        for position in line.baseline_on
        if line.scores[position] is not None
    }


def build_tables(facts: BenchmarkFacts, lines: Sequence[SystemLine], kinds: Sequence[str], measure: str) -> Tables:
    """Return the scores and baselines of the lines. `kinds` has the kind of ranking of each line."""
    return Tables(
        scores=to_table([line.scores for line in lines], len(facts.members)),
        baselines=to_table([line.baselines for line in lines], len(facts.members)),
        counted_columns=[position for position, member in enumerate(facts.members) if member.counted],
        rankings=[
            f"{kind}:{line.entry.source_key}" if kind == REPORTED and facts.ranks_sources_apart else kind
            for line, kind in zip(lines, kinds, strict=True)
        ],
        kinds=kinds,
        lower_is_better=better(measure) == "lower",
    )


#: Id of a system, and its configuration.
SystemKey = tuple[int, str]


def line_costs(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], lines: Sequence[SystemLine], state: BoardState
) -> tuple[BoardCosts, list[CostLine]]:
    """Return the costs of a view with their columns, and those of each line.

    Costs are of a single dataset. Raises UnknownChoice for the hardware.
    """
    costs = _select_costs(facts, rows, lines, state)
    bm25 = (
        line.key[:2] for line in lines if line.baseline_on and line.ranked_in == SCORED and line.entry.slug == BM25.slug
    )
    add_baseline_measurement(costs.measured, next(bm25, None))
    columns = cost_columns(costs.measured.values(), costs.machine, costs.dataset, state.corpus)
    # Use the reported costs of the dataset with most of them, because averages over corpora are meaningless.
    costs_by_member = [
        (member.facts.name, rows[member.dataset_id].get_costs(facts.source_id))
        for member in (*facts.members, *facts.left_out)
    ]
    dataset, reported_figures = max(
        costs_by_member, key=lambda costs: sum(map(len, costs[1].values())), default=("", {})
    )
    columns += [
        replace(column, group=f"{column.group}, {dataset}", note=f"Reported for {dataset}. {column.note}")
        for column in figure_columns(
            [(figures, {}) for figures in reported_figures.values()], [figures.key for figures in columns]
        )
    ]
    cost_lines = [
        CostLine(
            costs.measured.get(line.key[:2]) if line.ranked_in == SCORED else None,
            reported_figures.get(line.key[:2], ()),
        )
        for line in lines
    ]
    return costs._replace(columns=columns), cost_lines


def _select_costs(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], lines: Iterable[SystemLine], state: BoardState
) -> BoardCosts:
    """Return the costs on one dataset: the one that the benchmark names, or the one with costs for the most lines.

    The largest dataset wins ties. The machine is the one that the view selects, or else the one that measured the most
    lines. Raises UnknownChoice.
    """
    scored_systems = {line.key[:2] for line in lines if line.ranked_in == SCORED}
    measurements_by_member = [
        (member, [item for item in rows[member.dataset_id].measured if _system_key(item) in scored_systems])
        for member in (*facts.members, *facts.left_out)
        if facts.efficiency_from in (None, member.dataset_id)
    ]
    machines = list_machines([item for _, measurements in measurements_by_member for item in measurements])
    selected_machine = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
    hardware = selected_machine.slug if selected_machine and (state.hardware or state.cpu_only) else ""
    best_size: tuple[int, int] = (0, 0)
    costs = BoardCosts(None, machines, {}, 0)
    for member, measurements in measurements_by_member:
        machine = next((item for item in list_machines(measurements) if hardware in ("", item.slug)), None)
        machine_costs = {_system_key(item): item for item in measurements if item.machine == machine}
        size = (len(machine_costs), max((item.figures["documents"] for item in measurements), default=0))
        if machine_costs and size > best_size:
            other_systems = {_system_key(item) for item in measurements}.difference(machine_costs)
            best_size = size
            costs = BoardCosts(machine, machines, machine_costs, len(other_systems), dataset=member.facts.name)
    return costs


def _system_key(measurement: MeasuredEntry) -> SystemKey:
    return measurement.system_id, measurement.configuration
