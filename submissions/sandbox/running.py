"""One job from paths of this machine to an outcome."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from django.conf import settings

from evaluation.engines.warm_up import warm_up_engines
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import EXIT_DISK_FULL, EXIT_OUT_OF_MEMORY, ExecutionJob
from evaluation.execution.outcome import InvalidOutcome, read_failure, read_result
from evaluation.kernel.building import cache_folder
from submissions.sandbox.backends import (
    CACHE,
    NOBODY,
    Backend,
    Mount,
    Program,
    SandboxLimits,
    SandboxUnavailable,
    interpreter,
)
from submissions.sandbox.machine_lock import WAITING, MachineLock
from submissions.sandbox.processes import remove_unexpected_files, size_of
from submissions.sandbox.supervision import Breach, Ending, OnProgress, Supervision, require_free_disk

logger = logging.getLogger(__name__)

Kind = Literal["done", "model_failed", "timed_out", "memory", "disk", "processes", "crashed"]

#: What each breach is called in MODEL_FAILURES.
_CODES: dict[Breach, str] = {
    "timed_out": "timed_out",
    "memory": "out_of_memory",
    "disk": "too_much_output",
    "processes": "too_many_processes",
}
#: Finds the one package that is bound in, without the working folder or the environment having a say, and runs it.
_BOOTSTRAP = """import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("evaluation.execution", run_name="__main__", alter_sys=True)"""
_WAITING = "while another system is timed on this machine"


@dataclass(frozen=True, slots=True)
class SandboxOutcome:
    """How a job ended. `result` is what `evaluation.execution.outcome.read_result` gave, where it is "done".

    Otherwise `failure_code` is one of MODEL_FAILURES, and `message` what was found, in words that may be shown to
    the model's owner. `peak_rss` is in bytes, of all processes together and of memory not shared with files.
    `unmeasured` is why there are no figures, where they were asked for and the machine was not to be had.
    """

    kind: Kind
    seconds: float
    peak_rss: int
    result: dict[str, Any] = field(default_factory=dict)
    failure_code: str = ""
    message: str = ""
    unmeasured: str = ""


def run_job(
    backend: Backend, job: ExecutionJob, limits: SandboxLimits, on_progress: OnProgress
) -> SandboxOutcome:
    """Do the job (its paths are those of this machine) in a child process, and say how it ended.

    `job.out` is an empty folder, or is made; afterwards it holds what the child left, plain files alone, still to be
    validated as a stranger's. `on_progress` is told stage, share and a note several times a second, also while nothing
    changes; what it raises ends the child with everything it started, and goes on. The machine's lock is shared
    meanwhile, and had alone while the child measures. Raises SandboxUnavailable, which is no fault of the model.
    """
    if not backend.available:
        raise SandboxUnavailable(f"{backend.name}: {backend.reason}")
    _prepare(job, isolates=backend.isolates)
    require_free_disk(job.out, limits)
    _compile_once()
    lock = MachineLock()
    try:
        lock.acquire("shared", lambda: on_progress(WAITING, 0.0, _WAITING))
        with tempfile.TemporaryDirectory(prefix="runboard-job-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            ending = _run(backend, _program(backend, job, limits, folder), job, lock, on_progress)
    finally:
        lock.close()
    if ending.breach is None and ending.status == EXIT_DISK_FULL:
        require_free_disk(job.out, limits)  # then it was not its own limit that it met
    remove_unexpected_files(job.out)
    return _outcome(job, ending)


@cache
def _compile_once() -> None:
    """Have compiled code ready to be copied into sandboxes, once per worker process."""
    warm_up_engines()


def _run(
    backend: Backend, program: Program, job: ExecutionJob, lock: MachineLock, on_progress: OnProgress
) -> Ending:
    limits = program.limits
    folders = [job.out]
    if job.shards is not None:
        folders.append(job.shards)
        limits = replace(limits, output_bytes=limits.output_bytes + size_of([job.shards]))
    contained = backend.start(program)
    try:
        measures = job.measure and job.task not in ("encode_shard", "check")
        return Supervision(contained, limits, folders, lock, on_progress, measures=measures).run()
    finally:
        contained.close()


def _program(backend: Backend, job: ExecutionJob, limits: SandboxLimits, folder: Path) -> Program:
    """The job as a program: which files it sees and where, and its command."""
    mounts: list[Mount] = []

    def place(source: Path, target: str, *, writable: bool = False) -> Path:
        mount = Mount(source.resolve(), target if backend.moves_paths else str(source.resolve()), writable)
        mounts.append(mount)
        return Path(mount.target)

    inside = replace(
        job,
        out=place(job.out, "/out", writable=True),
        corpus=job.corpus and place(job.corpus, f"/in/corpus{_ending(job.corpus)}"),
        queries=job.queries and place(job.queries, f"/in/queries{_ending(job.queries)}"),
        checkpoint=job.checkpoint and place(job.checkpoint, "/in/model"),
        runs=tuple(place(run, f"/in/run-{n}{_ending(run)}") for n, run in enumerate(job.runs, 1)),
        shards=job.shards and place(job.shards, "/shards", writable=True),
    )
    if job.shards is not None:  # what others encoded can be read, not changed
        for shard in sorted(job.shards.iterdir()):
            place(shard, f"/shards/{shard.name}")
    description = folder / "job.json"
    description.write_text(inside.to_json(), encoding="utf-8")
    description.chmod(0o644)
    place(settings.BASE_DIR / "evaluation", str(settings.BASE_DIR / "evaluation"))
    command = (
        *interpreter(),
        "-c",
        _BOOTSTRAP,
        str(settings.BASE_DIR),
        str(place(description, "/in/job.json")),
    )
    caches = {"kernel": cache_folder(), "numba": Path(os.environ.get("NUMBA_CACHE_DIR", ""))}
    copied = {
        str(place(source, f"/in/cache/{name}")): f"{CACHE}/{name}"
        for name, source in caches.items()
        if backend.moves_paths and source.is_dir() and source != Path()
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
    """All variables that the child has: none of ours, except where there is no sandbox and the caches are ours."""
    scratch = "/tmp" if backend.moves_paths else str(folder)  # noqa: S108
    kernel, numba = f"{CACHE}/kernel", f"{CACHE}/numba"
    if not backend.moves_paths:
        kernel, numba = str(cache_folder()), os.environ.get("NUMBA_CACHE_DIR", f"{folder}/numba")
    made = {
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
    }
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        made[name] = str(job.threads)
    for name in ("CC", "CUDA_VISIBLE_DEVICES"):
        if name in os.environ:
            made[name] = os.environ[name]
    return made


def _ending(path: Path) -> str:
    """What a reader goes by."""
    return ".gz" if path.suffix == ".gz" else ""


def _prepare(job: ExecutionJob, *, isolates: bool) -> None:
    """Let the user that the child becomes write to its folders and read its input. Only root has to: else it is us."""
    job.out.mkdir(exist_ok=True)
    if not isolates or os.geteuid() != 0:
        return
    for folder in filter(None, (job.out, job.shards)):
        os.chown(folder, NOBODY, NOBODY)
    for path in filter(None, (job.corpus, job.queries, job.checkpoint, job.shards, *job.runs)):
        _make_readable(path)


def _make_readable(path: Path) -> None:
    """Add reading for everybody to a file or a folder's content. The folders above stay closed, as var/ is."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return
    wanted = 0o555 if stat.S_ISDIR(status.st_mode) else 0o444
    if status.st_mode & wanted & 0o005 != wanted & 0o005:
        path.chmod(stat.S_IMODE(status.st_mode) | wanted)
    if stat.S_ISDIR(status.st_mode):
        for entry in path.iterdir():
            _make_readable(entry)


def _outcome(job: ExecutionJob, ending: Ending) -> SandboxOutcome:
    """What the ending and the files that were left come to."""
    if ending.breach is None and ending.status == 0:
        try:
            result = read_result(job.out, job, ending.seconds)
            return SandboxOutcome(
                "done", ending.seconds, ending.peak_memory, result, unmeasured=ending.unmeasured
            )
        except InvalidOutcome as error:
            logger.warning("a child left no usable result: %s", error)
            return _failed("crashed", "no_usable_result", ending)
    logger.warning("a child ended with %s (%s): %s", ending.status, ending.breach, ending.complaints[-2000:])
    if ending.breach is not None:
        return _failed(ending.breach, _CODES[ending.breach], ending)
    if ending.status == EXIT_DISK_FULL:
        return _failed("disk", "too_much_output", ending)
    if ending.status == EXIT_OUT_OF_MEMORY:
        return _failed("memory", "out_of_memory", ending)
    if (failure := read_failure(job.out, job)) is not None:
        return _failed("model_failed", failure.code, ending, failure.message)
    return _failed("crashed", "crashed", ending)


def _failed(kind: Kind, code: str, ending: Ending, message: str = "") -> SandboxOutcome:
    return SandboxOutcome(
        kind,
        ending.seconds,
        ending.peak_memory,
        failure_code=code,
        message=message or MODEL_FAILURES[code].meaning,
    )
