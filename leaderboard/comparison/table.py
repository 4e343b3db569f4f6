"""Systems side by side per dataset: scores, differences to the first one, and tests where judgements are open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.utils.translation import gettext as _

from evaluation.statistics.randomisation import holm
from leaderboard.boards import pages
from leaderboard.boards.benchmark.columns import MEAN
from leaderboard.boards.columns.gap import gap_texts
from leaderboard.boards.columns.significance import format_p_value
from leaderboard.boards.state import BoardState
from leaderboard.boards.wording import p_text
from leaderboard.comparison.pairs import (
    PAGE_PAIRS,
    CorrectedP,
    PairTest,
    TestRequest,
    corrected_on_board,
    permutations_for,
    run_tests,
)
from leaderboard.comparison.selection import ComparedEntry
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.models import Benchmark, Dataset
from leaderboard.results.board_rows.entry_rows import REPORTED, UNRANKED
from leaderboard.results.significance.statements import BoardStatements, Gap, statements
from leaderboard.results.significance.types import ALPHA


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """What a system has on a dataset. `entry` is None where it has nothing.

    `comparable`: scored or reported together with the first system's, so that a difference says something.
    """

    entry: ComparedEntry | None = None
    value: float | None = None
    comparable: bool = False
    delta: float | None = None
    tested: PairTest | None = None
    corrected: CorrectedP | None = None
    measure: str = ""
    gap: Gap | None = None

    @property
    def text(self) -> dict[str, Any]:
        """Its numbers as the page writes them."""
        return {
            "value": numbers.format_value(self.value, numbers.DECIMALS),
            "delta": numbers.signed(self.delta, numbers.DECIMALS),
            "direction": self.direction if self.is_significant else "ns",
            "p": "—" if self.tested is None else format_p_value(self.tested.p),
            "corrected": "" if self.corrected is None else self.corrected.text,
            "spread": self.spread,
            "gap": gap_texts(self.gap),
        }

    @property
    def direction(self) -> str:
        """Whether the difference to the first system is for the better, as `numbers.direction` names it."""
        return numbers.direction(self.delta, self.measure)

    @property
    def p_values_text(self) -> str:
        """Both p-values in a sentence: `p < 0.001 for this pair; p = 0.214 corrected for the board’s 153 pairs.`"""
        if self.tested is None:
            return ""
        alone = _("p %(p)s for this pair") % {"p": p_text(self.tested.p)}
        return f"{'; '.join(filter(None, [alone, self.corrected and self.corrected.sentence]))}."

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant in the test of this pair alone; never for means over datasets."""
        return self.tested is not None and self.tested.p < ALPHA

    @property
    def spread(self) -> str:
        """Of a seed set, the sample standard deviation over its seeds and how many there are; else empty."""
        if self.entry is None or not self.entry.seeds or self.measure not in self.entry.deviations:
            return ""
        return f"± {self.entry.deviations[self.measure]:.{numbers.DECIMALS}f} ({self.entry.seeds})"


@dataclass(frozen=True, slots=True)
class ComparedDataset:
    """One dataset; `untested` says why there is no test, empty where there is one. Cells are in the systems' order.

    `chosen`: a system has several results here, of which the best is shown.
    """

    slug: str
    name: str
    measure: str
    cells: tuple[ComparedCell, ...]
    untested: str
    chosen: bool = False

    @property
    def complete(self) -> bool:
        """Whether every system has a value that can be compared."""
        return all(cell.comparable for cell in self.cells)

    @property
    def apart(self) -> bool:
        """Whether a cell of another system than the first says that it cannot be compared."""
        return any(cell.value is not None and not cell.comparable for cell in self.cells[1:])

    @property
    def tested(self) -> bool:
        """Whether any system was tested against the first one."""
        return any(cell.tested for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`rows` are the datasets with a value of two systems; `alone` counts those with a value of one only.

    `means` are over `common` datasets. `whole`: they are those of the board of the `benchmark` that all compared
    datasets belong to, over the ones that count there. Else they are over the datasets on which all can be compared by
    the same measure (of a benchmark those that count), None where there are fewer than two. `pairs` is how many tests
    were corrected together.
    """

    rows: list[ComparedDataset]
    alone: int
    measures: list[str]
    measure: str
    pairs: int
    permutations: int
    common: int
    means: list[ComparedCell] | None
    won: list[tuple[int, int, int]]
    benchmark: BenchmarkScope | None = None
    whole: bool = False


def compare(
    slugs: Sequence[str], entries: Sequence[ComparedEntry], measure: str, benchmark: str = ""
) -> Comparison:
    """The table of these systems; `measure` is empty for each dataset's primary one. Raises UnknownChoice.

    `benchmark` is the slug of the one that means are over, by default one that all compared datasets belong to.
    """
    by_dataset: dict[str, list[ComparedEntry]] = {}
    for entry in entries:
        by_dataset.setdefault(entry.dataset, []).append(entry)
    measures = sorted({name for entry in entries for name in entry.scores})
    if measure and measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    found = [_row(slugs, of_dataset, measure) for of_dataset in by_dataset.values()]
    rows = [row for row in found if sum(cell.value is not None for cell in row.cells) > 1]
    boards = statements({cell.entry.dataset_id for row in rows for cell in row.cells if cell.entry})
    rows, pairs, permutations = _run_tests(rows, boards)
    directions = [
        [row.cells[place].direction for row in rows if row.cells[place].delta is not None]
        for place in range(len(slugs))
    ]
    return Comparison(
        rows=rows,
        alone=sum(sum(cell.value is not None for cell in row.cells) == 1 for row in found),
        measures=measures,
        measure=measure,
        pairs=pairs,
        permutations=permutations,
        # On how many datasets each system is better than, equal to and worse than the first one.
        won=[(each.count("up"), each.count(""), each.count("down")) for each in directions],
        **_means(slugs, rows, measure, benchmark),
    )


def _row(slugs: Sequence[str], entries: Sequence[ComparedEntry], chosen: str) -> ComparedDataset:
    measure = chosen or _shared_measure(entries)
    with_measure = [entry for entry in entries if measure in entry.scores]
    group = _group(slugs, with_measure)
    sign = -1 if better(measure) == "lower" else 1
    cells: list[ComparedCell] = []
    chosen_among = 0
    for slug in slugs:
        own = [entry for entry in with_measure if entry.system == slug]
        together = [entry for entry in own if entry.group == group]
        entry = max(together or own, key=lambda entry: sign * entry.scores[measure], default=None)
        value = entry.scores[measure] if entry is not None else None
        comparable = bool(together)
        delta = None
        if cells and cells[0].comparable and comparable:
            delta = numbers.difference(value, cells[0].value)
        cells.append(ComparedCell(entry, value, comparable, delta, measure=measure))
        chosen_among = max(chosen_among, len(together or own))
    one = next((cell.entry for cell in cells if cell.comparable and cell.entry), entries[0])
    return ComparedDataset(
        one.dataset, one.dataset_name, measure, tuple(cells), one.untested, chosen_among > 1
    )


def _shared_measure(entries: Sequence[ComparedEntry]) -> str:
    """The dataset's primary measure, or, where another is had by more of the systems, that one."""
    systems: dict[str, set[str]] = {entries[0].primary_measure: set()}
    for entry in entries:
        for name in entry.scores:
            systems.setdefault(name, set()).add(entry.system)
    return max(systems, key=lambda name: len(systems[name]))


def _group(slugs: Sequence[str], entries: Sequence[ComparedEntry]) -> str:
    """The comparison group that the dataset's row is about: one that the first system is in, if it is in any; then
    the one with the most of the systems; of equals the present one, then the newest."""
    groups: dict[str, list[ComparedEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)

    def place(group: str) -> tuple[bool, int, bool, str]:
        found = groups[group]
        systems = {entry.system for entry in found}
        return slugs[0] in systems, len(systems), found[0].is_current, max(entry.published for entry in found)

    return max(groups, key=place, default="")


def _run_tests(
    rows: Sequence[ComparedDataset], boards: Mapping[int, BoardStatements]
) -> tuple[list[ComparedDataset], int, int]:
    """Return the rows with their tests and gaps, the number of tests, and the number of permutations of each."""
    questions: dict[str, TestRequest] = {}
    judged = 0
    for row in rows:
        if row.untested or not row.cells[0].comparable:
            continue
        compared = [cell.entry for cell in row.cells if cell.comparable and cell.entry is not None]
        judged += compared[0].judged
        if len(compared) > 1:
            questions[row.slug] = TestRequest(tuple(entry.pk for entry in compared), row.measure)
    permutations = permutations_for(judged)
    answers = run_tests(list(questions.values()), permutations) if questions else {}
    results = {slug: answers[question] for slug, question in questions.items()}
    p = [tested.p for of_row in results.values() for tested in of_row]
    of_page = iter([CorrectedP(each, len(p), PAGE_PAIRS) for each in holm(np.array(p)).tolist()] if p else [])
    tested = [_with_tests(row, results.get(row.slug, []), of_page, boards) for row in rows]
    return tested, len(p), permutations


def _with_tests(
    row: ComparedDataset,
    results: Sequence[PairTest],
    of_page: Iterator[CorrectedP],
    boards: Mapping[int, BoardStatements],
) -> ComparedDataset:
    """Return the row with its results, each p-value corrected as on the dataset's board, or over the page.

    Cells of entries have their contamination gaps, too.
    """
    remaining, first = iter(results), row.cells[0].entry
    cells = []
    for place, cell in enumerate(row.cells):
        if (entry := cell.entry) is not None:
            cell = replace(cell, gap=boards[entry.dataset_id].of(entry.pk, cell.measure).gap)
            if place and cell.comparable and results and first is not None:
                page_wide = next(of_page)
                pair = first.pk, entry.pk
                corrected = corrected_on_board(boards[first.dataset_id], pair, row.measure)
                if corrected is None and page_wide.tests > 1:
                    corrected = page_wide
                cell = replace(cell, tested=next(remaining), corrected=corrected)
        cells.append(cell)
    return replace(row, cells=tuple(cells))


def _means(
    slugs: Sequence[str], rows: Sequence[ComparedDataset], chosen: str, benchmark: str
) -> dict[str, Any]:
    """Return the fields of `Comparison` about means: those of the benchmark's board, else over common datasets."""
    complete = [row for row in rows if row.complete]
    scopes = benchmark_scopes({row.slug for row in complete}, benchmark) if complete or benchmark else []
    for scope in scopes:
        if (means := board_means(scope, slugs, chosen)) is not None:
            return means
    if not scopes:
        return _common_means(complete, None)
    return _common_means([row for row in complete if row.slug in scopes[0].counted], scopes[0])


def _common_means(complete: Sequence[ComparedDataset], scope: BenchmarkScope | None) -> dict[str, Any]:
    """The means over the datasets that all systems can be compared on, by the measure that most of these have."""
    counts = Counter(row.measure for row in complete)
    measure = max(counts, key=counts.__getitem__, default="")
    common = [row for row in complete if row.measure == measure]
    means = None
    if len(common) > 1:
        values = np.array([[cell.value for cell in row.cells] for row in common], np.float64)
        means = _mean_cells(values.mean(axis=0).tolist(), measure)
    return {"common": len(common), "means": means, "benchmark": scope}


def _mean_cells(means: Sequence[float], measure: str) -> list[ComparedCell]:
    return [
        ComparedCell(
            value=mean,
            comparable=True,
            delta=numbers.difference(mean, means[0]) if place else None,
            measure=measure,
        )
        for place, mean in enumerate(means)
    ]


def reasons(rows: Sequence[ComparedDataset]) -> Mapping[str, list[str]]:
    """The names of the datasets that a note speaks of: of those without a test by the reason, `apart`, `chosen`."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row.untested:
            found.setdefault(row.untested, []).append(row.name)
        for note, holds in (("apart", row.apart), ("chosen", row.chosen)):
            if holds:
                found.setdefault(note, []).append(row.name)
    return found


@dataclass(frozen=True, slots=True)
class BenchmarkScope:
    """A benchmark that compared datasets belong to: the slugs of those that count, of all, and of all with parts."""

    slug: str
    name: str
    counted: frozenset[str]
    members: frozenset[str]
    known: frozenset[str]


def benchmark_scopes(datasets: Collection[str], wanted: str) -> list[BenchmarkScope]:
    """The `wanted` benchmark, else those that all of the datasets belong to, the smallest first. Two queries.

    Raises UnknownChoice for a benchmark that there is not.
    """
    parts: dict[str, list[str]] = {}
    for whole, part in Dataset.objects.exclude(part_of=None).values_list("part_of__slug", "slug"):
        parts.setdefault(whole, []).append(part)
    members: dict[tuple[str, str], dict[str, bool]] = {}
    rows = Benchmark.objects.order_by("position", "pk").values_list(
        "slug", "name", "members__dataset__slug", "members__counted"
    )
    for slug, name, dataset, counted in rows:
        members.setdefault((slug, name), {}).update({dataset: counted} if dataset else {})
    scopes = [
        BenchmarkScope(
            slug,
            name,
            frozenset(dataset for dataset, counted in datasets_counted.items() if counted),
            frozenset(datasets_counted),
            frozenset(datasets_counted).union(*(parts.get(dataset, ()) for dataset in datasets_counted)),
        )
        for (slug, name), datasets_counted in members.items()
    ]
    if wanted:
        chosen = [scope for scope in scopes if scope.slug == wanted]
        if not chosen:
            raise UnknownChoice("benchmark", wanted, [scope.slug for scope in scopes])
        return chosen
    fitting = [scope for scope in scopes if len(scope.members) > 1 and scope.known.issuperset(datasets)]
    return sorted(fitting, key=lambda scope: len(scope.members))


def board_means(scope: BenchmarkScope, slugs: Sequence[str], measure: str) -> dict[str, Any] | None:
    """The systems' means on the benchmark's board, all scored or all reported; None where one of them has none.

    Of several results of a system that with the best mean is taken. `measure` is empty for the benchmark's own.
    """
    try:
        page = pages.benchmark_page(scope.slug, BoardState(measure=measure, all_rows=True))
    except UnknownChoice:
        return None
    mean = page.board.column(MEAN) if page else None
    if page is None or mean is None:
        return None
    best = min if mean.better == "lower" else max
    for reported in (False, True):
        means: dict[str, list[float]] = {slug: [] for slug in slugs}
        for row in page.board.rows:
            value, ranked = row.value(MEAN), row.ranked_in not in UNRANKED
            if ranked and (row.ranked_in == REPORTED) == reported and isinstance(value, (int, float)):
                means.get(row.entry.slug, []).append(float(value))
        if all(means.values()):
            cells = _mean_cells([best(means[slug]) for slug in slugs], page.board.measure)
            counted = sum(member.counted for member in page.members)
            return {"common": counted, "means": cells, "benchmark": scope, "whole": True}
    return None
