"""Open judgments of a dataset, and its list of queries with their difficulty, sorted and in pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
from django.db.models import Q
from django.urls import reverse
from numpy.typing import NDArray

from evaluation.judgements.qrels import Qrels
from leaderboard.boards.state import LONGEST_QUERY, Parameters, build_query, last_value, whole_number
from leaderboard.core.cache.memory import FixedCache
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better, canonical_name
from leaderboard.core.text.baselines import baseline_label
from leaderboard.core.text.numbers import format_value
from leaderboard.datasets.qrels import JudgementsNotOpen, excluded_documents, open_judgements, topic_texts
from leaderboard.models import REFERENCE_TYPES, Dataset, DatasetQuerySet, Entry, EntryQuerySet, Visibility
from leaderboard.results.board_rows.entry_rows import dataset_revision
from leaderboard.results.records import entries_with_values, measure_values

#: Query ids that browsers would resolve as folders at the end of a URL.
_FOLDERS = (".", "..")


@dataclass(frozen=True, slots=True)
class OpenCollection:
    """A dataset with open judgments.

    `order` has the rows of the judged queries in natural order, numeric ids by value.
    """

    dataset: Dataset
    judgements: Qrels
    order: tuple[int, ...]

    @property
    def measures(self) -> list[str]:
        return self.dataset.measures or [self.dataset.primary_measure]

    def choose_measure(self, requested_measure: str) -> str:
        """Return the requested measure, by default the primary one. Raises UnknownChoice."""
        if requested_measure and requested_measure not in self.measures:
            raise UnknownChoice("measure", requested_measure, self.measures)
        return requested_measure or self.dataset.primary_measure

    def best_entries(self, measure: str) -> dict[str, Entry]:
        """Return each system's best entry by slug, in the order of `sort_by_score`."""
        entries_by_slug: dict[str, Entry] = {}
        for entry in sort_by_score(compared_entries(self.dataset).select_related("system"), measure):
            entries_by_slug.setdefault(entry.system.slug, entry)
        return entries_by_slug

    def text(self, query_id: str) -> str:
        """Return the text of a query, empty if it is not public."""
        version = self.dataset.current_version
        if self.dataset.queries_visibility != Visibility.PUBLIC or version is None:
            return ""
        return topic_texts(version.topics_sha256).get(query_id, "")

    @property
    def excluded_sha256(self) -> str:
        version = self.dataset.current_version
        return version.excluded_sha256 if version else ""

    def has_exclusions(self, query_id: str) -> bool:
        """Return whether documents are excluded from the rankings of this query."""
        version = self.dataset.current_version
        exclusions = excluded_documents(version) if version else None
        return exclusions is not None and exclusions.find_row(query_id) is not None

    def neighbours(self, row: int) -> tuple[str | None, str | None]:
        """Return the ids of the previous and the next query in natural order, or None at either end."""
        position, ids = self.order.index(row), self.judgements.query_ids
        previous_id = ids[self.order[position - 1]] if position else None
        next_id = ids[self.order[position + 1]] if position + 1 < len(self.order) else None
        return previous_id, next_id

    def mentions(self, row: int, text: str) -> bool:
        """Return whether a query's text or id contains `text`, which must be case-folded."""
        name = self.judgements.query_ids[row]
        return text in name.casefold() or text in (self.text(name) or "").casefold()

    def columns(self, difficulty_values: Difficulty | None) -> dict[str, NDArray[Any]]:
        """Return the values of the list's columns by key, each with one value per judged query.

        The columns are the numbers of relevant and judged documents and, if `difficulty_values` is given, statistics of
        the scores.
        """
        judgements = self.judgements
        is_relevant = judgements.grades >= self.dataset.relevance_level
        values: dict[str, NDArray[Any]] = {
            "relevant": np.bincount(judgements.rows, is_relevant, len(judgements.query_ids)).astype(int),
            "judged": np.diff(judgements.offsets),
        }
        if difficulty_values:
            values |= {
                "mean": difficulty_values.mean,
                "spread": difficulty_values.deviation,
                "lowest": difficulty_values.lowest,
                "highest": difficulty_values.highest,
            }
            if difficulty_values.baseline is not None:
                values["baseline"] = difficulty_values.baseline
        return values

    def sort_rows(self, values: NDArray[Any] | None, *, descending: bool) -> list[int]:
        """Return the rows of all judged queries, sorted by value, with ties in natural order.

        Without values, they are in natural order, or in its reverse if `descending`.
        """
        if values is None:
            return list(reversed(self.order)) if descending else list(self.order)
        keys = -values if descending else values
        return sorted(self.order, key=keys.tolist().__getitem__)

    def line(self, row: int, values: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Return one query's line of the list, with numbers formatted for the page.

        `values` are the columns; those of scores may be missing.
        """
        name = self.judgements.query_ids[row]
        figures = ("mean", "spread", "lowest", "highest", "baseline")
        return {
            "id": name,
            "text": self.text(name),
            "url": query_url(self.dataset.slug, name),
            "relevant": int(values["relevant"][row]),
            "judged": int(values["judged"][row]),
            **{key: format_value(float(values[key][row]) if key in values else None, 3) for key in figures},
        }


def open_collection(slug: str) -> OpenCollection | None:
    """Return the dataset with its judgments, in one query; None if it is not listed or its judgments are not open.

    Queries are in natural order: by number if all ids are numbers, otherwise as in the judgments.
    """
    dataset = (
        DatasetQuerySet(Dataset)
        .listed()
        .filter(slug=slug)
        .select_related("current_version__profile", "current_qrels")
        .first()
    )
    if dataset is None:
        return None
    try:
        judgements = open_judgements(dataset)
    except JudgementsNotOpen:
        return None
    ids = judgements.query_ids
    order: Iterable[int] = range(len(ids))
    if all(name.isascii() and name.isdigit() for name in ids):
        order = sorted(order, key=lambda row: int(ids[row]))
    return OpenCollection(dataset, judgements, tuple(order))


def query_url(slug: str, query_id: str) -> str:
    """Return the URL of a query's page. Ids may contain any character but white space, so all are quoted."""
    if query_id in _FOLDERS:
        return f"{reverse('queries', args=[slug])}?id={query_id}"
    return f"{reverse('queries', args=[slug])}{quote(query_id, safe='')}/"


def compared_entries(dataset: Dataset) -> EntryQuerySet:
    """Return public scored entries on the current version and judgments: the baseline first, then by date."""
    group = f"scored:{dataset.current_version_id}:{dataset.current_qrels_id}:"
    return (
        EntryQuerySet(Entry)
        .public()
        .filter(dataset=dataset, comparison_group__startswith=group)
        .filter(Q(evaluation__isnull=False) | Q(seed_count__gte=2))
        .order_by("-is_baseline", "published_at", "pk")
    )


def present_baseline_label(dataset: Dataset) -> str:
    """Return the label of the baseline among the current results, empty if there is none. One database query."""
    systems = compared_entries(dataset).filter(is_baseline=True).values_list("system__name", flat=True)
    return next((baseline_label(name, dataset.name) for name in systems[:1]), "")


def sort_by_score(entries: Iterable[Entry], measure: str) -> list[Entry]:
    """Return the entries sorted: a baseline with the measure, others by score, then those without it.

    References are sorted in the same way after all other entries.
    """
    sign = 1 if better(measure) == "lower" else -1

    def sort_key(entry: Entry) -> tuple[bool, bool, float]:
        value = entry.scores.get(measure)
        score = float("inf") if value is None else sign * value
        return not entry.is_baseline or value is None, entry.run_type in REFERENCE_TYPES, score

    return sorted(entries, key=sort_key)


ROWS_OF_A_PAGE = 100
#: Columns by key: label, initial sort order, and explanation.
COLUMNS: Mapping[str, tuple[str, Literal["asc", "desc"], str]] = {
    "query": ("Query", "asc", ""),
    "relevant": ("Relevant", "desc", "documents judged relevant"),
    "judged": ("Judged", "desc", "documents judged"),
    "mean": ("Mean", "asc", "over the systems"),
    "spread": ("Spread", "desc", "sample standard deviation over the systems"),
    "lowest": ("Lowest", "asc", "of any system"),
    "highest": ("Highest", "asc", "of any system"),
    "baseline": ("Baseline", "asc", "of the baseline"),
}


#: Query parameters of the list.
LIST_PARAMETERS = ("measure", "q", "sort", "page")


@dataclass(frozen=True, slots=True)
class ListState:
    """Filter, order, and page of the list of queries; empty fields mean the default."""

    measure: str = ""
    sort: str = ""
    order: str = ""
    page: int = 1
    #: Text to find in a query or its id.
    text: str = ""

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> ListState:
        """Return the state that a query string describes. Raises UnknownChoice for an unknown sort key or order."""
        sort, _, order = last_value(parameters, "sort").partition(":")
        if sort and sort not in COLUMNS:
            raise UnknownChoice("sort", sort, COLUMNS)
        if order not in ("", "asc", "desc"):
            raise UnknownChoice("order", order, ["asc", "desc"])
        page = whole_number(parameters, "page", 1)
        text = last_value(parameters, "q").strip()[:LONGEST_QUERY]
        return cls(canonical_name(last_value(parameters, "measure")), sort, order, max(page, 1), text)

    def with_values(self, **changes: Any) -> ListState:
        """Return the state with some values replaced, on the first page unless `page` is given."""
        return replace(self, **{"page": 1, **changes})

    def query_string(self) -> str:
        """Return `?sort=…`, or an empty string for the default view."""
        sort = f"{self.sort}:{self.order}" if self.order else self.sort
        page = str(self.page) * (self.page > 1)
        return build_query(("measure", self.measure), ("q", self.text), ("sort", sort), ("page", page))


class QueryList(NamedTuple):
    """A page of the list: `total` of `judged` queries match the search.

    `systems` is the number of systems behind the figures, 0 if there are none.
    """

    measure: str
    rows: list[dict[str, Any]]
    total: int
    judged: int
    sort: str
    order: str
    page: int
    pages: int
    systems: int


def query_list(collection: OpenCollection, state: ListState) -> QueryList:
    """Return the page of the list that `state` selects. Raises UnknownChoice for an unknown measure or page.

    By default, queries on which systems disagree most come first, or without scores, queries in natural order.
    """
    dataset = collection.dataset
    measure = collection.choose_measure(state.measure)
    statistics = difficulty(dataset, measure, len(collection.judgements.query_ids))
    values = collection.columns(statistics)
    # Sort by disagreement first: on the hardest queries all systems have 0.
    sort = state.sort or ("spread" if statistics else "query")
    lower = better(measure) == "lower" and sort in ("mean", "lowest", "highest", "baseline")
    hardest_first = "desc" if lower else ""
    order = state.order or hardest_first or COLUMNS[sort][1]
    matching_rows = collection.sort_rows(values.get(sort), descending=order == "desc")
    if state.text:
        matching_rows = [row for row in matching_rows if collection.mentions(row, state.text.casefold())]
    pages = max(1, -(-len(matching_rows) // ROWS_OF_A_PAGE))
    if state.page > pages:
        raise UnknownChoice("page", str(state.page), expected=f"1 to {pages}")
    page_rows = matching_rows[(state.page - 1) * ROWS_OF_A_PAGE : state.page * ROWS_OF_A_PAGE]
    rows = [collection.line(row, values) for row in page_rows]
    return QueryList(
        measure,
        rows,
        len(matching_rows),
        len(collection.judgements.query_ids),
        sort,
        order,
        state.page,
        pages,
        statistics.systems if statistics else 0,
    )


#: Maximum number of systems evaluated, best first: more would not change a query's difficulty.
MAX_SYSTEMS = 100

Values = NDArray[np.float64]

#: Quantiles shown for each query, from the hardest tenth of the systems to the easiest.
QUANTILES = (0.1, 0.5, 0.9)
#: About 64 bytes per query: 450 kB for 7,000. Entries never become stale because keys name the board's
#: revision.
_difficulty_cache = FixedCache("difficulty-quantiles", 64, 3600)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Statistics over `systems` systems, one value per judged query; `baseline` is None if there is none.

    `deviation` is the sample standard deviation (n − 1), 0 for a single system. `quantiles` has shape
    (len(QUANTILES), queries).
    """

    systems: int
    mean: Values
    deviation: Values
    lowest: Values
    highest: Values
    quantiles: Values
    baseline: Values | None


def difficulty(dataset: Dataset, measure: str, queries: int) -> Difficulty | None:
    """Return the difficulty of the judged queries, or None if no system was scored by the measure.

    `queries` is their number. Runs four database queries. The result is cached for all processes until the board
    changes.
    """
    key = f"{dataset.pk} {dataset_revision(dataset.slug)} {dataset.current_qrels_id} {measure}"
    cached_value: Any = _difficulty_cache.get(key)
    if cached_value is None:
        statistics = _compute_difficulty(dataset, measure, queries)
        cached_value = (0, b"") if statistics is None else (statistics[0], statistics[1].tobytes())
        _difficulty_cache.set(key, cached_value)
    systems, content = cached_value
    if not systems:
        return None
    rows = np.frombuffer(content).reshape(-1, queries)
    mean, deviation, lowest, highest = rows[:4]
    quantiles, baseline = rows[4:7], rows[7:]
    return Difficulty(systems, mean, deviation, lowest, highest, quantiles, baseline[0] if len(baseline) else None)


def _compute_difficulty(dataset: Dataset, measure: str, queries: int) -> tuple[int, Values] | None:
    """Return the number of systems and an array of shape (statistics, queries), or None if no system has the measure.

    Rows are mean, deviation, lowest, highest, the quantiles, and the baseline's values if there is one. Only the
    MAX_SYSTEMS best systems are read.
    """
    columns, baseline = [], None
    ranked_entries = sort_by_score(compared_entries(dataset).only("pk", "is_baseline", "run_type", "scores"), measure)
    for entry in entries_with_values(entry.pk for entry in ranked_entries[:MAX_SYSTEMS]).values():
        column = measure_values(entry, measure)
        if column is None or len(column) != queries:
            continue
        columns.append(column)
        if entry.is_baseline:
            baseline = column
    if not columns:
        return None
    value_table = np.stack(columns)
    deviation = value_table.std(axis=0, ddof=1) if len(value_table) > 1 else np.zeros(queries)
    rows = [value_table.mean(axis=0), deviation, value_table.min(axis=0), value_table.max(axis=0)]
    rows += list(np.quantile(value_table, QUANTILES, axis=0))
    return len(value_table), np.stack([*rows, baseline] if baseline is not None else rows)
