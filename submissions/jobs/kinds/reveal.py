"""The scorer's part of a round's reveal: which queries are judged, and best, median and worst on each."""

from __future__ import annotations

from django.db import transaction

from leaderboard.datasets.qrels import load_qrels
from leaderboard.models import Round
from leaderboard.rounds.topics import summarise_topics
from submissions.jobs.kinds.score import begin, current_qrels
from submissions.jobs.registry import register_kind
from submissions.models import Job, State
from submissions.queue.lease import Lease, advance_claimed
from submissions.queue.lifecycle import write_log


@register_kind(Job.Kind.REVEAL)
def reveal_job(job: Job, lease: Lease) -> None:
    """Sum up the round that the job names on its dataset. Raises LeaseLost or Cancelled."""
    row = Round.objects.get(pk=job.payload["round"])
    qrels = current_qrels(job.dataset)
    begin(job, State.SCORING)
    queries = load_qrels(qrels).query_ids
    lease.report(0.5)
    with transaction.atomic():
        advance_claimed(job, State.DONE, progress=1.0)
        summary = summarise_topics(row, job.dataset, qrels, queries)
        write_log(job.pk, f"Summed up {summary.runs} runs of {row}.")
