"""Rounds of datasets and benchmarks. Written by curators in the admin, and by `leaderboard.rounds.lifecycle`."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.urls import reverse
from simple_history.models import HistoricalRecords


class Round(models.Model):
    """A time in which runs are taken for a dataset, or all of a benchmark's; at its end results are revealed.

    All times are UTC. `leaderboard.rounds.lifecycle` says in which phase a round is.
    """

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True, help_text="Markdown")
    dataset = models.ForeignKey(
        "Dataset", null=True, blank=True, on_delete=models.CASCADE, related_name="rounds"
    )
    benchmark = models.ForeignKey(
        "Benchmark", null=True, blank=True, on_delete=models.CASCADE, related_name="rounds"
    )
    opens_at = models.DateTimeField(help_text="UTC")
    closes_at = models.DateTimeField(help_text="UTC")
    reveals_at = models.DateTimeField(help_text="UTC: from then on a curator may reveal the results.")
    runs_per_team = models.PositiveSmallIntegerField(default=5, validators=[MinValueValidator(1)])
    visible_per_team = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1)],
        help_text="Results of one team that a competition's board shows at a time.",
    )
    takes_late = models.BooleanField(default=True, help_text="Runs that come later are taken, and marked.")
    per_topic_at_reveal = models.BooleanField(
        default=True,
        help_text="At the reveal each team gets its scores by topic beside best, median and worst. They tell much "
        "about hidden judgements: not where these will be used again.",
    )
    revealed_at = models.DateTimeField(null=True, blank=True)
    revealed_by = models.ForeignKey(
        "User", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    announced = models.JSONField(default=dict, blank=True, help_text="Which notices went out, and when.")
    created_at = models.DateTimeField(auto_now_add=True)

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
        """The round's page."""
        return reverse("round", args=[self.slug])


class RoundSummary(models.Model):
    """Best, median and worst by topic over the runs of a round on one dataset: made by the scorer at the reveal.

    Which queries are judged is known from here alone: for members of the round's teams, never for others.
    """

    round = models.ForeignKey(Round, on_delete=models.CASCADE, related_name="summaries")
    dataset = models.ForeignKey("Dataset", on_delete=models.CASCADE, related_name="round_summaries")
    qrels = models.ForeignKey("Qrels", on_delete=models.PROTECT, related_name="+")
    runs = models.PositiveIntegerField(help_text="Those that came in time and were scored.")
    queries = models.JSONField(help_text="Ids of the judged queries, in the order of the judgements.")
    values = models.JSONField(help_text="Measure → best, median and worst → published values by query.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "round summaries"
        constraints = [models.UniqueConstraint(fields=["round", "dataset"], name="summed_up_once")]

    def __str__(self) -> str:
        return f"{self.round}: {self.dataset}"
