"""Compared entries of boards, and reading what was found of them: four queries at most for any number of datasets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from hashlib import blake2b
from itertools import groupby
from operator import itemgetter, or_
from typing import Any, NamedTuple

import orjson
from django.db.models import IntegerField, JSONField, Q, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast, Coalesce

from leaderboard.core.cache.memory import LONG_LIFETIME
from leaderboard.models import Certainty, Dataset, Entry
from leaderboard.results.board_rows.entry_rows import EntryRow, present_group
from leaderboard.results.board_rows.rows import board_cache, decoded_size
from leaderboard.results.significance.types import METHOD, BoardCertainty, TestSettings

#: What was found last of a dataset's board. In SQL, as `history.rows.CHANGED_AT` is.
_LATEST = RawSQL(
    "(SELECT id FROM leaderboard_certainty WHERE dataset_id = leaderboard_dataset.id "
    "ORDER BY from_revision DESC LIMIT 1)",
    (),
    IntegerField(),
)


def read_certainty(dataset_ids: Collection[int]) -> dict[int, BoardCertainty]:
    """What was found last of each dataset's board, by id; nothing of hidden ones, nor where nothing was found yet."""
    rows = Dataset.objects.filter(pk__in=dataset_ids, hidden=False).values_list(
        "pk", "created_at", "board_revision", _LATEST
    )
    # Whatever changes a board, such as its list of measures, counts its revision up. The date is for a database that
    # was put back to an earlier state: there, other rows get the same ids.
    keys = {
        dataset: (found, f"tests {dataset}:{created.timestamp()}:{revision}:{found}")
        for dataset, created, revision, found in rows
        if found is not None
    }
    known = {dataset: board_cache.get(key) for dataset, (_, key) in keys.items()}
    missing = {dataset: keys[dataset][0] for dataset, found in known.items() if found is None}
    if missing:
        present = compared_boards(missing)
        for found in _rows(list(missing.values())):
            board = present.get(found["dataset_id"])
            if board is None or board.comparison_group != found["comparison_group"]:
                continue  # of the same results on earlier judgements: nothing of it holds for these numbers
            certainty = _certainty(found, current=board.key == found["key"], baseline=board.baseline)
            known[certainty.dataset] = certainty
            size = decoded_size(len(found["text"]))
            board_cache.put(keys[certainty.dataset][1], certainty, size, LONG_LIFETIME)
    return {dataset: found for dataset, found in known.items() if found is not None}


class PastBoard(NamedTuple):
    """A revision of a dataset's board: the compared entries of one group, and their baseline's id."""

    revision: int
    comparison_group: str
    entries: Sequence[EntryRow]
    baseline: int | None = None

    def is_compared_in(self, certainty: BoardCertainty) -> bool:
        """Return whether the certainty was computed from exactly these entries and this baseline."""
        compared = {entry for measure in certainty.content.values() for entry in measure["entries"]}
        baselines = {measure["baseline"] for measure in certainty.content.values()} - {None}
        return compared == {entry.pk for entry in self.entries} and baselines == {self.baseline} - {None}


def read_certainty_at(boards: Mapping[int, PastBoard]) -> dict[int, BoardCertainty]:
    """Return the last certainty of each board until its revision, by dataset. Two queries.

    It is current if it was computed from exactly these entries and this baseline. Boards without certainty for their
    comparison group, and those of datasets whose judgments are hidden now, are left out.
    """
    if not boards:
        return {}
    until = (Q(dataset=dataset, from_revision__lte=board.revision) for dataset, board in boards.items())
    known = Certainty.objects.filter(reduce(or_, until), dataset__hidden=False).order_by("from_revision")
    latest = dict(known.values_list("dataset_id", "pk"))
    certainties = {}
    for row in _rows(list(latest.values())):
        board = boards[row["dataset_id"]]
        if row["comparison_group"] == board.comparison_group:
            certainty = _certainty(row, current=True, baseline=board.baseline)
            certainties[certainty.dataset] = replace(certainty, current=board.is_compared_in(certainty))
    return certainties


def _rows(ids: Sequence[int]) -> list[dict[str, Any]]:
    # As text, since JSON of a thousand systems is read thrice as fast by orjson.
    content = Coalesce("same_as__content", "content", output_field=JSONField())
    fields = ("dataset_id", "key", "comparison_group", "from_revision", "computed_at", "settings")
    return list(Certainty.objects.filter(pk__in=ids).values(*fields, text=Cast(content, TextField())))


def _certainty(row: Mapping[str, Any], *, current: bool, baseline: int | None) -> BoardCertainty:
    return BoardCertainty(
        dataset=row["dataset_id"],
        key=row["key"],
        comparison_group=row["comparison_group"],
        from_revision=row["from_revision"],
        computed_at=row["computed_at"],
        settings=TestSettings(**row["settings"]),
        current=current,
        baseline=baseline,
        content=orjson.loads(row["text"]),
    )


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
