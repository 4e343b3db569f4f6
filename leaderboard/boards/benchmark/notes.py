"""What a reader has to know of a benchmark's board: one sentence each, and only what applies."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.boards.benchmark.base import Base
from leaderboard.boards.benchmark.columns import BORDA, COMMON, over
from leaderboard.boards.columns.baseline import notes_on_baselines
from leaderboard.boards.columns.challenged import notes_on_challenges
from leaderboard.boards.columns.reported import has_doubtful
from leaderboard.boards.columns.seeds import NOTE as SEEDS
from leaderboard.boards.columns.seeds import has_seeds
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.model import Board, Column, Row
from leaderboard.boards.state import BoardState
from leaderboard.results.groups import CLOSED_NOTE
from leaderboard.results.kinds import CLOSED, REPORTED


def notes_of(
    board: Board, rows: Sequence[Row], ranked_by: Column, state: BoardState, base: Base
) -> list[str]:
    """The notes below the board; `rows` are all its rows, whatever the view leaves."""
    return [
        *_on_ranks(base.facts, board, ranked_by),
        *notes_on_baselines(base.facts, base.baselines),
        *_on_datasets(base.facts, board),
        *_on_kinds(board, rows, state, base),
    ]


def _on_ranks(facts: BenchmarkFacts, board: Board, ranked_by: Column) -> list[str]:
    keys = {column.key: column for column in board.columns}
    several = facts.all_counted > 1
    notes = [
        f"Ranks follow {ranked_by.label}; equal values share a rank, missing values sort last both ways."
    ]
    if several:
        notes.append(f"A mean is {over(facts)}, of rows that have them all; a missing value is never 0.")
    if COMMON in keys:
        notes.append(f"Common mean: {keys[COMMON].note}; it moves with the filters.")
    notes.append(
        "Δ compares with the baseline of the same source, version and judgements only."
        + (
            " Δ of means % is the ratio of the two means, Mean of Δ % the mean of the ratios; W/T/L counts counted "
            "datasets won, tied and lost."
            if several
            else ""
        )
    )
    if BORDA in keys:
        notes.append(
            "Borda and mean rank are among all complete rows of the same kind; no filter of rows moves them."
        )
    return notes


def _on_datasets(facts: BenchmarkFacts, board: Board) -> list[str]:
    notes = []
    if facts.left_out:
        notes.append(
            f"Chosen by language, domain or task: {len(facts.members)} of "
            f"{len(facts.members) + len(facts.left_out)} datasets; all aggregates are over these."
        )
    shown = [member.facts.name for member in facts.members if not member.counted]
    if shown:
        notes.append(f"Shown but not counted in any aggregate: {', '.join(shown)}.")
    for member in facts.members:
        stand_in = member.measure(board.measure)
        if stand_in != board.measure:
            notes.append(f"{member.facts.name} shows {stand_in} instead of {board.measure}.")
        if member.parts:
            notes.append(
                f"{member.facts.name}, where scored here, is the mean of its {len(member.parts)} parts, and there "
                "only if a system has all of them."
            )
    return notes


def _on_kinds(board: Board, rows: Sequence[Row], state: BoardState, base: Base) -> list[str]:
    notes = []
    datasets = {member.slug for member in base.facts.members}
    shown = [column.key for column in board.columns if column.key in datasets]
    if any(row.ranked_in == REPORTED for row in rows):
        notes.append(
            "r: a rank among reported figures, printed by publications and recomputed by nobody here; "
            "ranked apart from results scored here."
        )
    if any(row.ranked_in == CLOSED for row in rows):
        notes.append(CLOSED_NOTE)
    if shown and any(line.in_domain for line in base.lines):
        notes.append("‡ in-domain: trained on that dataset.")
    if any(line.seeds for line in base.lines) and has_seeds(rows, shown):
        notes.append(SEEDS)
    if state.zero_shot:
        notes.append(
            "Zero-shot only: values of systems that were trained on the dataset, or whose makers do not say, are left "
            "out of cells and aggregates; adaptation to the corpus without labels stays."
        )
    if has_doubtful(rows, board.columns):
        notes.append("? as printed, but doubtful: never used to sort or plot.")
    return notes + notes_on_challenges(rows)
