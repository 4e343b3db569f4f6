"""Measured costs of systems, and prices.

Written by `leaderboard.results.efficiency`; prices by curators in the admin.
"""

from __future__ import annotations

from django.db import models
from simple_history.models import HistoricalRecords


class HardwareClass(models.Model):
    """Machines with comparable timings: same CPU model, number of cores, GPU, and library versions."""

    slug = models.SlugField(max_length=160, unique=True)
    name = models.CharField(max_length=200)
    details = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    history = HistoricalRecords()

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "hardware classes"

    def __str__(self) -> str:
        return self.name


class Measurement(models.Model):
    """Cost of an entry's system on a hardware class, with the cost of BM25 on the same machine in the same job.

    `figures` and `baseline` contain results of `evaluation.efficiency`. There is one measurement per hardware class
    and protocol; a new one replaces it.
    """

    entry = models.ForeignKey("Entry", on_delete=models.CASCADE, related_name="measurements")
    hardware = models.ForeignKey(HardwareClass, on_delete=models.PROTECT, related_name="measurements")
    protocol = models.CharField(max_length=20)
    figures = models.JSONField()
    baseline = models.JSONField(default=dict, blank=True)
    measured_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["entry", "hardware", "protocol"], name="measured_once_per_class")
        ]

    def __str__(self) -> str:
        return f"{self.entry} on {self.hardware}"


class Price(models.Model):
    """Hourly price of a hardware class from a day on."""

    hardware = models.ForeignKey(HardwareClass, on_delete=models.CASCADE, related_name="prices")
    per_hour = models.DecimalField(max_digits=10, decimal_places=4)
    currency = models.CharField(max_length=3, default="USD")
    valid_from = models.DateField()
    note = models.CharField(max_length=200, blank=True, help_text="Source of the price.")

    history = HistoricalRecords()

    class Meta:
        ordering = ["hardware", "-valid_from"]
        constraints = [
            models.UniqueConstraint(fields=["hardware", "valid_from"], name="one_price_per_day"),
            models.CheckConstraint(condition=models.Q(per_hour__gte=0), name="price_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.hardware}: {self.per_hour} {self.currency} from {self.valid_from}"
