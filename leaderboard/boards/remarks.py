"""Remarks on a collection that its page, its board, and the API show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Exists, OuterRef

from leaderboard.datasets.problems import missing_documents
from leaderboard.models import Entry, Qrels
from leaderboard.systems.baselines import BM25

_NO_RESULTS = (
    "BM25 finds no document for any query of this collection, so its scores are 0 and relative differences from it are "
    "not available."
)


def _has_empty_bm25(qrels: str) -> Exists:
    """Return the condition that the public BM25 result on the judgments in the field `qrels` has an empty run."""
    return Exists(
        Entry.objects.filter(
            evaluation__qrels=OuterRef(qrels),
            evaluation__run__lines=0,
            system__slug=BM25.slug,
            visibility="public",
        )
    )


#: The condition for a query of datasets.
BM25_FINDS_NOTHING = _has_empty_bm25("current_qrels")


def remarks(*, finds_nothing: bool, statistics: Mapping[str, Any] | None, hidden: bool) -> list[str]:
    """Return the public remarks on a collection as sentences; `statistics` are those of its judgments."""
    return [_NO_RESULTS] * finds_nothing + ([] if hidden or not statistics else missing_documents(statistics))


def remarks_on(qrels: int | None, *, hidden: bool) -> list[str]:
    """Return the remarks on a collection with these judgements, present or past. One query."""
    rows = Qrels.objects.filter(pk__in=[qrels] if qrels else []).values_list(
        "statistics", _has_empty_bm25("pk")
    )
    return [
        text
        for statistics, empty in rows
        for text in remarks(finds_nothing=empty, statistics=statistics, hidden=hidden)
    ]
