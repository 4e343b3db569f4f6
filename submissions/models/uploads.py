"""Files that come in pieces."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.db import models
from django.urls import reverse


def new_upload_identifier() -> str:
    """Nobody guesses it: 32 letters and digits."""
    return secrets.token_hex(16)


class Upload(models.Model):
    """A file that comes in pieces, by the tus protocol: as many of its bytes as `offset` says are safe on disk.

    Written by `submissions.uploads.service`. A submission that takes the file takes the row away.
    """

    class Kind(models.TextChoices):
        """What the file is for, as submissions call it."""

        RUN = "run", "run file"
        MODEL = "model", "checkpoint"

    id = models.CharField(primary_key=True, max_length=32, default=new_upload_identifier, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="uploads")
    file_name = models.CharField(max_length=200, blank=True, help_text="What the sender called the file.")
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.RUN)
    metadata = models.CharField(
        max_length=1000, blank=True, help_text="Upload-Metadata as it was sent: HEAD repeats it."
    )
    length = models.PositiveBigIntegerField(help_text="Bytes that were announced.")
    offset = models.PositiveBigIntegerField(default=0, help_text="Bytes that have come and were synced.")
    sha256 = models.CharField(max_length=64, blank=True, help_text="Of the whole file, once it is here.")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(
        db_index=True, help_text="When bytes came last; unfinished ones expire."
    )
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(offset__lte=models.F("length")), name="upload_no_longer_than_announced"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.file_name or self.id} ({self.offset} of {self.length} bytes)"

    @property
    def api_path(self) -> str:
        """Where the API has it."""
        return reverse("api-upload", args=[self.pk])
