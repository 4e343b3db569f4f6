"""Encode shards of a corpus, for whoever waits for them.

A process keeps the child that encodes from one shard to the next of the same encoding: starting Python and loading a
model take longer than a small shard does.
"""

import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from django.conf import settings
from django.db.models import Q

from evaluation.engines import describe
from evaluation.engines.corpus_encoding import SHARD_FORMAT
from evaluation.execution.job import SHARD_FOLDER, ExecutionJob
from leaderboard.core.storage.store import Area, local_path
from submissions.checkpoints.service import folder_of
from submissions.jobs.checkpoints.encodings import EncodedShard, finish_shard
from submissions.jobs.checkpoints.running import backend_for, device_of, job_folder, reporter, result_of
from submissions.jobs.kinds.score import begin
from submissions.models import Encoding, Job, Shard, State
from submissions.queue.lease import Cancelled, Lease
from submissions.queue.queue import claim
from submissions.sandbox.backends import SandboxLimits
from submissions.sandbox.running import ShardEncoder

#: For so many seconds after a process has begun with an encoding, its child has shards of it before anybody's turn.
#: Starting one takes 7 to 20: where several devices take turns with several corpora, they would do little else.
STAYS = 300.0


class WarmEncoder:
    """The child of this process that encodes, the encoding that it is for, and since when (on the monotonic clock).

    One that takes the place of a child that crashed has what is left of its time: it may crash as well.
    """

    def __init__(self) -> None:
        self._resources = ExitStack()
        self.encoding: int | None = None
        self._since = 0.0
        self._encoder: ShardEncoder | None = None

    def get(self, encoding: Encoding, device: str) -> ShardEncoder:
        """Return the child for this encoding; one for another encoding ends."""
        if self.encoding != encoding.pk:
            self.end_child()
            self.encoding, self._since = encoding.pk, time.monotonic()
        if self._encoder is None:
            folder = self._resources.enter_context(job_folder())
            self._encoder = _encoder(encoding, device, folder)
            self._resources.callback(self._encoder.close)
        return self._encoder

    def claim_next(self, queue: str, worker: str, permitted: Q) -> Job | None:
        """Return the next job of this process: a shard for the child that it has, else the one whose turn it is."""
        own = None
        if self._encoder is not None and time.monotonic() - self._since < STAYS:
            own = claim([queue], worker, permitted & Q(shard__encoding=self.encoding))
        return own or claim([queue], worker, permitted)

    def close(self) -> None:
        """End the child, if there is one: other work has come, or none."""
        self.encoding = None
        self.end_child()

    def end_child(self) -> None:
        """End the child, if there is one, and remove its folder."""
        self._encoder = None
        self._resources.close()


WARM = WarmEncoder()


def shard_job(job: Job, lease: Lease) -> None:
    """Encode the job's shard and keep it. Raises ModelFailure, ModelTimedOut, LeaseLost or Cancelled."""
    shard = (
        Shard.objects.select_related("encoding__checkpoint__team", "encoding__version")
        .filter(job=job.pk)
        .first()
    )
    if shard is None or shard.done_at is not None:
        raise Cancelled  # another job makes it now, or has made it
    begin(job, State.RETRIEVING, "loading")
    encoding = shard.encoding
    if encoding.format != SHARD_FORMAT:
        raise Cancelled  # by the version before: whoever waits has all shards made anew
    try:
        encoder = WARM.get(encoding, device_of(job))
        work = replace(encoder.job, shard=shard.number)
        report = reporter(lease, {"encoding": (work.shard_documents or 0, "documents")})
        with tempfile.TemporaryDirectory(dir=encoder.job.out.parent) as name:
            folder = Path(name) / SHARD_FOLDER
            outcome = encoder.encode(shard.number, folder, report)
            result = result_of(outcome, work, trusted=encoding.checkpoint.team is None)
            figures = result["shard"]
            encoded = EncodedShard(
                folder, figures["documents"], figures["seconds"], result["hardware"]["slug"]
            )
            finish_shard(job, shard, encoded, lease.report_stage)
    except BaseException:
        WARM.end_child()
        raise


def _encoder(encoding: Encoding, device: str, folder: Path) -> ShardEncoder:
    work = ExecutionJob(
        task="encode_shards",
        engine=encoding.engine,
        out=folder / "out",
        corpus=local_path(Area.FILES, encoding.version.corpus_sha256),
        documents=encoding.version.statistics.get("documents"),
        parameters=describe(encoding.engine).complete(encoding.parameters),
        checkpoint=folder_of(encoding.checkpoint),
        shard_size=encoding.shard_size,
        device=device,
        threads=settings.MODEL_THREADS,
        measure=False,
    )
    backend = backend_for(trusted=encoding.checkpoint.team is None)
    return ShardEncoder(backend, work, SandboxLimits.from_settings())
