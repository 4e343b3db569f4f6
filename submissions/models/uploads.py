"""Files that come in pieces."""

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
            )
        ]

    def __str__(self) -> str:
        return f"{self.file_name or self.id} ({self.offset} of {self.length} bytes)"

    @property
    def expires_at(self) -> datetime:
        """The time at which the upload is given up, unless bytes come before."""
        return self.touched_at + timedelta(seconds=UPLOAD_LIFETIME_SECONDS)

    @property
    def api_path(self) -> str:
        """Where the API has it."""
        return reverse("api-upload", args=[self.pk])


class Checkpoint(models.Model):
    """A model that a team sent, validated and rebuilt: once per owner. Written by `checkpoints`.

    `sha256` is of the archive as it came, `model_sha256` of the rebuilt files, which lie under the team's own folder.
    """

    team = models.ForeignKey(
        "leaderboard.Team", null=True, blank=True, on_delete=models.PROTECT, related_name="checkpoints"
    )
    sha256 = models.CharField(max_length=64)
    model_sha256 = models.CharField(max_length=64)
    kind = models.CharField(max_length=24)
    description = models.JSONField(help_text="As evaluation.checkpoints.CheckpointDescription.")
    file_name = models.CharField(max_length=200)
    size = models.PositiveBigIntegerField(help_text="Bytes of the rebuilt files.")
    hub_name = models.CharField(max_length=200, blank=True)
    hub_commit = models.CharField(max_length=40, blank=True)
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
    """A dataset version's documents through one model with one setting, in shards. Written by `encodings`.

    `key` names what decides the bytes: model, corpus, engine, the parameters that matter, shard size, format, and the
    hardware class, device and threads of the workers. Jobs with the same key share the shards.
    """

    key = models.CharField(max_length=64, unique=True)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="encodings")
    version = models.ForeignKey(
        "leaderboard.DatasetVersion", on_delete=models.PROTECT, related_name="encodings"
    )
    engine = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict)
    format = models.PositiveSmallIntegerField(
        default=0,
        help_text="What engines wrote into its shards: SHARD_FORMAT then. 0: before they were numbered.",
    )
    shard_size = models.PositiveIntegerField()
    shards_expected = models.PositiveIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.checkpoint} over {self.version}"


class Shard(models.Model):
    """One encoded part of a corpus: a row that one job makes, done once its files are on shared storage."""

    encoding = models.ForeignKey(Encoding, on_delete=models.CASCADE, related_name="shards")
    number = models.PositiveIntegerField()
    job = models.OneToOneField(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="shard")
    documents = models.PositiveIntegerField(default=0)
    size = models.PositiveBigIntegerField(default=0, help_text="Bytes on storage.")
    manifest = models.CharField(
        max_length=64, blank=True, help_text="Checksum of its manifest, where a bucket has it."
    )
    seconds = models.FloatField(default=0.0, help_text="What encoding alone took.")
    hardware = models.CharField(max_length=160, blank=True, help_text="Slug of the hardware class.")
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["encoding", "number"], name="shard_once")]

    def __str__(self) -> str:
        return f"shard {self.number} of {self.encoding}"
