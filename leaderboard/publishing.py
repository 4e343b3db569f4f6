"""Put entries on boards and take them off: the only writer of `Entry`.

For datasets with hidden judgements, `published_value` is the one function through which every number leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from leaderboard.board_versions import Kind, board_changed, boards_changed
from leaderboard.models import Dataset, Entry, Evaluation, System, Team

#: Decimals of a published value where the judgements are hidden. Three leave a probing run 1.7 to 6.2 bits.
HIDDEN_DECIMALS = 3


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
    """What the system says it had seen of the dataset."""
    if dataset.slug in system.training_datasets or dataset.name in system.training_datasets:
        return Entry.Training.IN_DOMAIN
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
    entry, created = Entry.objects.get_or_create(
        evaluation=evaluation,
        defaults={
            "dataset": dataset,
            "system": evaluation.run.system,
            "provenance": provenance,
            "configuration": evaluation.run.configuration,
            "scores": _published_scores(evaluation, dataset),
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
    if created:
        board_changed(dataset, Kind.PUBLISHED, entry)
    return entry


@transaction.atomic
def refresh_scores(dataset: Dataset) -> None:
    """Publish the stored means again, after the dataset's measures or their rounding changed."""
    entries = list(
        Entry.objects.filter(dataset=dataset, evaluation__isnull=False).select_related("evaluation")
    )
    for entry in entries:
        if entry.evaluation is not None:
            entry.scores = _published_scores(entry.evaluation, dataset)
    Entry.objects.bulk_update(entries, ["scores"], batch_size=200)
    board_changed(dataset, Kind.MEASURES)


def _published_scores(evaluation: Evaluation, dataset: Dataset) -> dict[str, float]:
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
    """Show or keep back every entry of a submission that is not withdrawn."""
    wanted = Entry.Visibility.PUBLIC if public else Entry.Visibility.PRIVATE
    entries = Entry.objects.filter(submission_reference=submission_reference).exclude(
        visibility=Entry.Visibility.WITHDRAWN
    )
    touched = _of(entries)
    entries.update(visibility=wanted)
    boards_changed(touched, Kind.VISIBILITY)


@transaction.atomic
def withdraw_entries(submission_reference: str, reason: str) -> None:
    """Take a submission's entries off every board. A tombstone stays where they were seen, and nowhere else."""
    entries = Entry.objects.filter(submission_reference=submission_reference)
    entries.update(withdrawal_reason=reason[:300])
    entries.filter(visibility=Entry.Visibility.PUBLIC).update(visibility=Entry.Visibility.WITHDRAWN)
    for entry in entries.select_related("dataset").order_by("dataset_id", "pk"):
        board_changed(entry.dataset, Kind.WITHDRAWN, entry)


@transaction.atomic
def system_changed(system: System) -> None:
    """Bring the entries scored here up to date with what the system says of itself now; all its boards change."""
    for entry in Entry.objects.filter(system=system, source=None).select_related("dataset"):
        Entry.objects.filter(pk=entry.pk).update(training=training_exposure(system, entry.dataset))
    boards_changed(_of(Entry.objects.filter(system=system)), Kind.SYSTEM)


def team_changed(team: Team) -> None:
    """Count a change of every board that names the team."""
    boards_changed(_of(Entry.objects.filter(system__team=team)), Kind.TEAM)


@transaction.atomic
def name_baseline(entry: Entry) -> None:
    """Make the entry the one that its comparison group's deltas are taken against."""
    Entry.objects.filter(
        dataset=entry.dataset, comparison_group=entry.comparison_group, is_baseline=True
    ).update(is_baseline=False)
    Entry.objects.filter(pk=entry.pk).update(is_baseline=True)
    board_changed(entry.dataset, Kind.BASELINE, entry)


def _of(entries: QuerySet[Entry]) -> set[int]:
    """The ids of the datasets that have one of the entries."""
    return set(entries.values_list("dataset_id", flat=True))
