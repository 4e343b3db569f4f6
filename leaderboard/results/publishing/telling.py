"""When a result over hidden judgements is told: at once, in its turn, or not.

A result that the Ladder lets pass is told at once, but of a young team only while the dataset's daily budget lasts.
Beyond it the result waits, HELD with the time from which it is due, and `tell_due` tells it later: those first of whom
least was told, then by age, each held against what was told meanwhile. What the Ladder holds in a competition stays
held; elsewhere it is due when its team is young no longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q
from django.utils import timezone

from leaderboard.models import Dataset, Entry, Evaluation, Team, User
from leaderboard.results.history.revisions import Kind, board_changed, lock_boards
from leaderboard.results.protection import grown_up_at, is_young, policy_of, readings_left
from leaderboard.results.publishing.ladder_places import (
    evaluations_of,
    is_significant,
    published_mean,
    settle_places,
)
from leaderboard.results.publishing.republish import fill_scores

Visibility = Entry.Visibility


def told_when(
    dataset: Dataset, evaluations: Sequence[Evaluation], scores: Mapping[str, float], submitter: User | None
) -> tuple[bool, datetime | None]:
    """Whether a new result is told now, and else from when it is due; None: it stays held. With the board locked."""
    team = evaluations[0].run.system.team
    if not is_significant(dataset, evaluations, scores.get(dataset.primary_measure), submitter):
        return False, _due_when_held(dataset, team)
    if team is None or not dataset.hidden or not is_young(team):
        return True, None
    now = timezone.now()
    others_wait = Entry.objects.filter(dataset=dataset, visibility=Visibility.HELD, due_at__lte=now).exists()
    return (False, now) if others_wait or not readings_left(dataset) else (True, None)


def _due_when_held(dataset: Dataset, team: Team | None) -> datetime | None:
    """When a result that is no significant change is due: in a competition never."""
    return None if team is None or policy_of(dataset).competition else grown_up_at(team)


def decide_again(team: Team) -> None:
    """Have looked at again what of the team is held: it was approved, and is held against its own results alone."""
    held = Entry.objects.filter(system__team=team, visibility=Visibility.HELD, dataset__hidden=True)
    held.filter(withdrawal_reason="").update(due_at=timezone.now())


def tell_due() -> int:
    """Tell what is due, of young teams as far as the day's budget goes. Returns how many were told."""
    if not settings.PRIVATE_STORAGE:
        return 0  # where parts cannot be read a scorer does it
    due = Entry.objects.filter(visibility=Visibility.HELD, due_at__lte=timezone.now())
    datasets = list(due.order_by("dataset").values_list("dataset", flat=True).distinct())
    return sum(_tell_due_of(dataset) for dataset in datasets)


@transaction.atomic
def _tell_due_of(key: int) -> int:
    lock_boards([key])
    dataset = Dataset.objects.get(pk=key)
    left, told = readings_left(dataset), 0
    for entry in _in_turn(dataset):
        team = entry.system.team
        young = team is not None and is_young(team)
        if young and left <= 0:
            continue
        evaluations = evaluations_of(entry)
        if not is_significant(dataset, evaluations, published_mean(dataset, evaluations), entry.submitter):
            Entry.objects.filter(pk=entry.pk).update(due_at=_due_when_held(dataset, team))
            continue
        left -= young
        told += 1
        _tell(entry, dataset)
    return told


def _in_turn(dataset: Dataset) -> list[Entry]:
    """What is due, in the order in which it is told."""
    due = Entry.objects.filter(dataset=dataset, visibility=Visibility.HELD, due_at__lte=timezone.now())
    due = due.select_related("system__team", "evaluation__run__system__team", "submitter")
    entries = list(due.prefetch_related("seeds__evaluation__run__system__team").order_by("due_at", "pk"))
    teams = {entry.system.team_id for entry in entries}
    had = ~Q(visibility=Visibility.HELD) & ~Q(provenance=Entry.Provenance.REPORTED)
    told = dict(
        Entry.objects.filter(had, dataset=dataset, system__team__in=teams)
        .order_by()
        .values_list("system__team")
        .annotate(Count("pk"))
    )
    return sorted(entries, key=lambda entry: told.get(entry.system.team_id, 0))


def _tell(entry: Entry, dataset: Dataset) -> None:
    """Show it, or keep it for its team where that wishes, as if it had come now."""
    entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
    entry.due_at, entry.published_at = None, timezone.now()
    entry.save(update_fields=["visibility", "due_at", "published_at"])
    fill_scores(dataset, [entry])
    settle_places(dataset)
    entry.refresh_from_db()
    if entry.visibility == Visibility.PUBLIC:
        board_changed(dataset, Kind.PUBLISHED, entry)
