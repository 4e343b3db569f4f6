"""Run a child in the sandbox for a claimed job: its progress becomes the job's, its failure ours or its owner's.

A process keeps the child that encodes shards from one shard to the next of the same encoding: starting Python and
loading a model take longer than a small shard does.
"""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from evaluation.checkpoints.description import FILE_NAME, CheckpointDescription
from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import ModelFailure, Problem, Report
from evaluation.engines import describe
from evaluation.engines.corpus_encoding import SHARD_FORMAT
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import SHARD_FOLDER, ExecutionJob
from leaderboard.core.storage import shared
from leaderboard.core.storage.store import Area, local_path, sha256_of
from submissions import sandbox
from submissions.checkpoints.service import folder_of
from submissions.core.errors import CHECKPOINT_REFUSED
from submissions.jobs.checkpoints.embeddings import GRACE
from submissions.jobs.checkpoints.encodings import EncodedShard, finish_shard
from submissions.jobs.kinds.score import begin
from submissions.models import Checkpoint, Encoding, Job, Shard, State
from submissions.queue.lease import Cancelled, Lease, WorkEnded
from submissions.queue.queue import ATTEMPTS, advance, claim, requeue, write_log
from submissions.queue.workers import own_capability, reset_own_capability
from submissions.sandbox.backends import Backend, SandboxLimits, UnprotectedBackend
from submissions.sandbox.processes import remove, remove_old
from submissions.sandbox.running import SandboxOutcome, ShardEncoder, run_job
from submissions.sandbox.supervision import OnProgress

#: The file beside a checkpoint with the releases of the libraries that accepted it.
NOTE = "checked.txt"
#: Seconds in which the library must check a checkpoint.
CHECK_SECONDS = 60
_CHECK_LIMITS = {"memory_bytes": 2 << 30, "output_bytes": 1 << 20}


class ModelTimedOut(WorkEnded):
    """The child ran longer than a job may."""

    def settle(self, job: Job) -> None:
        """End the job."""
        report = failure_report("timed_out", MODEL_FAILURES["timed_out"].meaning).as_dict()
        line = "The job ran longer than it may and was stopped."
        advance(job.pk, State.TIMED_OUT, fence=job.fence, line=line, error_code="timed_out", report=report)


class ModelCrashed(WorkEnded):
    """The child of somebody's model ended, and left nothing that says why; `code` is one of MODEL_FAILURES."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)

    def settle(self, job: Job) -> None:
        """Try the job once more; then it ends as the model's affair, and counts as a run of it."""
        meaning = MODEL_FAILURES[self.code].meaning
        if job.payload.get("crashed") or job.attempts >= ATTEMPTS:
            reject_model(job, ModelFailure(self.code, meaning))
            return
        with transaction.atomic():
            Job.objects.filter(pk=job.pk, fence=job.fence).update(payload={**job.payload, "crashed": True})
            requeue(job, counted=True, line=f"{meaning} It is tried once more.")


class DamagedInput(RuntimeError):
    """What the store holds is not what it is named for, or is not there: our fault, whatever a model made of it."""


@contextmanager
def job_folder() -> Iterator[Path]:
    """A scratch folder for one job, on the same disk as the store, removed at the end."""
    work = Path(settings.VAR) / "work"
    work.mkdir(exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(dir=work))
    try:
        yield folder
    finally:
        remove(folder)  # a stranger wrote there: to any depth, under any mode


def sweep_work(grace: float = GRACE) -> int:
    """Remove the folders of jobs that killed processes have left on this host; return how many.

    A job takes no longer than its wall clock. Every shard of a child that encodes several is written into its folder.
    """
    folders = (Path(settings.VAR) / "work").glob("*")
    return remove_old(folders, max(grace, settings.JOB_WALL_CLOCK_SECONDS))


def device_of(job: Job) -> str:
    """What the workers of the job's queue compute on."""
    return "cuda" if job.queue == Job.Queue.GPU else "cpu"


def run_child(
    work: ExecutionJob,
    lease: Lease,
    *,
    counted: Mapping[str, tuple[int, str]] | None = None,
    trusted: bool = False,
) -> dict[str, Any]:
    """What the child left as its result, checked; its files lie in `work.out`.

    `counted`: what is counted in a stage, and of what, for notes such as "12,000 of 50,000 documents". `trusted`: the
    model is the site's own, which may run where no sandbox works. Raises ModelFailure, ModelTimedOut,
    ModelCrashed, RuntimeError for a fault of ours, and LeaseLost or Cancelled when the work must stop; nothing of
    the child lives on then. The child has nine tenths of the time that the job has left, so that what it found before
    can be scored: BM25 is measured behind a model.
    """
    limits = SandboxLimits.from_settings()
    limits = replace(limits, wall_clock_seconds=min(limits.wall_clock_seconds, 0.9 * lease.seconds_left))
    report = reporter(lease, counted or {})
    outcome = run_job(backend_for(trusted=trusted), work, limits, report)
    if outcome.unmeasured:
        write_log(lease.job.pk, f"{describe(work.engine).label} was not timed: {outcome.unmeasured}.")
    return result_of(outcome, work, trusted=trusted)


def backend_for(*, trusted: bool) -> Backend:
    """Return the sandbox; where none works, and the model is the site's own, none."""
    backend = sandbox.backend()
    return UnprotectedBackend() if trusted and not backend.available else backend


def reporter(lease: Lease, counted: Mapping[str, tuple[int, str]]) -> OnProgress:
    """Makes a child's progress the job's, as `run_child` says."""

    def report(stage: str, share: float, note: str) -> None:
        total, unit = counted.get(stage, (0, ""))
        lease.report_stage(stage, share, f"{int(share * total):,} of {total:,} {unit}" if total else note)

    return report


def result_of(outcome: SandboxOutcome, work: ExecutionJob, *, trusted: bool) -> dict[str, Any]:
    """Return the result of an outcome of the work that is "done". Raises as `run_child` for any other."""
    if outcome.kind == "done":
        return outcome.result
    if outcome.kind == "timed_out":
        raise ModelTimedOut
    if outcome.kind == "crashed":
        for path in filter(None, (work.corpus, work.queries, work.excluded)):
            if not path.is_file() or sha256_of(path) != path.name:
                raise DamagedInput(f"{path} is damaged, or not there")
    if outcome.kind in ("crashed", "model_failed"):
        _require_whole_checkpoint(work)
    if outcome.kind in ("crashed", "model_failed") and work.device == "cuda":
        reset_own_capability()
        if refusal := own_capability([Job.Queue.GPU]).refusal:
            raise RuntimeError(refusal)
    if outcome.kind == "crashed" and not trusted:
        raise ModelCrashed(outcome.failure_code)
    if outcome.kind == "crashed":
        raise RuntimeError(f"the child ended: {outcome.failure_code}, after {outcome.seconds:.0f} s")
    raise ModelFailure(outcome.failure_code, outcome.message)


def _require_whole_checkpoint(work: ExecutionJob) -> None:
    """Raise DamagedInput where this host lacks a file of the checkpoint: its team sent a whole one.

    A copy is removed, so that the next job on this host gets a whole one.
    """
    if work.checkpoint is None:
        return
    described = work.checkpoint / FILE_NAME
    files = CheckpointDescription.read(work.checkpoint).files if described.is_file() else (FILE_NAME,)
    if missing := [name for name in files if not (work.checkpoint / name).is_file()]:
        shared.remove_damaged_copy(work.checkpoint)
        raise DamagedInput(f"{work.checkpoint} lacks {', '.join(missing)}")


def reject_model(job: Job, failure: ModelFailure) -> None:
    """End the job: what the model did is its owner's affair. The report says what was found and what would be right."""
    line, code = f"The model cannot be used: {failure.message}", failure.code
    report = failure_report(code, failure.message).as_dict()
    advance(job.pk, State.REJECTED, fence=job.fence, line=line, error_code=code, report=report)


def failure_report(code: str, message: str) -> Report:
    """Return the report for a model that failed with this code."""
    text = MODEL_FAILURES[code]
    found = message if message == text.meaning else f"{text.meaning} Found: {message}"
    return Report((Problem("error", code, 1, found, text.remedy),))


# --- the library's own check


class CheckpointRefused(WorkEnded):
    """The library does not accept the checkpoint; the report says why. It costs no submission."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(CHECKPOINT_REFUSED)

    def settle(self, job: Job) -> None:
        """End the job, and those of its submission that wait: they would run the same checkpoint."""
        waiting = Job.objects.filter(submission__jobs=job, kind=job.kind, state=State.QUEUED)
        report = self.report.as_dict()
        for pk, fence in [(job.pk, job.fence), *waiting.values_list("pk", "fence")]:
            line = "The library does not take the checkpoint; nothing was run."
            advance(pk, State.REJECTED, fence=fence, line=line, error_code=CHECKPOINT_REFUSED, report=report)


def check_with_library(job: Job, lease: Lease, checkpoint: Checkpoint) -> None:
    """Have the library check a checkpoint that these releases of it have not seen.

    The typed values that were accepted are compared with the library's own classes. The child sees the checkpoint and
    nothing else, so its words can be shown to anybody. Raises CheckpointRefused, ModelCrashed, and as `run_job`.
    """
    note = folder_of(checkpoint) / NOTE
    if is_checked(note):
        return
    limits = SandboxLimits(wall_clock_seconds=CHECK_SECONDS, **_CHECK_LIMITS)
    with job_folder() as folder:
        work = ExecutionJob("check", "", folder / "out", checkpoint=note.parent, measure=False)
        outcome = run_job(
            backend_for(trusted=checkpoint.team_id is None),
            work,
            limits,
            lambda stage, share, text: lease.report_stage("checking", share, text),
        )
    if outcome.kind in ("timed_out", "memory", "disk", "processes"):
        what = f"{outcome.message} ({outcome.seconds:.0f} s)"
        raise CheckpointRefused(Report((Problem("error", "too_costly", 1, what, CODES["too_costly"]),)))
    if outcome.kind != "done":
        raise ModelCrashed(outcome.failure_code)
    report = Report(tuple(outcome.result["problems"]))
    for problem in report.problems:
        write_log(job.pk, problem.message)
    if not report.valid:
        raise CheckpointRefused(report)
    with suppress(OSError):  # it is asked again next time
        note.write_text(releases(), encoding="utf-8")


def is_checked(note: Path) -> bool:
    """Return whether these releases of the libraries accepted the checkpoint before."""
    return note.is_file() and note.read_text(encoding="utf-8") == releases()


def releases() -> str:
    """Return the versions of the libraries that check, as in the note beside a checkpoint that they accepted."""
    names = ("sentence-transformers", "tokenizers", "transformers")
    return "".join(f"{name} {version(name)}\n" for name in names)


# --- shards of a corpus, for the jobs that wait for them


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
