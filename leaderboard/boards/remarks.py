"""Remarks on a collection that its page, its board, and the API show."""

from __future__ import annotations

from django.db.models import Exists, OuterRef

from leaderboard.datasets.problems import missing_documents
from leaderboard.models import Entry, Qrels
from leaderboard.systems.baselines import BM25

_NO_RESULTS = (
    "BM25 finds no document for any query of this collection: its scores are 0, and relative differences to it are not "
    "available."
)


def remarks_on(qrels: int | None, *, hidden: bool) -> list[str]:
    """Return what everyone may know of a collection with these judgements, as sentences. One query."""
    if qrels is None:
        return []
    empty = Entry.objects.filter(
        evaluation__qrels=OuterRef("pk"),
        evaluation__run__lines=0,
        system__slug=BM25.slug,
        visibility="public",
    )
    rows = Qrels.objects.filter(pk=qrels).values_list("statistics", Exists(empty))
    return [
        text
        for statistics, finds_nothing in rows
        for text in ([_NO_RESULTS] * finds_nothing + ([] if hidden else missing_documents(statistics)))
    ]
