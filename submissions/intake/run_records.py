"""The rows of the runs of a submission."""

from collections.abc import Mapping
from typing import Any

from evaluation.core.problems import RunStatistics
from leaderboard.core.storage.runs import StoredRun
from leaderboard.models import DatasetVersion, Entry, Run, System
from leaderboard.results.board_rows.revisions import Kind, board_changed
from leaderboard.results.records import NO_SUBMISSION, RunOrigin, record_run
from submissions.models import Checkpoint, Job, Submission

#: Where a run's metadata, and the payload of a job without a submission, say what made the run.
MADE_BY = "made_by"


def record_job_run(
    job: Job,
    system: System,
    stored: StoredRun,
    statistics: RunStatistics,
    version: DatasetVersion,
    label: str = "",
) -> Run:
    """Record a job's run: when it is scored, or before, if that has to wait for judgements."""
    submission, metadata = job.submission, dict(statistics.metadata)
    configuration, sent = "", NO_SUBMISSION
    if submission is None:
        # The payload of a job of the site's own model names the model.
        metadata |= {MADE_BY: job.payload[MADE_BY]} if MADE_BY in job.payload else {}
    else:
        if submission.kind == Submission.Kind.MODEL:
            metadata[MADE_BY] = made_by(submission.engine, job.model_parameters, submission.checkpoint)
        configuration = submission.configuration
        sent = RunOrigin(
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
        sha256=stored.sha256,
        origin=Run.Origin.UPLOADED if job.kind == Job.Kind.SCORE else Run.Origin.RETRIEVED,
        size=stored.size,
        lines=statistics.lines,
        # As its team gave it, else as the file has it.
        tag=job.payload.get("run_tag") or (statistics.tags[0] if statistics.tags else ""),
        # The variant first: what tells runs apart must survive the cut.
        configuration=" · ".join(filter(None, [label, configuration]))[:80],
        metadata=metadata,
        reusable=submission.reusable if submission else False,
        built_from=job.payload.get("run_ids", []),
        run_origin=sent,
    )


def made_by(engine: str, parameters: Mapping[str, Any], checkpoint: Checkpoint | None) -> dict[str, Any]:
    """Return the engine with all its parameters, and the model."""
    made: dict[str, Any] = {"engine": engine, "parameters": dict(parameters)}
    if checkpoint is not None:
        made["checkpoint"] = {
            "kind": checkpoint.kind,
            "sha256": checkpoint.model_sha256,
            "files": checkpoint.description.get("files", {}),
            "parameters": checkpoint.description.get("parameters"),
            "hub_name": checkpoint.hub_name,
            "hub_commit": checkpoint.hub_commit,
        }
    return made


def waiting_payload(stored: StoredRun, statistics: RunStatistics) -> dict[str, Any]:
    """Return the payload of a validated run's job."""
    tag = statistics.tags[0] if statistics.tags else ""
    return {"run_sha256": stored.sha256, "size": stored.size, "tag": tag, "lines": statistics.lines}


def record_waiting_run(
    job: Job, submission: Submission, stored: StoredRun, statistics: RunStatistics, version: DatasetVersion
) -> None:
    """Record a run that waits for judgements: pools are drawn from these, and the dataset's page lists them.

    Call it with the boards of the submission's datasets locked.
    """
    job.submission = submission
    record_job_run(job, submission.system, stored, statistics, version, job.seed)
    if submission.public:
        board_changed(job.dataset, Kind.VISIBILITY, touched=Entry.objects.none())
