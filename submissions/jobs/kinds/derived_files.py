"""What a finished job leaves for pages: the first documents of its runs, and what its dataset's documents say."""

from __future__ import annotations

import logging

from django.db.models import Q

from leaderboard.datasets.derived_files import prepare
from leaderboard.models import Run
from submissions.models import Job, State

logger = logging.getLogger(__name__)

#: The kinds of jobs that score runs.
_SCORING = (Job.Kind.SCORE, Job.Kind.RETRIEVE, Job.Kind.BASELINE, Job.Kind.MODEL)


def prepare_for_pages(job: Job) -> None:
    """Make what the query pages of an open dataset need of the job's runs.

    After the result is out, and without the job's lease: nothing of the result depends on it, and a fault is logged.
    """
    if job.kind not in _SCORING or job.dataset.hidden:
        return
    try:
        done = Job.objects.select_related("dataset__current_version").get(pk=job.pk)
        if done.state == State.DONE:
            entries = [done.entry_id, *done.further_entries.values_list("pk", flat=True)]
            runs = Run.objects.filter(
                Q(evaluations__entry__in=entries) | Q(evaluations__seed__entry__in=entries)
            )
            prepare(done.dataset, runs.values_list("sha256", flat=True).distinct())
    except Exception:
        logger.exception("job %s: nothing was prepared for pages", job.pk)
