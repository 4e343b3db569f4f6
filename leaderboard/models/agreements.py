"""Agreements that users accept before downloads and submissions. Written by `submissions.accounts.approval`."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.urls import reverse
from simple_history.models import HistoricalRecords

from leaderboard.models.base import AppendOnly


class Agreement(models.Model):
    """The agreement of a dataset or round; its history contains earlier versions of the text."""

    dataset = models.OneToOneField("Dataset", null=True, blank=True, on_delete=models.CASCADE, related_name="agreement")
    round = models.OneToOneField("Round", null=True, blank=True, on_delete=models.CASCADE, related_name="agreement")
    text = models.TextField(
        help_text="Text in Markdown. Changing it creates a new version, which all users must accept again."
    )
    version = models.PositiveIntegerField(default=1)
    in_force = models.BooleanField(default=True, help_text="Whether users must accept the agreement.")
    needs_approval = models.BooleanField(
        default=False, help_text="Whether users must also be approved, or be on the list below."
    )
    listed = models.JSONField(default=list, blank=True, help_text="Email addresses that are approved automatically.")
    approved: models.ManyToManyField[models.Model, models.Model] = models.ManyToManyField(
        "User", blank=True, related_name="+"
    )
    settings_before = models.JSONField(
        default=dict,
        blank=True,
        help_text="Visibility settings of the dataset before the agreement was in force.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    history = HistoricalRecords(excluded_fields=["listed", "settings_before"])

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(dataset=None, round__isnull=False) | Q(dataset__isnull=False, round=None),
                name="agreement_of_a_dataset_or_a_round",
            )
        ]

    def __str__(self) -> str:
        return f"Agreement of {self.subject}"

    def get_absolute_url(self) -> str:
        """Return the URL at which users read and accept the agreement."""
        if self.dataset is not None:
            return reverse("dataset-agreement", args=[self.dataset.slug])
        assert self.round is not None
        return reverse("round-agreement", args=[self.round.slug])

    @property
    def subject(self) -> models.Model:
        """The dataset or the round."""
        subject = self.dataset or self.round
        assert subject is not None
        return subject


class Acceptance(AppendOnly):
    """Acceptance of a version of an agreement by a user."""

    agreement = models.ForeignKey(Agreement, on_delete=models.PROTECT, related_name="acceptances")
    person = models.ForeignKey("User", on_delete=models.PROTECT, related_name="acceptances")
    version = models.PositiveIntegerField()
    text_sha256 = models.CharField(max_length=64, help_text="SHA-256 of the accepted text.")
    accepted_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [models.UniqueConstraint(fields=["agreement", "person", "version"], name="version_accepted_once")]

    def __str__(self) -> str:
        return f"account {self.person_id}, {self.agreement}, version {self.version}"
