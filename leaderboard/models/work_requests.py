"""Work that the domain asks for. Written by `leaderboard.core.work_requests`, taken by the dispatcher."""

from __future__ import annotations

from django.db import models


class WorkRequest(models.Model):
    """A wish for work, made in the transaction that needs it; the dispatcher turns it into a job."""

    class Kind(models.TextChoices):
        """What is to be done."""

        BASELINE = "baseline", "retrieve and score a dataset's baseline"
        RETRIEVE = "retrieve", "retrieve and score a configuration of our own"
        SCORE = "score", "score a stored run"
        CERTAINTY = "certainty", "find intervals, tests and groups of a board"
        STATISTICS = "statistics", "profile a collection and what runs retrieve from it"
        SAMPLE_MODEL = "sample_model", "make the sample checkpoint, and run it"
        POOL = "pool", "draw a pool to be judged"
        MERGE = "merge", "hold new judgements against the present ones, or merge them"
        RESCORE = "rescore", "evaluate every stored run on new judgements"
        PROTECT = "protect", "draw a competition's parts"
        REVEAL = "reveal", "sum up a round that was revealed"
        NOTIFY = "notify", "tell people"
        SETTLE = "settle", "give back the quota of a job that came to nothing"

    kind = models.CharField(max_length=12, choices=Kind.choices)
    dataset = models.ForeignKey(
        "Dataset",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="work_requests",
        help_text="Empty only where people are told of what concerns no dataset.",
    )
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)
    taken_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.kind} for {self.dataset}"
