"""Systems side by side per dataset: scores, differences from the first system, and tests on open judgments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.utils.translation import gettext as _

from evaluation.statistics.randomisation import MAX_EXACT, holm
from leaderboard.boards import pages
from leaderboard.boards.benchmark.columns import MEAN
from leaderboard.boards.columns.gap import gap_texts
from leaderboard.boards.columns.significance import format_p_value
from leaderboard.boards.state import BoardState
from leaderboard.boards.wording import p_text, significance_word
from leaderboard.comparison.pairs import (
    PAGE_PAIRS,
    CorrectedP,
    PairTest,
    TestRequest,
    affordable_permutations,
    corrected_on_board,
    run_tests,
)
from leaderboard.comparison.selection import ComparedEntry
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.models import REFERENCE_TYPES, Benchmark, Dataset
from leaderboard.results.board_rows.entry_rows import REPORTED, UNRANKED
from leaderboard.results.significance.statements import (
    ALPHA,
    BoardStatements,
    Gap,
    Statement,
    lost_class,
    outcome_class,
    statements,
)


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A system's result on a dataset; `entry` is None if it has none.

    `comparable` means that the result and the first system's were scored (or reported) together, so that their
    difference is meaningful.
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
        """Formatted values for the page and the exports."""
        test = self.statement
        return {
            "value": numbers.format_value(self.value, numbers.DECIMALS),
            "delta": numbers.signed(self.delta and round(self.delta, numbers.DECIMALS), numbers.DECIMALS),
            "direction": outcome_class(self.direction, test.p, lost_class(test)),
            "p": "—" if test.p is None else format_p_value(test.p),
            "corrected": "" if self.corrected is None else self.corrected.text,
            "verdict": significance_word(test),
            "spread": self.spread,
            "reference": _(REFERENCE_TYPES.get(self.entry.run_type, "")) if self.entry else "",
            "gap": gap_texts(self.gap),
        }

    @property
    def direction(self) -> str:
        return numbers.direction(self.delta and round(self.delta, numbers.DECIMALS), self.measure)

    @property
    def statement(self) -> Statement:
        """Significance of the difference from the first system, in this pair's test and after correction."""
        p, corrected = self.tested and self.tested.p, self.corrected
        better, worse = (None if p is None else p < ALPHA and self.direction == way for way in ("up", "down"))
        return Statement(better, worse, p, corrected and corrected.p, ranks=corrected and corrected.ranks)

    @property
    def relation(self) -> str:
        """Relation to the first system: better or worse if the difference is significant, else ahead or behind."""
        test = self.statement
        is_significant = bool(test.better or test.worse) and not test.is_lost_by_correction
        texts = {"up": (_("is ahead of"), _("is better than")), "down": (_("is behind"), _("is worse than"))}
        return texts[self.direction][is_significant] if self.direction else _("ties with")

    @property
    def p_values_text(self) -> str:
        """Both p-values, such as `p < 0.001 for this pair; p = 0.214 corrected for the board’s 153 pairs`."""
        if self.tested is None:
            return ""
        pair_text = _("p %(p)s for this pair") % {"p": p_text(self.tested.p)}
        return f"{'; '.join(filter(None, [pair_text, self.corrected and self.corrected.sentence]))}."

    @property
    def spread(self) -> str:
        """Sample standard deviation over seeds and number of seeds; empty for a single run."""
        if self.entry is None or not self.entry.seeds or self.measure not in self.entry.deviations:
            return ""
        return f"± {self.entry.deviations[self.measure]:.{numbers.DECIMALS}f} ({self.entry.seeds})"


@dataclass(frozen=True, slots=True)
class ComparedDataset:
    """A row of the comparison; cells are in the order of the systems.

    `untested_reason` is the reason why there is no test, or empty. `chosen` tells that a system has several results
    here, of which the best is shown.
    """

    slug: str
    name: str
    measure: str
    cells: tuple[ComparedCell, ...]
    untested_reason: str
    chosen: bool = False

    @property
    def complete(self) -> bool:
        return all(cell.comparable for cell in self.cells)

    @property
    def apart(self) -> bool:
        """Whether a system other than the first has a value that cannot be compared."""
        return any(cell.value is not None and not cell.comparable for cell in self.cells[1:])

    @property
    def tested(self) -> bool:
        return any(cell.tested for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of systems over all their datasets.

    `rows` are the datasets with values of at least two systems; `alone` counts those with only one. `pairs` is the
    number of tests that were corrected together, `permutations` is 0 if all are exact. `means` are over `common`
    datasets. If `whole` is true, they come from the board of `benchmark`, over the datasets that it counts. Otherwise
    they are over the datasets on which all systems can be compared by the same measure (within a benchmark, those that
    it counts), and None if there are fewer than two. `won` counts outcomes on the same datasets, which are `counted`,
    or on all without means.
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
    counted: Sequence[ComparedDataset]
    benchmark: BenchmarkScope | None = None
    whole: bool = False


def compare(slugs: Sequence[str], entries: Sequence[ComparedEntry], measure: str, benchmark: str = "") -> Comparison:
    """Return the comparison of these systems over their datasets, with tests and means.

    An empty `measure` selects each dataset's primary one. `benchmark` is the slug of the benchmark to average over, by
    default one to which all compared datasets belong. Raises UnknownChoice for an unknown measure or benchmark.
    """
    entries_by_dataset: dict[str, list[ComparedEntry]] = {}
    for entry in entries:
        entries_by_dataset.setdefault(entry.dataset, []).append(entry)
    measures = sorted({name for entry in entries for name in entry.scores})
    if measure and measure not in measures:
        raise UnknownChoice("measure", measure, measures)
    dataset_rows = [_build_row(slugs, dataset_entries, measure) for dataset_entries in entries_by_dataset.values()]
    rows = [row for row in dataset_rows if sum(cell.value is not None for cell in row.cells) > 1]
    boards = statements({cell.entry.dataset_id for row in rows for cell in row.cells if cell.entry})
    rows, pairs, permutations = _run_tests(rows, boards)
    judged_queries = [cell.entry.judged_queries for row in rows for cell in row.cells if cell.tested and cell.entry]
    means = _get_means(slugs, rows, measure, benchmark)
    directions = [
        [row.cells[position].direction for row in means["counted"] if row.cells[position].delta is not None]
        for position in range(len(slugs))
    ]
    return Comparison(
        rows=rows,
        alone=sum(sum(cell.value is not None for cell in row.cells) == 1 for row in dataset_rows),
        measures=measures,
        measure=measure,
        pairs=pairs,
        permutations=permutations if max(judged_queries, default=0) > MAX_EXACT else 0,
        # Number of datasets on which each system is better than, equal to, and worse than the first one.
        won=[(outcomes.count("up"), outcomes.count(""), outcomes.count("down")) for outcomes in directions],
        **means,
    )


def _build_row(slugs: Sequence[str], entries: Sequence[ComparedEntry], requested_measure: str) -> ComparedDataset:
    """Return the row of one dataset: each system's best value, and its difference from the first system's.

    Values of the row's comparison group are preferred; only these are comparable. A reference is used only for a system
    without another value. An empty `requested_measure` selects the measure that most systems have.
    """
    measure = requested_measure or _shared_measure(entries)
    entries_with_measure = [entry for entry in entries if measure in entry.scores]
    group = _choose_group(slugs, entries_with_measure)
    sign = -1 if better(measure) == "lower" else 1
    cells: list[ComparedCell] = []
    candidate_count = 0
    for slug in slugs:
        system_entries = [entry for entry in entries_with_measure if entry.system == slug]
        group_entries = [entry for entry in system_entries if entry.group == group]
        candidates = group_entries or system_entries
        candidates = [entry for entry in candidates if entry.run_type not in REFERENCE_TYPES] or candidates
        entry = max(candidates, key=lambda entry: sign * entry.scores[measure], default=None)
        value = entry.scores[measure] if entry is not None else None
        comparable = bool(group_entries)
        delta = None
        if cells and cells[0].comparable and comparable:
            delta = numbers.difference(value, cells[0].value)
        cells.append(ComparedCell(entry, value, comparable, delta, measure=measure))
        candidate_count = max(candidate_count, len(candidates))
    reference = next((cell.entry for cell in cells if cell.comparable and cell.entry), entries[0])
    return ComparedDataset(
        reference.dataset, reference.dataset_name, measure, tuple(cells), reference.untested_reason, candidate_count > 1
    )


def _shared_measure(entries: Sequence[ComparedEntry]) -> str:
    """Return the measure that most systems have; the dataset's primary measure on ties."""
    systems: dict[str, set[str]] = {entries[0].primary_measure: set()}
    for entry in entries:
        for name in entry.scores:
            systems.setdefault(name, set()).add(entry.system)
    return max(systems, key=lambda name: len(systems[name]))


def _choose_group(slugs: Sequence[str], entries: Sequence[ComparedEntry]) -> str:
    """Return the comparison group of the dataset's row, or an empty string without entries.

    Prefers a group with the first system, then the one with most systems, then the current one, then the newest.
    """
    groups: dict[str, list[ComparedEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)

    def sort_key(group: str) -> tuple[bool, int, bool, str]:
        group_entries = groups[group]
        systems = {entry.system for entry in group_entries}
        newest = max(entry.published for entry in group_entries)
        return slugs[0] in systems, len(systems), group_entries[0].is_current, newest

    return max(groups, key=sort_key, default="")


def _run_tests(
    rows: Sequence[ComparedDataset], boards: Mapping[int, BoardStatements]
) -> tuple[list[ComparedDataset], int, int]:
    """Return the rows with their tests and gaps, the number of tests, and the number of permutations per test.

    Each comparable system is tested against the first one, on datasets with open judgments.
    """
    requests: dict[str, TestRequest] = {}
    judged_queries = 0
    for row in rows:
        if row.untested_reason or not row.cells[0].comparable:
            continue
        comparable_entries = [cell.entry for cell in row.cells if cell.comparable and cell.entry is not None]
        judged_queries += comparable_entries[0].judged_queries
        if len(comparable_entries) > 1:
            requests[row.slug] = TestRequest(tuple(entry.pk for entry in comparable_entries), row.measure)
    permutations = affordable_permutations(judged_queries)
    answers = run_tests(list(requests.values()), permutations) if requests else {}
    results = {slug: answers[request] for slug, request in requests.items()}
    p = [test.p for row_tests in results.values() for test in row_tests]
    page_corrections = iter(
        [CorrectedP(corrected_p, len(p), PAGE_PAIRS) for corrected_p in holm(np.array(p)).tolist()] if p else []
    )
    tested_rows = [_with_tests(row, results.get(row.slug, []), page_corrections, boards) for row in rows]
    return tested_rows, len(p), permutations


def _with_tests(
    row: ComparedDataset,
    results: Sequence[PairTest],
    page_corrections: Iterator[CorrectedP],
    boards: Mapping[int, BoardStatements],
) -> ComparedDataset:
    """Return the row with its test results and contamination gaps.

    Each p-value is corrected as on the dataset's board if possible, otherwise over the tests of the page.
    `page_corrections` are consumed in the order of the tests.
    """
    remaining_tests, first_entry = iter(results), row.cells[0].entry
    cells = []
    for position, cell in enumerate(row.cells):
        if (entry := cell.entry) is not None:
            cell = replace(cell, gap=boards[entry.dataset_id].for_entry(entry.pk, cell.measure).gap)
            if position and cell.comparable and results and first_entry is not None:
                page_correction = next(page_corrections)
                pair = first_entry.pk, entry.pk
                corrected_p = corrected_on_board(boards[first_entry.dataset_id], pair, row.measure)
                corrected_p = corrected_p or (page_correction if page_correction.tests > 1 else None)
                cell = replace(cell, tested=next(remaining_tests), corrected=corrected_p)
        cells.append(cell)
    return replace(row, cells=tuple(cells))


def _get_means(slugs: Sequence[str], rows: Sequence[ComparedDataset], measure: str, benchmark: str) -> dict[str, Any]:
    """Return the fields of `Comparison` about means: from a benchmark's board, or otherwise over common datasets.

    `counted` are the rows of the datasets that they are over, or all rows without means.

    An empty `benchmark` selects the smallest one with all common datasets whose board has means of all systems.
    """
    complete_rows = [row for row in rows if row.complete]
    scopes = benchmark_scopes({row.slug for row in complete_rows}, benchmark) if complete_rows or benchmark else []
    for scope in scopes:
        if (means := board_means(scope, slugs, measure)) is not None:
            return {**means, "counted": [row for row in rows if row.slug in scope.counted]}
    complete, best_scope = frozenset(row.slug for row in complete_rows), next(iter(scopes), None)
    parts = Dataset.objects.filter(slug__in=complete, part_of__slug__in=complete).values_list("slug", flat=True)
    counted = best_scope.counted if best_scope else complete.difference(parts)
    fields = _common_means([row for row in complete_rows if row.slug in counted], best_scope)
    return fields if fields["means"] else {**fields, "counted": rows}


def _common_means(complete_rows: Sequence[ComparedDataset], scope: BenchmarkScope | None) -> dict[str, Any]:
    """Return the template fields for mean scores over datasets on which all systems have comparable values.

    Only datasets with the most common measure are included. `means` is None for fewer than two datasets.
    """
    counts = Counter(row.measure for row in complete_rows)
    measure = max(counts, key=counts.__getitem__, default="")
    common_rows = [row for row in complete_rows if row.measure == measure]
    means = None
    if len(common_rows) > 1:
        values = np.array([[cell.value for cell in row.cells] for row in common_rows], np.float64)
        means = _mean_cells(values.mean(axis=0).tolist(), measure)
    return {"common": len(common_rows), "means": means, "benchmark": scope, "counted": common_rows}


def _mean_cells(means: Sequence[float], measure: str) -> list[ComparedCell]:
    """Return a cell for each system's mean, with the difference from the first mean."""
    return [
        ComparedCell(
            value=mean,
            comparable=True,
            delta=numbers.difference(mean, means[0]) if position else None,
            measure=measure,
        )
        for position, mean in enumerate(means)
    ]


def datasets_by_footnote(rows: Sequence[ComparedDataset]) -> Mapping[str, list[str]]:
    """Return the names of the datasets that each footnote covers.

    Footnotes are the reasons for no test, `apart`, `chosen`, and `in_domain`.
    """
    datasets_by_note: dict[str, list[str]] = {}
    for row in rows:
        in_domain = any(cell.entry is not None and cell.entry.training == "in-domain" for cell in row.cells)
        notes = {row.untested_reason: True, "apart": row.apart, "chosen": row.chosen, "in_domain": in_domain}
        for note in filter(notes.get, filter(None, notes)):
            datasets_by_note.setdefault(note, []).append(row.name)
    return datasets_by_note


@dataclass(frozen=True, slots=True)
class BenchmarkScope:
    """A benchmark's datasets by slug: those that count, all members, and all members with their parts."""

    slug: str
    name: str
    counted: frozenset[str]
    members: frozenset[str]
    all_members: frozenset[str]


def benchmark_scopes(datasets: Collection[str], requested_slug: str) -> list[BenchmarkScope]:
    """Return the benchmark `requested_slug`, by default all benchmarks that contain all `datasets`, smallest first.

    Takes two queries. A benchmark's parts count as its datasets; one with a single dataset is never returned by
    default. Raises UnknownChoice for an unknown benchmark.
    """
    parts: dict[str, list[str]] = {}
    for parent, part in Dataset.objects.exclude(part_of=None).values_list("part_of__slug", "slug"):
        parts.setdefault(parent, []).append(part)
    members: dict[tuple[str, str], dict[str, bool]] = {}
    rows = Benchmark.objects.order_by("position", "pk").values_list(
        "slug", "name", "members__dataset__slug", "members__counted"
    )
    for slug, name, dataset, is_counted in rows:
        members.setdefault((slug, name), {}).update({dataset: is_counted} if dataset else {})
    scopes = [
        BenchmarkScope(
            slug,
            name,
            frozenset(dataset for dataset, is_counted in datasets_counted.items() if is_counted),
            frozenset(datasets_counted),
            frozenset(datasets_counted).union(*(parts.get(dataset, ()) for dataset in datasets_counted)),
        )
        for (slug, name), datasets_counted in members.items()
    ]
    if requested_slug:
        requested_scopes = [scope for scope in scopes if scope.slug == requested_slug]
        if not requested_scopes:
            raise UnknownChoice("benchmark", requested_slug, [scope.slug for scope in scopes])
        return requested_scopes
    matching_scopes = [scope for scope in scopes if len(scope.members) > 1 and scope.all_members.issuperset(datasets)]
    return sorted(matching_scopes, key=lambda scope: len(scope.members))


def board_means(scope: BenchmarkScope, slugs: Sequence[str], measure: str) -> dict[str, Any] | None:
    """Return the fields of `Comparison` with the systems' means on the benchmark's board, or None if a system has none.

    All means are scored, or all are reported. A system with several results contributes its best mean. An empty
    `measure` selects the benchmark's own.
    """
    try:
        page = pages.benchmark_page(scope.slug, BoardState(measure=measure, all_rows=True))
    except UnknownChoice:
        return None
    mean = page.board.column(MEAN) if page else None
    if page is None or mean is None:
        return None
    select_best = min if mean.better == "lower" else max
    for is_reported in (False, True):
        means: dict[str, list[float]] = {slug: [] for slug in slugs}
        for row in page.board.rows:
            value, is_ranked = row.value(MEAN), row.ranked_in not in UNRANKED
            if is_ranked and (row.ranked_in == REPORTED) == is_reported and isinstance(value, (int, float)):
                means.get(row.entry.slug, []).append(float(value))
        if all(means.values()):
            cells = _mean_cells([select_best(means[slug]) for slug in slugs], page.board.measure)
            counted_members = sum(member.counted for member in page.members)
            return {"common": counted_members, "means": cells, "benchmark": scope, "whole": True}
    return None
