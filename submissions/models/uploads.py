"""Resumable uploads, checkpoints, and encodings."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse

from submissions.models.work import Job

#: Seconds without new bytes after which an upload is deleted.
UPLOAD_LIFETIME_SECONDS = 24 * 3600


def new_upload_identifier() -> str:
    return secrets.token_hex(16)


class Upload(models.Model):
    """A resumable upload (tus protocol). The first `offset` bytes are safe on disk.

    Written by `submissions.uploads.service`. A submission that uses the file deletes the row.
    """

    class Kind(models.TextChoices):
        """Purpose of the file, as submissions name it."""

        RUN = "run", "run file"
        MODEL = "model", "checkpoint"

    id = models.CharField(primary_key=True, max_length=32, default=new_upload_identifier, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="uploads")
    file_name = models.CharField(max_length=200, blank=True, help_text="File name sent by the client.")
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.RUN)
    metadata = models.CharField(max_length=1000, blank=True, help_text="Upload-Metadata as received; HEAD returns it.")
    length = models.PositiveBigIntegerField(help_text="Announced number of bytes.")
    offset = models.PositiveBigIntegerField(default=0, help_text="Number of bytes received and synced.")
    sha256 = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the file, once it is complete.")
    created_at = models.DateTimeField(auto_now_add=True)
    touched_at = models.DateTimeField(
        db_index=True, help_text="Time of the last received bytes. Unfinished uploads expire after a day."
    )
    completed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(offset__lte=models.F("length")), name="upload_no_longer_than_announced"
            )
        ]

    def __str__(self) -> str:
        return f"{self.file_name or self.id} ({self.offset} of {self.length} bytes)"

    @property
    def expires_at(self) -> datetime:
        """Time when the upload is deleted unless more bytes arrive."""
        return self.touched_at + timedelta(seconds=UPLOAD_LIFETIME_SECONDS)

    @property
    def api_path(self) -> str:
        return reverse("api-upload", args=[self.pk])


class Checkpoint(models.Model):
    """A team's model, validated and rebuilt, stored once per owner. Written by `checkpoints`.

    `sha256` is the hash of the uploaded archive, `model_sha256` that of the rebuilt files, which are in the team's
    folder.
    """

    team = models.ForeignKey(
        "leaderboard.Team", null=True, blank=True, on_delete=models.PROTECT, related_name="checkpoints"
    )
    sha256 = models.CharField(max_length=64)
    model_sha256 = models.CharField(max_length=64)
    kind = models.CharField(max_length=24)
    description = models.JSONField(help_text="Fields of evaluation.checkpoints.CheckpointDescription.")
    file_name = models.CharField(max_length=200)
    size = models.PositiveBigIntegerField(help_text="Size of the rebuilt files in bytes.")
    hub_name = models.CharField(max_length=200, blank=True)
    hub_commit = models.CharField(max_length=71, blank=True, help_text="Commit of a model, or digest of an image.")
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["team", "sha256", "kind"], name="checkpoint_once_per_team"),
            models.UniqueConstraint(
                fields=["sha256", "kind"], condition=Q(team=None), name="checkpoint_once_of_the_house"
            ),
        ]

    def __str__(self) -> str:
        return self.file_name


class Encoding(models.Model):
    """A dataset version's documents encoded by one model with one configuration, in shards. Written by `encodings`.

    `key` identifies everything that affects the bytes: model, corpus, engine, relevant parameters, shard size,
    format, and the workers' hardware class, device, and number of threads. Jobs with the same key share the shards.
    """

    key = models.CharField(max_length=64, unique=True)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="encodings")
    version = models.ForeignKey("leaderboard.DatasetVersion", on_delete=models.PROTECT, related_name="encodings")
    engine = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict)
    format = models.PositiveSmallIntegerField(
        default=0,
        help_text="SHARD_FORMAT of the engines that wrote the shards. 0: written before formats were numbered.",
    )
    shard_size = models.PositiveIntegerField()
    shards_expected = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.checkpoint} over {self.version}"


class Shard(models.Model):
    """One encoded part of a corpus. One job encodes it; it is done once its files are on shared storage."""

    encoding = models.ForeignKey(Encoding, on_delete=models.CASCADE, related_name="shards")
    number = models.PositiveIntegerField()
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="shard")
    documents = models.PositiveIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0, help_text="Size on storage in bytes.")
    manifest = models.CharField(
        max_length=64, blank=True, help_text="Checksum of the manifest, if the shard is in a bucket."
    )
    seconds = models.FloatField(default=0.0, help_text="Duration of encoding in seconds, without transfers.")
    hardware = models.CharField(max_length=160, blank=True, help_text="Slug of the hardware class.")
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["encoding", "number"], name="shard_once")]

    def __str__(self) -> str:
        return f"shard {self.number} of {self.encoding}"
