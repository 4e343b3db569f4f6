"""Database rows of a submission's runs."""

from collections.abc import Mapping
from typing import Any

from evaluation.core.problems import Report, RunStatistics
from leaderboard.core.storage.runs import StoredRun
from leaderboard.models import DatasetVersion, Entry, Run, System
from leaderboard.results.board_rows.revisions import Kind, board_changed
from leaderboard.results.records import NO_SUBMISSION, RunOrigin, record_run
from submissions.accounts.permissions import run_stays_private
from submissions.models import Checkpoint, Job, Submission

#: Key of the producing engine and model, in a run's metadata and in payloads of jobs without a submission.
MADE_BY = "made_by"


def record_job_run(
    job: Job,
    system: System,
    stored_run: StoredRun,
    statistics: RunStatistics,
    version: DatasetVersion,
    label: str = "",
) -> Run:
    """Store and return the row of a job's run, either when it is scored, or earlier if scoring waits for judgments.

    `label` names the variant or seed. It precedes the submission's own configuration.
    """
    submission, metadata = job.submission, dict(statistics.metadata)
    configuration, run_origin = "", NO_SUBMISSION
    if submission is None:
        # Jobs of models provided by the site name the model in their payload.
        metadata |= {MADE_BY: job.payload[MADE_BY]} if MADE_BY in job.payload else {}
    else:
        if submission.kind == Submission.Kind.MODEL:
            metadata[MADE_BY] = describe_producer(submission.engine, job.model_parameters, submission.checkpoint)
        configuration = submission.configuration
        run_origin = RunOrigin(
            submission_reference=submission.pk,
            public=submission.public,
            round_id=submission.round_id,
            late=submission.late,
            run_type=submission.run_type,
            priority=submission.priority,
        )
    return record_run(
        version=version,
        system=system,
        sha256=stored_run.sha256,
        origin=Run.Origin.UPLOADED if job.kind == Job.Kind.SCORE else Run.Origin.RETRIEVED,
        size=stored_run.size,
        lines=statistics.lines,
        # Prefer the tag that the team entered to the tag in the file.
        tag=job.payload.get("run_tag") or (statistics.tags[0] if statistics.tags else ""),
        # The variant is first, because it distinguishes runs and must survive truncation.
        configuration=" · ".join(filter(None, [label, configuration]))[:80],
        metadata=metadata,
        reusable=submission.reusable if submission else False,
        built_from=job.payload.get("run_ids", []),
        run_origin=run_origin,
    )


def shown_report(job: Job, report: Report) -> Report:
    """Return the report on the job's run without texts that a container image may have copied from hidden ones.

    Other models do not choose the texts of their runs.
    """
    is_by_image = job.submission is not None and job.submission.engine == "container"
    return report.drop_quotations() if is_by_image and run_stays_private(job) else report


def describe_producer(engine: str, parameters: Mapping[str, Any], checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return the engine with its parameters, and the identity of the model if there is a checkpoint."""
    description: dict[str, Any] = {"engine": engine, "parameters": dict(parameters)}
    if checkpoint is not None:
        image = checkpoint.description.get("image", {})
        description["checkpoint"] = {
            "kind": checkpoint.kind,
            "sha256": checkpoint.model_sha256,
            "files": checkpoint.description.get("files", {}),
            "parameters": checkpoint.description.get("parameters"),
            "hub_name": checkpoint.hub_name,
            "hub_commit": checkpoint.hub_commit,
            "image": image.get("digest", ""),
            "port": image.get("port"),
        }
    return description


def waiting_payload(stored_run: StoredRun, statistics: RunStatistics) -> dict[str, Any]:
    tag = statistics.tags[0] if statistics.tags else ""
    return {"run_sha256": stored_run.sha256, "size": stored_run.size, "tag": tag, "lines": statistics.lines}


def record_waiting_run(
    job: Job, submission: Submission, stored_run: StoredRun, statistics: RunStatistics, version: DatasetVersion
) -> None:
    """Store the row of a run that waits for judgments. If it is public, also record that its board changed.

    The row is needed for pooling and the list on the dataset's page. The boards of the submission's datasets must be
    locked.
    """
    job.submission = submission
    record_job_run(job, submission.system, stored_run, statistics, version, job.seed)
    if submission.public:
        board_changed(job.dataset, Kind.VISIBILITY, row_entries=Entry.objects.none())
