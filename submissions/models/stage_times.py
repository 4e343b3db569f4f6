"""How long work takes, stage by stage, as counts that metrics are made of."""

from __future__ import annotations

from django.db import models


class StageTime(models.Model):
    """One bucket of a histogram: how many times a stage of this kind of job took at most `limit` seconds.

    The bucket without a limit counts all of them, and has the sum of their seconds. Written by
    `submissions.queue.stage_timer`.
    """

    kind = models.CharField(max_length=12, help_text="Job.Kind")
    stage = models.CharField(max_length=20)
    limit = models.FloatField(help_text="Seconds; 0 stands for no limit.")
    count = models.PositiveBigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)

    class Meta:
        ordering = ["kind", "stage", "limit"]
        constraints = [
            models.UniqueConstraint(fields=["kind", "stage", "limit"], name="one_bucket_of_a_stage"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.stage} ≤ {self.limit or '∞'} s: {self.count}"
