"""Put entries on boards and take them off: the only writer of `Entry` and `Seed`.

For datasets with hidden judgements, `published_value` is the one function through which every number leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from leaderboard.board_versions import Kind, board_changed, boards_changed, lock_boards
from leaderboard.models import Dataset, Entry, EntryVersion, Evaluation, Seed, Source, System, Team

#: Decimals of a published value where the judgements are hidden. Three leave a probing run 1.7 to 6.2 bits.
HIDDEN_DECIMALS = 3
#: How many runs one seed set may have: fewer have no deviation.
SEEDS = range(2, 6)


def published_value(value: float, *, hidden: bool) -> float:
    """The value as it leaves the scorer: rounded to three decimals where the judgements are hidden."""
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


def training_exposure(system: System, dataset: Dataset) -> Entry.Training:
    """What the system says it had seen of the dataset: labels before the corpus alone."""
    names = {dataset.slug, dataset.name}
    if names.intersection(system.training_datasets):
        return Entry.Training.IN_DOMAIN
    if names.intersection(system.adapted_to):
        return Entry.Training.ADAPTED
    return Entry.Training.ZERO_SHOT if system.training_declared else Entry.Training.UNDECLARED


@transaction.atomic
def publish_entry(
    *,
    evaluation: Evaluation,
    provenance: Entry.Provenance,
    public: bool,
    submission_reference: str = "",
    is_baseline: bool = False,
    facts: Mapping[str, str | int | float] | None = None,
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


def published_scores(evaluation: Evaluation, dataset: Dataset) -> dict[str, float]:
    """The means that the dataset's board shows, as they leave the scorer."""
    means = evaluation.means
    return {
        name: published_value(means[name], hidden=dataset.hidden)
        for name in dataset.measures
        if name in means
    }


@dataclass(frozen=True, slots=True)
class ReportedEntry:
    """A paper's numbers for a system on a dataset; the source is the system's."""

    dataset: Dataset
    system: System
    configuration: str
    scores: Mapping[str, float]
    figures: list[dict[str, Any]]
    comparison_group: str
    is_baseline: bool
    training: Entry.Training
    locator: str

    def shown(self) -> dict[str, Any]:
        """What may change when a table is corrected."""
        return {
            "scores": dict(self.scores),
            "figures": self.figures,
            "comparison_group": self.comparison_group,
            "is_baseline": self.is_baseline,
            "training": self.training,
            "locator": self.locator,
        }


@transaction.atomic
def publish_reported(reported: Sequence[ReportedEntry]) -> int:
    """Show papers' numbers, and return how many entries are new or changed. Again, the same ones change nothing."""
    lock_boards({entry.dataset.pk for entry in reported})
    systems = {entry.system.pk for entry in reported}
    known = {
        (entry.dataset_id, entry.system_id, entry.configuration): entry
        for entry in Entry.objects.filter(provenance=Entry.Provenance.REPORTED, system__in=systems)
    }
    new: list[Entry] = []
    changed: list[Entry] = []
    for row in reported:
        entry = known.get((row.dataset.pk, row.system.pk, row.configuration))
        shown = row.shown()
        if entry is None:
            new.append(
                Entry(
                    dataset=row.dataset,
                    system=row.system,
                    source_id=row.system.source_id,
                    provenance=Entry.Provenance.REPORTED,
                    configuration=row.configuration,
                    published_at=timezone.now(),
                    **shown,
                )
            )
        elif any(getattr(entry, name) != value for name, value in shown.items()):
            for name, value in shown.items():
                setattr(entry, name, value)
            changed.append(entry)
    Entry.objects.bulk_create(new)
    if changed:
        Entry.objects.bulk_update(changed, list(reported[0].shown()))
    touched = {entry.dataset_id for entry in (*new, *changed)}
    boards_changed(touched, Kind.REPORTED)
    return len(new) + len(changed)


@transaction.atomic
def set_visibility(submission_reference: str, *, public: bool) -> None:
    """Show or keep back every entry of a submission that is not withdrawn; boards change where it was not so before."""
    wanted = Entry.Visibility.PUBLIC if public else Entry.Visibility.PRIVATE
    of_submission = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(of_submission.values_list("dataset_id", flat=True))
    entries = of_submission.exclude(visibility__in=[Entry.Visibility.WITHDRAWN, wanted])
    seen_before = Exists(EntryVersion.objects.filter(entry=OuterRef("pk")))
    touched = list(entries.annotate(seen_before=seen_before).select_related("dataset").order_by("pk"))
    entries.update(visibility=wanted)
    for entry in touched:
        # What comes back is no news: everyone has seen it.
        first_seen = public and not entry.seen_before
        board_changed(entry.dataset, Kind.PUBLISHED if first_seen else Kind.VISIBILITY, entry)


@transaction.atomic
def withdraw_entries(submission_reference: str, reason: str) -> None:
    """Take a submission's entries off every board. A tombstone stays where they were seen, and nowhere else."""
    entries = Entry.objects.filter(submission_reference=submission_reference)
    lock_boards(entries.values_list("dataset_id", flat=True))
    seen = entries.filter(visibility=Entry.Visibility.PUBLIC)
    touched = list(seen.select_related("dataset").order_by("pk"))
    entries.update(withdrawal_reason=reason[:300])
    seen.update(visibility=Entry.Visibility.WITHDRAWN)
    for entry in touched:
        board_changed(entry.dataset, Kind.WITHDRAWN, entry)


@transaction.atomic
def system_changed(system: System) -> None:
    """Bring the entries scored here up to date with what the system says of itself now; all its boards change."""
    lock_boards(Entry.objects.filter(system=system).values_list("dataset_id", flat=True))
    for entry in Entry.objects.filter(system=system, source=None).select_related("dataset"):
        Entry.objects.filter(pk=entry.pk).update(training=training_exposure(system, entry.dataset))
    boards_changed(_of(Entry.objects.filter(system=system)), Kind.SYSTEM)


def source_changed(source: Source) -> None:
    """Count a change of every board that names the publication."""
    of_source = Entry.objects.filter(Q(source=source) | Q(system__source=source))
    of_benchmarks = Dataset.objects.filter(benchmarks__source=source).values_list("pk", flat=True)
    boards_changed(_of(of_source).union(of_benchmarks), Kind.SYSTEM)


def team_changed(team: Team) -> None:
    """Count a change of every board that names the team."""
    boards_changed(_of(Entry.objects.filter(system__team=team)), Kind.TEAM)


@transaction.atomic
def name_baseline(entry: Entry) -> None:
    """Make the entry the one that its comparison group's deltas are taken against."""
    lock_boards([entry.dataset_id])
    Entry.objects.filter(
        dataset=entry.dataset, comparison_group=entry.comparison_group, is_baseline=True
    ).update(is_baseline=False)
    Entry.objects.filter(pk=entry.pk).update(is_baseline=True)
    board_changed(entry.dataset, Kind.BASELINE, entry)


def _of(entries: QuerySet[Entry]) -> set[int]:
    """The ids of the datasets whose boards have one of the entries: what is private is on none."""
    seen = entries.exclude(visibility=Entry.Visibility.PRIVATE)
    return set(seen.values_list("dataset_id", flat=True))
