"""The rows of a benchmark's board that only a team's own people see: beside everyone's, and moving none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from leaderboard.boards.benchmark.aggregates import Tables, table
from leaderboard.boards.benchmark.columns import BORDA, MEAN_RANK, OverAll
from leaderboard.boards.benchmark.lines import Line, collect
from leaderboard.boards.benchmark.rows import rows_of
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.model import Column, Identity, Row
from leaderboard.boards.state import BoardState
from leaderboard.results.history.entry_columns import NO_ENTRIES, DatasetEntries
from leaderboard.results.history.entry_rows import SystemRow
from leaderboard.results.kinds import PRIVATE

NOTE = (
    "Private: only your team sees these rows. They have no rank, move no rank, mean or mark of others, and are in no "
    "export, figure or feed."
)


def private_rows(
    facts: BenchmarkFacts,
    entries: Mapping[int, DatasetEntries],
    public: Sequence[Line],
    columns_for: Callable[[OverAll], Sequence[Column]],
    read_systems: Callable[[Iterable[int]], Mapping[int, SystemRow]],
    state: BoardState,
    measure: str,
    *,
    lower_is_better: bool,
) -> list[Row]:
    """Rows of private entries, by dataset, compared with the baselines of the `public` lines; without costs."""
    own = {member.dataset_id: entries.get(member.dataset_id, NO_ENTRIES) for member in facts.members}
    lines = collect(facts, own, measure, zero_shot=state.zero_shot, beside=public)
    width = len(facts.members)
    tables = Tables(
        scores=table([line.scores for line in lines], width),
        baselines=table([line.baselines for line in lines], width),
        counted=[place for place, member in enumerate(facts.members) if member.counted],
        kinds=[PRIVATE] * len(lines),
        lower_is_better=lower_is_better,
    )
    systems = read_systems(line.system_id for line in lines)
    columns = columns_for(OverAll(tables))
    rows = rows_of(facts, measure, columns, lines, systems, tables, state.view)
    ranks = [BORDA, MEAN_RANK]
    if state.view == "rank":
        ranks += [member.slug for member in facts.members]
    for row in rows:
        if isinstance(row.entry, Identity):
            row.entry = row.entry._replace(visibility="private")
        for key in ranks:
            if row.value(key) is not None:
                row[key] = replace(row[key], value=None)
    return rows
