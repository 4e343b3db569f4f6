"""What decides the bytes of an encoded corpus, and whether there is room for them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Sum

from evaluation.core.errors import ModelFailure
from evaluation.engines.base import AUTO
from evaluation.engines.corpus_encoding import SHARD_FORMAT
from evaluation.engines.index.vector_index import bytes_of_vector
from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.models import DatasetVersion
from submissions.jobs.checkpoints.embedding_files import embeddings_root, is_remote
from submissions.models import Checkpoint, Job, Shard
from submissions.queue.lease import WorkEnded
from submissions.queue.lifecycle import write_log
from submissions.queue.queue import BACKOFF, requeue
from submissions.sandbox.processes import free_bytes

logger = logging.getLogger(__name__)

#: Said once, though the job looks again every minute.
_WAITS_FOR_ROOM = "The job waits for room."


@dataclass(frozen=True, slots=True)
class EncodingSetting:
    """What decides the bytes of encoded documents, and so which jobs share them.

    `parameters` are those that the engine names as its `encoding_parameters`; `hardware` is the slug of the machine's
    class. Embeddings stay with the owner of the checkpoint, as the checkpoint does.
    """

    checkpoint: Checkpoint
    version: DatasetVersion
    engine: str
    parameters: dict[str, Any]
    hardware: str
    device: str
    threads: int
    shard_size: int = field(default_factory=lambda: settings.SHARD_SIZE)

    @property
    def key(self) -> str:
        """The name of the embeddings: a sha256 over all of it."""
        what = {
            "format": SHARD_FORMAT,
            "owner": self.checkpoint.team_id,
            "model": self.checkpoint.model_sha256,
            "corpus": self.version.corpus_sha256,
            "engine": self.engine,
            "parameters": self.parameters,
            "hardware": self.hardware,
            "device": self.device,
            "threads": self.threads,
            "shard_size": self.shard_size,
        }
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    @property
    def documents(self) -> int:
        """How many documents the corpus has."""
        return int(self.version.statistics.get("documents", 0))

    @property
    def shards(self) -> int:
        """How many shards the corpus has, at least one."""
        return max(1, -(-self.documents // self.shard_size))

    @property
    def dimension(self) -> int:
        """Of the vectors; 0 where it is not known."""
        wanted = self.parameters.get("truncate_dimension")
        own = self.checkpoint.description.get("dimension")
        return int((own if wanted in (None, AUTO, 0) else wanted) or 0)

    @property
    def least_bytes(self) -> int:
        """What the vectors take at least: one of float32 for each document; 0 where their dimension is not known."""
        return self.documents * self.dimension * 4

    def least_index_bytes(self, parameters: Mapping[str, Any]) -> int:
        """What a search with all these parameters writes beside the vectors, at least: copies of them, for one.

        An index of lists is there twice while its groups become one.
        """
        stored = parameters.get("stored_dtype", "float32")
        copies = {"exact": int(stored != "float32"), "hnsw": 1, "ivf": 2}.get(parameters.get("search", ""), 0)
        return copies * self.documents * bytes_of_vector(self.dimension, stored)


class DiskTooSmall(WorkEnded):
    """The embeddings would not fit on this machine's disk now."""

    def __init__(self, needed: int, free: int) -> None:
        self.needed, self.free = needed, free
        super().__init__(f"{needed} bytes are needed, {free} are free")

    def settle(self, job: Job) -> None:
        """Put the job back for a while: an operator, or the sweep, makes room."""
        if requeue(job, counted=False, delay=BACKOFF[-1]) and _WAITS_FOR_ROOM not in job.log:
            needed, free = (f"{size / 2**30:,.1f} GiB" for size in (self.needed, self.free))
            write_log(
                job.pk, f"The embeddings take {needed} or more; {free} of disk are free. {_WAITS_FOR_ROOM}"
            )
            logger.error("job %s waits for room on the disk: %s", job.pk, self)


def require_room(setting: EncodingSetting, parameters: Mapping[str, Any]) -> None:
    """Raise DiskTooSmall where embeddings and index will not fit, rather than after hours of encoding.

    Raises ModelFailure where the index alone is more than a job may write.
    """
    index = setting.least_index_bytes(parameters)
    if index > settings.MODEL_OUTPUT_BYTES:
        raise ModelFailure("too_much_output", MODEL_FAILURES["too_much_output"].meaning)
    made = Shard.objects.filter(encoding__key=setting.key).exclude(done_at=None)
    found = made.aggregate(size=Sum("size", default=0), documents=Sum("documents", default=0))
    # Of several vectors a document the first shards say more than its one.
    expected = max(setting.least_bytes, setting.documents * found["size"] // max(found["documents"], 1))
    embeddings_root().mkdir(parents=True, exist_ok=True, mode=0o700)
    if embeddings_root().stat().st_dev == Path(settings.VAR).stat().st_dev:
        expected += index
    # What lies in a bucket has to be brought here, as all that is still to be made.
    require_free(expected - (0 if is_remote() else found["size"]))


def require_free(needed: int) -> None:
    """Raise DiskTooSmall where so many bytes of embeddings do not fit on this machine's disk."""
    free = max(free_bytes(embeddings_root()) - settings.DISK_RESERVE_BYTES, 0)
    if needed > free:
        raise DiskTooSmall(needed, free)
