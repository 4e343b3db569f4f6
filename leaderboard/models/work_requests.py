"""Requests for background work. Written by `leaderboard.core.work_requests`, processed by the dispatcher."""

from __future__ import annotations

from django.db import models


class WorkRequest(models.Model):
    """A request for work, created in the transaction that needs it; the dispatcher converts it into a job."""

    class Kind(models.TextChoices):
        """Kinds of work."""

        BASELINE = "baseline", "retrieve and score a dataset's baseline"
        RETRIEVE = "retrieve", "retrieve and score a configuration of the site"
        SCORE = "score", "score a stored run"
        CERTAINTY = "certainty", "compute intervals, tests and groups of a board"
        STATISTICS = "statistics", "profile a collection and its runs"
        SAMPLE_MODEL = "sample_model", "create the sample checkpoint and run it"
        POOL = "pool", "draw a pool for judging"
        MERGE = "merge", "compare new judgments with the current ones, or merge them"
        RESCORE = "rescore", "evaluate all stored runs on new judgments"
        PROTECT = "protect", "draw the parts of a competition"
        REVEAL = "reveal", "summarize a revealed round"
        NOTIFY = "notify", "notify users"
        SETTLE = "settle", "refund the quota of a failed job"
        RENEW = "renew", "start a new batch of topics"
        REPEAT = "repeat", "run earlier models on a new batch of topics"

    kind = models.CharField(max_length=12, choices=Kind.choices)
    dataset = models.ForeignKey(
        "Dataset",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="work_requests",
        help_text="Empty only for notices that do not concern a dataset.",
    )
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)
    taken_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} for {self.dataset}"
