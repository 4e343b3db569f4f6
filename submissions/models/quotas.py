"""Quota ledger of hidden datasets, and flags of runs that look like probes.

Written by `submissions.quotas.ledger` and `submissions.quotas.probes`; curators write exceptions in the admin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.functional import cached_property
from simple_history.models import HistoricalRecords

from leaderboard.core.text.numbers import DECIMALS, difference, format_value, signed


class QuotaUse(models.Model):
    """Ledger entry for a submission to a hidden dataset. It outlives the submission, so deleting does not refund quota.

    A refusal is an entry, too. It uses no quota, but the number of free refusals per day is limited.
    """

    class Kind(models.TextChoices):
        """Event that the ledger entry records."""

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
        indexes = [models.Index(fields=["dataset", "team", "at"]), models.Index(fields=["dataset", "person", "at"])]
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
    """A different quota for a team, on one dataset or on all, until a date. Written by curators."""

    team = models.ForeignKey("leaderboard.Team", on_delete=models.CASCADE, related_name="quota_exceptions")
    dataset = models.ForeignKey(
        "leaderboard.Dataset", null=True, blank=True, on_delete=models.CASCADE, related_name="quota_exceptions"
    )
    daily = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Submissions per day, such as 5. Leave empty for no limit."
    )
    monthly = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Submissions per calendar month, such as 20. Leave empty for no limit."
    )
    until = models.DateTimeField(
        null=True, blank=True, help_text="Time (UTC) when the exception ends. Leave empty for a permanent one."
    )
    reason = models.CharField(max_length=300)

    history = HistoricalRecords()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["team", "dataset"], name="one_exception_per_dataset"),
            models.UniqueConstraint(fields=["team"], condition=Q(dataset=None), name="one_exception_for_all_datasets"),
        ]

    def __str__(self) -> str:
        return f"{self.team} on {self.dataset or 'every hidden dataset'}"


class RunSignature(models.Model):
    """Fingerprint of each query's top documents, used to find near-duplicate runs without reading them."""

    run = models.OneToOneField("leaderboard.Run", on_delete=models.CASCADE, related_name="signature")
    submission = models.ForeignKey("Submission", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    tops = models.BinaryField(
        help_text="zlib-compressed uint64 per query, ordered by topic id; 0 for queries without results."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"signature of {self.run}"


class Flag(models.Model):
    """Reason why a run on a hidden dataset looks like a probe, for curators. Flagged runs are not rejected."""

    class Kind(models.TextChoices):
        """Pattern that was detected."""

        FEW_QUERIES = "few_queries", "few queries answered"
        FEW_DOCUMENTS = "few_documents", "few documents per query"
        NEARLY_THE_SAME = "nearly_the_same", "nearly the same as an earlier run"
        SAME_SCORES = "same_scores", "the same scores as an earlier run"

    class State(models.TextChoices):
        """Decision of the curator."""

        OPEN = "open", "open"
        CLEARED = "cleared", "cleared"
        CONFIRMED = "confirmed", "confirmed"

    kind = models.CharField(max_length=16, choices=Kind.choices)
    dataset = models.ForeignKey("leaderboard.Dataset", on_delete=models.CASCADE, related_name="flags")
    team = models.ForeignKey("leaderboard.Team", on_delete=models.CASCADE, related_name="flags")
    submission = models.ForeignKey("Submission", on_delete=models.CASCADE, related_name="flags")
    job = models.ForeignKey("Job", null=True, blank=True, on_delete=models.SET_NULL, related_name="flags")
    details = models.JSONField(default=dict, help_text="Figures that triggered the flag.")
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

    @cached_property
    def similar_runs(self) -> list[Any]:
        """Return the stored submissions that the run resembles, the most similar one first."""
        return self.find_similar_runs([self])[0]

    @classmethod
    def find_similar_runs(cls, flags: Sequence[Flag]) -> list[list[Any]]:
        """Find and store the `similar_runs` of all flags with one query."""
        keys = [[flag.details.get("submission"), *flag.details.get("chain", ())] for flag in flags]
        submissions = cls.submission.get_queryset(instance=cls())
        runs = submissions.select_related("system", "team", "submitter").in_bulk({*chain(*keys)} - {None})
        for flag, own_keys in zip(flags, keys, strict=True):
            flag.similar_runs = [runs[key] for key in dict.fromkeys(own_keys) if key in runs]
        return [flag.similar_runs for flag in flags]

    def compared_runs(self) -> list[Any]:
        """Return the flagged run and the run most similar to it, in the order of submission."""
        return sorted([self.submission, *self.similar_runs[:1]], key=attrgetter("created_at"))

    def compared_scores(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each measure with the newest scores of the `compared_runs`, the second one with the difference."""
        keys = [run.pk for run in self.compared_runs()]
        entries = self.dataset.entries.filter(submission_reference__in=keys).order_by("pk")
        scores = dict(entries.values_list("submission_reference", "scores"))
        for name in self.dataset.measures if scores else ():
            values = [scores.get(key, {}).get(name) for key in keys]
            texts = [format_value(value, DECIMALS) for value in values]
            if len(keys) > 1:
                texts[1] += f" ({signed(difference(values[1], values[0]), DECIMALS)})"
            yield name, texts
