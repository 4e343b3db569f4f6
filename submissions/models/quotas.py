"""What each team has had of a hidden dataset, and which of its runs look like probes.

Writers: `submissions.quotas` (the ledger; exceptions by curators, in the admin) and `submissions.quotas.probes`.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from simple_history.models import HistoricalRecords


class QuotaUse(models.Model):
    """One submission to one hidden dataset, in the ledger: it outlives the submission, so that deleting refunds none.

    A refusal is a row as well: it costs nothing, but there is a limit to how many a day are free.
    """

    class Kind(models.TextChoices):
        """What it was."""

        SUBMISSION = "submission", "submission"
        REFUSAL = "refusal", "refused file"

    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.SUBMISSION)
    dataset = models.ForeignKey("leaderboard.Dataset", on_delete=models.CASCADE, related_name="quota_uses")
    team = models.ForeignKey(
        "leaderboard.Team", null=True, blank=True, on_delete=models.PROTECT, related_name="quota_uses"
    )
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="quota_uses")
    submission = models.ForeignKey(
        "Submission", null=True, blank=True, on_delete=models.SET_NULL, related_name="quota_uses"
    )
    at = models.DateTimeField()
    refunded_at = models.DateTimeField(null=True, blank=True)
    refund_reason = models.CharField(max_length=120, blank=True)

    class Meta:
        ordering = ["-pk"]
        indexes = [
            models.Index(fields=["dataset", "team", "at"]),
            models.Index(fields=["dataset", "person", "at"]),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["submission", "dataset"],
                condition=Q(kind="submission", submission__isnull=False),
                name="counted_once_per_dataset",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.team} to {self.dataset}"


class QuotaException(models.Model):
    """Another quota for one team, on one dataset or on all, until a day. Written by curators."""

    team = models.ForeignKey("leaderboard.Team", on_delete=models.CASCADE, related_name="quota_exceptions")
    dataset = models.ForeignKey(
        "leaderboard.Dataset",
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="quota_exceptions",
    )
    daily = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Empty: no limit by day.")
    monthly = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Empty: no limit by month.")
    until = models.DateTimeField(null=True, blank=True, help_text="UTC; empty: for good.")
    reason = models.CharField(max_length=300)

    history = HistoricalRecords()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "dataset"], name="one_exception_per_dataset"),
            models.UniqueConstraint(
                fields=["team"], condition=Q(dataset=None), name="one_exception_for_all_datasets"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.team} on {self.dataset or 'every hidden dataset'}"


class RunSignature(models.Model):
    """A fingerprint of each query's first documents, so that nearly equal runs are found without reading them."""

    run = models.OneToOneField("leaderboard.Run", on_delete=models.CASCADE, related_name="signature")
    submission = models.ForeignKey(
        "Submission", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    tops = models.BinaryField(
        help_text="zlib of uint64 by query, in the order of the topics' ids; 0: no answer."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"signature of {self.run}"


class Flag(models.Model):
    """Why a run on a hidden dataset looks like a probe, for the curator. Nothing was refused because of it."""

    class Kind(models.TextChoices):
        """What was noticed."""

        FEW_QUERIES = "few_queries", "few queries answered"
        FEW_DOCUMENTS = "few_documents", "few documents per query"
        NEARLY_THE_SAME = "nearly_the_same", "nearly an earlier run"
        SAME_SCORES = "same_scores", "the same scores as an earlier run"

    class State(models.TextChoices):
        """What the curator made of it."""

        OPEN = "open", "open"
        CLEARED = "cleared", "cleared"
        CONFIRMED = "confirmed", "confirmed"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    dataset = models.ForeignKey("leaderboard.Dataset", on_delete=models.CASCADE, related_name="flags")
    team = models.ForeignKey("leaderboard.Team", on_delete=models.CASCADE, related_name="flags")
    submission = models.ForeignKey("Submission", on_delete=models.CASCADE, related_name="flags")
    job = models.ForeignKey("Job", null=True, blank=True, on_delete=models.SET_NULL, related_name="flags")
    details = models.JSONField(default=dict, help_text="The figures that gave rise to it.")
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN, db_index=True)
    note = models.CharField(max_length=300, blank=True)
    settled_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    settled_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [models.UniqueConstraint(fields=["job", "kind"], name="flagged_once_per_job")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.submission}"
