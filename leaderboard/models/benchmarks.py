"""Ordered sets of datasets. Written by `leaderboard.importing.reported` and curators in the admin."""

from __future__ import annotations

from django.db import models
from django.urls import reverse
from simple_history.models import HistoricalRecords


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
