"""Which entries a board has that can be compared, and the key that names them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import orjson

from leaderboard.models import Certainty, Dataset, Entry
from leaderboard.results.kinds import present_group
from leaderboard.results.significance.types import METHOD, Settings


class ComparedBoard(NamedTuple):
    """The public, present, scored entries of an open dataset's board, by date of publication."""

    dataset: int
    comparison_group: str
    entries: Sequence[int]
    baseline: int | None
    measures: Sequence[str]
    #: Those of systems behind a closed interface: ranked apart, so in no group, and never the best.
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
            Settings().as_dict(),
        ]
        digest = blake2b(orjson.dumps(named, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()
        return f"{METHOD}:{digest}"


def compared_boards(datasets: Collection[int]) -> dict[int, ComparedBoard]:
    """The boards of open datasets that have results to compare, by id. Two queries."""
    facts = Dataset.objects.filter(pk__in=datasets, hidden=False, current_qrels__isnull=False)
    present = {
        pk: (version, qrels, measures)
        for pk, version, qrels, measures in facts.values_list(
            "pk", "current_version_id", "current_qrels_id", "measures"
        )
    }
    rows = (
        Entry.objects.filter(dataset__in=present)
        .filter(visibility=Entry.Visibility.PUBLIC)
        .exclude(provenance=Entry.Provenance.REPORTED)
        .order_by("dataset_id", "published_at", "pk")
        .values_list("dataset_id", "pk", "comparison_group", "is_baseline", "system__closed_api")
    )
    found = {}
    for dataset, entries in groupby(rows, itemgetter(0)):
        board = compared_board(dataset, *present[dataset], [row[1:] for row in entries])
        if board is not None:
            found[dataset] = board
    return found


def is_known(board: ComparedBoard) -> bool:
    """Whether what was found last is of this very board. One query."""
    latest = Certainty.objects.filter(dataset=board.dataset).order_by("-from_revision")
    return latest.values_list("key", flat=True).first() == board.key


def compared_board(
    dataset: int,
    version: int | None,
    qrels: int | None,
    measures: Sequence[str],
    entries: Iterable[tuple[int, str, bool, bool]],
) -> ComparedBoard | None:
    """The entries of the present group, None where there is none.

    Each of `entries` comes as id, group, whether it is a baseline, and whether its system has a closed interface.
    """
    rows = list(entries)
    group = present_group(version, qrels, [(group, is_baseline) for _, group, is_baseline, _ in rows])
    members = [(pk, is_baseline, is_closed) for pk, of, is_baseline, is_closed in rows if of == group]
    if not group or not members:
        return None
    baselines = [pk for pk, is_baseline, _ in members if is_baseline]
    return ComparedBoard(
        dataset,
        group,
        [pk for pk, _, _ in members],
        baselines[-1] if baselines else None,
        list(measures),
        [pk for pk, _, is_closed in members if is_closed],
    )
