"""Submissions as the API answers them; `schema` describes the same for its documentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from rest_framework import status

from leaderboard.boards.system.word_pieces import LABEL
from leaderboard.core.http.api_errors import ApiError
from leaderboard.core.http.site_url import absolute
from leaderboard.core.text.deltas import DIGITS
from submissions.accounts.permissions import downloadable_runs
from submissions.api.quotas import charge_answers, quota_answers
from submissions.checkpoints.concurrency import Busy
from submissions.core.errors import FileReport, Refused
from submissions.models import Checkpoint
from submissions.quotas import QuotaSpent
from submissions.quotas.shown import charged
from submissions.status.description import JobStatus, SeedSet, SubmissionStatus
from submissions.status.models import Variant
from submissions.status.scores import Score
from submissions.uploads.request_size import REQUEST_TOO_LARGE

#: What is told of a model, by the names of its description.
MODEL_FACTS = (
    "model_type",
    "parameters",
    "dimension",
    "maximum_length",
    "pooling",
    "similarity",
    "prompts",
)


def submission_answer(
    status: SubmissionStatus, request: HttpRequest, *, own: bool | None = None
) -> dict[str, Any]:
    """A submission and its jobs; `own` as `downloadable_runs` takes it."""
    submission = status.submission
    runs = {job.pk for job in downloadable_runs(request.user, submission, own=own)}
    waiting = [job for job in status.jobs if job.waits]
    return {
        "id": submission.pk,
        "state": status.state.value,
        "meaning": status.meaning,
        "kind": submission.kind,
        "round": submission.round.slug if submission.round else None,
        "late": submission.late,
        "run_type": submission.run_type,
        "priority": submission.priority if status.complete else None,
        "system": submission.system.slug,
        "system_name": submission.system.name,
        "team": submission.team.name,
        "configuration": submission.configuration,
        "public": submission.public,
        "reusable": submission.reusable,
        "engine": submission.engine,
        "parameters": submission.parameters,
        "checkpoint": checkpoint_answer(submission.checkpoint, status.complete),
        "created": submission.created_at.isoformat(),
        "withdrawal_reason": submission.withdrawal_reason,
        "queue_position": status.queue_position,
        "workers_alive": max((job.workers_alive for job in waiting), default=None),
        "jobs": [job_answer(job, request, job.job.pk in runs) for job in status.jobs],
        "seed_sets": [seed_set_answer(seeds) for seeds in status.seed_sets],
        "charges": charge_answers(charged(submission, now=own is None)) if status.complete else [],
        "url": absolute(request, submission.get_absolute_url()),
    }


def checkpoint_answer(checkpoint: Checkpoint | None, complete: bool) -> dict[str, Any] | None:
    """The model of a submission, None for runs and for engines that run none; its file's name for its team alone."""
    if checkpoint is None:
        return None
    return {
        "id": checkpoint.pk,
        "kind": checkpoint.kind,
        "sha256": checkpoint.model_sha256,
        "file_name": checkpoint.file_name if complete else "",
        "size": checkpoint.size,
        **{name: checkpoint.description.get(name) for name in MODEL_FACTS},
    }


def variant_answer(variant: Variant) -> dict[str, Any]:
    """One of several results of a job."""
    return {
        "configuration": variant.label,
        "scores": dict(variant.entry.scores),
        "facts": dict(variant.entry.facts),
        "latency_ms": variant.latency_ms,
    }


def seed_set_answer(seeds: SeedSet) -> dict[str, Any]:
    """Several runs of one dataset as the one result that they make, or will make."""
    return {
        "dataset": seeds.dataset.slug,
        "seeds": [job.job.seed for job in seeds.jobs],
        "published": seeds.entry is not None and not seeds.held,
        "held": seeds.held,
        "told_later": seeds.told_later,
        "meaning": seeds.meaning,
        "missing": [job.job.seed for job in seeds.lost],
        "scores": {score.measure: score.value for score in seeds.scores},
        "deviations": {
            score.measure: score.deviation for score in seeds.scores if score.deviation is not None
        },
        "deltas": _deltas(seeds.scores),
    }


def job_answer(status: JobStatus, request: HttpRequest, downloadable: bool) -> dict[str, Any]:
    """One dataset's part; scores are the published values, and only there once the job is done."""
    job = status.job
    run = reverse("submission-run", args=[job.submission_id, job.dataset.slug]) if downloadable else None
    if run and job.seed:
        run = f"{run}?{urlencode({'seed': job.seed})}"
    return {
        "dataset": job.dataset.slug,
        "seed": job.seed,
        "state": status.state.value,
        "meaning": status.meaning,
        "held": status.held,
        "told_later": status.told_later,
        "stage": job.stage,
        "progress": round(job.progress, 4),
        "progress_note": status.model.note,
        "queue": job.queue,
        "queue_position": status.queue_position,
        "no_worker": status.no_worker,
        "awaiting_judgements": status.awaits_judgements,
        "attempts": job.attempts,
        "scores": {score.measure: score.value for score in status.scores},
        "deltas": _deltas(status.scores),
        "missing_queries": _missing_queries(status),
        "problems": list(status.problems),
        "log": list(status.log),
        "error": status.error,
        "error_code": job.error_code if status.error else "",
        "remedy": status.model.remedy,
        "facts": dict(status.entry.facts) if status.entry else {},
        "efficiency": status.model.costs.data if status.model.costs else None,
        "variants": [variant_answer(variant) for variant in status.model.variants],
        "board": absolute(request, job.dataset.get_absolute_url()),
        "run_url": absolute(request, run) if run else None,
    }


def _deltas(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Differences by measure, by what they are to; empty where there is nothing to compare with."""
    found: dict[str, dict[str, float]] = {}
    for score in scores:
        for name, compared in (("baseline", score), (LABEL, score.beside_word_pieces)):
            if compared.delta is not None:
                found.setdefault(name, {})[score.measure] = round(compared.delta, DIGITS)
    return found


def _missing_queries(status: JobStatus) -> int | None:
    """Judged queries that the run does not have; unknown until it is scored, and where judgements are hidden."""
    if status.entry is None or status.job.dataset.hidden:
        return None
    return status.entry.missing_queries


def report_answer(file: FileReport) -> dict[str, Any]:
    """The verdict on one file; of a checkpoint that can be run, also what it is."""
    return {**file.report.as_dict(), "checkpoint": dict(file.model) or None}


def refusal_extra(refusal: Refused) -> dict[str, Any]:
    """Beside the problems of a refused request, whose they are, and which quotas are used up."""
    if isinstance(refusal, QuotaSpent):
        return {"quotas": quota_answers(refusal.quotas)}
    return {"files": [file.as_dict() for file in refusal.files]} if refusal.files else {}


def refused(refusal: Refused) -> ApiError:
    """The error for what was not taken, with its status and, where time helps, when to send it again."""
    code: int = status.HTTP_400_BAD_REQUEST
    wait = None
    if isinstance(refusal, Busy):
        code, wait = status.HTTP_429_TOO_MANY_REQUESTS, refusal.seconds
    elif refusal.code == REQUEST_TOO_LARGE:
        code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    return ApiError(
        refusal.code,
        refusal.detail,
        status_code=code,
        problems=refusal.all_problems(),
        extra=refusal_extra(refusal),
        wait=wait,
    )
