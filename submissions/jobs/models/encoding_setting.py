"""What decides the bytes of encoded documents."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from leaderboard.models import DatasetVersion
from submissions.models import Checkpoint


@dataclass(frozen=True, slots=True)
class Setting:
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
    def shards(self) -> int:
        """How many shards the corpus has, at least one."""
        return max(1, -(-int(self.version.statistics.get("documents", 0)) // self.shard_size))
