"""Test collections.

Written by `leaderboard.importing.collections` (scored) and `leaderboard.importing.reported` (reported ones).
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.core.exceptions import ValidationError
from django.db import models
from django.urls import reverse
from simple_history.models import HistoricalRecords

from evaluation.text.languages import UnknownLanguage, language_code


class Visibility(models.TextChoices):
    """Who may see a part of a dataset."""

    PUBLIC = "public", "everyone"
    ACCEPTED = "accepted", "people who accepted the agreement"
    PARTICIPANTS = "participants", "people who are signed in"
    CURATORS = "curators", "curators only"


#: The settings of a dataset that say who may see what, and their values that an agreement rules out.
VISIBILITIES = ("queries_visibility", "documents_visibility", "runs_visibility")
WITHOUT_AGREEMENT = (Visibility.PUBLIC, Visibility.PARTICIPANTS)


class Protection(models.TextChoices):
    """How hidden judgements are protected from being read off the scores (docs/decisions/0017)."""

    STANDARD = "standard", "standard"
    COMPETITION = "competition", "competition"


class DatasetQuerySet(models.QuerySet["Dataset"]):
    """Datasets, by what may be done with them."""

    def listed(self) -> Self:
        """Those with a public page."""
        return self.exclude(state=Dataset.State.PREPARING)

    def open_for_runs(self) -> Self:
        """Those that take submissions."""
        return self.filter(state__in=Dataset.TAKES_RUNS)


class Dataset(models.Model):
    """A test collection; its content is in versions, its judgements in qrels."""

    class State(models.TextChoices):
        """Where a dataset stands on its way to the public."""

        REPORTED = "reported", "reported figures only"
        PREPARING = "preparing", "waiting for its baseline"
        PUBLISHED = "published", "published"
        COLLECTING = "collecting", "collecting runs, not judged yet"

    #: The states in which submissions are taken.
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
        help_text="The dataset whose score is the mean of its parts' (a forum of CQADupStack).",
    )
    twin_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="twins",
        related_query_name="twin",
        help_text="The open dataset over the same corpus whose topics are of the same kind as this one's hidden ones.",
    )
    ir_datasets_id = models.CharField(max_length=120, blank=True, help_text="For the snippet that loads it.")
    beir_name = models.CharField(max_length=80, blank=True, help_text="For the snippet that loads it.")
    state = models.CharField(max_length=12, choices=State.choices, default=State.PREPARING)

    hidden = models.BooleanField(default=True, help_text="The test judgements stay with the scorer.")
    protection = models.CharField(
        max_length=12,
        choices=Protection.choices,
        default=Protection.STANDARD,
        help_text="Of hidden judgements: what a submission may learn of them.",
    )
    public_share = models.FloatField(
        default=1 / 3, help_text="Share of the judged queries that a competition's board shows."
    )
    daily_quota = models.PositiveSmallIntegerField(
        default=2,
        null=True,
        blank=True,
        help_text="Submissions a day, per person and per team, where judgements are hidden; empty: no limit.",
    )
    monthly_quota = models.PositiveSmallIntegerField(
        default=10, null=True, blank=True, help_text="The same by calendar month, UTC."
    )
    runs_only = models.BooleanField(default=False, help_text="No corpus is kept here; runs are scored.")
    queries_visibility = models.CharField(
        max_length=12, choices=Visibility.choices, default=Visibility.PUBLIC
    )
    documents_visibility = models.CharField(
        max_length=12, choices=Visibility.choices, default=Visibility.PUBLIC
    )
    #: Of public results on open judgements; a run over hidden ones is for its own team alone.
    runs_visibility = models.CharField(max_length=12, choices=Visibility.choices, default=Visibility.CURATORS)

    primary_measure = models.CharField(max_length=40, default="nDCG@10")
    measures = models.JSONField(default=list, help_text="Measures the board shows, the primary one first.")
    relevance_level = models.PositiveSmallIntegerField(default=1)
    drop_self_matches = models.BooleanField(default=False)
    candidates_only = models.BooleanField(
        default=False,
        help_text="Re-ranking: a query's judged documents are its candidates, others are passed over.",
    )

    current_version = models.ForeignKey(
        "DatasetVersion", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    current_qrels = models.ForeignKey(
        "Qrels", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    reported_statistics = models.JSONField(default=dict, blank=True)
    board_revision = models.PositiveIntegerField(default=0, help_text="Counts the changes of the board.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects: ClassVar[models.Manager[Dataset]] = DatasetQuerySet.as_manager()
    history = HistoricalRecords(excluded_fields=["board_revision", "updated_at", "reported_statistics"])

    class Meta:
        ordering = ["name"]
        permissions = [
            ("read_qrels", "Can read hidden judgements (each reading is logged)"),
            ("judge_dataset", "Can draw pools, import judgements and rescore"),
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
        """Write the row, but not the revision of its board, nor when that was: `board_changed` alone gives these."""
        if self.pk is not None and not self._state.adding and kwargs.get("update_fields") is None:
            kwargs["update_fields"] = [
                field.name
                for field in self._meta.concrete_fields
                if field.name not in ("id", "board_revision", "updated_at")
            ]
        super().save(*args, **kwargs)

    def get_absolute_url(self) -> str:
        """The dataset's page."""
        return reverse("dataset", args=[self.slug])

    def clean(self) -> None:
        """Replace the language with its code. Raises ValidationError with suggestions for an unknown one."""
        try:
            self.language = language_code(self.language)
        except UnknownLanguage as error:
            raise ValidationError({"language": str(error)}) from error

    @property
    def awaits_judgements(self) -> bool:
        """Whether runs are taken, and nothing can be scored yet."""
        return self.state == Dataset.State.COLLECTING and self.current_qrels_id is None


class DatasetVersion(models.Model):
    """An immutable corpus and query set.

    `topics_sha256` names those of the queries that a run is to answer. They follow the judgements, which come and
    change without the content: a later import may set them anew.
    """

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    label = models.CharField(max_length=80, blank=True)
    content_sha256 = models.CharField(
        max_length=64, help_text="Over the checksums of corpus, queries and excluded documents."
    )
    corpus_sha256 = models.CharField(max_length=64, blank=True)
    queries_sha256 = models.CharField(max_length=64, help_text="All queries.")
    topics_sha256 = models.CharField(
        max_length=64, help_text="The queries that a run is to answer; where these are all, the same file."
    )
    document_ids_sha256 = models.CharField(max_length=64, blank=True, help_text="The memory-mapped id table.")
    excluded_sha256 = models.CharField(
        max_length=64,
        blank=True,
        help_text="The documents that are left out of rankings, by query; empty: none.",
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
    """Immutable judgements for a version and split, kept in private storage and read by the scorer alone."""

    version = models.ForeignKey(DatasetVersion, on_delete=models.CASCADE, related_name="qrels")
    split = models.CharField(max_length=20, default="test")
    number = models.PositiveIntegerField(default=1)
    sha256 = models.CharField(max_length=64)
    parts_sha256 = models.CharField(
        max_length=64,
        blank=True,
        help_text="Which queries are public and which private, in private storage; empty: no parts were drawn.",
    )
    answers_sha256 = models.CharField(
        max_length=64,
        blank=True,
        help_text="The answer strings of the queries, in private storage; empty: none.",
    )
    made_from = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="made_into"
    )
    note = models.CharField(max_length=300, blank=True, help_text="What was added, and from where.")
    statistics = models.JSONField(default=dict)
    judged_by = models.JSONField(
        default=dict,
        blank=True,
        help_text="Which judges made how many, and how far they agree; empty: not named.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "qrels"
        constraints = [
            models.UniqueConstraint(fields=["version", "split", "number"], name="qrels_number_once"),
            models.UniqueConstraint(
                fields=["version", "split", "sha256", "answers_sha256"], name="qrels_content_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.version} {self.split} qrels v{self.number}"


class DatasetFile(models.Model):
    """A file that the dataset's page and API offer. Hidden test judgements are never among them."""

    class Kind(models.TextChoices):
        """What the file is."""

        QUERIES = "queries", "queries"
        ALL_QUERIES = "all_queries", "all queries"
        CORPUS = "corpus", "corpus"
        DOCUMENT_IDS = "document_ids", "document ids"
        QRELS = "qrels", "judgements"
        CANDIDATES = "candidates", "candidates"
        EXCLUDED = "excluded", "excluded documents"
        EXAMPLE_RUN = "example_run", "example run"
        BROKEN_RUN = "broken_run", "example of a rejected run"
        EXAMPLE_MODEL = "example_model", "example checkpoint"
        REFUSED_MODEL = "refused_model", "example of a refused checkpoint"

    version = models.ForeignKey(DatasetVersion, on_delete=models.CASCADE, related_name="files")
    kind = models.CharField(max_length=16, choices=Kind.choices)
    name = models.CharField(max_length=120, help_text="The name it is downloaded under.")
    description = models.CharField(max_length=200, blank=True)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["version", "name"], name="file_name_once")]
        ordering = ["kind", "name"]

    def __str__(self) -> str:
        return f"{self.version}: {self.name}"


class Benchmark(models.Model):
    """An ordered set of datasets with aggregates over those that count."""

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True, help_text="Markdown")
    citation = models.TextField(blank=True)
    measure = models.CharField(max_length=40, default="nDCG@10")
    source = models.ForeignKey(
        "Source",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="benchmarks",
        help_text="Where the reported figures come from; empty for a benchmark of scored results only.",
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
        help_text="The dataset whose measured costs the board shows; empty for the one that most systems share.",
    )
    position = models.PositiveSmallIntegerField(default=0)

    history = HistoricalRecords()

    class Meta:
        ordering = ["position", "name"]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """The benchmark's page."""
        return reverse("benchmark", args=[self.slug])


class BenchmarkMember(models.Model):
    """A dataset in a benchmark: counted in aggregates or only shown, perhaps with a stand-in measure."""

    benchmark = models.ForeignKey(Benchmark, on_delete=models.CASCADE, related_name="members")
    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="memberships")
    position = models.PositiveSmallIntegerField(default=0)
    counted = models.BooleanField(default=True)
    stand_ins = models.JSONField(
        default=dict,
        blank=True,
        help_text='Measures this dataset shows instead of others: {"R@100": "R_cap@100"}',
    )

    history = HistoricalRecords()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["benchmark", "dataset"], name="dataset_once_in_benchmark")
        ]

    def __str__(self) -> str:
        return f"{self.dataset} in {self.benchmark}"
