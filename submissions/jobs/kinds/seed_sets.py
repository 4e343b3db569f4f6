"""The runs of a seed set, each scored by a job of its own, become one entry when the last of them is done."""

from __future__ import annotations

from evaluation.core.errors import InvalidRun
from leaderboard.models import Entry, Evaluation
from leaderboard.results.publishing.scored import EntryOrigin, publish_seed_set
from submissions.core.errors import ALREADY_SUBMITTED
from submissions.intake.seed_labels import SAME_RUN_TWICE
from submissions.models import Job, State, Submission
from submissions.queue.lifecycle import write_log


def publish_seed(job: Job, submission: Submission, evaluation: Evaluation) -> Entry | None:
    """Note what a job found for its seed, and publish the set if that completes it; else None.

    Called in the transaction that holds the submission and has moved the job to done, so that of two seeds that end
    at once the second sees the first. Raises InvalidRun for the run of another seed under another compression, and for
    a set that is there already.
    """
    Job.objects.filter(pk=job.pk).update(evaluation=evaluation)
    jobs = list(
        Job.objects.filter(submission=submission, dataset=job.dataset)
        .select_related("evaluation__run__version__dataset", "evaluation__run__system")
        .defer("evaluation__values")
    )
    found = {
        each.seed: _on_judgements_of(evaluation, each.evaluation)
        for each in jobs
        if each.evaluation is not None
    }
    for label, other in found.items():
        if label != job.seed and other.run.sha256 == evaluation.run.sha256:
            raise InvalidRun.of(
                SAME_RUN_TWICE.problem(
                    f"this is the same run as that of seed {label}",
                    "Seeds differ: look at how the two were made, and send all seeds again.",
                )
            )
    done = sum(each.state == State.DONE for each in jobs)
    if done < len(jobs):
        write_log(
            job.pk, f"Scored: {done} of {len(jobs)} seeds are. The set is published when all of them are."
        )
        return None
    entry = publish_seed_set(
        found,
        provenance=Entry.Provenance.SCORED,  # models make no seed sets
        public=submission.public,
        configuration=submission.configuration,
        submission_reference=submission.pk,
        submitter=submission.submitter,
        marks=EntryOrigin(submission.round_id, submission.late, submission.run_type),
    )
    if entry.submission_reference != submission.pk:
        raise InvalidRun.of(
            ALREADY_SUBMITTED.problem(
                f"this system has the same seeds on {job.dataset} already",
                "If they are of another configuration, label it.",
            )
        )
    Job.objects.filter(pk__in=[each.pk for each in jobs]).update(entry=entry)
    return entry


def _on_judgements_of(last: Evaluation, earlier: Evaluation) -> Evaluation:
    """The earlier seed's evaluation on the judgements of the last one: the board may have been switched between."""
    if earlier.qrels_id == last.qrels_id:
        return earlier
    rescored = Evaluation.objects.filter(
        run=earlier.run_id, qrels=last.qrels_id, specification=last.specification
    )
    return rescored.select_related("run__version__dataset", "run__system").first() or earlier
