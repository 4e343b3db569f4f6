"""Run a child process in the sandbox for a claimed job, with progress and failures passed on to the job.

The child that encodes shards is reused for further shards of the same encoding, since starting Python and loading a
model take longer than a small shard does.
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
from leaderboard.core.storage.store import Area, file_sha256, local_path
from submissions import sandbox
from submissions.checkpoints.service import checkpoint_folder
from submissions.core.errors import CHECKPOINT_REFUSED
from submissions.jobs.checkpoints.embeddings import GRACE
from submissions.jobs.checkpoints.encodings import EncodedShard, finish_shard
from submissions.jobs.kinds.score import begin
from submissions.models import TERMINAL, Checkpoint, Encoding, Job, Shard, State
from submissions.queue.lease import Cancelled, Lease, WorkEnded
from submissions.queue.queue import ATTEMPTS, advance, claim, requeue, write_log
from submissions.queue.workers import own_capability, reset_own_capability
from submissions.sandbox.backends import Backend, SandboxLimits, UnprotectedBackend
from submissions.sandbox.processes import is_left_over, owner_prefix, remove, remove_old
from submissions.sandbox.running import SandboxOutcome, ShardEncoder, run_job
from submissions.sandbox.supervision import OnProgress

#: Prefix, before the job's id, of the folder with a job's rankings for its next attempt on this host.
RANKINGS = "rankings-"
#: File in a checkpoint's folder with the versions of the libraries that accepted it.
NOTE = "checked.txt"
#: Time limit in seconds for the library's check of a checkpoint.
CHECK_SECONDS = 60
_CHECK_LIMITS = {"memory_bytes": 2 << 30, "output_bytes": 1 << 20}


class ModelTimedOut(WorkEnded):
    """Raised when the child has exceeded the time limit of a job."""

    def settle(self, job: Job) -> None:
        report = failure_report("timed_out", MODEL_FAILURES["timed_out"].meaning).as_dict()
        line = "The job exceeded its time limit and was stopped."
        advance(job.pk, State.TIMED_OUT, fence=job.fence, line=line, error_code="timed_out", report=report)


class ModelCrashed(WorkEnded):
    """Raised when a model's child has ended without an explanation. `code` is one of MODEL_FAILURES."""

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(code)

    def settle(self, job: Job) -> None:
        """Retry the job once; a second crash is the model's fault and counts as a run."""
        meaning = MODEL_FAILURES[self.code].meaning
        if job.payload.get("crashed") or job.attempts >= ATTEMPTS:
            reject_model(job, ModelFailure(self.code, meaning))
            return
        with transaction.atomic():
            Job.objects.filter(pk=job.pk, fence=job.fence).update(payload={**job.payload, "crashed": True})
            requeue(job, counts_attempt=True, line=f"{meaning} The job is retried once.")


class DamagedInput(RuntimeError):
    """Error because a file in the store is missing or damaged, which is never the model's fault."""


@contextmanager
def job_folder() -> Iterator[Path]:
    """Yield a scratch folder on the disk of the store, and remove it at the end."""
    work = Path(settings.VAR) / "work"
    work.mkdir(exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix=owner_prefix(), dir=work))
    try:
        yield folder
    finally:
        remove(folder)  # untrusted code wrote there: handle any depth and mode


def sweep_work(grace: float = GRACE) -> int:
    """Remove old folders and folders of ended processes and jobs on this host. Return their number.

    Folders with an unknown owner must be older than a job's time limit. Children that encode several shards write to
    their folder for each shard.
    """
    folders = list((Path(settings.VAR) / "work").glob("*"))
    rankings = {name: path for path in folders if (name := path.name.removeprefix(RANKINGS)) != path.name}
    ended = Job.objects.filter(pk__in=rankings, state__in=TERMINAL).values_list("pk", flat=True) if rankings else ()
    left_over = [*(path for path in folders if is_left_over(path.name)), *(rankings[str(pk)] for pk in ended)]
    for path in left_over:
        remove(path)
    # Move folders before removing them: after an interruption, an unpacked image would be used without its lost files.
    with job_folder() as scratch:
        count = remove_old(folders, max(grace, settings.JOB_WALL_CLOCK_SECONDS), lambda p: p.rename(scratch / p.name))
    return len(left_over) + count


def get_device(job: Job) -> str:
    """Return the device of workers of the job's queue."""
    return "cuda" if job.queue == Job.Queue.GPU else "cpu"


def run_child(
    work: ExecutionJob,
    lease: Lease,
    *,
    totals: Mapping[str, tuple[int, str]] | None = None,
    trusted: bool = False,
) -> dict[str, Any]:
    """Run the child and return its checked result; its files are in `work.out`.

    The child may use nine tenths of the job's remaining time, so that its result can still be scored and BM25 measured.
    It has ended when this function returns or raises.

    Args:
        work: Work for the child.
        lease: Lease of the job.
        totals: Total and unit by stage, for notes such as "12,000 of 50,000 documents".
        trusted: Whether the model is the site's own, which may run without a working sandbox.

    Raises:
        ModelFailure: If the model fails.
        ModelTimedOut: If the time limit is exceeded.
        ModelCrashed: If the child ends without an explanation.
        RuntimeError: If the failure is our fault.
        LeaseLost: If the claim was lost.
        Cancelled: If cancellation was requested.
    """
    report = reporter(lease, totals or {})
    outcome = run_job(get_backend(trusted=trusted), work, job_limits(lease), report)
    if outcome.unmeasured:
        write_log(lease.job.pk, f"{describe(work.engine).label} was not timed: {outcome.unmeasured}.")
    return get_result(outcome, work, trusted=trusted)


def job_limits(lease: Lease) -> SandboxLimits:
    """Return the limits of a child. Its time limit is nine tenths of the job's remaining time."""
    limits = SandboxLimits.from_settings()
    return replace(limits, wall_clock_seconds=min(limits.wall_clock_seconds, 0.9 * lease.seconds_left))


def get_backend(*, trusted: bool) -> Backend:
    """Return the sandbox; if it is unavailable, return an unprotected backend for the site's own models."""
    backend = sandbox.backend()
    return UnprotectedBackend() if trusted and not backend.available else backend


def reporter(lease: Lease, totals: Mapping[str, tuple[int, str]]) -> OnProgress:
    """Return a callback that reports a child's progress on the lease, with notes as in `run_child`."""

    def report(stage: str, share: float, note: str) -> None:
        total, unit = totals.get(stage, (0, ""))
        lease.report_stage(stage, share, f"{int(share * total):,} of {total:,} {unit}" if total else note)

    return report


def get_result(outcome: SandboxOutcome, work: ExecutionJob, *, trusted: bool) -> dict[str, Any]:
    """Return the result of a successful outcome. Raises the exceptions of `run_child` for other outcomes.

    Before the model is blamed, the inputs, the checkpoint, and the GPU are checked.
    """
    if outcome.kind == "done":
        return outcome.result
    if outcome.kind == "timed_out":
        raise ModelTimedOut
    if outcome.kind == "crashed":
        for path in filter(None, (work.corpus, work.queries, work.excluded)):
            if not path.is_file() or file_sha256(path) != path.name:
                raise DamagedInput(f"{path} is missing or damaged")
    if outcome.kind in ("crashed", "model_failed") and work.checkpoint is not None:
        # It was complete when it was submitted. The next job on this host downloads a damaged copy again.
        description = work.checkpoint / FILE_NAME
        files = CheckpointDescription.read(work.checkpoint).files if description.is_file() else (FILE_NAME,)
        if missing_files := [name for name in files if not (work.checkpoint / name).is_file()]:
            shared.remove_damaged_copy(work.checkpoint)
            raise DamagedInput(f"{work.checkpoint} lacks {', '.join(missing_files)}")
    if outcome.kind in ("crashed", "model_failed") and work.device == "cuda":
        reset_own_capability()
        if refusal := own_capability([Job.Queue.GPU]).refusal:
            raise RuntimeError(refusal)
    if outcome.kind == "crashed" and not trusted:
        raise ModelCrashed(outcome.failure_code)
    if outcome.kind == "crashed":
        raise RuntimeError(f"The child ended with {outcome.failure_code} after {outcome.seconds:.0f} s.")
    raise ModelFailure(outcome.failure_code, outcome.message)


def reject_model(job: Job, failure: ModelFailure) -> None:
    """End the job because of the model, with a report of the finding and its remedy."""
    line, code = f"The model failed: {failure.message}", failure.code
    report = failure_report(code, failure.message).as_dict()
    advance(job.pk, State.REJECTED, fence=job.fence, line=line, error_code=code, report=report)


def failure_report(code: str, message: str) -> Report:
    """Return a report with the problem of this code, its remedy, and the message as details if it differs."""
    problem_code = MODEL_FAILURES[code]
    message_text = message if message == problem_code.meaning else f"{problem_code.meaning} Details: {message}"
    return Report((Problem("error", code, 1, message_text, problem_code.remedy),))


# --- check by the library


class CheckpointRefused(WorkEnded):
    """Refusal of a checkpoint by the library. The report states the reasons. No quota is used."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(CHECKPOINT_REFUSED)

    def settle(self, job: Job) -> None:
        """Reject the job and the waiting jobs of its submission, which would run the same checkpoint."""
        waiting_jobs = Job.objects.filter(submission__jobs=job, kind=job.kind, state=State.QUEUED)
        report = self.report.as_dict()
        for pk, fence in [(job.pk, job.fence), *waiting_jobs.values_list("pk", "fence")]:
            line = "The library cannot load the checkpoint. No run was produced."
            advance(pk, State.REJECTED, fence=fence, line=line, error_code=CHECKPOINT_REFUSED, report=report)


def check_with_library(job: Job, lease: Lease, checkpoint: Checkpoint) -> None:
    """Check a checkpoint with the library, unless the same versions accepted it before.

    The library compares the accepted values with its own classes. The child has access to the checkpoint only, so its
    output can be shown to users. Raises CheckpointRefused, ModelCrashed, and the exceptions of `run_job`.
    """
    note = checkpoint_folder(checkpoint) / NOTE
    if is_checked(note):
        return
    limits = SandboxLimits(wall_clock_seconds=CHECK_SECONDS, **_CHECK_LIMITS)
    with job_folder() as folder:
        work = ExecutionJob("check", "", folder / "out", checkpoint=note.parent, measure=False)
        outcome = run_job(
            get_backend(trusted=checkpoint.team_id is None),
            work,
            limits,
            lambda stage, share, text: lease.report_stage("checking", share, text),
        )
    if outcome.kind in ("timed_out", "memory", "disk", "processes"):
        finding = f"{outcome.message} ({outcome.seconds:.0f} s)"
        raise CheckpointRefused(Report((Problem("error", "too_costly", 1, finding, CODES["too_costly"]),)))
    if outcome.kind != "done":
        raise ModelCrashed(outcome.failure_code)
    report = Report(tuple(outcome.result["problems"]))
    for problem in report.problems:
        write_log(job.pk, problem.message)
    if not report.valid:
        raise CheckpointRefused(report)
    with suppress(OSError):  # the check is repeated next time
        note.write_text(releases(), encoding="utf-8")


def is_checked(note: Path) -> bool:
    """Return whether the installed versions of the libraries accepted the checkpoint before."""
    return note.is_file() and note.read_text(encoding="utf-8") == releases()


def releases() -> str:
    """Return the versions of the checking libraries, in the format of `NOTE`."""
    names = ("sentence-transformers", "tokenizers", "transformers")
    return "".join(f"{name} {version(name)}\n" for name in names)


# --- shards of a corpus, for the jobs that wait for them


#: Seconds for which a process prefers shards of the encoding that it has begun. Starting a child takes 7 to 20 s;
#: devices that alternate between corpora would otherwise spend most of their time on that.
PREFERENCE_SECONDS = 300.0


class WarmEncoder:
    """Child process of this worker for encoding, kept for the shards of one encoding.

    A child that replaces a crashed one gets only the remaining time, since it may crash too.
    """

    def __init__(self) -> None:
        self._resources = ExitStack()
        self.encoding: Encoding | None = None
        self._started_at = 0.0
        self._encoder: ShardEncoder | None = None

    def get(self, encoding: Encoding, device: str) -> ShardEncoder:
        """Return the child for this encoding, ending one for another encoding."""
        if self.encoding != encoding:
            self.end_child()
            self.encoding, self._started_at = encoding, time.monotonic()
        if self._encoder is None:
            self._encoder = create_encoder(encoding, device, self._resources.enter_context(job_folder()))
            self._resources.callback(self._encoder.close)
        return self._encoder

    def claim_next(self, queue: str, worker: str, job_filter: Q) -> Job | None:
        """Claim the next job: preferably a shard for the present child, else the first job in the queue."""
        shard_job = None
        if self._encoder is not None and time.monotonic() - self._started_at < PREFERENCE_SECONDS:
            shard_job = claim([queue], worker, job_filter & Q(shard__encoding=self.encoding))
        return shard_job or claim([queue], worker, job_filter)

    def close(self) -> None:
        """End the child because no further shard of its encoding follows."""
        self.encoding = None
        self.end_child()

    def end_child(self) -> None:
        """End the child and remove its folder."""
        self._encoder = None
        self._resources.close()


WARM_ENCODER = WarmEncoder()


def shard_job(job: Job, lease: Lease) -> None:
    """Encode the job's shard and store it.

    Raises ModelFailure, ModelTimedOut, ModelCrashed, LeaseLost, or Cancelled, also if the shard is already stored or
    belongs to an outdated format.
    """
    shard = Shard.objects.filter(job=job.pk).first()
    if shard is None or shard.done_at is not None:
        raise Cancelled  # another job encodes the shard, or has done so
    begin(job, State.RETRIEVING, "loading")
    encoding = WARM_ENCODER.encoding  # These columns of an encoding never change.
    if encoding is None or encoding.pk != shard.encoding_id:
        encoding = Encoding.objects.select_related("checkpoint__team", "version").get(pk=shard.encoding_id)
    shard.encoding = encoding
    if encoding.format != SHARD_FORMAT:
        raise Cancelled  # created by an earlier version: waiting jobs have all shards encoded again
    try:
        encoder = WARM_ENCODER.get(encoding, get_device(job))
        work = replace(encoder.job, shard=shard.number)
        report = reporter(lease, {"encoding": (work.shard_documents or 0, "documents")})
        with tempfile.TemporaryDirectory(dir=encoder.job.out.parent) as name:
            folder = Path(name) / SHARD_FOLDER
            outcome = encoder.encode(shard.number, folder, report)
            result = get_result(outcome, work, trusted=encoding.checkpoint.team is None)
            figures = result["shard"]
            encoded_shard = EncodedShard(folder, figures["documents"], figures["seconds"], result["hardware"]["slug"])
            finish_shard(job, shard, encoded_shard, lease.report_stage)
    except BaseException:
        WARM_ENCODER.end_child()
        raise


def create_encoder(encoding: Encoding, device: str, folder: Path) -> ShardEncoder:
    """Return an encoder of the encoding's shards, which works in `folder`. Its child starts with the first shard.

    It may run without a working sandbox if the checkpoint is the site's own.
    """
    work = ExecutionJob(
        task="encode_shards",
        engine=encoding.engine,
        out=folder / "out",
        corpus=local_path(Area.FILES, encoding.version.corpus_sha256),
        documents=encoding.version.statistics.get("documents"),
        parameters=describe(encoding.engine).complete(encoding.parameters),
        checkpoint=checkpoint_folder(encoding.checkpoint),
        shard_size=encoding.shard_size,
        device=device,
        threads=settings.MODEL_THREADS,
        measure=False,
    )
    backend = get_backend(trusted=encoding.checkpoint.team is None)
    return ShardEncoder(backend, work, SandboxLimits.from_settings())
