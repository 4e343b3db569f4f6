"""Certainty over hidden judgements: one number, from the baseline's values by query alone, and what follows from it.

For each set of judgements the scorer finds the least difference in the primary measure that is significant, and keeps
it with their statistics (`evaluation.statistics.least_difference` has the formula). It is found once, so that nobody
learns anything from how it changes. Everything else follows from it and from published values, so that it tells no
more of any submission than these do (docs/decisions/0043).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from evaluation.statistics.ladder import PUBLIC_STEP
from evaluation.statistics.least_difference import STEP, among, least_difference
from leaderboard.core.measures import better
from leaderboard.models import Dataset, Entry, Qrels
from leaderboard.results import protection
from leaderboard.results.kinds import present_group
from leaderboard.results.records import per_query_values
from leaderboard.results.significance.types import ALPHA

#: Where a qrels' statistics have it: measure → part → the least difference.
LEAST_DIFFERENCE = "least_difference"
#: What binary numbers make of a difference of two decimals.
_NOISE = 1e-9
#: Results whose value somebody is told: never one that the Ladder holds, nor what was taken off.
_TOLD = (Entry.Visibility.PUBLIC, Entry.Visibility.PRIVATE, Entry.Visibility.SUPERSEDED)


class PublishedResult(NamedTuple):
    """A result as everyone, or its team, has it: the id of its entry, and its published score."""

    entry: int
    score: float
    is_baseline: bool
    #: Whether it stands on the board, ranked with others.
    ranked: bool


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """What published scores of one measure say, by the ids of entries.

    `better` says of each whether it is better than the baseline, which is not among them. `tied` are those of `ranked`
    that tests of all pairs do not find worse than the best, and the best.
    """

    measure: str
    least_difference: float
    better: Mapping[int, bool]
    ranked: frozenset[int]
    tied: frozenset[int]


def compare_published(
    measure: str, least_difference: float, results: Sequence[PublishedResult]
) -> PublishedComparison:
    """Hold each result against the baseline, and against the best, by the least difference that is significant."""
    sign = -1 if better(measure) == "lower" else 1
    baseline = next((each for each in results if each.is_baseline), None)
    ranked = {each.entry: sign * each.score for each in results if each.ranked}
    apart = among(least_difference, len(ranked), alpha=ALPHA)
    best = max(ranked.values(), default=0.0)
    return PublishedComparison(
        measure,
        least_difference,
        {
            each.entry: sign * (each.score - baseline.score) >= least_difference - _NOISE
            for each in results
            if baseline is not None and each is not baseline
        },
        frozenset(ranked),
        frozenset(entry for entry, score in ranked.items() if best - score < apart - _NOISE),
    )


def published_comparisons(datasets: Collection[int]) -> dict[int, PublishedComparison]:
    """Those of the hidden datasets among these whose least difference is known, by id. Two queries at most."""
    if not datasets:
        return {}
    known: dict[int, tuple[Dataset, float]] = {}
    for dataset in Dataset.objects.filter(pk__in=datasets, hidden=True).select_related("current_qrels"):
        least = known_difference(dataset)
        if least is not None:
            known[dataset.pk] = dataset, least
    told = Entry.objects.filter(dataset__in=known, visibility__in=_TOLD)
    rows = told.exclude(provenance=Entry.Provenance.REPORTED).order_by("dataset_id", "published_at", "pk")
    columns = (
        "pk",
        "dataset_id",
        "comparison_group",
        "is_baseline",
        "visibility",
        "scores",
        "system__closed_api",
    )
    by_dataset: dict[int, list[dict[str, Any]]] = {}
    for row in rows.values(*columns) if known else ():
        by_dataset.setdefault(row["dataset_id"], []).append(row)
    return {
        pk: compare_published(dataset.primary_measure, least, _present(dataset, by_dataset.get(pk, ())))
        for pk, (dataset, least) in known.items()
    }


def _present(dataset: Dataset, rows: Sequence[Mapping[str, Any]]) -> list[PublishedResult]:
    """The results on the present judgements that have a score of the primary measure."""
    shown = Entry.Visibility.PUBLIC
    groups = [(row["comparison_group"], row["is_baseline"]) for row in rows if row["visibility"] == shown]
    group = present_group(dataset.current_version_id, dataset.current_qrels_id, groups)
    return [
        PublishedResult(
            row["pk"],
            row["scores"][dataset.primary_measure],
            row["is_baseline"] and row["visibility"] == shown,
            row["visibility"] == shown and not row["system__closed_api"],
        )
        for row in rows
        if row["comparison_group"] == group and dataset.primary_measure in row["scores"]
    ]


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
        dataset=dataset, is_baseline=True, visibility=Entry.Visibility.PUBLIC, evaluation__qrels=qrels
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
    qrels = dataset.current_qrels
    kept: Mapping[str, Mapping[str, float]] = qrels.statistics.get(LEAST_DIFFERENCE, {}) if qrels else {}
    return kept.get(dataset.primary_measure, {}).get(_part(dataset))


def _part(dataset: Dataset) -> str:
    return protection.Part.PUBLIC.value if protection.policy_of(dataset).competition else "all"
