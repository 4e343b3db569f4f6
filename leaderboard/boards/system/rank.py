"""Where a result stands on its dataset's board: whom it is ranked among, at which place, and who is the best of them.

For pages that show one result and not the board; both read ranks from here or from where this has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
from django.db.models import TextField
from django.db.models.functions import Cast

from leaderboard.core.measures import better
from leaderboard.models import Dataset, Entry
from leaderboard.models.results import EntryQuerySet
from leaderboard.results.kinds import UNRANKED, present_group, rank_values, ranked_in


class RankedEntry(NamedTuple):
    """A public entry, as far as ranks and comparisons go."""

    pk: int
    system_id: int
    system: str
    slug: str
    closed_api: bool
    comparison_group: str
    provenance: str
    is_baseline: bool
    scores: Mapping[str, float]


class BoardRank(NamedTuple):
    """An entry's place by one measure: `rank` is None where it is stale, `of` counts those of its kind.

    `best` is the best of them, itself where there is no other.
    """

    ranked_in: str
    rank: int | None
    of: int
    best: RankedEntry


@dataclass(frozen=True, slots=True)
class RankedBoard:
    """The public entries of a dataset's board, by date of publication, and the group of its present results."""

    present: str
    entries: Sequence[RankedEntry]

    def kind(self, entry: RankedEntry) -> str:
        """Whom it is ranked among, as on the board."""
        return ranked_in(entry.provenance, entry.comparison_group, self.present, closed_api=entry.closed_api)

    def baseline(self, entry: RankedEntry, measure: str) -> RankedEntry | None:
        """What its differences are taken to: the baseline of its own source, version and judgements."""
        found = (
            other
            for other in self.entries
            if other.is_baseline and other.comparison_group == entry.comparison_group
        )
        return next((other for other in found if measure in other.scores), None)

    def standing(self, entry: RankedEntry, measure: str) -> BoardRank:
        """Its place by a measure that it has. A stale one is compared within its own group only, and has no rank."""
        kind, lower = self.kind(entry), better(measure) == "lower"
        peers = [
            other
            for other in self.entries
            if measure in other.scores
            and self.kind(other) == kind
            and (kind not in UNRANKED or other.comparison_group == entry.comparison_group)
        ] or [entry]
        value = entry.scores[measure]
        rank = rank_values([value, *(other.scores[measure] for other in peers)], lower_is_better=lower)[value]
        best = (min if lower else max)(peers, key=lambda other: other.scores[measure])
        return BoardRank(kind, None if kind in UNRANKED else rank, len(peers), best)


def ranked_boards(dataset_ids: Collection[int]) -> dict[int, RankedBoard]:
    """What each of these datasets' boards ranks, by the dataset's id. Two queries, however many there are."""
    present = {
        pk: (version, qrels)
        for pk, version, qrels in Dataset.objects.filter(pk__in=dataset_ids).values_list(
            "pk", "current_version_id", "current_qrels_id"
        )
    }
    rows = (
        EntryQuerySet(Entry)
        .public()
        .filter(dataset_id__in=present)
        .order_by("published_at", "pk")
        .values_list(
            "dataset_id",
            "pk",
            "system_id",
            "system__name",
            "system__slug",
            "system__closed_api",
            "comparison_group",
            "provenance",
            "is_baseline",
            Cast("scores", TextField()),
        )
    )
    entries: dict[int, list[RankedEntry]] = {pk: [] for pk in present}
    for dataset_id, *columns, scores in rows:
        entries[dataset_id].append(RankedEntry._make((*columns, orjson.loads(scores))))
    groups = {
        pk: [(each.comparison_group, each.is_baseline) for each in found] for pk, found in entries.items()
    }
    return {pk: RankedBoard(present_group(*present[pk], groups[pk]), found) for pk, found in entries.items()}
