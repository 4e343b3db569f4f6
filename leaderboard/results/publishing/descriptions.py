"""Board updates after changes of systems, sources, and teams."""

from django.db import transaction
from django.db.models import Q, QuerySet

from leaderboard.models import Dataset, Entry, Source, System, Team
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards
from leaderboard.results.values import training_exposure


def lock_systems(*systems: System) -> list[System]:
    """Lock the boards of systems, then their rows, until the commit, and return the current rows ordered by id.

    Call this before changes that end with `system_changed`, so that concurrent changes are serialized.
    """
    keys = [system.pk for system in systems]
    lock_boards(Entry.objects.filter(system__in=keys).values_list("dataset_id", flat=True))
    return list(System.objects.select_for_update(no_key=True).filter(pk__in=keys).order_by("pk"))


def boards_of_team(team: int) -> set[int]:
    """Return the ids of datasets with entries of the team, including private ones."""
    return set(Entry.objects.filter(system__team=team).values_list("dataset_id", flat=True))


@transaction.atomic
def system_changed(system: System) -> None:
    """Update the training exposure of a system's entries, and record a change of every board that shows it."""
    lock_boards(Entry.objects.filter(system=system).values_list("dataset_id", flat=True))
    for entry in Entry.objects.filter(system=system).select_related("dataset"):
        Entry.objects.filter(pk=entry.pk).update(training=training_exposure(system, entry.dataset))
    _rows_changed(Entry.objects.filter(system=system), Kind.SYSTEM)


def refresh_training() -> None:
    """Update systems whose stored training exposure differs from their claims after the matching of names changed."""
    entries = Entry.objects.select_related("system", "dataset")
    outdated = {entry.system for entry in entries if entry.training != training_exposure(entry.system, entry.dataset)}
    for system in outdated:
        system_changed(system)


def challenge_changed(system: System) -> None:
    """Record a change of every board that marks the system as challenged, or no longer does."""
    _rows_changed(Entry.objects.filter(system=system), Kind.CHALLENGED)


def source_changed(source: Source) -> None:
    """Record a change of every board that cites the publication."""
    boards_changed(boards_of_source(source.pk), Kind.SYSTEM, _entries_of_source(source.pk))


def boards_of_source(source: int) -> set[int]:
    """Return the ids of datasets whose boards cite the publication."""
    benchmark_datasets = Dataset.objects.filter(benchmarks__source=source).values_list("pk", flat=True)
    return _dataset_ids(_entries_of_source(source)).union(benchmark_datasets)


def _entries_of_source(source: int) -> QuerySet[Entry]:
    return Entry.objects.filter(Q(source=source) | Q(system__source=source))


def team_changed(team: Team) -> None:
    """Record a change of every board that names the team."""
    _rows_changed(Entry.objects.filter(system__team=team), Kind.TEAM)


def _rows_changed(entries: QuerySet[Entry], kind: Kind) -> None:
    boards_changed(_dataset_ids(entries), kind, entries)


def _dataset_ids(entries: QuerySet[Entry]) -> set[int]:
    """Return the ids of datasets whose boards show any of the entries."""
    visible_entries = entries.filter(visibility__in=Entry.SEEN)
    return set(visible_entries.values_list("dataset_id", flat=True))
