"""When a result over hidden judgements is told: at once, in its turn, or not.

A result that the Ladder lets pass is told at once, but of a young team only while the dataset's daily budget lasts.
Beyond it every result waits, HELD with the time from which it is due, whether the Ladder would let it pass or not, and
`publish_due` decides later: those first of whom least was told, then by age, each held against what was told meanwhile.
What the Ladder holds stays held, but waits in a competition where no baseline is published yet. A team that is young no
longer sends such a run again: told all at once, what was held would be as many readings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from leaderboard.models import Dataset, Entry, Evaluation, Team, User
from leaderboard.results import protection
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board
from leaderboard.results.publishing.ladder_places import (
    has_baseline,
    is_significant,
    update_shown,
)
from leaderboard.results.publishing.republish import fill_scores
from leaderboard.results.records import entry_evaluations
from leaderboard.results.values import score_result

Visibility = Entry.Visibility


def decide_publication(
    dataset: Dataset, evaluations: Sequence[Evaluation], scores: Mapping[str, float], submitter: User | None
) -> tuple[bool, datetime | None]:
    """Whether a new result is told now, and else from when it is due; None: it stays held. With the board locked."""
    team = evaluations[0].run.system.team
    if team is not None and dataset.hidden and protection.is_new_team(team):
        # Before anything is compared: that a result waits says nothing of it.
        others_wait = _due().filter(dataset=dataset).exists()
        if others_wait or not protection.daily_budget_left(dataset):
            return False, timezone.now()
    if is_significant(dataset, evaluations, scores.get(dataset.primary_measure), submitter):
        return True, None
    return False, _due_when_held(dataset, evaluations)


def _due_when_held(dataset: Dataset, evaluations: Sequence[Evaluation]) -> datetime | None:
    """When a result that is not told is due: never, but in a competition once there is a baseline."""
    waits = protection.policy_of(dataset).competition and not has_baseline(dataset, evaluations[0])
    return timezone.now() if waits else None


def _due() -> QuerySet[Entry]:
    """Held results that are due."""
    return Entry.objects.filter(visibility=Visibility.HELD, due_at__lte=timezone.now())


def reconsider_held(team: Team) -> None:
    """Have looked at again what of the team is held: against whose results that is depends on its approval."""
    held = Entry.objects.filter(system__team=team, visibility=Visibility.HELD, dataset__hidden=True)
    held.filter(withdrawal_reason="").update(due_at=timezone.now())


def publish_due() -> int:
    """Tell what is due, of young teams as far as the day's budget goes. Returns how many were told."""
    if not settings.PRIVATE_STORAGE:
        return 0  # where parts cannot be read a scorer does it
    datasets = list(_due().order_by("dataset").values_list("dataset", flat=True).distinct())
    return sum(_publish_due_of(dataset) for dataset in datasets)


@transaction.atomic
def _publish_due_of(key: int) -> int:
    dataset = lock_board(key)
    left, told = protection.daily_budget_left(dataset), Counter[int | None]()
    for entry in _publication_order(dataset, told):
        team = entry.system.team
        young = team is not None and protection.is_new_team(team)
        if young and left <= 0:
            continue
        evaluations = entry_evaluations(entry)
        score = score_result(evaluations, dataset).scores.get(dataset.primary_measure)
        if not is_significant(dataset, evaluations, score, entry.submitter):
            if _due_when_held(dataset, evaluations) is None:  # else it waits on, with its age
                Entry.objects.filter(pk=entry.pk).update(due_at=None)
            continue
        left -= young
        told[entry.system.team_id] += 1
        _publish(entry, dataset)
    return told.total()


def _publication_order(dataset: Dataset, told: Counter[int | None]) -> Iterator[Entry]:
    """What is due, in the order in which it is told. `told` counts by team what was told since it began."""
    due = _due().filter(dataset=dataset)
    due = due.select_related("system__team", "evaluation__run__system__team", "submitter")
    entries = list(due.prefetch_related("seeds__evaluation__run__system__team").order_by("due_at", "pk"))
    teams = {entry.system.team_id for entry in entries}
    had = ~Q(visibility=Visibility.HELD) & ~Q(provenance=Entry.Provenance.REPORTED)
    before = dict(
        Entry.objects.filter(had, dataset=dataset, system__team__in=teams)
        .order_by()
        .values_list("system__team")
        .annotate(Count("pk"))
    )

    def count(place: int) -> int:
        team = entries[place].system.team_id
        return int(before.get(team, 0)) + told[team]

    waiting = [(count(place), place) for place in range(len(entries))]
    heapify(waiting)
    while waiting:
        counted, place = heappop(waiting)
        if counted < count(place):
            heappush(waiting, (count(place), place))
        else:
            yield entries[place]


def _publish(entry: Entry, dataset: Dataset) -> None:
    """Show it, or keep it for its team where that wishes, as if it had come now."""
    entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
    entry.due_at, entry.published_at = None, timezone.now()
    entry.save(update_fields=["visibility", "due_at", "published_at"])
    fill_scores(dataset, [entry])
    moved = {entry.pk, *update_shown(dataset)}
    entry.refresh_from_db()
    if entry.visibility == Visibility.PUBLIC:
        board_changed(dataset, Kind.PUBLISHED, entry, moved)
