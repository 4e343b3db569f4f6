"""Which entries a board has that can be compared, and the key that names them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import orjson

from leaderboard.models import Certainty, Dataset, Entry
from leaderboard.results.kinds import present_group
from leaderboard.results.significance.types import METHOD, TestSettings


class ComparedBoard(NamedTuple):
    """The public, present, scored entries of an open dataset's board, by date of publication."""

    dataset: int
    comparison_group: str
    entries: Sequence[int]
    baseline: int | None
    measures: Sequence[str]
    #: Those of closed APIs: ranked separately, so in no group, and never the best.
    closed: Sequence[int] = ()

    @property
    def key(self) -> str:
        """What decides all that is found: an entry has one set of evaluations in a group, its id stands for them."""
        named = [
            self.comparison_group,
            sorted(self.entries),
            self.baseline,
            self.measures,
            sorted(self.closed),
            TestSettings().as_dict(),
        ]
        digest = blake2b(orjson.dumps(named, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
        return f"{METHOD}:{digest}"


def compared_boards(datasets: Collection[int]) -> dict[int, ComparedBoard]:
    """The boards of open datasets that have results to compare, by id. Two queries."""
    open_ones = Dataset.objects.filter(pk__in=datasets, hidden=False, current_qrels__isnull=False)
    present = {each.pk: each for each in open_ones.only("current_version", "current_qrels", "measures")}
    entries = Entry.objects.filter(dataset__in=list(present), visibility=Entry.Visibility.PUBLIC)
    entries = entries.exclude(provenance=Entry.Provenance.REPORTED).order_by(
        "dataset_id", "published_at", "pk"
    )
    columns = ("dataset_id", "pk", "comparison_group", "is_baseline", "system__closed_api")
    boards = {}
    for pk, group_of_rows in groupby(entries.values(*columns), itemgetter("dataset_id")):
        dataset, rows = present[pk], list(group_of_rows)
        groups = [(row["comparison_group"], row["is_baseline"]) for row in rows]
        group = present_group(dataset.current_version_id, dataset.current_qrels_id, groups)
        members = [row for row in rows if group and row["comparison_group"] == group]
        if members:
            boards[pk] = ComparedBoard(
                pk,
                group,
                [row["pk"] for row in members],
                next((row["pk"] for row in reversed(members) if row["is_baseline"]), None),
                list(dataset.measures),
                [row["pk"] for row in members if row["system__closed_api"]],
            )
    return boards


def is_known(board: ComparedBoard) -> bool:
    """Whether what was found last is of this very board. One query."""
    latest = Certainty.objects.filter(dataset=board.dataset).order_by("-from_revision")
    return latest.values_list("key", flat=True).first() == board.key
