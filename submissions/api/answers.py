"""Submissions as the API answers them, and the schema of that for the API's documentation."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework import serializers

from submissions.refusals import FileReport, Refused
from submissions.status import JobStatus, SubmissionStatus


def submission_answer(status: SubmissionStatus, request: HttpRequest) -> dict[str, Any]:
    """A submission and its jobs."""
    submission = status.submission
    waiting = [job for job in status.jobs if job.waits]
    return {
        "id": submission.pk,
        "state": status.state.value,
        "meaning": status.meaning,
        "kind": submission.kind,
        "system": submission.system.slug,
        "system_name": submission.system.name,
        "team": submission.team.name,
        "configuration": submission.configuration,
        "public": submission.public,
        "created": submission.created_at.isoformat(),
        "withdrawal_reason": submission.withdrawal_reason,
        "queue_position": status.queue_position,
        "workers_alive": max((job.workers_alive for job in waiting), default=None),
        "jobs": [job_answer(job, request) for job in status.jobs],
        "url": request.build_absolute_uri(submission.get_absolute_url()),
    }


def job_answer(status: JobStatus, request: HttpRequest) -> dict[str, Any]:
    """One dataset's part; scores are the published values, and only there once the job is done."""
    job = status.job
    return {
        "dataset": job.dataset.slug,
        "state": status.state.value,
        "meaning": status.meaning,
        "stage": job.stage,
        "progress": round(job.progress, 4),
        "queue_position": status.queue_position,
        "attempts": job.attempts,
        "scores": {score.measure: score.value for score in status.scores},
        "missing_queries": status.entry.missing_queries if status.entry else None,
        "problems": list(status.problems),
        "log": list(status.log),
        "error": status.error,
        "board": request.build_absolute_uri(job.dataset.get_absolute_url()),
    }


def report_answer(file: FileReport) -> dict[str, Any]:
    """The verdict on one file."""
    return file.report.as_dict()


def refusal_extra(refusal: Refused) -> dict[str, Any]:
    """Beside the problems of a refused request, whose they are."""
    return {"files": [file.as_dict() for file in refusal.files]} if refusal.files else {}


class ProblemSchema(serializers.Serializer[Any]):
    """One class of problem in a file."""

    severity = serializers.ChoiceField(choices=["error", "warning"])
    code = serializers.CharField()
    count = serializers.IntegerField(help_text="How often it occurs.")
    lines = serializers.ListField(child=serializers.IntegerField(), help_text="The first five lines, from 1.")
    message = serializers.CharField(help_text="What is wrong.")
    hint = serializers.CharField(help_text="What would be right.")


class StatisticsSchema(serializers.Serializer[Any]):
    """What was read."""

    lines = serializers.IntegerField()
    queries = serializers.IntegerField()
    expanded_bytes = serializers.IntegerField()
    tags = serializers.ListField(child=serializers.CharField())
    metadata = serializers.DictField()


class ReportSchema(serializers.Serializer[Any]):
    """The verdict on a file."""

    valid = serializers.BooleanField()
    problems = ProblemSchema(many=True)
    statistics = StatisticsSchema()


class ErrorSchema(serializers.Serializer[Any]):
    """Every error of the API."""

    code = serializers.CharField()
    detail = serializers.CharField()
    problems = ProblemSchema(many=True)


class JobSchema(serializers.Serializer[Any]):
    """One dataset's part of a submission."""

    dataset = serializers.CharField()
    state = serializers.CharField()
    meaning = serializers.CharField(help_text="The state in words.")
    stage = serializers.CharField()
    progress = serializers.FloatField(help_text="Share of the present state's work, 0 to 1.")
    queue_position = serializers.IntegerField(
        allow_null=True, help_text="Jobs before this one; null when it does not wait."
    )
    attempts = serializers.IntegerField()
    scores = serializers.DictField(
        child=serializers.FloatField(), help_text="Measure → published value, once done."
    )
    missing_queries = serializers.IntegerField(allow_null=True)
    problems = ProblemSchema(many=True)
    log = serializers.ListField(child=serializers.CharField())
    error = serializers.CharField()
    board = serializers.URLField()


class SubmissionSchema(serializers.Serializer[Any]):
    """A submission."""

    id = serializers.CharField()
    state = serializers.CharField()
    meaning = serializers.CharField()
    kind = serializers.CharField()
    system = serializers.CharField(help_text="Slug.")
    system_name = serializers.CharField()
    team = serializers.CharField()
    configuration = serializers.CharField()
    public = serializers.BooleanField()
    created = serializers.DateTimeField()
    withdrawal_reason = serializers.CharField()
    queue_position = serializers.IntegerField(allow_null=True)
    workers_alive = serializers.IntegerField(
        allow_null=True, help_text="Workers that take its waiting jobs; null when none waits."
    )
    jobs = JobSchema(many=True)
    url = serializers.URLField()


class CheckRequest(serializers.Serializer[Any]):
    """A file to check."""

    dataset = serializers.CharField(
        required=False, help_text="Slug; may be left out where the file is named after it."
    )
    file = serializers.FileField()


class SubmissionRequest(serializers.Serializer[Any]):
    """A submission. `dataset` and `file` may repeat, and pair in order; a zip names its files `<dataset>.*`."""

    kind = serializers.ChoiceField(choices=["run"], default="run")
    system = serializers.CharField(
        help_text="Slug or name of yours, a new name, or a JSON object of the fields below."
    )
    dataset = serializers.ListField(child=serializers.CharField(), required=False)
    file = serializers.ListField(child=serializers.FileField())
    configuration = serializers.CharField(required=False, help_text="Seed or configuration label.")
    public = serializers.BooleanField(default=True)
    note = serializers.CharField(required=False, help_text="For your team alone.")
    architecture = serializers.CharField(required=False, help_text="Needed for a new system.")
    description = serializers.CharField(required=False)
    paper = serializers.URLField(required=False)
    code = serializers.URLField(required=False)
    model = serializers.URLField(required=False)
    licence = serializers.CharField(required=False)
    parameters = serializers.CharField(required=False, help_text="JSON object or key=value pairs.")
    training_datasets = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Slugs or names; `none` declares zero-shot."
    )
    backbone = serializers.CharField(required=False)
    dimension = serializers.IntegerField(required=False)
    maximum_length = serializers.IntegerField(required=False)
    bibtex = serializers.CharField(required=False)


class WithdrawRequest(serializers.Serializer[Any]):
    """Why a submission is withdrawn."""

    reason = serializers.CharField(max_length=300)


class VisibilityRequest(serializers.Serializer[Any]):
    """Who sees a submission."""

    public = serializers.BooleanField()
