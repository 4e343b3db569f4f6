"""Published values of evaluations; with hidden judgments, `published_value` is the only way out of the scorer."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from django.db.models import Q

from evaluation.judgements.responses import STATED_FIGURES
from evaluation.measures.registry import upper_bound_name
from leaderboard.models import Dataset, Entry, Evaluation, EvaluationPart, System
from leaderboard.results.mteb import ORIGINALS, collection_key
from leaderboard.results.protection import HIDDEN_DECIMALS, evaluate_parts, get_policy, part_means

#: Judgment coverage of a run's top documents. Both follow from a stored evaluation, and are published with the scores
#: if judgments are open. With hidden judgments they would reveal which documents are judged.
JUDGED, HOLE = "Judged@10", "Hole@10"
#: Judgment coverage measures in board order.
JUDGED_MEASURES = (JUDGED, HOLE)


def upper_bound_measures(dataset: Dataset) -> tuple[str, ...]:
    """Return the upper bound of the dataset's primary measure, or an empty tuple if it has none."""
    bound = upper_bound_name(dataset.primary_measure)
    return (bound,) if bound else ()


def is_about_judging(measure: str) -> bool:
    """Return whether the measure describes judgment coverage, for which no system is best."""
    return measure in JUDGED_MEASURES or measure.startswith("Upper(")


#: Label of the BM25 variant over word pieces, the first part of its configuration.
WORD_PIECES = "bm25-wordpiece"


def is_word_pieces(configuration: str) -> bool:
    """Return whether an entry of this configuration is the BM25 variant over word pieces."""
    return configuration.split(" · ")[0] == WORD_PIECES


def published_value(value: float, *, hidden: bool, step: float = 0.0) -> float:
    """Return a value rounded for publication if judgments are hidden: to a multiple of `step`, and to three decimals.

    Values with open judgments are returned unchanged.
    """
    if hidden and step:
        value = round(value / step) * step
    return round(value, HIDDEN_DECIMALS) if hidden else value


def published_statistics(statistics: Mapping[str, Any], *, hidden: bool) -> dict[str, Any]:
    """Return a copy of a dataset's statistics that does not reveal the number of hidden judgments.

    With hidden judgments, the number of judgments is omitted, and relevant documents per query are rounded to one
    decimal, because the exact mean reveals that number. Statistics from a publication (`reported`) are public anyway.
    """
    values = dict(statistics)
    if not hidden or values.get("reported"):
        return values
    values.pop("judgements", None)
    if values.get("relevant_per_query") is not None:
        values["relevant_per_query"] = round(values["relevant_per_query"], 1)
    return values


def comparison_group(evaluation: Evaluation) -> str:
    """Return the group within which entries share deltas and ranks: same version, qrels, and measure specification."""
    return f"scored:{evaluation.run.version_id}:{evaluation.qrels_id}:{evaluation.specification}"


def present_group_prefix(dataset: Dataset) -> str:
    """Return the prefix of the comparison groups of entries scored on the dataset's current version and qrels."""
    return f"scored:{dataset.current_version_id}:{dataset.current_qrels_id}:"


def training_exposure(system: System, dataset: Dataset) -> Entry.Training:
    """Return the declared training exposure of a system to a dataset.

    IN_DOMAIN if it was trained on the dataset, a variant or part of it, or the one that it is a part of; ADAPTED if it
    was adapted to one of these, else ZERO_SHOT; UNDECLARED if it has not declared its training. Names match in any
    spelling (`collection_key`).
    """
    keys = {collection_key(name) for name in (dataset.slug, dataset.name)}
    # Names of parts begin with that of their collection, such as “MIRACL: German”.
    collections = {collection_key(dataset.name.partition(":")[0]), *(ORIGINALS.get(key, key) for key in keys)}

    def includes(names: Iterable[str]) -> bool:
        training_keys = set(map(collection_key, names))
        return bool(training_keys & (keys | collections) or keys & {ORIGINALS.get(key) for key in training_keys})

    if includes(system.training_datasets):
        return Entry.Training.IN_DOMAIN
    if includes(system.adapted_to):
        return Entry.Training.ADAPTED
    return Entry.Training.ZERO_SHOT if system.training_declared else Entry.Training.UNDECLARED


def published_scores(evaluation: Evaluation, dataset: Dataset) -> dict[str, float]:
    """Return the published values of an evaluation's means, rounded as the dataset's policy requires.

    In a competition, they are over the public part, and empty if it was not computed yet. With open judgments, they
    include judgment coverage and the upper bound. Whether the Ladder holds the result is not checked here.
    """
    policy = get_policy(dataset)
    means = showable_means(evaluation, dataset, EvaluationPart.Part.PUBLIC if policy.competition else None)
    scores = _publish_means(means, dataset, policy.published_measures, policy.steps)
    if dataset.hidden:
        return scores
    return scores | judged_shares(evaluation) | _publish_means(means, dataset, upper_bound_measures(dataset), {})


def showable_means(
    evaluation: Evaluation, dataset: Dataset, part: EvaluationPart.Part | None = None
) -> dict[str, float]:
    """Return the unrounded means, over all judged queries or a part, of the measures that the dataset may show.

    With hidden judgments, figures that responses state are means over all responses and have no per-query values,
    because means over the judged queries, which earlier versions stored, would reveal these queries. With open
    judgments, tests need per-query values, which results from before the opening lack.
    """
    means = evaluation.means if part is None else part_means(evaluation, part)
    unsuitable_names = {name for name in STATED_FIGURES if (name in evaluation.measures) == dataset.hidden}
    return {name: mean for name, mean in means.items() if name not in unsuitable_names}


def published_private_scores(evaluations: Sequence[Evaluation], dataset: Dataset) -> dict[str, float]:
    """Return the published values over a competition's private part, averaged over the seeds of a seed set.

    Empty outside of competitions. Whether they were revealed is not checked here.
    """
    if not get_policy(dataset).competition:
        return {}
    private_means = [showable_means(evaluation, dataset, EvaluationPart.Part.PRIVATE) for evaluation in evaluations]
    scores = [_publish_means(means, dataset, dataset.measures, {}) for means in private_means]
    return scores[0] if len(scores) == 1 else _seed_means(scores, dataset, {})


def _publish_means(
    means: Mapping[str, float], dataset: Dataset, measures: Sequence[str], steps: Mapping[str, float]
) -> dict[str, float]:
    """Return the published values of the measures that have means; `steps` has their rounding steps, if any."""
    return {
        name: published_value(means[name], hidden=dataset.hidden, step=steps.get(name, 0.0))
        for name in measures
        if name in means
    }


class PublishedResult(NamedTuple):
    """Published values of a run or a seed set.

    `scores` are means over the seeds, `deviations` sample standard deviations (n − 1), and `seed_scores` the values of
    each run.
    """

    scores: dict[str, float]
    deviations: dict[str, float]
    seed_scores: list[dict[str, float]]


def published_result(evaluations: Sequence[Evaluation], dataset: Dataset, *, is_held: bool = False) -> PublishedResult:
    """Return the published values of a single run or a seed set; all are empty if it `is_held`.

    With hidden judgments, only the mean of a seed set is published. A set costs one unit of a quota, and its single
    values and deviations would be up to five further readings of the judgments.
    """
    if is_held:
        return PublishedResult({}, {}, [{} for _ in evaluations])
    scores = [published_scores(evaluation, dataset) for evaluation in evaluations]
    if len(scores) == 1:
        return PublishedResult(scores[0], {}, [])
    means = _seed_means(scores, dataset, get_policy(dataset).steps)
    if dataset.hidden:
        return PublishedResult(means, {}, [{} for _ in scores])
    return PublishedResult(means, {name: stdev(seed_scores[name] for seed_scores in scores) for name in means}, scores)


def score_result(evaluations: Sequence[Evaluation], dataset: Dataset) -> PublishedResult:
    """Return the published values after computing missing competition parts; runs in the scorer only."""
    if get_policy(dataset).competition:
        for evaluation in evaluations:
            evaluate_parts(evaluation)
    return published_result(evaluations, dataset)


def _seed_means(seeds: Sequence[Mapping[str, float]], dataset: Dataset, steps: Mapping[str, float]) -> dict[str, float]:
    """Return the published means over seeds of the measures that all seeds have."""
    return {
        name: published_value(fmean(scores[name] for scores in seeds), hidden=dataset.hidden, step=steps.get(name, 0.0))
        for name in seeds[0]
        if all(name in scores for scores in seeds)
    }


def judged_shares(evaluation: Evaluation) -> dict[str, float]:
    """Return `Judged@10` and `Hole@10` of an evaluation, or an empty dictionary if it lacks `Hole@10`.

    The two measures add up to 1 for queries with results, and both are 0 for missing queries (see
    `evaluation.measures.formulas`). If only `Hole@10` is stored, `Judged@10` is therefore the share of answered queries
    minus `Hole@10`.
    """
    means = evaluation.means
    if HOLE not in means:
        return {}
    if JUDGED in means:
        return {name: means[name] for name in JUDGED_MEASURES}
    query_count = evaluation.judged_queries
    answered_share = (query_count - evaluation.missing_queries) / query_count if query_count else 0.0
    return {JUDGED: max(0.0, answered_share - means[HOLE]), HOLE: means[HOLE]}


def datasets_without_shares() -> list[Dataset]:
    """Return open datasets with results that have `Hole@10`, but were published before judgment coverage was."""
    has_share = Q(evaluation__means__has_key=HOLE) | Q(seeds__evaluation__means__has_key=HOLE)
    entries = Entry.objects.filter(has_share, dataset__hidden=False).exclude(scores__has_key=JUDGED)
    return list(Dataset.objects.filter(pk__in=entries.values("dataset")))
