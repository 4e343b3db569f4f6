"""Public views of collection and run statistics; the only place that decides their visibility.

- Term statistics, document lengths, and overlaps of corpora: public documents that Runboard stores.
- Lengths of relevant documents: also require open judgments.
- Lengths of a run's top documents: public results with open judgments and public documents.

Only numbers are returned; `dataset_details` decides whether the text of an example is shown.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from django.db.models import F, Q
from numpy.typing import NDArray

from evaluation.collections.profiles import LengthDistribution, merge_distributions
from leaderboard.models import CollectionProfile, Dataset, Entry, Overlap, RunProfile, Visibility

#: Profiles of datasets with public documents and a public page.
_PUBLIC_PROFILES = Q(
    version__dataset__documents_visibility=Visibility.PUBLIC,
    version__dataset__runs_only=False,
) & ~Q(version__dataset__state=Dataset.State.PREPARING)
#: Reference to the profile's version, for comparison with the dataset's current one.
_PROFILE_VERSION = F("version_id")


@dataclass(frozen=True)
class CollectionLengths:
    """Words per document of a corpus, and per relevant document (None with hidden judgments)."""

    documents: LengthDistribution
    relevant: LengthDistribution | None


def collection_lengths(slug: str) -> CollectionLengths | None:
    """Return the document lengths of a dataset's current version, or None if they are not public or not computed.

    Lengths of relevant documents are included if the judgments are open and were counted.
    """
    profile = (
        CollectionProfile.objects.filter(_PUBLIC_PROFILES, version__dataset__slug=slug)
        .filter(version__dataset__current_version=_PROFILE_VERSION)
        .select_related("version__dataset")
        .first()
    )
    if profile is None:
        return None
    dataset, relevance = profile.version.dataset, profile.relevance_by_length
    is_open = not dataset.hidden and relevance.get("qrels") == dataset.current_qrels_id
    return CollectionLengths(
        LengthDistribution.from_data(profile.document_lengths),
        LengthDistribution.from_data(relevance["lengths"]) if is_open and relevance else None,
    )


def retrieved_lengths(entries: Collection[int]) -> dict[int, LengthDistribution]:
    """Return words per top-ranked document of entries, by entry id, pooled over the seeds of a seed set.

    Entries that are not public are omitted, and so are datasets without open judgments and public documents. Takes two
    queries.
    """
    public_entries = (
        Entry.objects.public()
        .filter(pk__in=entries, dataset__hidden=False, dataset__runs_only=False)
        .filter(dataset__documents_visibility=Visibility.PUBLIC)
    )
    distributions: dict[int, list[LengthDistribution]] = {}
    for path in ("run__evaluations__entry", "run__evaluations__seed__entry"):
        rows = RunProfile.objects.filter(**{f"{path}__in": public_entries}).order_by("pk")
        for entry, lengths in rows.values_list(path, "document_lengths"):
            distributions.setdefault(entry, []).append(LengthDistribution.from_data(lengths))
    return {entry: merge_distributions(parts) for entry, parts in distributions.items()}


class PublicCollection(NamedTuple):
    """A dataset with a stored corpus, as shown in overlap maps."""

    version_id: int
    slug: str
    name: str
    domain: str


@dataclass(frozen=True)
class OverlapMatrix:
    """Weighted Jaccard similarities of corpora (datasets × datasets): 1 on the diagonal, NaN if not computed yet."""

    datasets: list[PublicCollection]
    similarities: NDArray[np.float64]


def public_overlaps() -> OverlapMatrix:
    """Return the similarities of all datasets with public documents, ordered by name, in two queries."""
    rows = (
        CollectionProfile.objects.filter(_PUBLIC_PROFILES, version__dataset__current_version=_PROFILE_VERSION)
        .order_by("version__dataset__name")
        .values_list("version_id", "version__dataset__slug", "version__dataset__name", "version__dataset__domain")
    )
    datasets = [PublicCollection(*row) for row in rows]
    positions = {dataset.version_id: number for number, dataset in enumerate(datasets)}
    similarities = np.full((len(datasets), len(datasets)), np.nan)
    np.fill_diagonal(similarities, 1.0)
    pairs = Overlap.objects.filter(first_id__in=positions, second_id__in=positions)
    for first, second, value in pairs.values_list("first_id", "second_id", "weighted_jaccard"):
        similarities[positions[first], positions[second]] = similarities[positions[second], positions[first]] = value
    return OverlapMatrix(datasets, similarities)


class Neighbour(NamedTuple):
    """Another dataset and its vocabulary overlap, 0 to 1."""

    slug: str
    name: str
    overlap: float


def neighbours(version_id: int, limit: int = 5) -> list[Neighbour]:
    """Return the datasets with public documents whose corpora overlap most with this version's, in one query.

    They are sorted by overlap, highest first. Only current versions count, and twins do not: they have the same corpus.
    """
    pairs = Overlap.objects.filter(Q(first=version_id) | Q(second=version_id)).select_related(
        "first__dataset", "second__dataset"
    )
    result = []
    for pair in pairs:
        other_version = pair.second if pair.first_id == version_id else pair.first
        dataset = other_version.dataset
        datasets = pair.first.dataset, pair.second.dataset
        if {each.pk for each in datasets} & {each.twin_of_id for each in datasets}:
            continue
        is_public = dataset.documents_visibility == Visibility.PUBLIC and not dataset.runs_only
        if is_public and dataset.state != Dataset.State.PREPARING and dataset.current_version_id == other_version.pk:
            result.append(Neighbour(dataset.slug, dataset.name, pair.weighted_jaccard))
    return sorted(result, key=lambda neighbour: (-neighbour.overlap, neighbour.name))[:limit]
