"""What people accept before they download a dataset or submit to it. Written by `submissions.accounts.approval`."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.urls import reverse
from simple_history.models import HistoricalRecords


class Agreement(models.Model):
    """The agreement of a dataset or of a round; its history has the earlier versions of the text."""

    dataset = models.OneToOneField(
        "Dataset", null=True, blank=True, on_delete=models.CASCADE, related_name="agreement"
    )
    round = models.OneToOneField(
        "Round", null=True, blank=True, on_delete=models.CASCADE, related_name="agreement"
    )
    text = models.TextField(
        help_text="Markdown. A changed text is a new version, which everyone accepts anew."
    )
    version = models.PositiveIntegerField(default=1)
    in_force = models.BooleanField(default=True, help_text="Off: nobody is asked.")
    needs_approval = models.BooleanField(
        default=False, help_text="Besides accepting it, a person must be approved or be on the list below."
    )
    listed = models.JSONField(
        default=list, blank=True, help_text="E-mail addresses that are approved at once."
    )
    approved: models.ManyToManyField[models.Model, models.Model] = models.ManyToManyField(
        "User", blank=True, related_name="+"
    )
    settings_before = models.JSONField(
        default=dict, blank=True, help_text="Who could see what of the dataset before it was in force."
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
        """The page where it is read and accepted."""
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


class Acceptance(models.Model):
    """One person accepted one version of an agreement. Append-only."""

    agreement = models.ForeignKey(Agreement, on_delete=models.PROTECT, related_name="acceptances")
    person = models.ForeignKey("User", on_delete=models.PROTECT, related_name="acceptances")
    version = models.PositiveIntegerField()
    text_sha256 = models.CharField(max_length=64, help_text="Of the text that was accepted.")
    accepted_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]
        constraints = [
            models.UniqueConstraint(fields=["agreement", "person", "version"], name="version_accepted_once")
        ]

    def __str__(self) -> str:
        return f"account {self.person_id}, {self.agreement}, version {self.version}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Write a new row. Raises TypeError for one that is there: acceptances are never changed."""
        if not self._state.adding:
            raise TypeError("acceptances are append-only")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raises TypeError: acceptances stay."""
        raise TypeError("acceptances are append-only")
