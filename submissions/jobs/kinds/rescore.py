"""The job that evaluates every stored run of a dataset on other judgements.

What is evaluated is a row, so a worker that is lost costs the run that it was at: whoever comes next finds the others
done. It works in slices, so that verdicts which people wait for come between.
"""

from __future__ import annotations

import time
from pathlib import Path

from django.db import transaction

from evaluation.core.errors import EndlessPattern, InvalidContent
from evaluation.verification.comparing import ScoresDiffer
from leaderboard.core.storage.runs import StoredRun, run_path
from leaderboard.judgements.rescoring import campaigns
from leaderboard.judgements.rescoring.comparison import count_marks
from leaderboard.judgements.rescoring.content import prepare_content
from leaderboard.models import Dataset, Evaluation, Rescore, Run, WorkRequest
from leaderboard.results.protection import evaluate_parts, policy_of
from submissions.jobs.kinds.score import begin, evaluate_run, record_scored
from submissions.models import Job, State
from submissions.queue.lease import Cancelled, Lease, LeaseLost, advance_claimed
from submissions.queue.lifecycle import write_log
from submissions.queue.queue import requeue

#: Seconds after which the job lets others have their turn.
SLICE = 20.0


def rescore_job(job: Job, lease: Lease) -> None:
    """Evaluate the runs that wait, then let the curator decide. Raises LeaseLost, or Cancelled once thrown away."""
    begin(job, State.SCORING)
    began = time.monotonic()
    while True:
        rescore = _evaluating(job)
        dataset = Dataset.objects.get(pk=rescore.dataset_id)
        settings = campaigns.settings_of(dataset)
        while (run := campaigns.waiting_runs(rescore).select_related("version").first()) is not None:
            if time.monotonic() - began > SLICE:
                requeue(job, counted=False)
                return
            _evaluate(job, lease, rescore, run)
            rescore = _evaluating(job)
        if policy_of(dataset).competition:
            _find_parts(rescore, lease)
        content, marks = prepare_content(dataset, rescore.to_qrels), count_marks(rescore)
        with transaction.atomic():
            # The state goes first: a lost claim lets nobody decide.
            advance_claimed(job, State.DONE, progress=1.0)
            if campaigns.finish_rescore(rescore, content, settings, marks):
                write_log(job.pk, f"{rescore.done:,} runs are evaluated, {len(rescore.lost):,} cannot be.")
                return
            transaction.set_rollback(True)


def _evaluating(job: Job) -> Rescore:
    """The job's rescore as it is now. Raises Cancelled where nobody waits for it any more."""
    wanted = Rescore.objects.filter(pk=job.payload["rescore"], state=Rescore.State.EVALUATING)
    rescore = wanted.select_related("to_qrels__version__dataset", "from_qrels").first()
    if rescore is None:
        raise Cancelled
    return rescore


def _evaluate(job: Job, lease: Lease, rescore: Rescore, run: Run) -> None:
    """Give one run its evaluation, or list it among those that cannot have one."""
    if not campaigns.begin_run(rescore, run):
        campaigns.note_progress(rescore)
        return
    total = max(rescore.total, 1)
    try:
        scored = evaluate_run(
            StoredRun(run.sha256, run.size),
            rescore.to_qrels.version.dataset,
            rescore.to_qrels,
            lambda share: lease.report((min(rescore.done, total - 1) + share) / total),
        )
        record_scored(run, rescore.to_qrels, scored)
    except FileNotFoundError:
        campaigns.exclude_run(rescore, run, _missing(run_path(run.sha256)))
    except EndlessPattern:
        campaigns.end_run(rescore)
        raise
    except InvalidContent as error:
        codes = ", ".join(sorted({problem.code for problem in error.report.problems}))
        campaigns.exclude_run(rescore, run, f"its file does not pass validation any more ({codes})")
    except (SystemExit, KeyboardInterrupt, LeaseLost, Cancelled, ScoresDiffer):
        campaigns.end_run(rescore)
        raise
    else:
        campaigns.end_run(rescore)
        _reset_attempts(job)
    campaigns.note_progress(rescore)


def _find_parts(rescore: Rescore, lease: Lease) -> None:
    """The means over a competition's parts, where they are not there yet, one evaluation after the other."""
    evaluations = Evaluation.objects.filter(qrels=rescore.to_qrels).order_by("pk")
    for key in list(evaluations.values_list("pk", flat=True)):
        lease.check()
        evaluate_parts(evaluations.select_related("qrels").get(pk=key))


def _missing(path: Path) -> str:
    if path.exists():  # it is there: something else that scoring needs is not
        raise FileNotFoundError("judgements, topics or document ids of the dataset are not in the store")
    return "its file is no longer stored"


def _reset_attempts(job: Job) -> None:
    """Forget earlier attempts: a long campaign may lose any number of workers, as long as each gets on."""
    if job.attempts > 1:
        job.attempts = 1
        Job.objects.filter(pk=job.pk, fence=job.fence).update(attempts=1)


def fail_lost_rescores() -> int:
    """Say of rescores whose job failed that they did, so that the curator may go on with them; how many."""
    count = 0
    for rescore in Rescore.objects.filter(state=Rescore.State.EVALUATING):
        asked = {"kind": WorkRequest.Kind.RESCORE, "payload__rescore": rescore.pk}
        if WorkRequest.objects.filter(**asked, taken_at=None).exists():
            continue
        last = Job.objects.filter(**asked).order_by("-pk").first()
        if last is not None and last.state in (
            State.FAILED,
            State.TIMED_OUT,
            State.REJECTED,
            State.CANCELLED,
        ):
            count += campaigns.fail_rescore(rescore)
    return count
