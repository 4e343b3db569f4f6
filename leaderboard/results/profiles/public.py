"""What everyone may see of what workers found of collections and runs: the one place that decides it.

- Words and lengths of a corpus, and its overlap with others: where its documents are public and here.
- Lengths of relevant documents: where, beside that, the judgements are open.
- Lengths of what a run ranks first: public results on open judgements and public documents, and no others.

No text leaves here; an example's is shown as `dataset_details` says.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from django.db.models import F, Q
from numpy.typing import NDArray

from evaluation.collections.profiles import LengthDistribution, merge_distributions
from leaderboard.models import CollectionProfile, Dataset, Entry, Overlap, RunProfile, Visibility

#: Datasets whose documents everyone may have, and that have a page.
_PUBLIC = Q(
    version__dataset__documents_visibility=Visibility.PUBLIC,
    version__dataset__runs_only=False,
) & ~Q(version__dataset__state=Dataset.State.PREPARING)
#: Of the profile's dataset the present version, which is the profile's own.
_SAME = F("version_id")


@dataclass(frozen=True)
class CollectionLengths:
    """Words per document of a corpus, and per relevant document, None where judgements are hidden."""

    documents: LengthDistribution
    relevant: LengthDistribution | None


def lengths_of(slug: str) -> CollectionLengths | None:
    """The lengths of a dataset's present documents; None where they are not everyone's, or not known yet. One query."""
    found = (
        CollectionProfile.objects.filter(_PUBLIC, version__dataset__slug=slug)
        .filter(version__dataset__current_version=_SAME)
        .select_related("version__dataset")
        .first()
    )
    if found is None:
        return None
    dataset, relevant = found.version.dataset, found.relevance_by_length
    shown = not dataset.hidden and relevant.get("qrels") == dataset.current_qrels_id
    return CollectionLengths(
        LengthDistribution.from_data(found.document_lengths),
        LengthDistribution.from_data(relevant["lengths"]) if shown and relevant else None,
    )


def retrieved_lengths(entries: Collection[int]) -> dict[int, LengthDistribution]:
    """Words per document that entries rank first, by the entries' ids; of a seed set those of all seeds. Two queries.

    Entries that are not public, or whose dataset keeps its judgements or documents back, are left out.
    """
    shown = (
        Entry.objects.public()
        .filter(pk__in=entries, dataset__hidden=False, dataset__runs_only=False)
        .filter(dataset__documents_visibility=Visibility.PUBLIC)
    )
    found: dict[int, list[LengthDistribution]] = {}
    for way in ("run__evaluations__entry", "run__evaluations__seed__entry"):
        rows = RunProfile.objects.filter(**{f"{way}__in": shown}).order_by("pk")
        for entry, lengths in rows.values_list(way, "document_lengths"):
            found.setdefault(entry, []).append(LengthDistribution.from_data(lengths))
    return {entry: merge_distributions(several) for entry, several in found.items()}


class PublicCollection(NamedTuple):
    """A dataset whose corpus is here, with what a map says of it."""

    version_id: int
    slug: str
    name: str
    domain: str


@dataclass(frozen=True)
class OverlapMatrix:
    """Weighted Jaccard similarities of corpora, datasets × datasets: 1 on the diagonal, nan where not known yet."""

    datasets: list[PublicCollection]
    similarities: NDArray[np.float64]


def public_overlaps() -> OverlapMatrix:
    """Of all datasets whose documents are here and public, by name. Two queries."""
    rows = (
        CollectionProfile.objects.filter(_PUBLIC, version__dataset__current_version=_SAME)
        .order_by("version__dataset__name")
        .values_list(
            "version_id", "version__dataset__slug", "version__dataset__name", "version__dataset__domain"
        )
    )
    datasets = [PublicCollection(*row) for row in rows]
    place = {dataset.version_id: number for number, dataset in enumerate(datasets)}
    similarities = np.full((len(datasets), len(datasets)), np.nan)
    np.fill_diagonal(similarities, 1.0)
    pairs = Overlap.objects.filter(first_id__in=place, second_id__in=place)
    for first, second, value in pairs.values_list("first_id", "second_id", "weighted_jaccard"):
        similarities[place[first], place[second]] = similarities[place[second], place[first]] = value
    return OverlapMatrix(datasets, similarities)


class Neighbour(NamedTuple):
    """Another dataset, and how much of its vocabulary is shared, 0 to 1."""

    slug: str
    name: str
    overlap: float


def neighbours(version_id: int, most: int = 5) -> list[Neighbour]:
    """The collections nearest to a version whose documents are everyone's, nearest first. One query."""
    pairs = Overlap.objects.filter(Q(first=version_id) | Q(second=version_id)).select_related(
        "first__dataset", "second__dataset"
    )
    near = []
    for pair in pairs:
        other = pair.second if pair.first_id == version_id else pair.first
        dataset = other.dataset
        public = dataset.documents_visibility == Visibility.PUBLIC and not dataset.runs_only
        if public and dataset.state != Dataset.State.PREPARING and dataset.current_version_id == other.pk:
            near.append(Neighbour(dataset.slug, dataset.name, pair.weighted_jaccard))
    return sorted(near, key=lambda one: (-one.overlap, one.name))[:most]
