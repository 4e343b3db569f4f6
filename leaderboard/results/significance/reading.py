"""Reading what was found: four queries at most for any number of datasets, one where all of it is known here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
from django.db.models import IntegerField, JSONField, TextField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Cast, Coalesce

from leaderboard.core.cache.memory import TTLCache
from leaderboard.models import Certainty, Dataset
from leaderboard.results.significance.board import compared_boards
from leaderboard.results.significance.types import BoardCertainty, TestSettings

#: By dataset, revision of its board, and the row that was found last.
_cache: TTLCache[BoardCertainty] = TTLCache(64)


#: What was found last of a dataset's board. In SQL, as `history.rows.CHANGED_AT` is.
_LATEST = RawSQL(
    "(SELECT id FROM leaderboard_certainty WHERE dataset_id = leaderboard_dataset.id "
    "ORDER BY from_revision DESC LIMIT 1)",
    (),
    IntegerField(),
)


def clear_certainty() -> None:
    """Read everything again next time; for measuring."""
    _cache.clear()


def read_certainty(dataset_ids: Collection[int]) -> dict[int, BoardCertainty]:
    """What was found last of each dataset's board, by id; nothing of hidden ones, nor where nothing was found yet."""
    rows = Dataset.objects.filter(pk__in=dataset_ids, hidden=False).values_list(
        "pk", "created_at", "board_revision", _LATEST
    )
    # Whatever changes a board, such as its list of measures, counts its revision up. The date is for a database that
    # was put back to an earlier state: there, other rows get the same ids.
    keys = {
        dataset: (found, f"{dataset}:{created.timestamp()}:{revision}:{found}")
        for dataset, created, revision, found in rows
        if found is not None
    }
    known = {dataset: _cache.get(key) for dataset, (_, key) in keys.items()}
    missing = {dataset: keys[dataset][0] for dataset, found in known.items() if found is None}
    if missing:
        present = compared_boards(missing)
        for found in _rows(list(missing.values())):
            board = present.get(found["dataset_id"])
            if board is not None and board.comparison_group != found["comparison_group"]:
                continue  # of the same results on earlier judgements: nothing of it holds for these numbers
            current = board is not None and board.key == found["key"]
            certainty = _certainty(found, current=current, baseline=board.baseline if board else None)
            known[certainty.dataset] = certainty
            _cache.put(keys[certainty.dataset][1], certainty)
    return {dataset: found for dataset, found in known.items() if found is not None}


def read_certainty_at(
    dataset_id: int, revision: int, entries: Collection[int], group: str = "", baseline: int | None = None
) -> BoardCertainty | None:
    """What was found of a dataset's board when it had this revision.

    `entries` are those that it showed, `baseline` is the one it had then, by their ids. Current where it was found of
    exactly these entries of its comparison group. None where there was nothing yet, or nothing of the comparison group
    that is named, and where the judgements are hidden now. Two queries.
    """
    known = Certainty.objects.filter(dataset=dataset_id, dataset__hidden=False, from_revision__lte=revision)
    latest = known.order_by("-from_revision").values_list("pk", flat=True).first()
    if latest is None:
        return None
    (row,) = _rows([latest])
    if group and row["comparison_group"] != group:
        return None
    found = _certainty(row, current=True, baseline=baseline)
    compared = {entry for measure in found.content.values() for entry in measure["entries"]}
    return found if compared == set(entries) else replace(found, current=False)


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
