"""Runs, their evaluations, and what boards show of them.

Written by `leaderboard.results.records` and `leaderboard.results.publishing`.
"""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.db.models import Q
from django.utils import timezone

from leaderboard.models.datasets import Dataset


class RunType(models.TextChoices):
    """Whether a person had a hand in the queries or the ranking, as TREC asks."""

    AUTOMATIC = "automatic", "automatic"
    MANUAL = "manual", "manual"


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
    priority = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="The team's own order of its runs for pooling, 1 first."
    )
    round = models.ForeignKey("Round", null=True, blank=True, on_delete=models.PROTECT, related_name="runs")
    late = models.BooleanField(default=False, help_text="It came after its round had closed.")
    run_type = models.CharField(max_length=10, blank=True, choices=RunType.choices)
    submission_reference = models.CharField(max_length=20, blank=True, db_index=True)
    public = models.BooleanField(
        default=False, help_text="Everyone may know of it while it waits for the first judgements."
    )
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


class EvaluationPart(models.Model):
    """The means of an evaluation over one part of the judged queries, unrounded: append-only.

    Computed by the scorer, which alone reads the assignment of queries to parts.
    """

    class Part(models.TextChoices):
        """What a competition's board shows, and what is revealed at the end of a round."""

        PUBLIC = "public", "public"
        PRIVATE = "private", "private"

    evaluation = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="parts")
    part = models.CharField(max_length=8, choices=Part.choices)
    means = models.JSONField(help_text="Measure → mean over the part's judged queries, unrounded.")
    judged_queries = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["evaluation", "part"], name="part_once_per_evaluation")
        ]

    def __str__(self) -> str:
        return f"{self.part} part of {self.evaluation}"


class EntryQuerySet(models.QuerySet["Entry"]):
    """Entries, by who may see them."""

    def public(self) -> Self:
        """Those on public boards. A dataset in preparation has none, whatever its entries say."""
        return self.listed().filter(visibility=Entry.Visibility.PUBLIC)

    def seen(self) -> Self:
        """Those that are on public boards or were: everyone may know of them."""
        return self.listed().filter(visibility__in=Entry.SEEN)

    def known(self) -> Self:
        """Those, and what stood on a competition's board until a better result of its team or submitter came."""
        return self.listed().filter(visibility__in=(*Entry.SEEN, Entry.Visibility.SUPERSEDED))

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
        QUARANTINED = "quarantined", "quarantined"
        UNPUBLISHED = "unpublished", "taken off the board by a curator"
        HELD = "held", "no significant change"
        SUPERSEDED = "superseded", "replaced by a better result of its team or submitter"

    #: Those that stand on a board, or leave their place and a reason there.
    SEEN = (Visibility.PUBLIC, Visibility.WITHDRAWN, Visibility.QUARANTINED)
    #: Those of which only a curator decides: nothing that a team does shows them.
    CURATED = (Visibility.QUARANTINED, Visibility.UNPUBLISHED, Visibility.HELD)

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
    visibility = models.CharField(max_length=12, choices=Visibility.choices, default=Visibility.PUBLIC)
    withdrawal_reason = models.CharField(max_length=300, blank=True)
    moderation_reason = models.CharField(
        max_length=300, blank=True, help_text="Why a curator took it off; public where it is quarantined."
    )
    private_scores = models.JSONField(
        default=dict,
        blank=True,
        help_text="Measure → published value over a competition's private part; empty until it is revealed.",
    )
    round = models.ForeignKey(
        "Round", null=True, blank=True, on_delete=models.PROTECT, related_name="entries"
    )
    late = models.BooleanField(default=False, help_text="It came after its round had closed.")
    pooled = models.BooleanField(default=False, help_text="Its run fed a pool that was judged.")
    run_type = models.CharField(max_length=10, blank=True, choices=RunType.choices)
    missing_queries = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Empty where that is not told (hidden judgements) or not known (reported).",
    )
    submission_reference = models.CharField(max_length=20, blank=True, db_index=True)
    submitter = models.ForeignKey(
        "User",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Who sent it, and so was told its scores: the Ladder asks, whatever team they join later.",
    )
    public_wanted = models.BooleanField(
        default=True, help_text="Of a held result: whether its team wants it shown once it is no longer held."
    )
    due_at = models.DateTimeField(
        null=True,
        blank=True,
        db_index=True,
        help_text="Of a held result: when it is looked at again, and told in its turn; empty: it stays held.",
    )
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
        permissions = [("moderate_entry", "Can quarantine and un-publish results, and merge systems")]

    def __str__(self) -> str:
        return f"{self.system} on {self.dataset}"

    @property
    def waits_for_its_turn(self) -> bool:
        """Whether it is told later, beyond a day's budget of its dataset."""
        return (
            self.visibility == Entry.Visibility.HELD
            and self.due_at is not None
            and self.due_at <= timezone.now()
        )


class Seed(models.Model):
    """One run of a seed set: it has no row of its own on boards. Written by `leaderboard.results.publishing`.

    `scores` are the published values; empty where the dataset's judgements are hidden, since a set tells its mean and
    deviation alone there, and where the entry is held.
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
