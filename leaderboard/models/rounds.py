"""Rounds of datasets and benchmarks. Written by curators in the admin, and by `leaderboard.rounds.lifecycle`."""

from __future__ import annotations

from typing import Self

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.urls import reverse
from simple_history.models import HistoricalRecords

from leaderboard.models.datasets import Dataset


class RoundQuerySet(models.QuerySet["Round"]):
    """Queries for rounds by visibility."""

    def listed(self) -> Self:
        """Return these rounds with their datasets; rounds of a dataset in preparation are omitted."""
        rounds = self.exclude(dataset__state=Dataset.State.PREPARING).select_related("dataset", "benchmark")
        return rounds.prefetch_related("benchmark__members__dataset")


class Round(models.Model):
    """A period for submitting runs on a dataset or all datasets of a benchmark, followed by a reveal of results.

    All times are in UTC. `leaderboard.rounds.lifecycle` determines the phase of a round.
    """

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True, help_text="Markdown")
    dataset = models.ForeignKey("Dataset", null=True, blank=True, on_delete=models.CASCADE, related_name="rounds")
    benchmark = models.ForeignKey("Benchmark", null=True, blank=True, on_delete=models.CASCADE, related_name="rounds")
    opens_at = models.DateTimeField(help_text="UTC")
    closes_at = models.DateTimeField(help_text="UTC")
    reveals_at = models.DateTimeField(help_text="Earliest time (UTC) at which a curator may reveal the results.")
    runs_per_team = models.PositiveSmallIntegerField(default=5, validators=[MinValueValidator(1)])
    visible_per_team = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1)],
        help_text="Number of results per team on the board of a competition.",
    )
    takes_late = models.BooleanField(default=True, help_text="Whether late runs are accepted and marked.")
    per_topic_at_reveal = models.BooleanField(
        default=True,
        help_text="Whether teams get scores per topic with best, median and worst at the reveal. These disclose much "
        "about hidden judgments, so do not use them if the judgments will be used again.",
    )
    revealed_at = models.DateTimeField(null=True, blank=True)
    revealed_by = models.ForeignKey("User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    announced = models.JSONField(default=dict, blank=True, help_text="Sent notices, with their times.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = RoundQuerySet.as_manager()
    history = HistoricalRecords(excluded_fields=["announced"])

    class Meta:
        ordering = ["-opens_at", "-pk"]
        constraints = [
            models.CheckConstraint(
                condition=Q(dataset=None, benchmark__isnull=False) | Q(dataset__isnull=False, benchmark=None),
                name="round_of_a_dataset_or_a_benchmark",
            ),
            models.CheckConstraint(
                condition=Q(opens_at__lt=F("closes_at")) & Q(closes_at__lte=F("reveals_at")),
                name="round_in_order",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("round", args=[self.slug])


class RoundSummary(models.Model):
    """Best, median and worst scores per topic over the runs of a round, computed by the scorer at the reveal.

    It discloses the judged queries, so only members of the round's teams may see it.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="summaries")
    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="round_summaries")
    qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="+")
    runs = models.PositiveIntegerField(help_text="Number of scored runs in time.")
    queries = models.JSONField(help_text="Ids of the judged queries, in the order of the judgments.")
    values = models.JSONField(help_text="Published best, median and worst values by measure and query.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "round summaries"
        constraints = [models.UniqueConstraint(fields=["round", "dataset"], name="summed_up_once")]

    def __str__(self) -> str:
        return f"{self.round}: {self.dataset}"
