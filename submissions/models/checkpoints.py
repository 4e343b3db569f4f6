"""Models that teams sent, and what was encoded with them."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from submissions.models.work import Job


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

    `key` names what decides the bytes: model, corpus, engine, the parameters that matter, shard size, and the hardware
    class, device and threads of the workers. Jobs with the same key share the shards.
    """

    key = models.CharField(max_length=64, unique=True)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="encodings")
    version = models.ForeignKey(
        "leaderboard.DatasetVersion", on_delete=models.PROTECT, related_name="encodings"
    )
    engine = models.CharField(max_length=40)
    parameters = models.JSONField(default=dict)
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
    seconds = models.FloatField(default=0.0, help_text="What encoding alone took.")
    hardware = models.CharField(max_length=160, blank=True, help_text="Slug of the hardware class.")
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["number"]
        constraints = [models.UniqueConstraint(fields=["encoding", "number"], name="shard_once")]

    def __str__(self) -> str:
        return f"shard {self.number} of {self.encoding}"
