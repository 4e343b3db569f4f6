"""The first stage of a model's job: what was accepted as typed values is compared with the library's own classes.

A child of its own sees the checkpoint and nothing else, so its words can be shown to anybody. What passed is noted in
the checkpoint's folder with the releases that said so, and asked again after an upgrade.
"""

from __future__ import annotations

from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from django.conf import settings

from evaluation.checkpoints import CODES
from evaluation.core.problems import Problem, Report
from evaluation.execution.job import ExecutionJob
from submissions import sandbox
from submissions.checkpoints.service import folder_of
from submissions.core.errors import CHECKPOINT_REFUSED
from submissions.jobs.checkpoints.running import ModelCrashed, job_folder
from submissions.models import Checkpoint, Job, State
from submissions.queue.lease import Lease, WorkEnded
from submissions.queue.lifecycle import advance, write_log
from submissions.sandbox.backends import SandboxLimits, UnprotectedBackend
from submissions.sandbox.running import run_job

#: The file beside a checkpoint that says which releases of the libraries took it.
NOTE = "checked.txt"
_LIMITS = {"memory_bytes": 2 << 30, "output_bytes": 1 << 20}


class CheckpointRefused(WorkEnded):
    """The library does not take the checkpoint; the report says why. It costs no submission."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(CHECKPOINT_REFUSED)

    def settle(self, job: Job) -> None:
        """End the job, and those of its submission that wait: they would run the same checkpoint."""
        waiting = Job.objects.filter(submission__jobs=job, kind=job.kind, state=State.QUEUED)
        report = self.report.as_dict()
        for pk, fence in [(job.pk, job.fence), *waiting.values_list("pk", "fence")]:
            if advance(pk, State.REJECTED, fence=fence, error_code=CHECKPOINT_REFUSED, report=report):
                write_log(pk, "The library does not take the checkpoint; nothing was run.")


def check_with_library(job: Job, lease: Lease, checkpoint: Checkpoint) -> None:
    """Have the library look at a checkpoint that it has not seen.

    Raises CheckpointRefused, ModelCrashed, and as `run_job`.
    """
    note = folder_of(checkpoint) / NOTE
    if is_checked(note):
        return
    limits = SandboxLimits(wall_clock_seconds=settings.MODEL_CHECK_SECONDS, **_LIMITS)
    backend = sandbox.backend()
    if checkpoint.team_id is None and not backend.available:
        backend = UnprotectedBackend()
    with job_folder() as folder:
        work = ExecutionJob("check", "", folder / "out", checkpoint=note.parent, measure=False)
        outcome = run_job(
            backend, work, limits, lambda stage, share, text: lease.report_stage("checking", share, text)
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
    """Whether these releases of the libraries took the checkpoint before."""
    return note.is_file() and note.read_text(encoding="utf-8") == releases()


def releases() -> str:
    """The libraries that check, in their versions: what stands in the note of a checkpoint that they took."""
    names = ("sentence-transformers", "tokenizers", "transformers")
    return "".join(f"{name} {version(name)}\n" for name in names)
