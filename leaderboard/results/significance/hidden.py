"""Significance with hidden judgments, derived from published values and one number per qrels.

The scorer computes the least significant difference in the primary measure from the baseline's per-query values and
stores it with the statistics of the qrels (formula: `evaluation.statistics.gap`). It is computed only once, so that
changes of it reveal nothing. Everything else follows from it and from published values (docs/decisions/0019).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from evaluation.statistics.gap import STEP, extend_to_all_pairs, least_difference
from evaluation.statistics.ladder import PUBLIC_STEP
from leaderboard.core.measures import better
from leaderboard.models import Dataset, Entry, Protection, Qrels, can_be_best
from leaderboard.results import protection
from leaderboard.results.board_rows.entry_rows import EntryRow, present_group
from leaderboard.results.records import per_query_values
from leaderboard.results.significance.types import ALPHA

#: Key in the statistics of qrels: measure → part → least significant difference.
MIN_DIFFERENCE = "least_difference"
#: Tolerance for floating-point errors of differences between rounded values.
_TOLERANCE = 1e-9
#: Part that a board shows, by whether it belongs to a competition.
_PART = {False: "all", True: protection.Part.PUBLIC.value}
_PUBLIC = Entry.Visibility.PUBLIC
#: Visibilities of results whose values were disclosed, which excludes held and removed ones.
_DISCLOSED = (_PUBLIC, Entry.Visibility.PRIVATE, Entry.Visibility.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """Comparison of published scores of one measure, by entry id.

    Attributes:
        step: Step in which the scores are published.
        differences: Improvements over the `baseline`, which is not included; higher is better.
        better: Whether each of these is significant.
        tied: Best of the `ranked` entries and those less than `tied_within` behind it, which tests of all pairs do not
            find worse.
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
    """Return the comparisons of datasets with hidden judgments, by id, in at most two queries.

    Datasets without a stored least significant difference are omitted.
    """
    if not datasets:
        return {}
    criteria: dict[int, tuple[Dataset, float]] = {}
    for dataset in Dataset.objects.filter(pk__in=datasets, hidden=True).select_related("current_qrels"):
        difference = known_difference(dataset)
        if difference is not None:
            criteria[dataset.pk] = dataset, difference
    entries = Entry.objects.filter(dataset__in=criteria, visibility__in=_DISCLOSED)
    entries = entries.exclude(provenance=Entry.Provenance.REPORTED).select_related("system")
    by_dataset: dict[int, list[Entry]] = {}
    for entry in entries.order_by("published_at", "pk") if criteria else ():
        by_dataset.setdefault(entry.dataset_id, []).append(entry)
    return {pk: _compare_results(*criterion, by_dataset.get(pk, [])) for pk, criterion in criteria.items()}


def _compare_results(dataset: Dataset, difference: float, entries: Sequence[Entry]) -> PublishedComparison:
    """Compare the disclosed results on the current qrels with the baseline, and the ranked public ones with the best.

    `difference` is the least significant difference. Systems of closed APIs and references are not ranked.
    """
    shown_entries = [entry for entry in entries if entry.visibility == _PUBLIC]
    groups = [(entry.comparison_group, entry.is_baseline) for entry in shown_entries]
    group = present_group(dataset.current_version_id, dataset.current_qrels_id, groups)
    current_scores = {entry.pk: entry.scores for entry in entries if entry.comparison_group == group}
    baselines = [
        entry.pk
        for entry in shown_entries
        if entry.is_baseline and dataset.primary_measure in current_scores.get(entry.pk, {})
    ]
    ranked_ids = [entry.pk for entry in shown_entries if can_be_best(entry.system.closed_api, entry.run_type)]
    competition = protection.get_policy(dataset).competition
    criterion = _Criterion(dataset.primary_measure, difference, competition)
    return _compare_scores(criterion, current_scores, next(iter(baselines), None), ranked_ids)


def comparison_at(
    facts: Mapping[str, Any], entries: Sequence[EntryRow], baseline: int | None
) -> PublishedComparison | None:
    """Return the comparison of a past board, or None with open judgments or an unknown least significant difference.

    `facts` are the dataset's columns at the time, and `entries` those that the board compared. Takes one query with
    hidden judgments.
    """
    qrels = Qrels.objects.filter(pk=facts["current_qrels_id"]).first() if facts["hidden"] else None
    competition = facts.get("protection") == Protection.COMPETITION
    measure = facts["primary_measure"]
    difference = _stored_difference(qrels, measure, _PART[competition])
    if difference is None:
        return None
    ranked_ids = [entry.pk for entry in entries if can_be_best(entry.closed_api, entry.run_type)]
    published_scores = {entry.pk: entry.scores for entry in entries}
    return _compare_scores(_Criterion(measure, difference, competition), published_scores, baseline, ranked_ids)


class _Criterion(NamedTuple):
    """A measure, its least significant difference, and whether the scores belong to a competition."""

    measure: str
    least_difference: float
    competition: bool


def _compare_scores(
    criterion: _Criterion,
    published_scores: Mapping[int, Mapping[str, float]],
    baseline: int | None,
    candidates: Sequence[int],
) -> PublishedComparison:
    """Return the differences of published scores from the baseline's, and which of `candidates` tie with the best.

    Scores are by entry id and measure; entries without the measure are omitted.
    """
    measure, min_difference, competition = criterion
    sign = -1 if better(measure) == "lower" else 1
    scores = {pk: sign * values[measure] for pk, values in published_scores.items() if measure in values}
    baseline = baseline if baseline in scores else None
    ranked_ids = frozenset(pk for pk in candidates if pk in scores)
    tied_within = extend_to_all_pairs(min_difference, len(ranked_ids), alpha=ALPHA)
    threshold = max((scores[entry] for entry in ranked_ids), default=0.0) - tied_within
    differences = {
        entry: score - scores[baseline] for entry, score in scores.items() if baseline is not None and entry != baseline
    }
    return PublishedComparison(
        measure,
        min_difference,
        tied_within,
        protection.primary_step(competition=competition),
        baseline,
        differences,
        {entry: difference >= min_difference - _TOLERANCE for entry, difference in differences.items()},
        ranked_ids,
        frozenset(entry for entry in ranked_ids if scores[entry] > threshold + _TOLERANCE),
    )


def keep_least_difference(dataset: Dataset, *, scorer: bool = False) -> None:
    """Compute and store the least significant difference of the current qrels if it is unknown. Lock the board first.

    Does nothing with open judgments or without a public baseline that is a single run on these qrels. In a competition,
    does nothing unless `scorer` is set, because only the scorer knows the public queries.
    """
    policy, qrels = protection.get_policy(dataset), dataset.current_qrels
    if not policy.hidden or qrels is None or known_difference(dataset) is not None:
        return
    if policy.competition and not scorer:
        return
    baselines = Entry.objects.filter(dataset=dataset, is_baseline=True, visibility=_PUBLIC, evaluation__qrels=qrels)
    entry = baselines.select_related("evaluation__qrels").order_by("published_at", "pk").first()
    evaluation = entry.evaluation if entry is not None else None
    measure = dataset.primary_measure
    if evaluation is None or measure not in evaluation.measures:
        return
    values = per_query_values(evaluation)[:, evaluation.measures.index(measure)]
    if policy.competition:
        values = values[protection.public_queries(evaluation.qrels)]
    difference = least_difference(values, alpha=ALPHA, step=PUBLIC_STEP if policy.competition else STEP)
    if not isfinite(difference):
        return
    # Parts may have been drawn in the meantime, so reread the row and write only this column.
    qrels = Qrels.objects.select_for_update().get(pk=qrels.pk)
    stored_differences = qrels.statistics.get(MIN_DIFFERENCE, {})
    measure_differences = {**stored_differences.get(measure, {}), _shown_part(dataset): round(difference, 10)}
    qrels.statistics = {
        **qrels.statistics,
        MIN_DIFFERENCE: {**stored_differences, measure: measure_differences},
    }
    qrels.save(update_fields=["statistics"])


def known_difference(dataset: Dataset) -> float | None:
    """Return the stored least significant difference in the dataset's primary measure, or None."""
    return _stored_difference(dataset.current_qrels, dataset.primary_measure, _shown_part(dataset))


def _stored_difference(qrels: Qrels | None, measure: str, part: str) -> float | None:
    stored_differences: Mapping[str, Mapping[str, float]] = qrels.statistics.get(MIN_DIFFERENCE, {}) if qrels else {}
    return stored_differences.get(measure, {}).get(part)


def _shown_part(dataset: Dataset) -> str:
    return _PART[protection.get_policy(dataset).competition]
