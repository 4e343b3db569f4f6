"""A dataset whose judgements everyone may see, with what its query pages read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

from django.db.models import Q
from django.urls import reverse

from evaluation.collections.beir import read_queries
from evaluation.judgements.qrels import Qrels
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import better
from leaderboard.core.storage.store import Area, local_path
from leaderboard.core.text.baselines import baseline_label
from leaderboard.datasets.qrels import JudgementsNotOpen, excluded_documents, open_judgements
from leaderboard.models import Dataset, Entry
from leaderboard.models.datasets import DatasetQuerySet, Visibility
from leaderboard.models.results import EntryQuerySet

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
        return excluded is not None and excluded.row_of(query_id) is not None

    def neighbours(self, row: int) -> tuple[str | None, str | None]:
        """The ids of the queries before and after one."""
        place, ids = self.order.index(row), self.judgements.query_ids
        before = ids[self.order[place - 1]] if place else None
        after = ids[self.order[place + 1]] if place + 1 < len(self.order) else None
        return before, after


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
    return OpenCollection(dataset, judgements, _natural_order(judgements.query_ids))


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


def _natural_order(query_ids: tuple[str, ...]) -> tuple[int, ...]:
    rows = range(len(query_ids))
    if all(name.isascii() and name.isdigit() for name in query_ids):
        return tuple(sorted(rows, key=lambda row: int(query_ids[row])))
    return tuple(rows)


@lru_cache(maxsize=16)
def _query_texts(sha256: str) -> Mapping[str, str]:
    return {query.id: query.text for query in read_queries(local_path(Area.FILES, sha256))}
