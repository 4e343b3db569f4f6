"""Past boards: the revision at a given time, and entries that were removed since.

Times have a resolution of one second. If a board changed twice within a second, the later change applies to all of it.
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
    """An entry that is no longer public: its dataset, its system, the reason, and its current visibility."""

    dataset_id: int
    slug: str
    reason: str
    visibility: str


_NOT_ON_BOARD = "no longer on the board"
#: Public reasons for removals; they do not reveal whether the team or a curator removed the result.
_PUBLIC_REASONS: Mapping[str, str] = {
    Entry.Visibility.PRIVATE: _NOT_ON_BOARD,
    Entry.Visibility.UNPUBLISHED: _NOT_ON_BOARD,
    Entry.Visibility.HELD: _NOT_ON_BOARD,
    Entry.Visibility.SUPERSEDED: "replaced by a better result of its team or submitter",
}

#: Visibilities of entries that past boards still show, because superseded results remain valid.
_SHOWN_ON_PAST_BOARDS = (Entry.Visibility.PUBLIC, Entry.Visibility.SUPERSEDED)


def next_second(time: datetime.datetime) -> datetime.datetime:
    """Return the first moment after the second."""
    return time.replace(microsecond=0) + SECOND


def revisions_at(datasets: Collection[int], time: datetime.datetime) -> dict[int, Revision]:
    """Return the revisions of datasets at a given time, by dataset id, including the datasets that were their parts.

    Datasets that were not public at the time are omitted. Takes two queries, and two more if there are parts.
    """
    revisions = _revisions_at(datasets, time)
    parts = {part for revision in revisions.values() for part in revision.parts}.difference(revisions)
    return {**revisions, **_revisions_at(parts, time)} if parts else revisions


def _revisions_at(datasets: Collection[int], time: datetime.datetime) -> dict[int, Revision]:
    """Return each dataset's last revision up to the end of that second, by id, omitting datasets that were not public.

    If the judgments are hidden now, the revision is rounded and its facts are marked as hidden.
    """
    changes = BoardChange.objects.filter(dataset__in=datasets, at__lt=next_second(time))
    numbers = dict(changes.values_list("dataset").annotate(last=Max("revision")).order_by())
    conditions = (Q(dataset=dataset, revision=number) for dataset, number in numbers.items())
    rows = BoardChange.objects.filter(reduce(or_, conditions)) if numbers else BoardChange.objects.none()
    columns = ("dataset_id", "revision", "at", "facts", "dataset__hidden")
    return {
        dataset: Revision(number, changed_at, {**facts, "hidden": True} if hidden else facts, hidden)
        for dataset, number, changed_at, facts, hidden in rows.values_list(*columns)
        if is_public(facts)
    }


def is_public(facts: Mapping[str, Any]) -> bool:
    """Return whether a dataset with these columns had a page."""
    return facts.get("state") not in (None, Dataset.State.PREPARING)


def find_removed(rows: Mapping[int, BoardRows]) -> dict[int, RemovedEntry]:
    """Return entries that were public in `rows` and were removed or hidden since, by entry id, in one query.

    `rows` are by dataset id. Superseded entries do not count as removed.
    """
    removed_entries = Entry.objects.filter(dataset__in=rows).exclude(visibility__in=_SHOWN_ON_PAST_BOARDS)
    entries = {}
    columns = ("pk", "dataset_id", "visibility", "withdrawal_reason", "moderation_reason")
    for pk, dataset, visibility, team_reason, curator_reason in removed_entries.values_list(*columns):
        stored_reason = curator_reason if visibility == Entry.Visibility.QUARANTINED else team_reason
        reason = _PUBLIC_REASONS.get(visibility) or stored_reason or "no reason given"
        if pk in rows[dataset].public_slugs:
            entries[pk] = RemovedEntry(dataset, rows[dataset].public_slugs[pk], reason, visibility)
    return entries


def systems_without_page(removed_entries: Iterable[RemovedEntry]) -> frozenset[str]:
    """Return the slugs of systems without a page because none of their entries is public, in at most one query."""
    slugs = {entry.slug for entry in removed_entries if entry.visibility not in Entry.SEEN}
    if not slugs:
        return frozenset()
    visible_entries = Entry.objects.filter(system__slug__in=slugs).filter(visibility__in=Entry.SEEN)
    return frozenset(slugs.difference(visible_entries.values_list("system__slug", flat=True)))


def removals_key(datasets: Collection[int]) -> str:
    """Return a key that changes whenever an entry of these datasets is removed or hidden, in one query."""
    changes = BoardChange.objects.filter(dataset__in=datasets, entry__isnull=False)
    removals = changes.exclude(entry__visibility__in=_SHOWN_ON_PAST_BOARDS)
    return str(removals.aggregate(last=Max("pk"))["last"] or 0)


def benchmark_at(benchmark_id: int, time: datetime.datetime) -> dict[str, Any] | None:
    """Return the benchmark's columns and members at a time, or None before the first version, in one query."""
    versions = BenchmarkVersion.objects.filter(benchmark=benchmark_id, at__lt=next_second(time))
    row: dict[str, Any] | None = versions.order_by("-at", "-pk").values_list("row", flat=True).first()
    return row
