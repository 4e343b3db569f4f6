"""A system's results by measure, and what is printed or known beside them, as tables of its page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leaderboard.boards.system.result import Result
from leaderboard.core.measures import better
from leaderboard.core.text import numbers

#: What a row of the first table is of: a result, how its seeds spread, or one of these seeds.
RESULT, DEVIATION, SEED = "result", "deviation", "seed"


class MeasureHead(NamedTuple):
    """A measure, and which way is better."""

    label: str
    better: str


class MeasureRow(NamedTuple):
    """What `kind` says, one text for each measure: a dash where the result has none."""

    kind: str
    result: Result
    label: str
    cells: list[str]


class MeasureTable(NamedTuple):
    """Results by measure; `heads` are of all measures that any result has."""

    heads: list[MeasureHead]
    rows: list[MeasureRow]


class Beside(NamedTuple):
    """A figure that a source prints beside scores, or a fact of how the result was made; `doubt` says why it is one."""

    dataset: str
    dataset_slug: str
    configuration: str
    name: str
    value: str
    hardware: str
    doubt: str


def by_measure(results: Sequence[Result]) -> MeasureTable | None:
    """All measures of all results; None where each has its primary measure alone, which stands above."""
    measures = list(dict.fromkeys(name for result in results for name in _scores(result)))
    if not any(result.scores or result.seed_count for result in results):
        return None
    rows = [row for result in results for row in _rows(result, measures)]
    return MeasureTable([MeasureHead(name, better(name)) for name in measures], rows)


def _rows(result: Result, measures: Sequence[str]) -> list[MeasureRow]:
    def row(kind: str, label: str, scores: dict[str, float]) -> MeasureRow:
        cells = [numbers.written(scores.get(name), result.decimals) for name in measures]
        return MeasureRow(kind, result, label, cells)

    rows = [row(RESULT, result.dataset, _scores(result))]
    if result.seed_count:
        rows.append(row(DEVIATION, "± over seeds", dict(result.deviations)))
    for seed in result.seeds:
        first = {} if seed.value is None else {result.measure: seed.value}
        rows.append(row(SEED, f"seed {seed.label}", {**first, **dict(seed.scores)}))
    return rows


def _scores(result: Result) -> dict[str, float]:
    return {result.measure: result.value, **dict(result.scores)}


def beside(results: Sequence[Result]) -> list[Beside]:
    """Figures as their sources print them, and facts of results made here, in the order of the results."""
    found = []
    for result in results:
        where = (result.dataset, result.dataset_slug, result.configuration)
        for figure in result.figures:
            hardware = figure["hardware"] if figure["hardware"] != result.configuration else ""
            value = f"{figure['as_printed']} {figure['unit']}".strip()
            found.append(Beside(*where, figure["name"], value, hardware, figure["doubt"]))
        found += [Beside(*where, label, value, "", "") for label, value in result.fact_texts]
    return found
