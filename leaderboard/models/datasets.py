"""Test collections, their versions and judgments, and benchmarks.

Written by `leaderboard.importing.collections` (scored datasets) and `leaderboard.importing.reported` (reported ones).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.core.exceptions import ValidationError
from django.db import models
from django.urls import reverse
from simple_history.models import HistoricalRecords

from evaluation.text.languages import UnknownLanguage, language_code


class Visibility(models.TextChoices):
    """Audiences of a part of a dataset."""

    PUBLIC = "public", "everyone"
    ACCEPTED = "accepted", "users who accepted the agreement"
    PARTICIPANTS = "participants", "signed-in users"
    CURATORS = "curators", "curators only"


#: Visibility settings of a dataset, and the values that an agreement excludes.
VISIBILITIES = ("queries_visibility", "documents_visibility", "runs_visibility")
WITHOUT_AGREEMENT = (Visibility.PUBLIC, Visibility.PARTICIPANTS)


class Protection(models.TextChoices):
    """Policies that protect hidden judgments from being inferred from scores (docs/decisions/0017)."""

    STANDARD = "standard", "standard"
    COMPETITION = "competition", "competition"


class DatasetQuerySet(models.QuerySet["Dataset"]):
    """Queries for datasets by availability."""

    def listed(self) -> Self:
        return self.exclude(state=Dataset.State.PREPARING)

    def open_for_runs(self) -> Self:
        return self.filter(state__in=Dataset.TAKES_RUNS)


class Dataset(models.Model):
    """A test collection, with its content in versions and its judgments in qrels."""

    class State(models.TextChoices):
        """Publication states of a dataset."""

        REPORTED = "reported", "reported figures only"
        PREPARING = "preparing", "awaiting its baseline"
        PUBLISHED = "published", "published"
        COLLECTING = "collecting", "collecting runs, not judged yet"

    #: States in which submissions are accepted.
    TAKES_RUNS = (State.PUBLISHED, State.COLLECTING)

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    task = models.CharField(max_length=80, blank=True)
    domain = models.CharField(max_length=80, blank=True)
    language = models.CharField(max_length=16, default="en")
    licence = models.CharField(max_length=120, blank=True)
    homepage = models.URLField(blank=True)
    citation = models.TextField(blank=True)
    description = models.TextField(blank=True, help_text="Markdown")
    part_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="parts",
        help_text="Dataset whose score is the mean over its parts, such as CQADupStack.",
    )
    twin_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="twins",
        related_query_name="twin",
        help_text="Open dataset with the same corpus and comparable topics.",
    )
    ir_datasets_id = models.CharField(
        max_length=120,
        blank=True,
        help_text="Id in ir_datasets for the loading example: beir/nfcorpus/test.",
    )
    beir_name = models.CharField(max_length=80, blank=True, help_text="Name in BEIR for the loading example: nfcorpus.")
    state = models.CharField(max_length=12, choices=State.choices, default=State.PREPARING)

    hidden = models.BooleanField(default=True, help_text="Whether only the scorer has the test judgments.")
    protection = models.CharField(
        max_length=12,
        choices=Protection.choices,
        default=Protection.STANDARD,
        help_text="Policy on what submissions may reveal about hidden judgments.",
    )
    public_share = models.FloatField(
        default=1 / 3, help_text="Share of judged queries that the board of a competition uses."
    )
    daily_quota = models.PositiveSmallIntegerField(
        default=2,
        null=True,
        blank=True,
        help_text="Hidden judgments: submissions per day (UTC) of each user and each team, such as 2. Empty: no limit.",
    )
    monthly_quota = models.PositiveSmallIntegerField(
        default=10,
        null=True,
        blank=True,
        help_text="Hidden judgments: submissions per month (UTC) of each user and team, such as 10. Empty: no limit.",
    )
    runs_only = models.BooleanField(
        default=False, help_text="Select this if the dataset has no corpus. Only uploaded runs are then scored."
    )
    queries_visibility = models.CharField(max_length=12, choices=Visibility.choices, default=Visibility.PUBLIC)
    documents_visibility = models.CharField(max_length=12, choices=Visibility.choices, default=Visibility.PUBLIC)
    #: Visibility of runs of public results on open judgments; runs on hidden judgments are visible only to their
    #: team.
    runs_visibility = models.CharField(max_length=12, choices=Visibility.choices, default=Visibility.CURATORS)

    primary_measure = models.CharField(max_length=80, default="nDCG@10")
    measures = models.JSONField(default=list, help_text="Measures of the board, primary measure first.")
    relevance_level = models.PositiveSmallIntegerField(default=1)
    drop_self_matches = models.BooleanField(default=False)
    candidates_only = models.BooleanField(
        default=False,
        help_text="Re-ranking: only a query's judged documents are candidates and others are ignored.",
    )

    current_version = models.ForeignKey(
        "DatasetVersion", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    current_qrels = models.ForeignKey("Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    reported_statistics = models.JSONField(default=dict, blank=True)
    tags_sha256 = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of the tags of queries; empty if none."
    )
    board_revision = models.PositiveIntegerField(default=0, help_text="Number of changes of the board.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[models.Manager[Dataset]] = DatasetQuerySet.as_manager()
    history = HistoricalRecords(excluded_fields=["board_revision", "updated_at", "reported_statistics"])

    class Meta:
        ordering = ["name"]
        permissions = [
            ("read_qrels", "Can read hidden judgments (access is logged)"),
            ("judge_dataset", "Can draw pools, import judgments and rescore"),
            ("reveal_dataset", "Can reveal the private part of a competition"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(public_share__gt=0) & models.Q(public_share__lt=1),
                name="public_share_is_a_part",
            ),
            models.UniqueConstraint(
                fields=["twin_of"], condition=models.Q(twin_of__isnull=False), name="one_hidden_half"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save the row.

        An existing row keeps the board's revision and time, which only `board_changed` sets, unless `update_fields`
        names them.
        """
        if self.pk is not None and not self._state.adding and kwargs.get("update_fields") is None:
            kwargs["update_fields"] = [
                field.name
                for field in self._meta.concrete_fields
                if field.name not in ("id", "board_revision", "updated_at")
            ]
        super().save(*args, **kwargs)

    def get_absolute_url(self) -> str:
        return reverse("dataset", args=[self.slug])

    def clean(self) -> None:
        """Replace the language with its code. Raises ValidationError with suggestions for an unknown language."""
        try:
            self.language = language_code(self.language)
        except UnknownLanguage as error:
            raise ValidationError({"language": str(error)}) from error

    @property
    def has_public_texts(self) -> bool:
        return self.queries_visibility == self.documents_visibility == Visibility.PUBLIC

    @property
    def awaits_judgements(self) -> bool:
        """Whether runs are accepted but cannot be scored yet."""
        return self.state == Dataset.State.COLLECTING and self.current_qrels_id is None


class DatasetVersion(models.Model):
    """An immutable corpus and query set.

    `topics_sha256` identifies the queries that runs must answer. They depend on the judgments, which can change
    without the content, so a later import may replace them.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    label = models.CharField(max_length=80, blank=True)
    content_sha256 = models.CharField(
        max_length=64, help_text="SHA-256 of the checksums of corpus, queries and excluded documents."
    )
    corpus_sha256 = models.CharField(max_length=64, blank=True)
    queries_sha256 = models.CharField(max_length=64, help_text="SHA-256 of all queries.")
    topics_sha256 = models.CharField(
        max_length=64, help_text="SHA-256 of the queries that runs must answer, which may be all queries."
    )
    document_ids_sha256 = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of the memory-mapped id table."
    )
    excluded_sha256 = models.CharField(
        max_length=64,
        blank=True,
        help_text="SHA-256 of the documents to exclude from rankings, by query; empty if none.",
    )
    statistics = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["dataset", "number"], name="version_number_once"),
            models.UniqueConstraint(fields=["dataset", "content_sha256"], name="version_content_once"),
        ]

    def __str__(self) -> str:
        return f"{self.dataset} {self.label or f'version {self.number}'}"


class Qrels(models.Model):
    """Immutable judgments of a version and split, in private storage for the scorer only."""

    version = models.ForeignKey(DatasetVersion, on_delete=models.CASCADE, related_name="qrels")
    split = models.CharField(max_length=20, default="test")
    number = models.PositiveIntegerField(default=1)
    sha256 = models.CharField(max_length=64)
    parts_sha256 = models.CharField(
        max_length=64,
        blank=True,
        help_text="SHA-256 of the assignment of queries to parts, in private storage; empty if none.",
    )
    answers_sha256 = models.CharField(
        max_length=64,
        blank=True,
        help_text="SHA-256 of the answer strings of the queries, in private storage; empty if none.",
    )
    subtopics_sha256 = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of judgments by subtopic, if any."
    )
    labels_sha256 = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 of labels of answers, in private storage, if any."
    )
    made_from = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="made_into")
    note = models.CharField(max_length=300, blank=True, help_text="Additions of this version, and their origin.")
    statistics = models.JSONField(default=dict)
    judged_by = models.JSONField(
        default=dict,
        blank=True,
        help_text="Judges, their numbers of judgments, and their agreement; empty if unknown.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "qrels"
        constraints = [
            models.UniqueConstraint(fields=["version", "split", "number"], name="qrels_number_once"),
            models.UniqueConstraint(
                fields=["version", "split", "sha256", "answers_sha256", "subtopics_sha256", "labels_sha256"],
                name="qrels_content_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.version} {self.split} qrels v{self.number}"


class DatasetFile(models.Model):
    """A file offered on the dataset's page and in the API. It never contains hidden test judgments."""

    class Kind(models.TextChoices):
        """Kinds of files."""

        QUERIES = "queries", "queries"
        ALL_QUERIES = "all_queries", "all queries"
        CORPUS = "corpus", "corpus"
        DOCUMENT_IDS = "document_ids", "document ids"
        QRELS = "qrels", "judgments"
        CANDIDATES = "candidates", "candidates"
        EXCLUDED = "excluded", "excluded documents"
        EXAMPLE_RUN = "example_run", "example run"
        BROKEN_RUN = "broken_run", "example of a rejected run"
        EXAMPLE_MODEL = "example_model", "example checkpoint"
        REFUSED_MODEL = "refused_model", "example of a rejected checkpoint"

    version = models.ForeignKey(DatasetVersion, on_delete=models.CASCADE, related_name="files")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.CharField(max_length=120, help_text="File name of the download.")
    description = models.CharField(max_length=200, blank=True)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "name"], name="file_name_once")]
        ordering = ["kind", "name"]

    def __str__(self) -> str:
        return f"{self.version}: {self.name}"


class Benchmark(models.Model):
    """An ordered set of datasets, with aggregates over the counted ones."""

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True, help_text="Markdown")
    citation = models.TextField(blank=True)
    measure = models.CharField(max_length=80, default="nDCG@10")
    source = models.ForeignKey(
        "Source",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="benchmarks",
        help_text="Publication of the reported figures; empty for benchmarks with scored results only.",
    )
    datasets: models.ManyToManyField[models.Model, BenchmarkMember] = models.ManyToManyField(
        "Dataset", through="BenchmarkMember", related_name="benchmarks"
    )
    efficiency_from = models.ForeignKey(
        "Dataset",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Dataset whose measured costs the board shows. Default: the dataset that most systems share.",
    )
    position = models.PositiveSmallIntegerField(default=0)

    history = HistoricalRecords()

    class Meta:
        ordering = ["position", "name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("benchmark", args=[self.slug])


class BenchmarkMember(models.Model):
    """A dataset in a benchmark, counted in aggregates or only shown, optionally with a stand-in measure."""

    benchmark = models.ForeignKey(Benchmark, on_delete=models.CASCADE, related_name="members")
    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="memberships")
    position = models.PositiveSmallIntegerField(default=0)
    counted = models.BooleanField(default=True)
    stand_ins = models.JSONField(
        default=dict,
        blank=True,
        help_text='Measures that replace others on this dataset, for example {"R@100": "R_cap@100"}',
    )

    history = HistoricalRecords()

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["benchmark", "dataset"], name="dataset_once_in_benchmark")]

    def __str__(self) -> str:
        return f"{self.dataset} in {self.benchmark}"
