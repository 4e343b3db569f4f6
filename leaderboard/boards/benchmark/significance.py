"""How sure the cells of a benchmark's board are: what was found on each dataset's own board, said at its values.

Nothing is tested over several datasets. A cell says on hover what its dataset's board says in columns, and a mark says
whether the difference to that board's baseline is real.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leaderboard.boards.columns.significance import WITHHELD, format_p_value, ranks_text
from leaderboard.boards.facts import BenchmarkFacts
from leaderboard.boards.model import SEPARATED, Board, Cell
from leaderboard.results.board_rows.entry_rows import PRIVATE, REPORTED
from leaderboard.results.significance.types import (
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
    TestSettings,
)

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

    `found` is by dataset, `baselines` are names of baselines by place of the dataset. Nothing is said of reported
    figures, of private rows, of hidden judgements, and of boards of which nothing has been found yet.
    """
    datasets = _datasets(board, facts, found, baselines)
    known = [(each.key, each.place, each, each.found.said.setdefault(each.baseline, {})) for each in datasets]
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
    dataset.found.said[dataset.baseline][entry] = told
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
