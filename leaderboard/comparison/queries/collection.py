"""A dataset whose judgements everyone may see, and its queries as a list: how hard each is, sorted and in pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import numpy as np
from django.db.models import Q
from django.urls import reverse
from numpy.typing import NDArray

from evaluation.collections.beir import read_queries
from evaluation.judgements.qrels import Qrels
from leaderboard.boards.state import LONGEST_QUERY, Parameters, last_value, query_of, whole_number
from leaderboard.core.cache.memory import FixedCache
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better, canonical_name
from leaderboard.core.storage.store import Area, local_path
from leaderboard.core.text.baselines import baseline_label
from leaderboard.core.text.numbers import format_value
from leaderboard.datasets.qrels import JudgementsNotOpen, excluded_documents, open_judgements
from leaderboard.models import Dataset, DatasetQuerySet, Entry, EntryQuerySet, Visibility
from leaderboard.results.board_rows.entry_rows import dataset_revision
from leaderboard.results.records import entries_with_values, measure_values

#: Ids that an address cannot end in: browsers take them for folders.
_FOLDERS = (".", "..")


@dataclass(frozen=True, slots=True)
class OpenCollection:
    """`order`: the rows of the judged queries as people count them, numbers by their value."""

    dataset: Dataset
    judgements: Qrels
    order: tuple[int, ...]

    @property
    def measures(self) -> list[str]:
        """The measures that its pages offer."""
        return self.dataset.measures or [self.dataset.primary_measure]

    def measure(self, requested: str) -> str:
        """Return the requested measure, by default the primary one. Raises UnknownChoice."""
        if requested and requested not in self.measures:
            raise UnknownChoice("measure", requested, self.measures)
        return requested or self.dataset.primary_measure

    def best_entries(self, measure: str) -> dict[str, Entry]:
        """Return each system's best entry, by slug: the baseline's, then the others from the best on."""
        best: dict[str, Entry] = {}
        for entry in by_score(compared_entries(self.dataset).select_related("system"), measure):
            best.setdefault(entry.system.slug, entry)
        return best

    def text(self, query_id: str) -> str:
        """What the query asks, empty where that is not public."""
        version = self.dataset.current_version
        if self.dataset.queries_visibility != Visibility.PUBLIC or version is None:
            return ""
        return _query_texts(version.topics_sha256).get(query_id, "")

    @property
    def excluded_sha256(self) -> str:
        """The documents that are left out of rankings; empty where there are none."""
        version = self.dataset.current_version
        return version.excluded_sha256 if version else ""

    def excludes_for(self, query_id: str) -> bool:
        """Whether documents are left out of the rankings of a query."""
        version = self.dataset.current_version
        excluded = excluded_documents(version) if version else None
        return excluded is not None and excluded.find_row(query_id) is not None

    def neighbours(self, row: int) -> tuple[str | None, str | None]:
        """The ids of the queries before and after one."""
        place, ids = self.order.index(row), self.judgements.query_ids
        before = ids[self.order[place - 1]] if place else None
        after = ids[self.order[place + 1]] if place + 1 < len(self.order) else None
        return before, after

    def mentions(self, place: int, text: str) -> bool:
        """Whether a query or its id has the text, ignoring case."""
        name = self.judgements.query_ids[place]
        return text in name.casefold() or text in (self.text(name) or "").casefold()

    def columns(self, found: Difficulty | None) -> dict[str, NDArray[Any]]:
        """The columns by key, each with a value for every query."""
        judged = self.judgements
        relevant = judged.grades >= self.dataset.relevance_level
        values: dict[str, NDArray[Any]] = {
            "relevant": np.bincount(judged.rows, relevant, len(judged.query_ids)).astype(int),
            "judged": np.diff(judged.offsets),
        }
        if found:
            values |= {
                "mean": found.mean,
                "spread": found.deviation,
                "lowest": found.lowest,
                "highest": found.highest,
            }
            if found.baseline is not None:
                values["baseline"] = found.baseline
        return values

    def ordered(self, values: NDArray[Any] | None, *, descending: bool) -> list[int]:
        """Rows by value, equal ones as people count them; without values in that order, or its reverse."""
        if values is None:
            return list(reversed(self.order)) if descending else list(self.order)
        keys = -values if descending else values
        return sorted(self.order, key=keys.tolist().__getitem__)

    def line(self, row: int, values: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """One query; numbers as the page writes them."""
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
    """The dataset with its judgements, None where there is none or its judgements are not open. One query."""
    dataset = (
        DatasetQuerySet(Dataset)
        .listed()
        .filter(slug=slug)
        .select_related("current_version", "current_qrels")
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
    """The page of a query. An id may have any sign but white space, so all are quoted."""
    if query_id in _FOLDERS:
        return f"{reverse('queries', args=[slug])}?id={query_id}"
    return f"{reverse('queries', args=[slug])}{quote(query_id, safe='')}/"


def compared_entries(dataset: Dataset) -> EntryQuerySet:
    """The public entries on the dataset's present version and judgements: BM25 first, then by date."""
    group = f"scored:{dataset.current_version_id}:{dataset.current_qrels_id}:"
    return (
        EntryQuerySet(Entry)
        .public()
        .filter(dataset=dataset, comparison_group__startswith=group)
        .filter(Q(evaluation__isnull=False) | Q(seed_count__gte=2))
        .order_by("-is_baseline", "published_at", "pk")
    )


def baseline_of(dataset: Dataset) -> str:
    """How the baseline of the dataset's present results is called, empty where there is none. One query."""
    systems = compared_entries(dataset).filter(is_baseline=True).values_list("system__name", flat=True)
    return next((baseline_label(name, dataset.name) for name in systems[:1]), "")


def by_score(entries: Iterable[Entry], measure: str) -> list[Entry]:
    """The baseline, then the others from the best on; those without the measure last."""
    sign = 1 if better(measure) == "lower" else -1

    def place(entry: Entry) -> tuple[bool, bool, float]:
        value = entry.scores.get(measure)
        return not entry.is_baseline, value is None, 0.0 if value is None else sign * value

    return sorted(entries, key=place)


@lru_cache(maxsize=16)
def _query_texts(sha256: str) -> Mapping[str, str]:
    return {query.id: query.text for query in read_queries(local_path(Area.FILES, sha256))}


ROWS_OF_A_PAGE = 100
#: Columns by key: label, the order in which it is first sorted, and what it is.
COLUMNS: Mapping[str, tuple[str, Literal["asc", "desc"], str]] = {
    "query": ("Query", "asc", ""),
    "relevant": ("Relevant", "desc", "documents judged relevant"),
    "judged": ("Judged", "desc", "documents judged"),
    "mean": ("Mean", "asc", "over the systems"),
    "spread": ("Spread", "desc", "sample standard deviation over the systems"),
    "lowest": ("Lowest", "asc", "of any system"),
    "highest": ("Highest", "asc", "of any system"),
    "baseline": ("Baseline", "asc", "the baseline's own"),
}


#: The query parameters of the list.
LIST_PARAMETERS = ("measure", "q", "sort", "page")


@dataclass(frozen=True, slots=True)
class ListState:
    """Which queries are seen, and in which order; empty fields mean the default."""

    measure: str = ""
    sort: str = ""
    order: str = ""
    page: int = 1
    #: Text that a query or its id has.
    text: str = ""

    @classmethod
    def read(cls, parameters: Parameters) -> ListState:
        """The view that a query string asks for. Raises UnknownChoice."""
        sort, _, order = last_value(parameters, "sort").partition(":")
        if sort and sort not in COLUMNS:
            raise UnknownChoice("sort", sort, COLUMNS)
        if order not in ("", "asc", "desc"):
            raise UnknownChoice("order", order, ["asc", "desc"])
        page = whole_number(parameters, "page", 1)
        text = last_value(parameters, "q").strip()[:LONGEST_QUERY]
        return cls(canonical_name(last_value(parameters, "measure")), sort, order, max(page, 1), text)

    def but(self, **changes: Any) -> ListState:
        """The same view with other values, from its first page on unless a page is named."""
        return replace(self, **{"page": 1, **changes})

    def query_string(self) -> str:
        """`?sort=…`, or nothing for the default view."""
        sort = f"{self.sort}:{self.order}" if self.order else self.sort
        page = str(self.page) * (self.page > 1)
        return query_of(("measure", self.measure), ("q", self.text), ("sort", sort), ("page", page))


class QueryList(NamedTuple):
    """A page of the list. `systems` is how many systems the figures are over, 0 where there is none."""

    measure: str
    rows: list[dict[str, Any]]
    total: int
    sort: str
    order: str
    page: int
    pages: int
    systems: int


def query_list(collection: OpenCollection, state: ListState) -> QueryList:
    """The page that `state` asks for. Raises UnknownChoice for a measure or a page that there is none of."""
    dataset = collection.dataset
    measure = collection.measure(state.measure)
    found = difficulty(dataset, measure, len(collection.judgements.query_ids))
    values = collection.columns(found)
    # What systems disagree on comes first: the hardest queries have 0 everywhere.
    sort = state.sort or ("spread" if found else "query")
    lower = better(measure) == "lower" and sort in ("mean", "lowest", "highest", "baseline")
    hardest_first = "desc" if lower else ""
    order = state.order or hardest_first or COLUMNS[sort][1]
    places = collection.ordered(values.get(sort), descending=order == "desc")
    if state.text:
        places = [place for place in places if collection.mentions(place, state.text.casefold())]
    pages = max(1, -(-len(places) // ROWS_OF_A_PAGE))
    if state.page > pages:
        raise UnknownChoice("page", str(state.page), expected=f"1 to {pages}")
    shown = places[(state.page - 1) * ROWS_OF_A_PAGE : state.page * ROWS_OF_A_PAGE]
    rows = [collection.line(row, values) for row in shown]
    return QueryList(
        measure, rows, len(places), sort, order, state.page, pages, found.systems if found else 0
    )


#: So many systems are looked at, the best ones; a board of a thousand says nothing else of its queries.
MOST_SYSTEMS = 100

Values = NDArray[np.float64]

#: From the hardest tenth of the systems to the easiest, for each query.
QUANTILES = (0.1, 0.5, 0.9)
#: 64 bytes for each query of a dataset: 450 kB for 7,000. None is ever stale: the key names the revision of the board.
_remembered = FixedCache("difficulty-quantiles", 64, 3600)


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Over `systems` systems, by query (rows of the judgements). `baseline` is None where there is none.

    `deviation` is the sample standard deviation (n − 1), 0 of a single system; `quantiles` has `QUANTILES` as its rows.
    """

    systems: int
    mean: Values
    deviation: Values
    lowest: Values
    highest: Values
    quantiles: Values
    baseline: Values | None


def difficulty(dataset: Dataset, measure: str, queries: int) -> Difficulty | None:
    """What systems have on each of the dataset's judged queries, None where none has the measure. Four queries.

    Remembered by all processes until the board changes.
    """
    names = f"{dataset.pk} {dataset_revision(dataset.slug)} {dataset.current_qrels_id} {measure}"
    kept: Any = _remembered.get(names)
    if kept is None:
        found = _computed(dataset, measure, queries)
        kept = (0, b"") if found is None else (found[0], found[1].tobytes())
        _remembered.set(names, kept)
    systems, content = kept
    if not systems:
        return None
    rows = np.frombuffer(content).reshape(-1, queries)
    mean, deviation, lowest, highest = rows[:4]
    quantiles, baseline = rows[4:7], rows[7:]
    return Difficulty(
        systems, mean, deviation, lowest, highest, quantiles, baseline[0] if len(baseline) else None
    )


def _computed(dataset: Dataset, measure: str, queries: int) -> tuple[int, Values] | None:
    """(systems, mean, deviation, lowest, highest, quantiles and the baseline's values as rows of one array)."""
    columns, baseline = [], None
    ranked = by_score(compared_entries(dataset).only("pk", "is_baseline", "scores"), measure)
    for entry in entries_with_values(entry.pk for entry in ranked[:MOST_SYSTEMS]).values():
        column = measure_values(entry, measure)
        if column is None or len(column) != queries:
            continue
        columns.append(column)
        if entry.is_baseline:
            baseline = column
    if not columns:
        return None
    table = np.stack(columns)
    deviation = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(queries)
    rows = [table.mean(axis=0), deviation, table.min(axis=0), table.max(axis=0)]
    rows += list(np.quantile(table, QUANTILES, axis=0))
    return len(table), np.stack([*rows, baseline] if baseline is not None else rows)
