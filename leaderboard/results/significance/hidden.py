"""Certainty over hidden judgements: one number, from the baseline's values by query alone, and what follows from it.

For each set of judgements the scorer finds the least difference in the primary measure that is significant, and keeps
it with their statistics (`evaluation.statistics.gap` has the formula). It is found once, so that nobody
learns anything from how it changes. Everything else follows from it and from published values, so that it tells no
more of any submission than these do (docs/decisions/0019).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from evaluation.statistics.gap import STEP, among, least_difference
from evaluation.statistics.ladder import PUBLIC_STEP
from leaderboard.core.measures import better
from leaderboard.models import Dataset, Entry, Protection, Qrels
from leaderboard.results import protection
from leaderboard.results.board_rows.entry_rows import EntryRow, present_group
from leaderboard.results.records import per_query_values
from leaderboard.results.significance.types import ALPHA

#: Where a qrels' statistics have it: measure → part → the least difference.
LEAST_DIFFERENCE = "least_difference"
#: What binary numbers make of a difference of two decimals.
_NOISE = 1e-9
#: The part that a board shows, by whether it is a competition's.
_PART = {False: "all", True: protection.Part.PUBLIC.value}
_SHOWN = Entry.Visibility.PUBLIC
#: Results whose value somebody is told: never one that the Ladder holds, nor what was taken off.
_TOLD = (_SHOWN, Entry.Visibility.PRIVATE, Entry.Visibility.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """What published scores of one measure say, by the ids of entries.

    `differences` are those to the `baseline`, which is not among them, more being better; `better` says of each whether
    it is significant. `step` is that in which the scores are published. `tied` are those of `ranked` that tests of all
    pairs do not find worse than the best, as they are behind it by less than `tied_within`, and the best.
    """

    measure: str
    least_difference: float
    tied_within: float
    step: float
    baseline: int | None
    differences: Mapping[int, float]
    better: Mapping[int, bool]
    ranked: frozenset[int]
    tied: frozenset[int]


def published_comparisons(datasets: Collection[int]) -> dict[int, PublishedComparison]:
    """Those of the hidden datasets among these whose least difference is known, by id. Two queries at most."""
    if not datasets:
        return {}
    known: dict[int, tuple[Dataset, float]] = {}
    for dataset in Dataset.objects.filter(pk__in=datasets, hidden=True).select_related("current_qrels"):
        least = known_difference(dataset)
        if least is not None:
            known[dataset.pk] = dataset, least
    entries = Entry.objects.filter(dataset__in=known, visibility__in=_TOLD)
    entries = entries.exclude(provenance=Entry.Provenance.REPORTED).select_related("system")
    by_dataset: dict[int, list[Entry]] = {}
    for entry in entries.order_by("published_at", "pk") if known else ():
        by_dataset.setdefault(entry.dataset_id, []).append(entry)
    return {pk: _compare(*of_dataset, by_dataset.get(pk, [])) for pk, of_dataset in known.items()}


def _compare(dataset: Dataset, least: float, entries: Sequence[Entry]) -> PublishedComparison:
    """Hold each result on the present judgements against the baseline, and those on the board against the best."""
    shown = [each for each in entries if each.visibility == _SHOWN]
    groups = [(each.comparison_group, each.is_baseline) for each in shown]
    group = present_group(dataset.current_version_id, dataset.current_qrels_id, groups)
    present = {each.pk: each.scores for each in entries if each.comparison_group == group}
    baselines = [
        each.pk for each in shown if each.is_baseline and dataset.primary_measure in present.get(each.pk, {})
    ]
    ranked = [each.pk for each in shown if not each.system.closed_api]
    competition = protection.policy_of(dataset).competition
    criterion = _Criterion(dataset.primary_measure, least, competition)
    return _hold(criterion, present, next(iter(baselines), None), ranked)


def comparison_at(
    facts: Mapping[str, Any], entries: Sequence[EntryRow], baseline: int | None
) -> PublishedComparison | None:
    """The same of a board as it was: `facts` are its dataset's columns then, `entries` what it compared.

    None where judgements were open, or their least difference is not known. One query for hidden ones.
    """
    qrels = Qrels.objects.filter(pk=facts["current_qrels_id"]).first() if facts["hidden"] else None
    competition = facts.get("protection") == Protection.COMPETITION
    measure = facts["primary_measure"]
    least = _known(qrels, measure, _PART[competition])
    if least is None:
        return None
    ranked = [each.pk for each in entries if not each.closed_api]
    published = {each.pk: each.scores for each in entries}
    return _hold(_Criterion(measure, least, competition), published, baseline, ranked)


class _Criterion(NamedTuple):
    """The measure, its least significant difference, and whether scores are those of a competition."""

    measure: str
    least: float
    competition: bool


def _hold(
    criterion: _Criterion,
    published: Mapping[int, Mapping[str, float]],
    baseline: int | None,
    candidates: Sequence[int],
) -> PublishedComparison:
    """Compare published scores with the baseline's, and those of ranked `candidates` with the best."""
    measure, least, competition = criterion
    sign = -1 if better(measure) == "lower" else 1
    scores = {pk: sign * values[measure] for pk, values in published.items() if measure in values}
    baseline = baseline if baseline in scores else None
    ranked = frozenset(pk for pk in candidates if pk in scores)
    within = among(least, len(ranked), alpha=ALPHA)
    nearest = max((scores[entry] for entry in ranked), default=0.0) - within
    differences = {
        entry: score - scores[baseline]
        for entry, score in scores.items()
        if baseline is not None and entry != baseline
    }
    return PublishedComparison(
        measure,
        least,
        within,
        protection.primary_step(competition=competition),
        baseline,
        differences,
        {entry: difference >= least - _NOISE for entry, difference in differences.items()},
        ranked,
        frozenset(entry for entry in ranked if scores[entry] > nearest + _NOISE),
    )


def keep_least_difference(dataset: Dataset, *, scorer: bool = False) -> None:
    """Find the least difference of the present judgements, unless it is known; with the board locked.

    Nothing where judgements are open, and while there is no baseline. Which queries a competition shows is known to the
    scorer alone: elsewhere nothing is found. The next publication then finds it.
    """
    policy, qrels = protection.policy_of(dataset), dataset.current_qrels
    if not policy.hidden or qrels is None or known_difference(dataset) is not None:
        return
    if policy.competition and not scorer:
        return
    baselines = Entry.objects.filter(
        dataset=dataset, is_baseline=True, visibility=_SHOWN, evaluation__qrels=qrels
    )
    entry = baselines.select_related("evaluation__qrels").order_by("published_at", "pk").first()
    evaluation = entry.evaluation if entry is not None else None
    measure = dataset.primary_measure
    if evaluation is None or measure not in evaluation.measures:
        return
    values = per_query_values(evaluation)[:, evaluation.measures.index(measure)]
    if policy.competition:
        values = values[protection.public_queries(evaluation.qrels)]
    found = least_difference(values, alpha=ALPHA, step=PUBLIC_STEP if policy.competition else STEP)
    if not isfinite(found):
        return
    # Parts may have been drawn meanwhile: only this column is written, from the row as it is.
    qrels = Qrels.objects.select_for_update().get(pk=qrels.pk)
    kept = qrels.statistics.get(LEAST_DIFFERENCE, {})
    of_measure = {**kept.get(measure, {}), _part(dataset): round(found, 10)}
    qrels.statistics = {**qrels.statistics, LEAST_DIFFERENCE: {**kept, measure: of_measure}}
    qrels.save(update_fields=["statistics"])


def known_difference(dataset: Dataset) -> float | None:
    """The least difference in the dataset's primary measure under its policy, None where it was not found yet."""
    return _known(dataset.current_qrels, dataset.primary_measure, _part(dataset))


def _known(qrels: Qrels | None, measure: str, part: str) -> float | None:
    kept: Mapping[str, Mapping[str, float]] = qrels.statistics.get(LEAST_DIFFERENCE, {}) if qrels else {}
    return kept.get(measure, {}).get(part)


def _part(dataset: Dataset) -> str:
    return _PART[protection.policy_of(dataset).competition]
