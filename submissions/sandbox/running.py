"""Execution of jobs in sandboxes: a complete job, or shards encoded one after another by the same child."""

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from django.conf import settings

from evaluation.efficiency.hardware import own_gpu
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import (
    EXIT_DISK_FULL,
    EXIT_MODEL_FAILED,
    EXIT_OUT_OF_MEMORY,
    RESULT_NAME,
    SHARD_FOLDER,
    ExecutionJob,
)
from evaluation.execution.outcome import InvalidOutcome, read_failure, read_result
from evaluation.kernel.building import cache_folder
from submissions.sandbox.backends import (
    CACHE,
    NOBODY_UID,
    Backend,
    Mount,
    Program,
    SandboxedProcess,
    SandboxLimits,
    SandboxUnavailable,
    interpreter,
)
from submissions.sandbox.machine_lock import MachineLock
from submissions.sandbox.processes import disk_usage, remove, remove_unexpected_files
from submissions.sandbox.supervision import Breach, OnProgress, Supervision, require_free_disk

logger = logging.getLogger(__name__)

Kind = Literal["done", "model_failed", "timed_out", "memory", "disk", "processes", "crashed"]

#: Codes of breaches in MODEL_FAILURES.
FAILURE_CODES: dict[Breach, str] = {
    "timed_out": "timed_out",
    "memory": "out_of_memory",
    "disk": "too_much_output",
    "processes": "too_many_processes",
}
#: Program that imports and runs the mounted package, independent of the working folder and the environment.
#: Environment variables with the number of threads of numerical libraries.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_BOOTSTRAP = """import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("evaluation.execution", run_name="__main__", alter_sys=True)"""


@dataclass(frozen=True, slots=True)
class SandboxOutcome:
    """Result of a job. If `kind` is "done", `result` is that of `evaluation.execution.outcome.read_result`.

    Otherwise, `failure_code` is one of MODEL_FAILURES, and `message` describes the failure for the model's owner.
    `peak_rss` is in bytes, over all processes, excluding file-backed memory. `unmeasured` is the reason why requested
    figures are missing. Measuring is the last step, so a job is "done" even if measuring fails. `output` has the last
    messages of a container image.
    """

    kind: Kind
    seconds: float
    peak_rss: int
    result: dict[str, Any] = field(default_factory=dict)
    failure_code: str = ""
    message: str = ""
    unmeasured: str = ""
    output: str = ""


def run_job(backend: Backend, job: ExecutionJob, limits: SandboxLimits, on_progress: OnProgress) -> SandboxOutcome:
    """Run the job in a child process and return the outcome. Its paths are valid on this machine.

    `job.out` is an empty or new folder. Afterwards it contains only regular files, which must still be validated as
    untrusted. `on_progress` is called with stage, share, and a note several times per second, even without progress;
    if it raises, the child and all of its processes are ended, and the exception propagates. The machine's lock is
    shared, and exclusive while the child measures. Raises SandboxUnavailable, through no fault of the model.
    """
    with ExitStack() as resources:
        lock = resources.enter_context(closing(MachineLock(device=job.device)))
        lock.acquire_shared(on_progress)
        _, supervision = resources.enter_context(_running_child(backend, job, limits, lock, on_progress))
        supervision.run()
    return _outcome(job, limits, supervision)


class ShardEncoder:
    """A child that loads a model once and encodes shards of one corpus. `job` is as for `run_job`.

    Between shards, the child is stopped and the machine is not locked, so that other jobs can be timed.
    """

    def __init__(self, backend: Backend, job: ExecutionJob, limits: SandboxLimits) -> None:
        self.job = job
        self._backend, self._limits = backend, limits
        self._resources = ExitStack()
        self._lock = self._resources.enter_context(closing(MachineLock(device=job.device)))
        self._child: tuple[SandboxedProcess, Supervision] | None = None

    def encode(self, number: int, target: Path, on_progress: OnProgress) -> SandboxOutcome:
        """Encode the shard into the new folder `target`, starting the child if necessary.

        The child has ended unless the outcome is "done". Raises the exceptions of `run_job`, after ending the child.
        """
        job = replace(self.job, shard=number)
        try:
            self._lock.acquire_shared(on_progress)
            if self._child is None:
                context = _running_child(self._backend, job, self._limits, self._lock, on_progress)
                self._child = self._resources.enter_context(context)
            child, supervision = self._child
            child.resume()
            if supervision.encode_shard(number, on_progress) and child.stop():
                outcome = self._take_shard(job, supervision, target)
            else:
                supervision.end()
                outcome = _outcome(job, self._limits, supervision)
        except BaseException:
            self.close()
            raise
        if outcome.kind != "done":
            self.close()
        else:
            self._lock.release()
        return outcome

    def _take_shard(self, job: ExecutionJob, supervision: Supervision, target: Path) -> SandboxOutcome:
        """Move the stopped child's shard to `target` and return its result, or a crash if the result is invalid.

        The shard is copied, because the child keeps its files open and could write to them later.
        """
        remove_unexpected_files(job.out)
        seconds = supervision.seconds
        try:
            result = read_result(job.out, job, seconds)
        except InvalidOutcome as error:
            logger.warning("a child left no usable shard: %s", error)
            supervision.end()
            return build_failure("crashed", "no_usable_result", supervision)
        shutil.copytree(job.out / SHARD_FOLDER, target)
        remove(job.out / SHARD_FOLDER)
        remove(job.out / RESULT_NAME)
        return SandboxOutcome("done", seconds, supervision.peak_memory, result)

    def close(self) -> None:
        self._resources.close()


@contextmanager
def _running_child(
    backend: Backend, job: ExecutionJob, limits: SandboxLimits, lock: MachineLock, on_progress: OnProgress
) -> Iterator[tuple[SandboxedProcess, Supervision]]:
    """Yield a child for the job and its supervision. The child has ended after the block.

    Raises SandboxUnavailable.
    """
    if not backend.available:
        raise SandboxUnavailable(f"{backend.name}: {backend.reason}")
    job.out.mkdir(exist_ok=True)
    if backend.isolates and os.geteuid() == 0:
        # Let the child's user write to its folders and read its input.
        for folder in filter(None, (job.out, job.shards, job.rankings)):
            os.chown(folder, NOBODY_UID, NOBODY_UID)
        files = (job.corpus, job.queries, job.excluded, job.checkpoint, job.shards, job.index, *job.runs)
        for path in filter(None, files):
            make_readable(path)
    require_free_disk(job.out, limits)
    from evaluation.engines.index import kernels  # It imports numba, which most processes do not need.

    kernels.load()  # compiles code to be copied into sandboxes, once per worker process
    retained_folders = [folder for folder in (job.shards, job.rankings) if folder is not None]
    measures = job.measure and job.task not in ("encode_shards", "check", "index")
    with tempfile.TemporaryDirectory(prefix="runboard-job-", dir=job.out.parent) as name:
        folder = Path(name)
        folder.chmod(0o755)
        child = backend.start(_program(backend, job, limits, folder))
        limits = replace(limits, output_bytes=limits.output_bytes + disk_usage(retained_folders))
        folders = [job.out, *retained_folders]
        try:
            asks = {"measures": measures, "resumes": job.resumes}
            yield child, Supervision(child, limits, folders, lock, on_progress, **asks)
        finally:
            if child.process.poll() is None:
                child.kill()
            child.close()


def _program(backend: Backend, job: ExecutionJob, limits: SandboxLimits, folder: Path) -> Program:
    """Return the program of a job: its mounts, environment, and command."""
    mounts: list[Mount] = []

    def place(source: Path, target: str, *, writable: bool = False) -> Path:
        mount = Mount(source.resolve(), target if backend.isolates else str(source.resolve()), writable)
        mounts.append(mount)
        return Path(mount.target)

    inner_job = replace(
        job,
        out=place(job.out, "/out", writable=True),
        corpus=job.corpus and place(job.corpus, f"/in/corpus{_gzip_extension(job.corpus)}"),
        queries=job.queries and place(job.queries, f"/in/queries{_gzip_extension(job.queries)}"),
        excluded=job.excluded and place(job.excluded, f"/in/excluded{_gzip_extension(job.excluded)}"),
        checkpoint=job.checkpoint and place(job.checkpoint, "/in/model"),
        runs=tuple(place(run, f"/in/run-{n}{_gzip_extension(run)}") for n, run in enumerate(job.runs, 1)),
        shards=job.shards and place(job.shards, "/shards", writable=True),
        rankings=job.rankings and place(job.rankings, "/rankings", writable=True),
        index=job.index and place(job.index, "/in/index"),
        socket=job.socket and place(job.socket.parent, "/in/server") / job.socket.name,
    )
    if job.shards is not None:  # existing shards are read-only
        for shard in sorted(job.shards.iterdir()):
            place(shard, f"/shards/{shard.name}")
    description = folder / "job.json"
    description.write_text(inner_job.to_json(), encoding="utf-8")
    description.chmod(0o644)
    place(settings.BASE_DIR / "evaluation", str(settings.BASE_DIR / "evaluation"))
    job_path = str(place(description, "/in/job.json"))
    command = (*interpreter(), "-c", _BOOTSTRAP, str(settings.BASE_DIR), job_path)
    caches = {"kernel": cache_folder(), "numba": Path(os.environ.get("NUMBA_CACHE_DIR", ""))}
    copied = {
        str(place(source, f"/in/cache/{name}")): f"{CACHE}/{name}"
        for name, source in caches.items()
        if backend.isolates and source.is_dir() and source != Path()
    }
    return Program(
        command=command,
        limits=limits,
        mounts=tuple(mounts),
        environment=_environment(backend, job, folder),
        caches=copied,
        cuda=job.device == "cuda",
    )


def _environment(backend: Backend, job: ExecutionJob, folder: Path) -> dict[str, str]:
    """Return the child's environment. It inherits variables and caches only if there is no sandbox."""
    scratch = "/tmp" if backend.isolates else str(folder)  # noqa: S108
    kernel, numba = f"{CACHE}/kernel", f"{CACHE}/numba"
    if not backend.isolates:
        kernel, numba = str(cache_folder()), os.environ.get("NUMBA_CACHE_DIR", f"{folder}/numba")
    variables = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "USER": "runboard",
        "LOGNAME": "runboard",
        "HOME": scratch,
        "TMPDIR": scratch,
        "RUNBOARD_KERNEL_CACHE": kernel,
        "NUMBA_CACHE_DIR": numba,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **dict.fromkeys(THREAD_VARIABLES, str(job.threads)),
        # The child can use only this process's GPU, numbered in the same order.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": own_gpu().number if job.device == "cuda" else "",
    }
    if "CC" in os.environ:
        variables["CC"] = os.environ["CC"]
    return variables


def _gzip_extension(path: Path) -> str:
    return ".gz" if path.suffix == ".gz" else ""


def make_readable(path: Path) -> None:
    """Make a file or a folder's content readable for everyone. Parent folders such as var/ remain closed."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return
    permissions = 0o555 if stat.S_ISDIR(status.st_mode) else 0o444
    if status.st_mode & permissions & 0o005 != permissions & 0o005:
        path.chmod(stat.S_IMODE(status.st_mode) | permissions)
    if stat.S_ISDIR(status.st_mode):
        for entry in path.iterdir():
            make_readable(entry)


def _outcome(job: ExecutionJob, limits: SandboxLimits, supervision: Supervision) -> SandboxOutcome:
    """Return the outcome for the child's status and files. Raises SandboxUnavailable if the disk is full."""
    remove_unexpected_files(job.out)
    ended_well = supervision.breach is None and supervision.status == 0
    if not ended_well:
        complaints = supervision.tail.decode(errors="replace")[-2000:]
        logger.warning("a child ended with %s (%s): %s", supervision.status, supervision.breach, complaints)
    if ended_well or supervision.turn.was_asked:
        try:
            result = read_result(job.out, job, supervision.seconds)
        except InvalidOutcome as error:
            logger.warning("a child left no usable result: %s", error)
            if ended_well:
                return build_failure("crashed", "no_usable_result", supervision)
        else:  # even if the child ended during the measurement
            unmeasured = supervision.turn.refusal
            code = FAILURE_CODES[supervision.breach] if supervision.breach else "crashed"
            if supervision.turn.was_asked and not unmeasured and result["figures"] is None:
                too_slow = "too few searches can be timed within a tenth of the job's time"
                unmeasured = too_slow if ended_well else f"the measurement failed ({code})"
            return SandboxOutcome("done", supervision.seconds, supervision.peak_memory, result, unmeasured=unmeasured)
    if supervision.breach is None and supervision.status not in (0, EXIT_MODEL_FAILED, EXIT_OUT_OF_MEMORY):
        # A full disk can end the child before its own limit, for example by SIGBUS on a mapped page.
        require_free_disk(job.out, limits)
    if supervision.breach is not None:
        return build_failure(supervision.breach, FAILURE_CODES[supervision.breach], supervision)
    if supervision.status == EXIT_DISK_FULL:
        return build_failure("disk", "too_much_output", supervision)
    if supervision.status == EXIT_OUT_OF_MEMORY:
        return build_failure("memory", "out_of_memory", supervision)
    if (failure := read_failure(job.out, job)) is not None:
        return build_failure("model_failed", failure.code, supervision, failure.message)
    return build_failure("crashed", "crashed", supervision)


def build_failure(kind: Kind, code: str, supervision: Supervision, message: str = "") -> SandboxOutcome:
    """Return the outcome of a failed child, with the code's meaning as its default message."""
    message = message or MODEL_FAILURES[code].meaning
    return SandboxOutcome(kind, supervision.seconds, supervision.peak_memory, failure_code=code, message=message)
