"""Every number as it leaves the scorer: where judgements are hidden, through `published_value` and nothing else."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from django.db.models import Q

from evaluation.measures.registry import upper_bound_of
from leaderboard.models import Dataset, Entry, Evaluation, EvaluationPart, System
from leaderboard.results.protection import HIDDEN_DECIMALS, evaluate_parts, part_means, policy_of

#: How much of what a run shows was judged. Both follow from a stored evaluation, and are published beside the scores
#: wherever judgements are open. Over hidden ones never: they would tell which documents are judged.
JUDGED, HOLE = "Judged@10", "Hole@10"
#: In the order of boards.
JUDGED_MEASURES = (JUDGED, HOLE)
#: How the names of measures begin that tell which documents are judged.
REVEALING = ("Hole", "Judged", "Upper")


def upper_of(dataset: Dataset) -> tuple[str, ...]:
    """The upper bound of the dataset's primary measure, where that has one."""
    bound = upper_bound_of(dataset.primary_measure)
    return (bound,) if bound else ()


def is_about_judging(measure: str) -> bool:
    """Whether it says how much the judgements leave open, and so names no winner."""
    return measure in JUDGED_MEASURES or measure.startswith("Upper(")


def published_value(value: float, *, hidden: bool, step: float = 0.0) -> float:
    """The value as it leaves the scorer: rounded to three decimals, or to steps, where the judgements are hidden."""
    if hidden and step:
        value = round(value / step) * step
    return round(value, HIDDEN_DECIMALS) if hidden else value


def published_statistics(statistics: Mapping[str, Any], *, hidden: bool) -> dict[str, Any]:
    """A dataset's statistics as everyone may have them.

    Where the judgements are hidden the number of judgements is left out, and the mean of relevant documents has one
    decimal: in full it gives their number away. What a publication reports (`reported`) is known already.
    """
    found = dict(statistics)
    if not hidden or found.get("reported"):
        return found
    found.pop("judgements", None)
    if found.get("relevant_per_query") is not None:
        found["relevant_per_query"] = round(found["relevant_per_query"], 1)
    return found


def comparison_group(evaluation: Evaluation) -> str:
    """Entries share deltas and ranks only on the same version, judgements and measure specification."""
    return f"scored:{evaluation.run.version_id}:{evaluation.qrels_id}:{evaluation.specification}"


def present_group(dataset: Dataset) -> str:
    """What the comparison groups begin with of entries that are scored on the dataset's present judgements."""
    return f"scored:{dataset.current_version_id}:{dataset.current_qrels_id}:"


def training_exposure(system: System, dataset: Dataset) -> Entry.Training:
    """What the system says it had seen of the dataset: labels before the corpus alone."""
    names = {dataset.slug, dataset.name}
    if names.intersection(system.training_datasets):
        return Entry.Training.IN_DOMAIN
    if names.intersection(system.adapted_to):
        return Entry.Training.ADAPTED
    return Entry.Training.ZERO_SHOT if system.training_declared else Entry.Training.UNDECLARED


def published_scores(evaluation: Evaluation, dataset: Dataset) -> dict[str, float]:
    """The means that the dataset's board shows, as they leave the scorer: in a competition over its public part.

    Nothing of an evaluation whose parts were not computed. What the Ladder holds is not for this function to know.
    """
    policy = policy_of(dataset)
    means = part_means(evaluation, EvaluationPart.Part.PUBLIC) if policy.competition else evaluation.means
    told = _shown(means, dataset, policy.told_measures, policy.steps)
    if dataset.hidden:
        return told
    return told | judged_shares(evaluation) | _shown(means, dataset, upper_of(dataset), {})


def published_private_scores(evaluations: Sequence[Evaluation], dataset: Dataset) -> dict[str, float]:
    """Return the values over a competition's private part as they are revealed; of a seed set its mean."""
    if not policy_of(dataset).competition:
        return {}
    private = [part_means(evaluation, EvaluationPart.Part.PRIVATE) for evaluation in evaluations]
    scores = [_shown(means, dataset, dataset.measures, {}) for means in private]
    return scores[0] if len(scores) == 1 else _seed_means(scores, dataset, {})


def _shown(
    means: Mapping[str, float], dataset: Dataset, measures: Sequence[str], steps: Mapping[str, float]
) -> dict[str, float]:
    return {
        name: published_value(means[name], hidden=dataset.hidden, step=steps.get(name, 0.0))
        for name in measures
        if name in means
    }


class PublishedResult(NamedTuple):
    """Published values of a run or a seed set: `scores` are the mean over its seeds.

    `deviations` are sample standard deviations (n − 1). `seed_scores` has the values of each run.
    """

    scores: dict[str, float]
    deviations: dict[str, float]
    seed_scores: list[dict[str, float]]


def published_result(
    evaluations: Sequence[Evaluation], dataset: Dataset, *, held: bool = False
) -> PublishedResult:
    """Return the values of a result as its board shows them; a result that is `held` has none.

    Over hidden judgements only the mean of a seed set is published. A set costs one unit of a quota, and its single
    values and deviations would be up to five further readings of the judgements.
    """
    if held:
        return PublishedResult({}, {}, [{} for _ in evaluations])
    scores = [published_scores(evaluation, dataset) for evaluation in evaluations]
    if len(scores) == 1:
        return PublishedResult(scores[0], {}, [])
    means = _seed_means(scores, dataset, policy_of(dataset).steps)
    if dataset.hidden:
        return PublishedResult(means, {}, [{} for _ in scores])
    return PublishedResult(means, {name: stdev(each[name] for each in scores) for name in means}, scores)


def score_result(evaluations: Sequence[Evaluation], dataset: Dataset) -> PublishedResult:
    """Return the published values, after computing a competition's parts where they are missing. For the scorer."""
    if policy_of(dataset).competition:
        for evaluation in evaluations:
            evaluate_parts(evaluation)
    return published_result(evaluations, dataset)


def _seed_means(
    seeds: Sequence[Mapping[str, float]], dataset: Dataset, steps: Mapping[str, float]
) -> dict[str, float]:
    """Return the mean for each measure that all seeds have, rounded as a single value is."""
    return {
        name: published_value(
            fmean(scores[name] for scores in seeds), hidden=dataset.hidden, step=steps.get(name, 0.0)
        )
        for name in seeds[0]
        if all(name in scores for scores in seeds)
    }


def judged_shares(evaluation: Evaluation) -> dict[str, float]:
    """`Judged@10` and `Hole@10` of an evaluation, empty where it has neither.

    Of a query with results the two make one, by their definitions (evaluation.measures.formulas); of one that the run
    misses both are 0. So where an evaluation has no `Judged@10`, it is the share of queries that the run has, less
    `Hole@10`.
    """
    means = evaluation.means
    if HOLE not in means:
        return {}
    if JUDGED in means:
        return {name: means[name] for name in JUDGED_MEASURES}
    judged = evaluation.judged_queries
    answered = (judged - evaluation.missing_queries) / judged if judged else 0.0
    return {JUDGED: max(0.0, answered - means[HOLE]), HOLE: means[HOLE]}


def datasets_without_shares() -> list[Dataset]:
    """Datasets with open judgements, some of whose results were published before these measures were."""
    stored = Q(evaluation__means__has_key=HOLE) | Q(seeds__evaluation__means__has_key=HOLE)
    entries = Entry.objects.filter(stored, dataset__hidden=False).exclude(scores__has_key=JUDGED)
    return list(Dataset.objects.filter(pk__in=entries.values("dataset")))
