"""Bring boards up to date with what systems, sources and teams say of themselves."""

from django.db import transaction
from django.db.models import Q, QuerySet

from leaderboard.models import Dataset, Entry, Source, System, Team
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards
from leaderboard.results.values import training_exposure


def lock_systems(*systems: System) -> list[System]:
    """Lock the systems' boards, then their rows, until the commit: of two who change one at once one comes second.

    The rows as they are now, by key. Before anything that `system_changed` ends.
    """
    keys = [system.pk for system in systems]
    lock_boards(Entry.objects.filter(system__in=keys).values_list("dataset_id", flat=True))
    return list(System.objects.select_for_update(no_key=True).filter(pk__in=keys).order_by("pk"))


def boards_of_team(team: int) -> set[int]:
    """The ids of the datasets whose boards name the team, or may come to."""
    return set(Entry.objects.filter(system__team=team).values_list("dataset_id", flat=True))


@transaction.atomic
def system_changed(system: System) -> None:
    """Bring the entries scored here up to date with what the system says of itself now; all its boards change."""
    lock_boards(Entry.objects.filter(system=system).values_list("dataset_id", flat=True))
    for entry in Entry.objects.filter(system=system, source=None).select_related("dataset"):
        Entry.objects.filter(pk=entry.pk).update(training=training_exposure(system, entry.dataset))
    _rows_changed(Entry.objects.filter(system=system), Kind.SYSTEM)


def challenge_changed(system: System) -> None:
    """Count a change of every board that marks the system as challenged, or no longer; no number follows."""
    _rows_changed(Entry.objects.filter(system=system), Kind.CHALLENGED)


def source_changed(source: Source) -> None:
    """Count a change of every board that names the publication."""
    boards_changed(boards_of_source(source.pk), Kind.SYSTEM, _entries_of_source(source.pk))


def boards_of_source(source: int) -> set[int]:
    """The ids of the datasets whose boards name the publication."""
    of_benchmarks = Dataset.objects.filter(benchmarks__source=source).values_list("pk", flat=True)
    return _dataset_ids(_entries_of_source(source)).union(of_benchmarks)


def _entries_of_source(source: int) -> QuerySet[Entry]:
    return Entry.objects.filter(Q(source=source) | Q(system__source=source))


def team_changed(team: Team) -> None:
    """Count a change of every board that names the team."""
    _rows_changed(Entry.objects.filter(system__team=team), Kind.TEAM)


def _rows_changed(entries: QuerySet[Entry], kind: Kind) -> None:
    boards_changed(_dataset_ids(entries), kind, entries)


def _dataset_ids(entries: QuerySet[Entry]) -> set[int]:
    """The ids of the datasets whose boards have one of the entries: what is private is on none."""
    seen = entries.filter(visibility__in=Entry.SEEN)
    return set(seen.values_list("dataset_id", flat=True))
