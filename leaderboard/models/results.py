"""Runs, their evaluations, and board entries.

Written by `leaderboard.results.records` and `leaderboard.results.publishing`.
"""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from leaderboard.models.datasets import Dataset


class RunType(models.TextChoices):
    """Types of runs: by human involvement in queries or ranking, as in TREC, and references for answers.

    Reference runs mark the range in which systems that retrieve and answer are expected.
    """

    AUTOMATIC = "automatic", "automatic"
    MANUAL = "manual", "manual"
    CLOSED_BOOK = "closed", "closed book (reference)"
    GOLD_EVIDENCE = "gold", "gold evidence (reference)"


#: Names of the types of runs that boards show without a rank.
REFERENCE_TYPES = {"closed": gettext_noop("closed book"), "gold": gettext_noop("gold evidence")}


def can_be_best(closed_api: object, run_type: str) -> bool:
    """Return whether a result can be the best of its board: neither a closed API's nor a reference."""
    return not closed_api and run_type not in REFERENCE_TYPES


class Run(models.Model):
    """A ranking for a dataset version, stored compressed under the SHA-256 of its text."""

    class Origin(models.TextChoices):
        """Origins of runs."""

        UPLOADED = "uploaded", "uploaded"
        RETRIEVED = "retrieved", "retrieved by Runboard"

    version = models.ForeignKey("DatasetVersion", on_delete=models.PROTECT, related_name="runs")
    system = models.ForeignKey("System", on_delete=models.PROTECT, related_name="runs")
    sha256 = models.CharField(max_length=64)
    configuration = models.CharField(max_length=80, blank=True, help_text="Seed or configuration label.")
    tag = models.CharField(max_length=120, blank=True)
    origin = models.CharField(max_length=10, choices=Origin.choices)
    size = models.PositiveBigIntegerField(help_text="Size of the text in bytes.")
    lines = models.PositiveBigIntegerField(default=0)
    metadata = models.JSONField(default=dict, blank=True)
    priority = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Priority for pooling among the team's runs; 1 is the highest."
    )
    round = models.ForeignKey("Round", null=True, blank=True, on_delete=models.PROTECT, related_name="runs")
    late = models.BooleanField(default=False, help_text="Whether it was submitted after its round had closed.")
    run_type = models.CharField(max_length=10, blank=True, choices=RunType.choices)
    submission_reference = models.CharField(max_length=20, blank=True, db_index=True)
    public = models.BooleanField(default=False, help_text="Whether it is listed publicly before there are judgments.")
    reusable = models.BooleanField(
        default=False, help_text="Whether others may re-rank or fuse it, with credit to its system."
    )
    built_from = models.ManyToManyField(
        "self",
        symmetrical=False,
        blank=True,
        related_name="used_by",
        help_text="Runs that it re-ranks or fuses.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["version", "system", "sha256", "configuration"], name="run_once")
        ]

    def __str__(self) -> str:
        return f"{self.system} on {self.version}"


class Evaluation(models.Model):
    """Evaluation of a run on judgments with a version of the measures. Append-only and unrounded."""

    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="evaluations")
    qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="evaluations")
    specification = models.CharField(max_length=20, help_text="Version of the measure specification.")
    measures = models.JSONField(help_text="Names of measures, in the order of the columns of `values`.")
    means = models.JSONField(help_text="Unrounded means over all judged queries, by measure.")
    values = models.BinaryField(
        help_text="float64 array, queries × measures, in the query order of the qrels, compressed with zlib."
    )
    judged_queries = models.PositiveIntegerField()
    missing_queries = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "qrels", "specification"], name="evaluation_once")]

    def __str__(self) -> str:
        return f"{self.run}, {self.qrels}"

    @property
    def is_answer_run(self) -> bool:
        """Whether the run is an answer run: no other runs have a score by CiteP."""
        return "CiteP" in self.measures


class EvaluationPart(models.Model):
    """Unrounded means of an evaluation over a part of the judged queries. Append-only.

    The scorer computes them, because only it can read the assignment of queries to parts.
    """

    class Part(models.TextChoices):
        """Parts of a competition: the public part on the board, and the private part revealed at the end of a round."""

        PUBLIC = "public", "public"
        PRIVATE = "private", "private"

    evaluation = models.ForeignKey(Evaluation, on_delete=models.CASCADE, related_name="parts")
    part = models.CharField(max_length=8, choices=Part.choices)
    means = models.JSONField(help_text="Unrounded means over the part's judged queries, by measure.")
    judged_queries = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["evaluation", "part"], name="part_once_per_evaluation")]

    def __str__(self) -> str:
        return f"{self.part} part of {self.evaluation}"


class EntryQuerySet(models.QuerySet["Entry"]):
    """Queries for entries by visibility."""

    def public(self) -> Self:
        """Return entries on public boards, except entries of datasets in preparation."""
        return self.listed().filter(visibility=Entry.Visibility.PUBLIC)

    def seen(self) -> Self:
        """Return entries that are or were on public boards."""
        return self.listed().filter(visibility__in=Entry.SEEN)

    def known(self) -> Self:
        """Return entries that are or were on public boards, including results superseded in a competition."""
        return self.listed().filter(visibility__in=(*Entry.SEEN, Entry.Visibility.SUPERSEDED))

    def listed(self) -> Self:
        return self.exclude(dataset__state=Dataset.State.PREPARING)


class Entry(models.Model):
    """Result of a system on a dataset, with everything that boards show.

    `scores` are the published values, which are rounded if the dataset's judgments are hidden. All pages, exports and
    API responses are based on them. Deltas are computed only within a `comparison_group` with a single baseline, so
    that reported and scored figures, or different versions, are never compared.
    """

    class Provenance(models.TextChoices):
        """Provenance of the scores."""

        REPORTED = "reported", _("reported")
        SCORED = "scored", _("uploaded")
        MEASURED = "measured", _("run by Runboard")

    class Visibility(models.TextChoices):
        """Visibility of an entry."""

        PUBLIC = "public", "public"
        PRIVATE = "private", "private"
        WITHDRAWN = "withdrawn", "withdrawn"
        QUARANTINED = "quarantined", "quarantined"
        UNPUBLISHED = "unpublished", "unpublished by a curator"
        HELD = "held", "no significant change"
        SUPERSEDED = "superseded", "replaced by a better result of its team or submitter"

    #: Visibilities with a row on the board, or with the reason for its removal.
    SEEN = (Visibility.PUBLIC, Visibility.WITHDRAWN, Visibility.QUARANTINED)
    #: Visibilities that only a curator can change.
    CURATED = (Visibility.QUARANTINED, Visibility.UNPUBLISHED, Visibility.HELD)

    class Training(models.TextChoices):
        """Relation of the system's training data to the dataset."""

        IN_DOMAIN = "in-domain", "in-domain"
        ADAPTED = "adapted", "adapted to the corpus without labels"
        ZERO_SHOT = "zero-shot", "zero-shot"
        UNDECLARED = "undeclared", "undeclared"

    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="entries")
    system = models.ForeignKey("System", on_delete=models.PROTECT, related_name="entries")
    evaluation = models.OneToOneField(Evaluation, null=True, blank=True, on_delete=models.PROTECT, related_name="entry")
    source = models.ForeignKey("Source", null=True, blank=True, on_delete=models.PROTECT, related_name="entries")
    provenance = models.CharField(max_length=10, choices=Provenance.choices)
    configuration = models.CharField(max_length=120, blank=True)
    scores = models.JSONField(help_text="Published values by measure; means over seeds for a seed set.")
    seed_count = models.PositiveSmallIntegerField(
        default=0, help_text="Number of runs of a seed set; 0 for a single run."
    )
    deviations = models.JSONField(
        default=dict, blank=True, help_text="Sample standard deviations (n − 1) over seeds, by measure."
    )
    figures = models.JSONField(default=list, blank=True, help_text="Reported figures other than scores.")
    facts = models.JSONField(
        default=dict,
        blank=True,
        help_text="Facts about the system, by names in evaluation.engines.FACTS.",
    )
    comparison_group = models.CharField(max_length=120)
    is_baseline = models.BooleanField(default=False)
    training = models.CharField(max_length=12, choices=Training.choices, default=Training.UNDECLARED)
    visibility = models.CharField(max_length=12, choices=Visibility.choices, default=Visibility.PUBLIC)
    withdrawal_reason = models.CharField(max_length=300, blank=True)
    moderation_reason = models.CharField(
        max_length=300,
        blank=True,
        help_text="Reason of a curator for removing it; public if it is quarantined.",
    )
    private_scores = models.JSONField(
        default=dict,
        blank=True,
        help_text="Published values on a competition's private part, by measure; empty before the reveal.",
    )
    round = models.ForeignKey("Round", null=True, blank=True, on_delete=models.PROTECT, related_name="entries")
    late = models.BooleanField(default=False, help_text="Whether it was submitted after its round had closed.")
    pooled = models.BooleanField(default=False, help_text="Whether its run contributed to a judged pool.")
    run_type = models.CharField(max_length=10, blank=True, choices=RunType.choices)
    missing_queries = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Empty if withheld (hidden judgments) or unknown (reported figures).",
    )
    submission_reference = models.CharField(max_length=20, blank=True, db_index=True)
    submitter = models.ForeignKey(
        "User",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="User who submitted it and saw its scores, which the Ladder considers even if they change teams.",
    )
    public_wanted = models.BooleanField(
        default=True, help_text="Whether the team wants a withheld result to be public once it is released."
    )
    due_at = models.DateTimeField(
        null=True,
        blank=True,
        db_index=True,
        help_text="Time at which a withheld result is reconsidered and queued; empty if it stays withheld.",
    )
    locator = models.CharField(max_length=80, blank=True, help_text="Location in the source, for example Table 2.")
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
        permissions = [("moderate_entry", "Can quarantine and unpublish results, and merge systems")]

    def __str__(self) -> str:
        return f"{self.system} on {self.dataset}"

    @property
    def waits_for_its_turn(self) -> bool:
        """Whether the entry will be released later, because it exceeds the daily budget of its dataset."""
        return self.visibility == Entry.Visibility.HELD and self.due_at is not None and self.due_at <= timezone.now()


class Seed(models.Model):
    """A run of a seed set, without a separate board row. Written by `leaderboard.results.publishing`.

    `scores` are the published values. They are empty for hidden judgments, for which only mean and deviation are
    published, and while the entry is withheld.
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
