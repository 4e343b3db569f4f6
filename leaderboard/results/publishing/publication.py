"""Publication of results with hidden judgments: when, with which values, and which remain on a competition's board.

In a competition, and for new teams on every hidden dataset, a result is published only if it improves on the best
result that the team or its submitter knows (formula: `evaluation.statistics.ladder`). In a competition they know at
least the baseline, and nothing is published before there is one. Other results are stored as HELD entries without
scores, and nothing visible changes. In a competition the best published results of each team remain on the board; the
others are SUPERSEDED, that is, stored without a rank.

A result that passes the Ladder is published immediately, unless it is from a new team and the dataset's daily budget
is used up. Then every further result waits, HELD with the time from which it is due, whether it would pass or not, and
`publish_due` decides later: teams with the fewest published results first, then by age, each compared with the results
published in the meantime. A result that the Ladder holds stays held, except that it waits in a competition without a
published baseline. When a team is no longer new, it has to submit held runs again: publishing them all at once would
disclose as many values.

Call these functions with the dataset's board locked, so that the second of two concurrent results sees the first.
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

from evaluation.statistics.ladder import is_improvement, paired_standard_error
from leaderboard.models import REFERENCE_TYPES, Dataset, Entry, Evaluation, Round, Seed, Team, User
from leaderboard.results import protection
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board, lock_boards
from leaderboard.results.records import entry_evaluations, mean_values
from leaderboard.results.significance.hidden import keep_least_difference
from leaderboard.results.values import comparison_group, published_private_scores, published_result, score_result

Visibility = Entry.Visibility
#: Maximum number of results per team, and per person over all teams, on a competition's board outside of rounds.
MAX_SHOWN_RESULTS = 1


def is_significant(dataset: Dataset, evaluations: Sequence[Evaluation], score: float | None, entry: Entry) -> bool:
    """Return whether the Ladder publishes a team's new result, that is, whether it improves on the known ones.

    A reference must improve on all known results, and any other result on those that are not references.

    Always true with open judgments, without a score, for the site's own results, and outside of competitions for teams
    that are not new. A first result is published, but in a competition it must improve on the public baseline, as
    further results of new teams must everywhere: otherwise, teams could begin with few queries and add some each time.
    `evaluations` is one evaluation or those of a seed set; `score` is the published value of the primary measure. In a
    competition this reads private storage.
    """
    team, submitter, policy = evaluations[0].run.system.team, entry.submitter, protection.get_policy(dataset)
    if not policy.hidden or score is None or (team is None and submitter is None):
        return True
    is_new = team is not None and protection.is_new_team(team)
    if not policy.competition and not is_new:
        return True
    # Exclude the existing entry of these evaluations, which is decided again.
    own_entries = Q(evaluation__in=evaluations) | Q(seeds__evaluation__in=evaluations)
    results = _known_results(dataset, team, submitter).exclude(pk__in=Entry.objects.filter(own_entries).values("pk"))
    published_results = results.exclude(visibility=Visibility.HELD)
    # After any first result, a reference too, new teams need a larger gain.
    is_young = is_new and bool(_published_values(dataset, published_results, evaluations))
    known_values = _published_values(dataset, _comparable(published_results, entry), evaluations)
    if policy.competition or is_young:
        known_values += _published_values(dataset, _public_baseline(dataset, evaluations[0]), evaluations)
    if not known_values:
        return not policy.competition
    best_score, best_evaluations = max(known_values, key=lambda scored_result: scored_result[0])
    query_mask = protection.public_queries(evaluations[0].qrels) if policy.competition else slice(None)
    by_query = [
        values[query_mask, measures.index(dataset.primary_measure)]
        for measures, values in map(mean_values, (evaluations, best_evaluations))
    ]
    error = paired_standard_error(*by_query)
    return is_improvement(score, best_score, error, tries=results.count(), is_young=is_young)


def _comparable(results: QuerySet[Entry], entry: Entry) -> QuerySet[Entry]:
    """Exclude references unless the entry is one, because they would keep a team's other results from the board."""
    return results if entry.run_type in REFERENCE_TYPES else results.exclude(run_type__in=REFERENCE_TYPES)


def _known_results(dataset: Dataset, team: Team | None, submitter: User | None) -> QuerySet[Entry]:
    """Return the scored results on the dataset that the team or the submitter knows, whatever their visibility.

    These are the results of the team, of the submitter, and of the submitter's teams. If the team is new and not
    approved, all such teams count as one.
    """
    condition = Q(system__team=team) if team is not None else Q(pk=None)
    if submitter is not None:
        condition |= Q(submitter=submitter) | Q(system__team__in=Team.objects.filter(members=submitter))
    if team is not None and team.approved_at is None and protection.is_new_team(team):
        condition |= protection.unknown_teams()
    return Entry.objects.filter(condition, dataset=dataset).exclude(provenance=Entry.Provenance.REPORTED)


def _public_baseline(dataset: Dataset, evaluation: Evaluation) -> QuerySet[Entry]:
    """Return the public baseline, with which a first result is compared."""
    return Entry.objects.filter(
        dataset=dataset, comparison_group=comparison_group(evaluation), is_baseline=True, visibility=Visibility.PUBLIC
    )


def _published_values(
    dataset: Dataset, results: QuerySet[Entry], new_evaluations: Sequence[Evaluation]
) -> list[tuple[float, list[Evaluation]]]:
    """Return the published values of these results in the primary measure, with the evaluations behind them.

    Results on earlier qrels count with the values of their runs on the new evaluations' qrels. Results without such
    values, or with one of the new evaluations' runs, are omitted.
    """
    entries = (
        results.select_related("evaluation")
        .defer("evaluation__values")
        .prefetch_related("seeds__evaluation")
        .order_by("pk")
    )
    own_runs = {evaluation.run_id for evaluation in new_evaluations}
    comparable_evaluations = Evaluation.objects.filter(
        qrels=new_evaluations[0].qrels_id, specification=new_evaluations[0].specification
    )
    values = []
    for entry in entries:
        runs = [evaluation.run_id for evaluation in entry_evaluations(entry)]
        current_evaluations = (
            [] if own_runs.intersection(runs) else list(comparable_evaluations.filter(run__in=runs).order_by("pk"))
        )
        if current_evaluations and len(current_evaluations) == len(runs):
            value = score_result(current_evaluations, dataset).scores.get(dataset.primary_measure)
            if value is not None:
                values.append((value, current_evaluations))
    return values


def best_shown_result(entry: Entry) -> Entry | None:
    """Return the team's best disclosed result, by the primary measure, in a held entry's comparison group, or None.

    References count only if the held entry is one. Other teams of the same submitter do not count, because this team
    may not read their results.
    """
    disclosed_entries = Entry.objects.filter(
        dataset=entry.dataset_id,
        comparison_group=entry.comparison_group,
        system__team=entry.system.team_id,
        system__team__isnull=False,
        visibility__in=(Visibility.PUBLIC, Visibility.PRIVATE, Visibility.SUPERSEDED),
    )
    measure = entry.dataset.primary_measure
    return max(
        _comparable(disclosed_entries, entry).order_by("pk"),
        key=lambda candidate: candidate.scores.get(measure, float("-inf")),
        default=None,
    )


def update_shown(dataset: Dataset) -> set[int]:
    """Show each team's and person's best results, as many as the round allows, and return the ids of changed entries.

    Other results are superseded, and shown again if a better one is removed; ties are resolved by age. Outside of
    competitions all are shown. The whole board is updated, because one person's results link several teams.
    """
    candidates = Entry.objects.filter(
        dataset=dataset, system__team__isnull=False, visibility__in=(Visibility.PUBLIC, Visibility.SUPERSEDED)
    ).exclude(provenance=Entry.Provenance.REPORTED)
    if not protection.get_policy(dataset).competition:
        superseded_ids = set(candidates.filter(visibility=Visibility.SUPERSEDED).values_list("pk", flat=True))
        Entry.objects.filter(pk__in=superseded_ids).update(visibility=Visibility.PUBLIC)
        return superseded_ids
    entries = list(candidates.select_related("system").order_by("published_at", "pk"))
    shown_ids = _best_entries(entries, dataset.primary_measure)
    moved_ids: set[int] = set()
    for visibility, is_shown in ((Visibility.PUBLIC, True), (Visibility.SUPERSEDED, False)):
        changed_ids = [
            entry.pk for entry in entries if (entry.pk in shown_ids) == is_shown and entry.visibility != visibility
        ]
        Entry.objects.filter(pk__in=changed_ids).update(visibility=visibility)
        moved_ids.update(changed_ids)
    return moved_ids


def _best_entries(entries: Sequence[Entry], measure: str) -> set[int]:
    """Return the ids of the best entries per round and comparison group, within the limits of teams and submitters.

    References count against the limits after all other entries.
    """
    limits = dict(Round.objects.filter(entries__in=entries).values_list("pk", "visible_per_team"))
    counts: Counter[tuple[Any, ...]] = Counter()
    best_ids: set[int] = set()
    worst = float("-inf")
    for entry in sorted(entries, key=lambda each: (each.run_type in REFERENCE_TYPES, -each.scores.get(measure, worst))):
        board = (entry.round_id, entry.comparison_group)
        limited_keys: list[tuple[Any, ...]] = [("team", entry.system.team_id, *board)]
        if entry.submitter_id is not None:
            limited_keys.append(("person", entry.submitter_id, *board))
        limit = MAX_SHOWN_RESULTS if entry.round_id is None else limits[entry.round_id]
        if all(counts[key] < limit for key in limited_keys):
            counts.update(limited_keys)
            best_ids.add(entry.pk)
    return best_ids


def decide_publication(
    dataset: Dataset, evaluations: Sequence[Evaluation], scores: Mapping[str, float], entry: Entry
) -> tuple[bool, datetime | None]:
    """Return whether a new result is published now, and otherwise when it is due (None if it stays held).

    A new team's result waits if other results are due or the daily budget is used up. Call this with the board locked.
    """
    team = evaluations[0].run.system.team
    if team is not None and dataset.hidden and protection.is_new_team(team):
        # Decide this before any comparison, so that waiting reveals nothing about the result.
        others_wait = _due_entries().filter(dataset=dataset).exists()
        if others_wait or not protection.daily_budget_left(dataset):
            return False, timezone.now()
    if is_significant(dataset, evaluations, scores.get(dataset.primary_measure), entry):
        return True, None
    return False, _due_when_held(dataset, evaluations)


def _due_when_held(dataset: Dataset, evaluations: Sequence[Evaluation]) -> datetime | None:
    """Return the due time of a held result: now in a competition without a public baseline, otherwise None."""
    if not protection.get_policy(dataset).competition:
        return None
    # A baseline of BM25 has no value in measures of answers.
    baselines = _published_values(dataset, _public_baseline(dataset, evaluations[0]), evaluations)
    return None if baselines else timezone.now()


def _due_entries() -> QuerySet[Entry]:
    """Return held results that are due."""
    return Entry.objects.filter(visibility=Visibility.HELD, due_at__lte=timezone.now())


def reconsider_held(team: Team) -> None:
    """Schedule a team's held results for another decision, because approval changes the results to compare with."""
    held_entries = Entry.objects.filter(system__team=team, visibility=Visibility.HELD, dataset__hidden=True)
    held_entries.filter(withdrawal_reason="").update(due_at=timezone.now())


def publish_due() -> int:
    """Publish due results within the daily budgets, and return their number."""
    if not settings.PRIVATE_STORAGE:
        return 0  # A scorer does this, because parts cannot be read here.
    datasets = list(_due_entries().order_by("dataset").values_list("dataset", flat=True).distinct())
    return sum(_publish_due_entries(dataset) for dataset in datasets)


@transaction.atomic
def _publish_due_entries(dataset_id: int) -> int:
    """Publish the dataset's due results that the Ladder accepts, and return their number.

    Results of new teams beyond the daily budget stay due. Results that the Ladder holds are no longer due, except in a
    competition without a public baseline.
    """
    dataset = lock_board(dataset_id)
    budget, published_counts = protection.daily_budget_left(dataset), Counter[int | None]()
    for entry in _publication_order(dataset, published_counts):
        team = entry.system.team
        is_new = team is not None and protection.is_new_team(team)
        if is_new and budget <= 0:
            continue
        evaluations = entry_evaluations(entry)
        score = score_result(evaluations, dataset).scores.get(dataset.primary_measure)
        if not is_significant(dataset, evaluations, score, entry):
            if _due_when_held(dataset, evaluations) is None:  # Otherwise it keeps its due time.
                Entry.objects.filter(pk=entry.pk).update(due_at=None)
            continue
        budget -= is_new
        published_counts[entry.system.team_id] += 1
        # Publish it as if it had been submitted now, or privately if the team chose so.
        entry.visibility = Visibility.PUBLIC if entry.public_wanted else Visibility.PRIVATE
        entry.due_at, entry.published_at = None, timezone.now()
        entry.save(update_fields=["visibility", "due_at", "published_at"])
        fill_scores(dataset, [entry])
        moved_ids = {entry.pk, *update_shown(dataset)}
        entry.refresh_from_db()
        if entry.visibility == Visibility.PUBLIC:
            board_changed(dataset, Kind.PUBLISHED, entry, moved_ids)
    return published_counts.total()


def _publication_order(dataset: Dataset, published_counts: Counter[int | None]) -> Iterator[Entry]:
    """Yield due results in order of publication: teams with the fewest published results first, then by due time.

    `published_counts` counts the results published since the iteration began, by team.
    """
    due_entries = _due_entries().filter(dataset=dataset)
    due_entries = due_entries.select_related("system__team", "evaluation__run__system__team", "submitter")
    entries = list(due_entries.prefetch_related("seeds__evaluation__run__system__team").order_by("due_at", "pk"))
    teams = {entry.system.team_id for entry in entries}
    is_disclosed = ~Q(visibility=Visibility.HELD) & ~Q(provenance=Entry.Provenance.REPORTED)
    earlier_counts = dict(
        Entry.objects.filter(is_disclosed, dataset=dataset, system__team__in=teams)
        .order_by()
        .values_list("system__team")
        .annotate(Count("pk"))
    )

    def count(position: int) -> int:
        team = entries[position].system.team_id
        return int(earlier_counts.get(team, 0)) + published_counts[team]

    heap = [(count(position), position) for position in range(len(entries))]
    heapify(heap)
    while heap:
        stored_count, position = heappop(heap)
        if stored_count < count(position):
            heappush(heap, (count(position), position))
        else:
            yield entries[position]


@transaction.atomic
def refresh_scores(dataset: Dataset) -> None:
    """Set the published values of all scored entries from their stored means, and record a change of the board.

    With open judgments, held results are first made public, or private if their team chose so. With hidden ones, they
    stay without scores.
    """
    lock_boards([dataset.pk])
    if not dataset.hidden:
        held_entries = Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.HELD)
        held_entries.filter(public_wanted=False).update(visibility=Entry.Visibility.PRIVATE)
        held_entries.update(visibility=Entry.Visibility.PUBLIC)
    fill_scores(dataset, list(Entry.objects.filter(dataset=dataset)))
    update_shown(dataset)
    board_changed(dataset, Kind.MEASURES)


def fill_scores(dataset: Dataset, entries: list[Entry]) -> None:
    """Set and save the published values of scored entries and seeds, and the private ones if they were revealed.

    Held entries get no scores. Also stores the least significant difference if it is unknown.
    """
    entry_ids = [entry.pk for entry in entries]
    rows = Entry.objects.filter(pk__in=entry_ids).exclude(provenance=Entry.Provenance.REPORTED)
    rows = (
        rows.select_related("evaluation")
        .defer("evaluation__values")
        .prefetch_related("evaluation__parts", "seeds__evaluation__parts")
    )
    changed_entries: list[Entry] = []
    seeds: list[Seed] = []
    for entry in rows.iterator(chunk_size=200):
        evaluations = entry_evaluations(entry)
        is_held = entry.visibility == Entry.Visibility.HELD
        entry.scores, entry.deviations, seed_scores = published_result(evaluations, dataset, is_held=is_held)
        if entry.private_scores:
            entry.private_scores = published_private_scores(evaluations, dataset)
        if entry.evaluation is None:
            for seed, scores in zip(entry.seeds.all(), seed_scores, strict=True):
                seed.scores = scores
                seeds.append(seed)
        changed_entries.append(entry)
    Seed.objects.bulk_update(seeds, ["scores"], batch_size=200)
    Entry.objects.bulk_update(changed_entries, ["scores", "deviations", "private_scores"], batch_size=200)
    keep_least_difference(dataset)
