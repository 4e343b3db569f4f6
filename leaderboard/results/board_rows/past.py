"""Boards as they were: which revision a time means, and what was taken off since.

A time is a second. Of two changes within one second the later one counts, for all of that second.
"""

import datetime
from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.db.models import Max, Q

from leaderboard.models import BenchmarkVersion, BoardChange, Dataset, Entry
from leaderboard.results.board_rows.rows import BoardRows, Revision

SECOND = datetime.timedelta(seconds=1)


class RemovedEntry(NamedTuple):
    """Why an entry is no longer public, of which dataset and system it is, and what it is now."""

    dataset_id: int
    slug: str
    reason: str
    visibility: str


_NO_LONGER = "no longer on the board"
#: Why results are gone of which no reason is public: whether their team or a curator took them off tells nobody.
_GONE: Mapping[str, str] = {
    Entry.Visibility.PRIVATE: _NO_LONGER,
    Entry.Visibility.UNPUBLISHED: _NO_LONGER,
    Entry.Visibility.HELD: _NO_LONGER,
    Entry.Visibility.SUPERSEDED: "replaced by a better result of its team or submitter",
}

#: What an old board still shows: what gave way to a better result is as true as it was.
_STANDS = (Entry.Visibility.PUBLIC, Entry.Visibility.SUPERSEDED)


def end_of(at: datetime.datetime) -> datetime.datetime:
    """The first moment after the second."""
    return at.replace(microsecond=0) + SECOND


def revisions_at(datasets: Collection[int], at: datetime.datetime) -> dict[int, Revision]:
    """The revisions at a time of datasets and of the parts they had then, by id; none where one was not public yet.

    Two queries, and two more where any had parts.
    """
    found = _revisions_at(datasets, at)
    parts = {part for revision in found.values() for part in revision.parts}.difference(found)
    return {**found, **_revisions_at(parts, at)} if parts else found


def _revisions_at(datasets: Collection[int], at: datetime.datetime) -> dict[int, Revision]:
    changes = BoardChange.objects.filter(dataset__in=datasets, at__lt=end_of(at))
    last = dict(changes.values_list("dataset").annotate(last=Max("revision")).order_by())
    wanted = (Q(dataset=dataset, revision=number) for dataset, number in last.items())
    rows = BoardChange.objects.filter(reduce(or_, wanted)) if last else BoardChange.objects.none()
    columns = ("dataset_id", "revision", "at", "facts", "dataset__hidden")
    return {
        dataset: Revision(number, since, {**facts, "hidden": True} if hidden else facts, hidden)
        for dataset, number, since, facts, hidden in rows.values_list(*columns)
        if is_public(facts)
    }


def is_public(facts: Mapping[str, Any]) -> bool:
    """Whether a dataset of these columns had a page."""
    return facts.get("state") not in (None, Dataset.State.PREPARING)


def removed_since(rows: Mapping[int, BoardRows]) -> dict[int, RemovedEntry]:
    """The entries that were public then and are no longer, by id; `rows` are by dataset. One query."""
    gone = Entry.objects.filter(dataset__in=rows).exclude(visibility__in=_STANDS)
    found = {}
    columns = ("pk", "dataset_id", "visibility", "withdrawal_reason", "moderation_reason")
    for pk, dataset, visibility, by_team, by_curator in gone.values_list(*columns):
        said = by_curator if visibility == Entry.Visibility.QUARANTINED else by_team
        reason = _GONE.get(visibility) or said or "no reason given"
        if pk in rows[dataset].public:
            found[pk] = RemovedEntry(dataset, rows[dataset].public[pk], reason, visibility)
    return found


def without_page(gone: Iterable[RemovedEntry]) -> frozenset[str]:
    """The slugs of systems that have no page by now, since all that they have is kept back. One query at most."""
    slugs = {each.slug for each in gone if each.visibility not in Entry.SEEN}
    if not slugs:
        return frozenset()
    shown = Entry.objects.filter(system__slug__in=slugs).filter(visibility__in=Entry.SEEN)
    return frozenset(slugs.difference(shown.values_list("system__slug", flat=True)))


def removals_key(datasets: Collection[int]) -> str:
    """What changes whenever anything of these datasets is withdrawn or kept back. One query."""
    gone = BoardChange.objects.filter(dataset__in=datasets, entry__isnull=False)
    last = gone.exclude(entry__visibility__in=_STANDS)
    return str(last.aggregate(last=Max("pk"))["last"] or 0)


def benchmark_at(benchmark_id: int, at: datetime.datetime) -> dict[str, Any] | None:
    """The benchmark's columns and members as `revisions` kept them, None before the first. One query."""
    versions = BenchmarkVersion.objects.filter(benchmark=benchmark_id, at__lt=end_of(at))
    row: dict[str, Any] | None = versions.order_by("-at", "-pk").values_list("row", flat=True).first()
    return row
