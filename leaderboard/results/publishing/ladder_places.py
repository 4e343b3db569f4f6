"""What the Ladder holds back, and how many results of a team or a person stand on a competition's board.

In a competition, and of young teams on every hidden dataset, a result is told only where it beats the best that the
team or its submitter knows of (`evaluation.statistics.ladder` has the formula). In a competition that is the baseline
at least, and before there is one nothing is told. Else it is kept as a HELD entry without scores, and nothing that
anybody can see moves. In a competition the best of each team, of those that are told, stand on the board; the others
are SUPERSEDED: kept, and not ranked.

Call what is here with the dataset's board locked: of two results that end at once the second sees the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet

from evaluation.statistics.ladder import STEP, YOUNG_STEP, ladder_step, paired_standard_error
from leaderboard.models import Dataset, Entry, Evaluation, Round, Team, User
from leaderboard.results import protection
from leaderboard.results.records import entry_evaluations, mean_values
from leaderboard.results.values import comparison_group, score_result

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
    return ladder_step(score, best_score, error, tries=results.count(), step=step).passed


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


def has_baseline(dataset: Dataset, evaluation: Evaluation) -> bool:
    """Whether there is a baseline to hold results like this one against."""
    return _public_baseline(dataset, evaluation).exists()


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
