"""Sources and batches of the topics of rolling benchmarks. Written by `leaderboard.importing.topics`."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.urls import reverse
from django.utils import timezone
from simple_history.models import HistoricalRecords


class TopicSource(models.Model):
    """Source of the topics of a rolling benchmark."""

    class Generator(models.TextChoices):
        """Origin of the topics of new batches."""

        FILES = "files", "prepared files"
        STDLIB = "stdlib", "docstrings of Python's standard library"
        PACKAGES = "packages", "docstrings of Django, NumPy, and SciPy"

    slug = models.SlugField(max_length=60, unique=True, help_text="Name of the page in its URL: /rolling/slug/")
    name = models.CharField(max_length=100)
    generator = models.CharField(max_length=12, choices=Generator.choices, default=Generator.FILES)
    dataset = models.OneToOneField(
        "Dataset",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="topic_source",
        help_text="Open dataset with the corpus, which is the first batch. Leave this empty to let the generator "
        "create it.",
    )
    batch_size = models.PositiveIntegerField(
        default=300, validators=[MinValueValidator(10)], help_text="Topics per generated batch, for example 300."
    )
    interval_days = models.PositiveSmallIntegerField(
        default=90,
        validators=[MinValueValidator(1), MaxValueValidator(3650)],
        help_text="Days between two renewals, for example 90.",
    )
    hidden_batches = models.PositiveSmallIntegerField(
        default=1, validators=[MinValueValidator(1)], help_text="Batches that are hidden at the same time, usually 1."
    )
    next_at = models.DateTimeField(help_text="Time of the next renewal (UTC).")
    enabled = models.BooleanField(default=True, help_text="Renew on schedule.")

    history = HistoricalRecords()

    class Meta:
        ordering = ["name"]
        verbose_name = "rolling benchmark"

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("rolling_benchmark", args=[self.slug])

    @property
    def is_overdue(self) -> bool:
        """Whether the scheduled time has passed and the batch has not started."""
        return self.enabled and self.next_at < timezone.now()

    def clean(self) -> None:
        """Raise ValidationError for a batch of another source, or for a new dataset after a batch started."""
        started_batches = TopicBatch.objects.filter(source=self.pk).exclude(started_at=None)
        old_datasets = TopicSource.objects.filter(pk=self.pk).values_list("dataset", flat=True)
        if started_batches.exists() and self.dataset_id not in old_datasets:
            raise ValidationError({"dataset": "A batch has started, so the dataset can no longer change."})
        other_batch = TopicBatch.objects.exclude(dataset=None).exclude(source=self.pk).filter(dataset=self.dataset_id)
        if batch := other_batch.first():
            raise ValidationError({"dataset": f"This dataset is {batch}. Choose a dataset that is not a batch."})


class TopicBatch(models.Model):
    """A batch of topics: prepared, then hidden from `started_at`, then public from `revealed_at`."""

    source = models.ForeignKey(TopicSource, on_delete=models.CASCADE, related_name="batches")
    number = models.PositiveSmallIntegerField()
    #: Files in private storage until the batch starts.
    queries_sha256 = models.CharField(max_length=64, blank=True)
    qrels_sha256 = models.CharField(max_length=64, blank=True)
    dataset = models.OneToOneField(
        "Dataset", null=True, blank=True, on_delete=models.PROTECT, related_name="topic_batch"
    )
    started_at = models.DateTimeField(null=True, blank=True)
    revealed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["source", "number"]
        verbose_name_plural = "topic batches"
        constraints = [models.UniqueConstraint(fields=["source", "number"], name="one_batch_per_number")]

    def __str__(self) -> str:
        return f"{self.source}, batch {self.number}"

    @property
    def is_hidden(self) -> bool:
        """Whether its judgments are hidden. An import may also open them, without a reveal."""
        return self.dataset is None or self.dataset.hidden
