"""Runs, their evaluations, and what boards show of them. Writers: `leaderboard.results`, `leaderboard.publishing`."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.db.models import Q

from leaderboard.models.datasets import Dataset


class Run(models.Model):
    """One ranking of one dataset version, stored compressed under the sha256 of its text."""

    class Origin(models.TextChoices):
        """How the run came to be."""

        UPLOADED = "uploaded", "uploaded"
        RETRIEVED = "retrieved", "retrieved here"

    version = models.ForeignKey("DatasetVersion", on_delete=models.PROTECT, related_name="runs")
    system = models.ForeignKey("System", on_delete=models.PROTECT, related_name="runs")
    sha256 = models.CharField(max_length=64)
    configuration = models.CharField(max_length=80, blank=True, help_text="Seed or configuration label.")
    tag = models.CharField(max_length=120, blank=True)
    origin = models.CharField(max_length=10, choices=Origin.choices)
    size = models.PositiveBigIntegerField(help_text="Bytes of the text.")
    lines = models.PositiveBigIntegerField(default=0)
    metadata = models.JSONField(default=dict, blank=True)
    reusable = models.BooleanField(
        default=False, help_text="Others may re-rank or fuse it, and credit its system."
    )
    built_from = models.ManyToManyField(
        "self", symmetrical=False, blank=True, related_name="used_by", help_text="Runs re-ranked or fused."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "system", "sha256", "configuration"], name="run_once")
        ]

    def __str__(self) -> str:
        return f"{self.system} on {self.version}"


class Evaluation(models.Model):
    """A run against judgements under one version of the measures: append-only, unrounded, never edited."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="evaluations")
    qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="evaluations")
    specification = models.CharField(max_length=20, help_text="Version of the measures' specification.")
    measures = models.JSONField(help_text="Names, in the order of the columns of `values`.")
    means = models.JSONField(help_text="Measure → mean over all judged queries, unrounded.")
    values = models.BinaryField(help_text="zlib of float64, queries × measures, queries in the qrels' order.")
    judged_queries = models.PositiveIntegerField()
    missing_queries = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "qrels", "specification"], name="evaluation_once")
        ]

    def __str__(self) -> str:
        return f"{self.run}, {self.qrels}"


class EntryQuerySet(models.QuerySet["Entry"]):
    """Entries, by who may see them."""

    def public(self) -> Self:
        """Those on public boards. A dataset in preparation has none, whatever its entries say."""
        return self.listed().filter(visibility=Entry.Visibility.PUBLIC)

    def seen(self) -> Self:
        """Those that are on public boards or were: everyone may know of them."""
        return self.listed().exclude(visibility=Entry.Visibility.PRIVATE)

    def listed(self) -> Self:
        """Those of datasets that have a public page."""
        return self.exclude(dataset__state=Dataset.State.PREPARING)


class Entry(models.Model):
    """What a board shows for a system on a dataset, complete in itself.

    `scores` are the published values: rounded where the dataset's judgements are hidden. Everything that a page, an
    export or the API computes comes from them. Deltas are taken within a `comparison_group` only, against its one
    baseline, so that reported and scored figures, or two versions, never meet.
    """

    class Provenance(models.TextChoices):
        """How the numbers were obtained."""

        REPORTED = "reported", "reported"
        SCORED = "scored", "scored"
        MEASURED = "measured", "measured"

    class Visibility(models.TextChoices):
        """Who sees the entry."""

        PUBLIC = "public", "public"
        PRIVATE = "private", "private"
        WITHDRAWN = "withdrawn", "withdrawn"

    class Training(models.TextChoices):
        """What the system had seen of the dataset."""

        IN_DOMAIN = "in-domain", "in-domain"
        ADAPTED = "adapted", "adapted to the corpus without labels"
        ZERO_SHOT = "zero-shot", "zero-shot"
        UNDECLARED = "undeclared", "undeclared"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="entries")
    system = models.ForeignKey("System", on_delete=models.PROTECT, related_name="entries")
    evaluation = models.OneToOneField(
        Evaluation, null=True, blank=True, on_delete=models.PROTECT, related_name="entry"
    )
    source = models.ForeignKey(
        "Source", null=True, blank=True, on_delete=models.PROTECT, related_name="entries"
    )
    provenance = models.CharField(max_length=10, choices=Provenance.choices)
    configuration = models.CharField(max_length=120, blank=True)
    scores = models.JSONField(help_text="Measure → published value; of a seed set the mean of its seeds'.")
    seed_count = models.PositiveSmallIntegerField(default=0, help_text="Runs of a seed set; 0: a single run.")
    deviations = models.JSONField(
        default=dict, blank=True, help_text="Measure → sample standard deviation (n − 1) over the seeds."
    )
    figures = models.JSONField(default=list, blank=True, help_text="Reported figures beside the scores.")
    facts = models.JSONField(
        default=dict,
        blank=True,
        help_text="What papers report of such a system, by names of evaluation.engines.FACTS.",
    )
    comparison_group = models.CharField(max_length=120)
    is_baseline = models.BooleanField(default=False)
    training = models.CharField(max_length=12, choices=Training.choices, default=Training.UNDECLARED)
    visibility = models.CharField(max_length=10, choices=Visibility.choices, default=Visibility.PUBLIC)
    withdrawal_reason = models.CharField(max_length=300, blank=True)
    missing_queries = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Empty where that is not told (hidden judgements) or not known (reported).",
    )
    submission_reference = models.CharField(max_length=20, blank=True, db_index=True)
    locator = models.CharField(max_length=80, blank=True, help_text="Where in the source: Table 2.")
    published_at = models.DateTimeField()

    objects: ClassVar[models.Manager[Entry]] = EntryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "entries"
        constraints = [
            models.UniqueConstraint(
                fields=["dataset", "comparison_group"],
                condition=Q(is_baseline=True, visibility="public"),
                name="one_baseline_per_comparison_group",
            ),
            models.CheckConstraint(
                condition=Q(provenance="reported", source__isnull=False, evaluation__isnull=True)
                | Q(provenance__in=["scored", "measured"], evaluation__isnull=False, seed_count=0)
                | Q(provenance__in=["scored", "measured"], evaluation__isnull=True, seed_count__gte=2),
                name="provenance_has_its_evidence",
            ),
        ]
        indexes = [models.Index(fields=["dataset", "visibility"])]

    def __str__(self) -> str:
        return f"{self.system} on {self.dataset}"


class Seed(models.Model):
    """One run of a seed set: it has no row of its own on boards. Written by `leaderboard.publishing`.

    `scores` are the published values, rounded where the dataset's judgements are hidden: what the entry shows is
    computed from them.
    """

    entry = models.ForeignKey(Entry, on_delete=models.CASCADE, related_name="seeds")
    evaluation = models.OneToOneField(Evaluation, on_delete=models.PROTECT, related_name="seed")
    label = models.CharField(max_length=80)
    scores = models.JSONField()
    published_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["entry", "label"], name="seed_label_once_per_entry")]

    def __str__(self) -> str:
        return f"{self.entry}, {self.label}"
