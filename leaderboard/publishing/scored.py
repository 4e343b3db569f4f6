"""Results scored here, on their dataset's board: single ones, seed sets, and all of a dataset's published anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from django.db import transaction
from django.utils import timezone

from leaderboard.board_versions import Kind, board_changed, lock_boards
from leaderboard.models import Dataset, Entry, Evaluation, Seed
from leaderboard.publishing.marks import UNMARKED, EntryMarks
from leaderboard.publishing.values import (
    comparison_group,
    published_scores,
    published_value,
    training_exposure,
)

#: How many runs one seed set may have: fewer have no deviation.
SEEDS = range(2, 6)


@transaction.atomic
def publish_entry(
    *,
    evaluation: Evaluation,
    provenance: Entry.Provenance,
    public: bool,
    submission_reference: str = "",
    is_baseline: bool = False,
    facts: Mapping[str, str | int | float] | None = None,
    marks: EntryMarks = UNMARKED,
) -> Entry:
    """Show an evaluation on its dataset's board (or keep it for its team). Publishing it again changes nothing."""
    dataset = evaluation.run.version.dataset
    lock_boards([dataset.pk])
    entry, created = Entry.objects.get_or_create(
        evaluation=evaluation,
        defaults={
            "dataset": dataset,
            "system": evaluation.run.system,
            "provenance": provenance,
            "configuration": evaluation.run.configuration,
            "scores": published_scores(evaluation, dataset),
            "comparison_group": comparison_group(evaluation),
            "is_baseline": is_baseline,
            "training": training_exposure(evaluation.run.system, dataset),
            "visibility": Entry.Visibility.PUBLIC if public else Entry.Visibility.PRIVATE,
            # What a reader of a hidden board may learn stops at the scores.
            "missing_queries": None if dataset.hidden else evaluation.missing_queries,
            "facts": dict(facts or {}),
            "submission_reference": submission_reference,
            "published_at": timezone.now(),
            **marks.columns([evaluation]),
        },
    )
    if created and public:
        board_changed(dataset, Kind.PUBLISHED, entry)
    return entry


@transaction.atomic
def publish_seed_set(
    seeds: Mapping[str, Evaluation],
    *,
    provenance: Entry.Provenance,
    public: bool,
    configuration: str = "",
    submission_reference: str = "",
    facts: Mapping[str, str | int | float] | None = None,
    marks: EntryMarks = UNMARKED,
) -> Entry:
    """Show the runs of one system that differ by their seeds, by label, as one entry: their mean and deviation.

    All of them together, since a mean over those that are there already would change with each. Publishing the set
    again changes nothing. Raises ValueError for runs that are no set: of too few or too many seeds, several systems,
    or not comparable.
    """
    first, *others = seeds.values()
    _require_set([first, *others])
    dataset, now = first.run.version.dataset, timezone.now()
    lock_boards([dataset.pk])  # of two who publish the same set at once the second finds it
    known = Seed.objects.filter(evaluation__in=seeds.values()).select_related("entry").first()
    if known is not None:
        return known.entry
    published = {label: published_scores(evaluation, dataset) for label, evaluation in seeds.items()}
    scores, deviations = _over_seeds(list(published.values()), hidden=dataset.hidden)
    entry = Entry.objects.create(
        dataset=dataset,
        system=first.run.system,
        provenance=provenance,
        configuration=configuration,
        scores=scores,
        deviations=deviations,
        seed_count=len(seeds),
        comparison_group=comparison_group(first),
        training=training_exposure(first.run.system, dataset),
        visibility=Entry.Visibility.PUBLIC if public else Entry.Visibility.PRIVATE,
        # Of the seed that misses most.
        missing_queries=None if dataset.hidden else max(each.missing_queries for each in seeds.values()),
        facts=dict(facts or {}),
        submission_reference=submission_reference,
        published_at=now,
        **marks.columns(seeds.values()),
    )
    Seed.objects.bulk_create(
        Seed(entry=entry, evaluation=evaluation, label=label, scores=published[label], published_at=now)
        for label, evaluation in seeds.items()
    )
    if public:
        board_changed(dataset, Kind.PUBLISHED, entry)
    return entry


def _require_set(evaluations: Sequence[Evaluation]) -> None:
    """Raises ValueError for evaluations that cannot be one entry."""
    if len(evaluations) not in SEEDS:
        raise ValueError(f"a seed set has {SEEDS.start} to {SEEDS.stop - 1} runs, not {len(evaluations)}")
    if len({each.run.system_id for each in evaluations}) > 1:
        raise ValueError("the runs of a seed set are of one system")
    if len({comparison_group(each) for each in evaluations}) > 1:
        raise ValueError("the runs of a seed set are of one version, judgements and measures")


def _over_seeds(
    seeds: Sequence[Mapping[str, float]], *, hidden: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean and sample standard deviation (n − 1) of the published values, for the measures that all seeds have.

    Both leave as single values do, and from published values alone: they tell nothing that the seeds do not.
    """
    columns = {
        measure: [scores[measure] for scores in seeds]
        for measure in seeds[0]
        if all(measure in scores for scores in seeds)
    }
    return (
        {name: published_value(fmean(values), hidden=hidden) for name, values in columns.items()},
        {name: published_value(stdev(values), hidden=hidden) for name, values in columns.items()},
    )


@transaction.atomic
def refresh_scores(dataset: Dataset) -> None:
    """Publish the stored means again, after the dataset's measures or their rounding changed."""
    lock_boards([dataset.pk])
    entries = Entry.objects.filter(dataset=dataset)
    single = list(entries.filter(evaluation__isnull=False).select_related("evaluation"))
    for entry in single:
        if entry.evaluation is not None:
            entry.scores = published_scores(entry.evaluation, dataset)
    sets = list(entries.filter(seed_count__gt=0).prefetch_related("seeds__evaluation"))
    seeds = [seed for entry in sets for seed in entry.seeds.all()]
    for seed in seeds:
        seed.scores = published_scores(seed.evaluation, dataset)
    for entry in sets:
        of_seeds = [seed.scores for seed in entry.seeds.all()]
        entry.scores, entry.deviations = _over_seeds(of_seeds, hidden=dataset.hidden)
    Seed.objects.bulk_update(seeds, ["scores"], batch_size=200)
    Entry.objects.bulk_update([*single, *sets], ["scores", "deviations"], batch_size=200)
    board_changed(dataset, Kind.MEASURES)
