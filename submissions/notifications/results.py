"""What a submission's result is, outwards: as `submissions.status.scores` has it, and nothing beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.core.http.site_url import own_address
from leaderboard.models import Dataset
from submissions.models import Submission
from submissions.status.description import Part, SubmissionStatus, describe, with_jobs
from submissions.status.scores import Score, outcome_text


def result_body(
    submission: Submission, status: SubmissionStatus, dataset: Dataset | None = None
) -> dict[str, Any]:
    """What a webhook is told of a submission: its state, the scores as published and the outcome in words.

    `dataset`: of this one alone.
    """
    parts = [part for part in status.parts if dataset is None or part.jobs[0].job.dataset_id == dataset.pk]
    return {
        "submission": submission.pk,
        "system": submission.system.slug,
        "team": submission.team.slug,
        "url": own_address() + submission.get_absolute_url(),
        "state": status.state.value,
        "datasets": [part.jobs[0].job.dataset.slug for part in parts],
        "scores": {part.jobs[0].job.dataset.slug: _values(_scores(part)) for part in parts},
        "outcome": outcome_text(submission, dataset),
    }


def _scores(part: Part) -> Sequence[Score]:
    return part.jobs[0].scores if part.seeds is None else part.seeds.scores


def _values(scores: Sequence[Score]) -> Mapping[str, float]:
    return {score.measure: score.value for score in scores}


def status_of(identifier: str) -> SubmissionStatus:
    """A submission as its team sees it now."""
    return describe(with_jobs(Submission.objects.filter(pk=identifier)).get(), complete=True, compare=False)
