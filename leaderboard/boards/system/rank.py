"""Where a result stands on its dataset's board: whom it is ranked among, at which place, and who is the best of them.

For pages that show one result and not the board; both read ranks from here or from where this has them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leaderboard.core.measures import better
from leaderboard.models import Dataset, Entry
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.board_rows.rows import present_rows
from leaderboard.results.kinds import UNRANKED, present_group, rank_values, ranked_in


class BoardRank(NamedTuple):
    """An entry's place by one measure: `rank` is None where it is stale, `of` counts those of its kind.

    `best` is the best of them, itself where there is no other.
    """

    ranked_in: str
    rank: int | None
    of: int
    best: EntryRow


@dataclass(frozen=True, slots=True)
class RankedBoard:
    """The public entries of a dataset's board, by date of publication, and the group of its present results."""

    present: str
    entries: Sequence[EntryRow]

    def kind(self, entry: EntryRow) -> str:
        """Whom it is ranked among, as on the board."""
        return ranked_in(
            entry.provenance, entry.comparison_group, self.present, closed_api=bool(entry.closed_api)
        )

    def baseline(self, entry: EntryRow | Entry, measure: str) -> EntryRow | None:
        """What its differences are taken to: the baseline of its own source, version and judgements."""
        found = (
            other
            for other in self.entries
            if other.is_baseline and other.comparison_group == entry.comparison_group
        )
        return next((other for other in found if measure in other.scores), None)

    def standing(self, entry: EntryRow, measure: str) -> BoardRank:
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
    """What each of these datasets' boards ranks, by the dataset's id. Three queries, however many there are."""
    datasets = Dataset.objects.filter(pk__in=dataset_ids)
    rows, found = present_rows(dataset_ids), {}
    for pk, version, qrels in datasets.values_list("pk", "current_version_id", "current_qrels_id"):
        entries = [row for row in rows[pk].entries if row.is_public]
        groups = [(row.comparison_group, row.is_baseline) for row in entries]
        found[pk] = RankedBoard(present_group(version, qrels, groups), entries)
    return found
