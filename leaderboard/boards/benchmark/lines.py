"""From the entries of its datasets to the lines of a benchmark's board: what each system has, and what it costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, count
from operator import attrgetter
from typing import NamedTuple

from leaderboard.boards.benchmark.aggregates import Tables, table
from leaderboard.boards.columns.costs import BoardCosts, CostLine, cost_columns, figure_columns
from leaderboard.boards.filtering import ZERO_SHOT
from leaderboard.boards.model import BenchmarkFacts, Member
from leaderboard.boards.state import BoardState
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baseline_label
from leaderboard.models import Entry
from leaderboard.results.board_rows.entry_rows import CLOSED, REPORTED, SCORED, EntryRow
from leaderboard.results.board_rows.measurements import (
    MeasuredEntry,
    chosen_machine,
    list_machines,
    with_baseline,
)
from leaderboard.results.board_rows.rows import BoardRows, Figures, LineKey, matches_source
from leaderboard.systems.baselines import BM25

IN_DOMAIN = Entry.Training.IN_DOMAIN.value

#: When an entry was published, then its id: the order of every board.
Published = tuple[str, int]
_published = attrgetter("published", "pk")
#: The place of a missing result.
NO_RESULT = EntryRow("", "", "", "", {}, "", "", "", "", 0)


@dataclass(slots=True)
class SystemLine:
    """What one row collects. The lists have a place for each dataset of the benchmark, sets hold such places.

    `about` is any of its results, for what all say of its system; `published` is when its first value was. `results`
    are those that have its values, `NO_RESULT` where there is none.
    """

    key: LineKey
    about: EntryRow
    published: Published
    results: Sequence[EntryRow]
    scores: list[float | None]
    groups: list[str]
    baseline_on: set[int]
    baselines: Sequence[float | None] = ()
    #: Values that are left out because they are not zero-shot, where the view asks for that.
    left_out: Sequence[int] = ()

    @property
    def configuration(self) -> str:
        """Which of the system's."""
        return self.key[1]

    @property
    def ranked_in(self) -> str:
        """`REPORTED` or `SCORED`."""
        return self.key[2]

    @property
    def parameters(self) -> int | None:
        """Number of the model's weights, counted for a result or else declared."""
        for result in self.results:
            if (result.measured or result.parameter_count) and (number := result.parameters):
                return number
        return self.about.parameters


class BenchmarkLine(NamedTuple):
    """What the cells of a row are made from: the line of this `number`, and its system.

    `shown` is what the view shows of its scores. `beside` has, by place of a dataset, the mark, the title and the
    spread of a cell that has any of them. Costs are of the view, and no part of it.
    """

    about: EntryRow
    ranked_in: str
    decimals: int
    provenance: str
    number: int
    shown: Sequence[float | None]
    beside: Mapping[int, tuple[str, str, str]]
    parameters: int | None
    measured: None = None
    figures: tuple[()] = ()


#: By line its first result on a dataset, and the one that it has now.
_Results = tuple[Mapping[LineKey, EntryRow], Mapping[LineKey, EntryRow]]


def collect_lines(
    facts: BenchmarkFacts,
    rows: Mapping[int, BoardRows],
    measure: str,
    *,
    zero_shot: bool = False,
    beside: Sequence[SystemLine] = (),
) -> list[SystemLine]:
    """One line per system, configuration and kind, in order of first publication; a later entry replaces an earlier.

    `zero_shot` leaves out values of systems that were trained on the dataset, or whose makers do not say. Where there
    are lines `beside` these, they have the baselines, and say what is present.
    """
    names = [member.measure(measure) for member in facts.members]
    found = [
        _results(facts, member, rows[member.dataset_id], name)
        for member, name in zip(facts.members, names, strict=True)
    ]
    keys = dict.fromkeys(chain.from_iterable(present for _, present in found))
    lines = sorted((_line(key, found, names) for key in keys), key=attrgetter("published"))
    anchors = beside or lines
    # A value is compared with the baseline of its own comparison group.
    baselines: list[dict[str, float | None]] = [{} for _ in names]
    for line in anchors:
        for place in line.baseline_on:
            baselines[place][line.groups[place]] = line.scores[place]
    current = _current_groups(anchors, len(names))
    of_groups: dict[tuple[str, ...], list[float | None]] = {}  # most lines have the same
    for line in lines:
        if line.ranked_in == SCORED and line.groups != current:
            line.scores = [
                score if group == wanted else None
                for score, group, wanted in zip(line.scores, line.groups, current, strict=True)
            ]
        groups = tuple(line.groups)
        if groups not in of_groups:
            of_groups[groups] = [
                of_place.get(group) for of_place, group in zip(baselines, groups, strict=True)
            ]
        line.baselines = of_groups[groups]
    lines = [line for line in lines if line.scores.count(None) < len(line.scores)]
    return _zero_shot(lines) if zero_shot else lines


def _zero_shot(lines: Sequence[SystemLine]) -> list[SystemLine]:
    """The lines without the values that are not zero-shot; those that have none left are gone."""
    left = []
    for line in lines:
        line.left_out = [
            place
            for place, (score, result) in enumerate(zip(line.scores, line.results, strict=True))
            if score is not None and result.training not in ZERO_SHOT
        ]
        for place in line.left_out:
            line.scores[place] = None
        if line.scores.count(None) < len(line.scores):
            left.append(line)
    return left


def _line(key: LineKey, found: Sequence[_Results], names: Sequence[str]) -> SystemLine:
    """What the datasets have of a line, each by the measure of this name."""
    first = [earliest[key] for earliest, _ in found if key in earliest]
    results = [present.get(key, NO_RESULT) for _, present in found]
    return SystemLine(
        key,
        first[0],
        min(map(_published, first)),
        results,
        [result.scores.get(name) for result, name in zip(results, names, strict=True)],
        list(map(attrgetter("comparison_group"), results)),
        set(compress(count(), map(attrgetter("is_baseline"), results))),
    )


def _results(facts: BenchmarkFacts, member: Member, rows: BoardRows, measure: str) -> _Results:
    """What each line has on a dataset; nothing of entries of another paper, or not on the present judgements."""
    current = f"scored:{member.facts.version_id}:{member.facts.qrels_id}:"
    shown = {
        (source, group)
        for source, group in rows.kinds
        if (group.startswith(current) if source is None else matches_source(source, facts.source_id))
    }
    found = [(key, row) for key, row in rows.results if measure in row.scores]
    if shown != rows.kinds:
        found = [(key, row) for key, row in found if (row.reported_by, row.comparison_group) in shown]
    present = dict(found)
    if len(present) == len(found):
        return present, present
    return dict(reversed(found)), _present(found)


def _present(results: Iterable[tuple[LineKey, EntryRow]]) -> dict[LineKey, EntryRow]:
    """A later entry replaces an earlier one, but for a baseline, which stays whatever comes under its name later."""
    present: dict[LineKey, EntryRow] = {}
    for key, row in results:
        before = present.get(key)
        if before is None or not before.is_baseline or row.is_baseline:
            present[key] = row
        elif row.comparison_group != before.comparison_group:
            present[key] = row._replace(is_baseline=before.is_baseline)
    return present


def _current_groups(lines: Sequence[SystemLine], number: int) -> list[str]:
    """By dataset, the group that its scored values are compared in: that of its baseline, else the newest."""
    current = [""] * number
    anchored: set[int] = set()
    for line in lines:
        if line.ranked_in == REPORTED:
            continue
        if line.groups == current and not line.baseline_on:
            continue  # like most lines
        anchored |= line.baseline_on
        for place, group in enumerate(line.groups):
            if group and (place not in anchored or place in line.baseline_on):
                current[place] = group
    return current


def available_measures(facts: BenchmarkFacts, rows: Mapping[int, BoardRows]) -> list[str]:
    """The measures that the board can show: its own first, then those that half of the counted datasets have."""
    had = {dataset: of_dataset.get_measures(facts.source_id) for dataset, of_dataset in rows.items()}
    wanted = {name for names in had.values() for name in names}
    wanted -= {name for member in facts.members for name in member.stand_ins.values()}
    wanted |= {name for member in facts.members for name in member.stand_ins}

    def widely_had(measure: str) -> bool:
        having = sum(member.measure(measure) in had[member.dataset_id] for member in facts.counted)
        return having > 0 and 2 * having >= len(facts.counted)

    return [facts.measure, *sorted(name for name in wanted if name != facts.measure and widely_had(name))]


def kinds_of(lines: Sequence[SystemLine]) -> list[str]:
    """Return the kind that each line is ranked in."""
    return [
        CLOSED if line.ranked_in == SCORED and line.about.closed_api else line.ranked_in for line in lines
    ]


def get_baselines(facts: BenchmarkFacts, lines: Sequence[SystemLine]) -> dict[int, tuple[str, bool]]:
    """Return the baseline of scored values by place of a dataset, and whether it is the site's own BM25."""
    return {
        place: (
            baseline_label(line.about.system, facts.members[place].facts.name),
            line.about.slug == BM25.slug,
        )
        for line in lines
        if line.ranked_in == SCORED
        for place in line.baseline_on
        if line.scores[place] is not None
    }


def tables_of(
    facts: BenchmarkFacts, lines: Sequence[SystemLine], kinds: Sequence[str], measure: str
) -> Tables:
    """Return the lines' scores and their baselines; `kinds` are those that the lines are ranked in."""
    return Tables(
        scores=table([line.scores for line in lines], len(facts.members)),
        baselines=table([line.baselines for line in lines], len(facts.members)),
        counted=[place for place, member in enumerate(facts.members) if member.counted],
        kinds=kinds,
        lower_is_better=better(measure) == "lower",
    )


#: A system and its configuration, as the lines of a benchmark's board are told apart.
Of = tuple[int, str]


def line_costs(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], lines: Sequence[SystemLine], state: BoardState
) -> tuple[BoardCosts, list[CostLine]]:
    """Return the costs of a view with their columns, and those of each line. Raises UnknownChoice for the hardware."""
    shown = _costs_shown(facts, rows, lines, state)
    bm25 = (
        line.key[:2]
        for line in lines
        if line.baseline_on and line.ranked_in == SCORED and line.about.slug == BM25.slug
    )
    with_baseline(shown.measured, next(bm25, None))
    columns = cost_columns(shown.measured.values(), shown.machine, shown.dataset, state.corpus)
    # Stated costs are those of one named dataset: an average over corpora of different sizes would mean nothing.
    dataset, stated = "", dict[Of, Figures]()
    for member in (*facts.members, *facts.left_out):
        if found := rows[member.dataset_id].get_costs(facts.source_id):
            dataset, stated = member.facts.name, found
            break
    columns += [
        replace(column, group=f"{column.group}, {dataset}", note=f"As stated for {dataset}. {column.note}")
        for column in figure_columns([(each, {}) for each in stated.values()], [each.key for each in columns])
    ]
    of_lines = [
        CostLine(
            shown.measured.get(line.key[:2]) if line.ranked_in == SCORED else None,
            stated.get(line.key[:2], ()),
        )
        for line in lines
    ]
    return shown._replace(columns=columns), of_lines


def _costs_shown(
    facts: BenchmarkFacts, rows: Mapping[int, BoardRows], lines: Iterable[SystemLine], state: BoardState
) -> BoardCosts:
    """Return the costs on one dataset: the one that the benchmark names, or the one that most lines share.

    Among equals it is the largest. The machine is the one that the view names, or else the one that most lines share.
    Raises UnknownChoice.
    """
    wanted = {line.key[:2] for line in lines if line.ranked_in == SCORED}
    of_members = [
        (member, [one for one in rows[member.dataset_id].measured if _key(one) in wanted])
        for member in (*facts.members, *facts.left_out)
        if facts.efficiency_from in (None, member.dataset_id)
    ]
    machines = list_machines([one for _, measured in of_members for one in measured])
    named = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
    hardware = named.slug if named and (state.hardware or state.cpu_only) else ""
    best: tuple[int, int] = (0, 0)
    shown = BoardCosts(None, machines, {}, 0)
    for member, measured in of_members:
        machine = next((one for one in list_machines(measured) if hardware in ("", one.slug)), None)
        here = {_key(one): one for one in measured if one.machine == machine}
        size = (len(here), max((one.figures["documents"] for one in measured), default=0))
        if here and size > best:
            elsewhere = {_key(one) for one in measured}.difference(here)
            best = size
            shown = BoardCosts(machine, machines, here, len(elsewhere), dataset=member.facts.name)
    return shown


def _key(measured: MeasuredEntry) -> Of:
    return measured.system_id, measured.configuration
