"""Profile a collection and what runs rank first of it: the work of a STATISTICS job."""

from __future__ import annotations

from django.db import transaction

from leaderboard.core.storage.store import work_folder
from leaderboard.results.profiles.store import (
    CollectionFindings,
    find_overlaps,
    profile_collection,
    store_collection_profile,
    store_overlaps,
)
from submissions.jobs.kinds.score import begin
from submissions.jobs.registry import register_kind
from submissions.models import Job, State
from submissions.queue.lease import Lease, finish
from submissions.queue.lifecycle import write_log


@register_kind(Job.Kind.STATISTICS)
def statistics_job(job: Job, lease: Lease) -> None:
    """Find what is not known yet of the dataset's texts and runs. Again, nothing changes.

    The texts are recorded first, and only then compared with others. Raises LeaseLost or Cancelled.
    """
    begin(job, State.RETRIEVING, "reading")
    with work_folder("statistics") as folder:
        found = profile_collection(
            job.dataset, folder, lambda share: lease.report_stage("reading", 0.9 * share)
        )
    _record(job, found)
    beside = find_overlaps(job.dataset, lambda share: lease.report_stage("comparing", 0.9 + 0.1 * share))
    with transaction.atomic():
        others, runs = len(beside.overlaps), len(beside.runs)
        finish(job, f"Compared with {others:,} other collections; looked at {runs:,} runs.")
        store_overlaps(job.dataset, beside)


def _record(job: Job, found: CollectionFindings | None) -> None:
    """The texts' profile, as long as the claim is ours."""
    with transaction.atomic():
        begin(job, State.SCORING, "comparing")
        if found is None:
            write_log(job.pk, "The dataset has no texts here: nothing to look at.")
            return
        store_collection_profile(found)
        if "tokens" in found.values:
            tokens, vocabulary = found.values["tokens"], found.values["vocabulary"]
            write_log(job.pk, f"{tokens:,} words, {vocabulary:,} different ones.")
