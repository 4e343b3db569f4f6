"""When results over hidden judgements are published, with which values, and which stay on a competition's board.

In a competition, and of young teams on every hidden dataset, a result is published only if it beats the best that the
team or its submitter knows of (formula: `evaluation.statistics.ladder`). In a competition that is the baseline at
least, and before there is one nothing is published. Otherwise it is kept as a HELD entry without scores, and nothing
that anybody can see moves. In a competition the best published results of each team stay on the board; the others are
SUPERSEDED: kept, and not ranked.

A result that the Ladder lets pass is published at once, of a young team only while the dataset's daily budget lasts.
Beyond it every result waits, HELD with the time from which it is due, whether the Ladder would let it pass or not, and
`publish_due` decides later: teams with the fewest published results first, then by age, each compared with what was
published meanwhile. What the Ladder holds stays held, but waits in a competition where no baseline is published yet. A
team that is no longer young sends such a run again: published all at once, held results would be as many readings.

Call these functions with the dataset's board locked: of two results that end at once the second sees the first.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from evaluation.statistics.ladder import STEP, YOUNG_STEP, is_improvement, paired_standard_error
from leaderboard.models import Dataset, Entry, Evaluation, Round, Seed, Team, User
from leaderboard.results import protection
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board, lock_boards
from leaderboard.results.records import entry_evaluations, mean_values
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import (
    comparison_group,
    published_private_scores,
    published_result,
    score_result,
)

Visibility = Entry.Visibility
#: Results of one team, and of one person over all teams, that a competition's board shows outside of a round.
PLACES = 1


def is_significant(
    dataset: Dataset, evaluations: Sequence[Evaluation], score: float | None, submitter: User | None
) -> bool:
    """Whether a new result of a team is told: always, but where the Ladder holds it.

    `evaluations` are one, or those of a seed set; `score` is the published value of the primary measure. The site's own
    results are always told. Within a competition this reads private storage.
    """
    team, policy = evaluations[0].run.system.team, protection.policy_of(dataset)
    if not policy.hidden or score is None or (team is None and submitter is None):
        return True
    if not policy.competition and (team is None or not protection.is_new_team(team)):
        return True
    # The entry that these evaluations may have already is decided again.
    own = Q(evaluation__in=evaluations) | Q(seeds__evaluation__in=evaluations)
    results = _results_of(dataset, team, submitter).exclude(pk__in=Entry.objects.filter(own).values("pk"))
    known = _published_values(dataset, results.exclude(visibility=Visibility.HELD), evaluations)
    step = YOUNG_STEP if known and team is not None and protection.is_new_team(team) else STEP
    if policy.competition:
        known += _published_values(dataset, _public_baseline(dataset, evaluations[0]), evaluations)
    if not known:
        return not policy.competition
    best_score, best = max(known, key=lambda each: each[0])
    shown = protection.public_queries(evaluations[0].qrels) if policy.competition else slice(None)
    measure = dataset.primary_measure
    by_query = [
        values[shown, measures.index(measure)] for measures, values in map(mean_values, (evaluations, best))
    ]
    error = paired_standard_error(*by_query)
    return is_improvement(score, best_score, error, tries=results.count(), step=step)


def _results_of(dataset: Dataset, team: Team | None, submitter: User | None) -> QuerySet[Entry]:
    """The results of whoever is told: the team, the submitter with any team, and of unknown teams all of these.

    Whether one is shown, held, kept private, withdrawn or taken off does not matter.
    """
    of_party = Q(system__team=team) if team is not None else Q(pk=None)
    if submitter is not None:
        of_party |= Q(submitter=submitter) | Q(system__team__in=Team.objects.filter(members=submitter))
    if team is not None and team.approved_at is None and protection.is_new_team(team):
        of_party |= protection.unknown_teams()
    return Entry.objects.filter(of_party, dataset=dataset).exclude(provenance=Entry.Provenance.REPORTED)


def _public_baseline(dataset: Dataset, evaluation: Evaluation) -> QuerySet[Entry]:
    """The baseline that everybody knows: what a first result is held against."""
    return Entry.objects.filter(
        dataset=dataset,
        comparison_group=comparison_group(evaluation),
        is_baseline=True,
        visibility=Visibility.PUBLIC,
    )


def _published_values(
    dataset: Dataset, results: QuerySet[Entry], new: Sequence[Evaluation]
) -> list[tuple[float, list[Evaluation]]]:
    """Of these results the published values, with the evaluations behind them.

    Those of earlier judgements count with what their runs have on the present ones.
    """
    entries = (
        results.select_related("evaluation")
        .defer("evaluation__values")
        .prefetch_related("seeds__evaluation")
        .order_by("pk")
    )
    own = {each.run_id for each in new}
    same = Evaluation.objects.filter(qrels=new[0].qrels_id, specification=new[0].specification)
    found = []
    for entry in entries:
        runs = [each.run_id for each in entry_evaluations(entry)]
        now = [] if own.intersection(runs) else list(same.filter(run__in=runs).order_by("pk"))
        if now and len(now) == len(runs):
            value = score_result(now, dataset).scores.get(dataset.primary_measure)
            if value is not None:
                found.append((value, now))
    return found


def best_shown_result(entry: Entry) -> Entry | None:
    """The best result that the held one's team has on the board, or keeps for itself; None where it has none.

    Of its team alone: what its submitter knows from another team is not for this one to read.
    """
    told = Entry.objects.filter(
        dataset=entry.dataset_id,
        comparison_group=entry.comparison_group,
        system__team=entry.system.team_id,
        system__team__isnull=False,
        visibility__in=(Visibility.PUBLIC, Visibility.PRIVATE, Visibility.SUPERSEDED),
    )
    measure = entry.dataset.primary_measure
    return max(told.order_by("pk"), key=lambda each: each.scores.get(measure, float("-inf")), default=None)


def update_shown(dataset: Dataset) -> set[int]:
    """Leave on the board the best results of each team and person, as many as a round says.

    Returns the ids of those that came or went. The others are superseded, or come back where a better one is gone. Of
    equal ones the earlier stays. Outside of a competition all are shown. Always the whole board: one person's results
    tie the places of several teams together.
    """
    ranked = Entry.objects.filter(
        dataset=dataset, system__team__isnull=False, visibility__in=(Visibility.PUBLIC, Visibility.SUPERSEDED)
    ).exclude(provenance=Entry.Provenance.REPORTED)
    if not protection.policy_of(dataset).competition:
        back = set(ranked.filter(visibility=Visibility.SUPERSEDED).values_list("pk", flat=True))
        Entry.objects.filter(pk__in=back).update(visibility=Visibility.PUBLIC)
        return back
    entries = list(ranked.select_related("system").order_by("published_at", "pk"))
    kept = _best(entries, dataset.primary_measure)
    moved: set[int] = set()
    for to, standing in ((Visibility.PUBLIC, True), (Visibility.SUPERSEDED, False)):
        moving = [each.pk for each in entries if (each.pk in kept) == standing and each.visibility != to]
        Entry.objects.filter(pk__in=moving).update(visibility=to)
        moved.update(moving)
    return moved


def _best(entries: Sequence[Entry], measure: str) -> set[int]:
    """In each round, and outside of rounds, the best of every comparison group for whose team and sender is a place."""
    places = dict(Round.objects.filter(entries__in=entries).values_list("pk", "visible_per_team"))
    taken: Counter[tuple[Any, ...]] = Counter()
    kept: set[int] = set()
    for entry in sorted(entries, key=lambda each: each.scores.get(measure, float("-inf")), reverse=True):
        board = (entry.round_id, entry.comparison_group)
        holders: list[tuple[Any, ...]] = [("team", entry.system.team_id, *board)]
        if entry.submitter_id is not None:
            holders.append(("person", entry.submitter_id, *board))
        limit = PLACES if entry.round_id is None else places[entry.round_id]
        if all(taken[holder] < limit for holder in holders):
            taken.update(holders)
            kept.add(entry.pk)
    return kept


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
    waits = (
        protection.policy_of(dataset).competition and not _public_baseline(dataset, evaluations[0]).exists()
    )
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
        # Shown, or kept for its team if that wishes so, as if it had come now.
        entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
        entry.due_at, entry.published_at = None, timezone.now()
        entry.save(update_fields=["visibility", "due_at", "published_at"])
        fill_scores(dataset, [entry])
        moved = {entry.pk, *update_shown(dataset)}
        entry.refresh_from_db()
        if entry.visibility == Visibility.PUBLIC:
            board_changed(dataset, Kind.PUBLISHED, entry, moved)
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


@transaction.atomic
def refresh_scores(dataset: Dataset) -> None:
    """Publish the stored means again. What the Ladder holds stays without scores, until judgements are opened."""
    lock_boards([dataset.pk])
    if not dataset.hidden:
        held = Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.HELD)
        held.filter(public_wanted=False).update(visibility=Entry.Visibility.PRIVATE)
        held.update(visibility=Entry.Visibility.PUBLIC)
    fill_scores(dataset, list(Entry.objects.filter(dataset=dataset)))
    update_shown(dataset)
    board_changed(dataset, Kind.MEASURES)


def fill_scores(dataset: Dataset, entries: list[Entry]) -> None:
    """Give entries scored here their published values, and those whose private part was revealed that one's."""
    keys = [entry.pk for entry in entries]
    rows = Entry.objects.filter(pk__in=keys).exclude(provenance=Entry.Provenance.REPORTED)
    rows = (
        rows.select_related("evaluation")
        .defer("evaluation__values")
        .prefetch_related("evaluation__parts", "seeds__evaluation__parts")
    )
    changed: list[Entry] = []
    seeds: list[Seed] = []
    for entry in rows.iterator(chunk_size=200):
        evaluations = entry_evaluations(entry)
        held = entry.visibility == Entry.Visibility.HELD
        entry.scores, entry.deviations, seed_scores = published_result(evaluations, dataset, held=held)
        if entry.private_scores:
            entry.private_scores = published_private_scores(evaluations, dataset)
        if entry.evaluation is None:
            for seed, scores in zip(entry.seeds.all(), seed_scores, strict=True):
                seed.scores = scores
                seeds.append(seed)
        changed.append(entry)
    Seed.objects.bulk_update(seeds, ["scores"], batch_size=200)
    Entry.objects.bulk_update(changed, ["scores", "deviations", "private_scores"], batch_size=200)
    keep_least_difference(dataset)
