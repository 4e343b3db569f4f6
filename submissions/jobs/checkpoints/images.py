"""Runs of container images on datasets, which are unpacked on this host and run or served in the sandbox.

An image is unpacked once per host, next to the folders of jobs. It is removed with them if it was not used for the
time limit of a job.
"""

import json
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.conf import settings

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import read_queries
from evaluation.core.problems import InvalidContent, ModelFailure
from evaluation.efficiency import describe as describe_hardware
from evaluation.engines import Retrieval
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.execution.job import RUN_NAME, ExecutionJob
from evaluation.execution.outcome import is_plain_file
from evaluation.images import tira
from evaluation.images.archive import ARCHIVE_NAME, ImageArchive, ImageConfig
from submissions import sandbox
from submissions.accounts.permissions import run_stays_private
from submissions.checkpoints.service import image_limits
from submissions.jobs.checkpoints.embeddings import require_free_bytes
from submissions.jobs.checkpoints.running import DamagedInput, get_result, job_folder, job_limits, reporter
from submissions.queue.lease import Lease
from submissions.queue.queue import write_log
from submissions.sandbox.containers import ImageTask, ServerEnded, run_image, serve_image
from submissions.sandbox.machine_lock import MachineLock
from submissions.sandbox.running import SandboxOutcome, make_readable, run_job

#: File with the configuration of an unpacked image.
_CONFIG = "config.json"
_MIB = 1 << 20


def run_image_job(work: ExecutionJob, lease: Lease, totals: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Run the image of `work.checkpoint` with its interface. Arguments, result, and errors are those of `run_child`.

    The result of the batch interface contains no measurements, because one command indexes and searches.
    """
    assert work.checkpoint is not None
    report = reporter(lease, totals)
    report("loading", 0.0, "")
    root, config = _unpacked_image(work.checkpoint)
    command = str(work.parameters.get("command", ""))
    folder = work.out.parent / "image"
    folder.mkdir()
    task = ImageTask(
        root=root,
        config=config,
        folder=folder,
        command=tira.fill_placeholders(("/bin/sh", "-c", command) if command else config.command),
        device=work.device,
        threads=work.threads,
        # On other datasets, messages could reveal hidden content.
        shows_output=not run_stays_private(lease.job),
    )
    if work.engine == "container":
        return _run_batch(work, lease, task)
    return _run_served(work, lease, task, totals)


def _unpacked_image(stored: Path) -> tuple[Path, ImageConfig]:
    """Return the root and configuration of a stored image on this host, unpacking it if necessary.

    Raises DamagedInput if the archive has changed since it was accepted, or DiskTooSmall if the image would not fit.
    """
    description = CheckpointDescription.read(stored)
    folder = Path(settings.VAR) / "work" / f"image-{description.sha256}"
    if not (folder / _CONFIG).is_file():
        with job_folder() as scratch:
            require_free_bytes(description.image["expanded_bytes"], scratch, "image")
            with suppress(FileNotFoundError):  # an interrupted removal may have left a part of it
                folder.rename(scratch / "incomplete")
            arriving = scratch / "image"
            arriving.mkdir()
            image = ImageArchive(stored / ARCHIVE_NAME, image_limits())
            try:
                image.unpack(arriving / "root")
            except InvalidContent as error:
                raise DamagedInput(f"{stored} is damaged: {error}") from error
            (arriving / _CONFIG).write_text(json.dumps(asdict(image.config)), encoding="utf-8")
            with suppress(OSError):  # another process of this host has unpacked it
                arriving.rename(folder)
    os.utime(folder)
    values = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    return folder / "root", ImageConfig(**{**values, "command": tuple(values["command"])})


def _run_batch(work: ExecutionJob, lease: Lease, task: ImageTask) -> dict[str, Any]:
    """Run the image's command on the collection and move its run to the job's output folder."""
    assert work.corpus is not None
    assert work.queries is not None
    inputs = task.folder / "inputs"
    inputs.mkdir()
    run = work.runs[0] if work.runs else None
    tira.write_inputs(work.corpus, work.queries, run, inputs, lambda share: lease.report_stage("loading", share))
    make_readable(inputs)
    task = replace(task, environment=tira.VARIABLES, inputs={tira.INPUT: inputs / "input", tira.BEIR: inputs / "beir"})

    def report(stage: str, share: float, note: str) -> None:
        lease.report_stage("searching" if stage == "loading" else stage, share, note)

    outcome = run_image(sandbox.backend(), task, job_limits(lease), report)
    _log_output(lease, task, outcome)
    get_result(outcome, work, trusted=False)
    written = next((task.out / name for name in tira.RUN_NAMES if is_plain_file(task.out / name)), None)
    if written is None:
        raise ModelFailure("image_no_run", MODEL_FAILURES["image_no_run"].meaning)
    work.out.mkdir()
    written.rename(work.out / RUN_NAME)
    write_log(lease.job.pk, f"The command of the image ended after {outcome.seconds:.1f} s.")
    documents = work.documents or 0
    retrieval = Retrieval(
        engine=work.engine,
        parameters=dict(work.parameters),
        analyser="",
        documents=documents,
        queries=sum(1 for _ in read_queries(work.queries)),
        queries_without_results=0,
        lines=0,
        index_bytes=0,
        build_seconds=outcome.seconds,
        search_seconds=0.0,
        facts={
            "command_seconds": round(outcome.seconds, 1),
            "command_documents_per_second": round(documents / outcome.seconds, 1),
            # A command may end before the first memory measurement.
            **({"command_memory": round(outcome.peak_rss / _MIB)} if outcome.peak_rss else {}),
        },
    )
    hardware = describe_hardware(work.threads, work.device).as_data()
    return {"retrieval": retrieval.as_data(), "figures": None, "variants": {}, "hardware": hardware}


def _run_served(
    work: ExecutionJob, lease: Lease, task: ImageTask, totals: Mapping[str, tuple[int, str]]
) -> dict[str, Any]:
    """Start the image's server, and run the engine in a separate sandbox that reaches the server through a socket.

    The server's peak memory is added to that of the engine.
    """
    report = reporter(lease, totals)
    backend, limits = sandbox.backend(), job_limits(lease)
    task = replace(task, serves=True, environment={"PORT": str(task.config.port)})
    with closing(MachineLock(device=work.device)) as lock:
        lock.acquire_shared(report)
        try:
            with serve_image(backend, task, limits, report) as server:
                lock.release()

                def report_alive(stage: str, share: float, note: str) -> None:
                    server.check()
                    report(stage, share, note)

                work = replace(work, socket=server.socket_path)
                outcome = run_job(backend, work, limits, report_alive)
        except ServerEnded as end:
            outcome = end.outcome
    _log_output(lease, task, outcome)
    if outcome.unmeasured:
        write_log(lease.job.pk, f"The server was not timed: {outcome.unmeasured}.")
    result = get_result(outcome, work, trusted=False)
    for figures in (result["figures"], *result["variants"].values()):
        if figures and figures["peak_memory_bytes"]:
            figures["peak_memory_bytes"] += server.supervision.peak_memory
    return result


def _log_output(lease: Lease, task: ImageTask, outcome: SandboxOutcome) -> None:
    """Append the last messages of a failed image to the job's log, unless they could contain restricted texts."""
    if outcome.output and outcome.kind != "done":
        write_log(lease.job.pk, f"Last messages of the image: {outcome.output}")
    elif outcome.kind != "done" and not task.shows_output:
        write_log(lease.job.pk, "Images show messages and statuses only on datasets with public texts and judgments.")
