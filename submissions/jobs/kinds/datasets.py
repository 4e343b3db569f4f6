"""Jobs on a dataset and its board, without a submission: pools, merges, profiles, protection, reveals, significance,
and rescoring.

Each does its work first, and then changes the job's state and stores the result in one transaction, the state first: a
lost claim stores nothing. Done again, each comes to the same result. All raise LeaseLost or Cancelled.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from evaluation.core.problems import EndlessPattern, InvalidContent
from evaluation.runs.pooling import PoolTooLarge
from evaluation.verification.comparing import ScoresDiffer
from leaderboard.core.audit import acting
from leaderboard.core.storage.runs import StoredRun, run_path
from leaderboard.core.storage.store import work_folder
from leaderboard.core.work_requests import request_certainty, request_statistics
from leaderboard.datasets.qrels import load_qrels
from leaderboard.judgements import comparing
from leaderboard.judgements.drawing import draw, record_pool
from leaderboard.judgements.imports import State as ImportState
from leaderboard.judgements.imports import fail_import
from leaderboard.judgements.pools import JudgingRefused, fail_pool
from leaderboard.judgements.rescoring import campaigns
from leaderboard.judgements.rescoring.content import prepare_content
from leaderboard.judgements.rescoring.switch import count_marks
from leaderboard.models import (
    Dataset,
    Evaluation,
    JudgementImport,
    Pool,
    Protection,
    Rescore,
    Round,
    Run,
    User,
    WorkRequest,
)
from leaderboard.results.profiles.store import (
    find_overlaps,
    profile_collection,
    store_collection_profile,
    store_overlaps,
)
from leaderboard.results.protection import evaluate_parts, get_policy
from leaderboard.results.publishing.protection import find_parts, switch_protection
from leaderboard.results.significance.computing import analyse_board, request_if_changed, store_certainty
from leaderboard.rounds.topics import summarise_topics
from submissions.jobs.kinds.score import begin, current_qrels, evaluate_run, record_scored
from submissions.models import Job, State
from submissions.queue.lease import Cancelled, Lease, LeaseLost, advance_claimed, finish
from submissions.queue.queue import ATTEMPTS, requeue, write_log

#: How often results may arrive between finding parts and switching before the attempt is given up.
_ROUNDS = 20
#: How long a failed job is left alone.
FIRST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=1)
_FAILED = (State.FAILED, State.TIMED_OUT)
_REQUESTS = {Job.Kind.CERTAINTY: request_certainty, Job.Kind.STATISTICS: request_statistics}


def pool_job(job: Job, lease: Lease) -> None:
    """Draw the pool that the payload names. It reads judgments, so the scorer does it."""
    key = job.payload["pool"]
    begin(job, State.SCORING)
    with _fail_on_last_attempt(job, lambda: fail_pool(key)), work_folder("judging") as folder:
        pool = Pool.objects.select_related("dataset__current_qrels", "version", "created_by").get(pk=key)
        if pool.state != Pool.State.DRAWING:
            finish(job, "It is drawn already.")
            return
        try:
            with acting(pool.created_by):
                stored = draw(pool, folder, lease.report)
        except (PoolTooLarge, JudgingRefused) as error:
            with transaction.atomic():
                finish(job, str(error))
                fail_pool(key, str(error))
            return
        with transaction.atomic():
            finish(job, f"{stored['statistics']['pairs']:,} pairs to be judged.")
            record_pool(pool, stored)


def merge_job(job: Job, lease: Lease) -> None:
    """Compare or merge the judgments that the payload names, as their state says."""
    key = job.payload["import"]
    begin(job, State.SCORING)
    with _fail_on_last_attempt(job, lambda: fail_import(key)), work_folder("judging") as folder:
        related = ("dataset__current_qrels", "dataset__current_version", "version", "against")
        judgements = JudgementImport.objects.select_related(*related).get(pk=key)
        person = User.objects.filter(pk=job.payload.get("by")).first()
        if judgements.state == ImportState.COMPARING:
            comparison = comparing.compare_import(judgements, folder)
            lease.check()
            with acting(person, judgements.note), transaction.atomic():
                finish(job, "Compared.")
                comparing.record_comparison(judgements, comparison)
        elif judgements.state == ImportState.MERGING:
            merged = comparing.merge_import(judgements, folder)
            lease.check()
            with acting(person, judgements.note), transaction.atomic():
                finish(job, "Merged.")
                write_log(job.pk, comparing.record_merge(judgements, merged))
        else:
            finish(job, "It has been decided in the meantime.")


@contextmanager
def _fail_on_last_attempt(job: Job, give_up: Callable[[], None]) -> Iterator[None]:
    """Show the failure on the page of the pool or import if the work is not tried again."""
    try:
        yield
    except LeaseLost:
        raise
    except Exception as error:
        if isinstance(error, Cancelled) or job.attempts >= ATTEMPTS:
            give_up()
        raise


def statistics_job(job: Job, lease: Lease) -> None:
    """Profile the dataset's texts and what runs rank first, as far as they are new.

    The texts' profile is stored first, and only then compared with others.
    """
    begin(job, State.RETRIEVING, "reading")
    with work_folder("statistics") as folder:
        found = profile_collection(
            job.dataset, folder, lambda share: lease.report_stage("reading", 0.9 * share)
        )
    with transaction.atomic():
        begin(job, State.SCORING, "comparing")
        if found is None:
            write_log(job.pk, "The dataset has no texts here: nothing to look at.")
        else:
            store_collection_profile(found)
            _, columns = found
            if "tokens" in columns:
                words = f"{columns['tokens']:,} words, {columns['vocabulary']:,} different ones."
                write_log(job.pk, words)
    comparison = find_overlaps(job.dataset, lambda share: lease.report_stage("comparing", 0.9 + 0.1 * share))
    with transaction.atomic():
        overlaps, runs = comparison
        finish(job, f"Compared with {len(overlaps):,} other collections; looked at {len(runs):,} runs.")
        store_overlaps(job.dataset, comparison)


def protect_job(job: Job, lease: Lease) -> None:
    """Compute what is missing over the parts of a competition, then change policy and board together.

    It reads private storage, so the scorer does it. On failure the policy stays as it was.
    """
    begin(job, State.SCORING)
    wanted = Protection(job.payload["protection"])
    person = User.objects.filter(pk=job.payload.get("by")).first()
    for _ in range(_ROUNDS):
        found = find_parts(job.dataset, lease.report) if wanted == Protection.COMPETITION else 0
        if found:
            write_log(job.pk, f"Found the parts' means of {found:,} results.")
        with transaction.atomic(), acting(person, job.payload.get("why", "")):
            # The policy is first, since it may find that a result arrived meanwhile.
            if switch_protection(job.dataset, wanted):
                finish(job, f"{job.dataset} is under the {wanted.label} policy.")
                return
    raise RuntimeError("results came faster than their parts were found")


def reveal_job(job: Job, lease: Lease) -> None:
    """Summarize the round that the job names on its dataset: judged queries, with best, median and worst on each."""
    row = Round.objects.get(pk=job.payload["round"])
    qrels = current_qrels(job.dataset)
    begin(job, State.SCORING)
    queries = load_qrels(qrels).query_ids
    lease.report(0.5)
    with transaction.atomic():
        advance_claimed(job, State.DONE, progress=1.0)
        summary = summarise_topics(row, job.dataset, qrels, queries)
        write_log(job.pk, f"Summed up {summary.runs} runs of {row}.")


def certainty_job(job: Job, lease: Lease) -> None:
    """Compute intervals, tests and ranks of the dataset's board, and store them unless the board changed meanwhile."""
    begin(job, State.SCORING)
    finding = analyse_board(job.dataset, lease.report)
    with transaction.atomic():
        advance_claimed(job, State.DONE, progress=1.0)
        if finding is not None and store_certainty(finding) is not None:
            write_log(job.pk, f"Found for {len(finding.board.entries):,} results.")
        elif request_if_changed(job.dataset_id):
            write_log(job.pk, "The board changed meanwhile: it is to be looked at again.")
        else:
            write_log(job.pk, "Nothing new to find.")


def retry_failed_certainty() -> int:
    """Request failed certainty and statistics jobs again after a while; return how many. One query if none failed.

    The wait is an hour after the first failure, twice as long after each further one in a row, and a day at most: the
    cause may be gone by then, and a further failure costs little.
    """
    last = ~Exists(
        Job.objects.filter(kind=OuterRef("kind"), dataset=OuterRef("dataset"), pk__gt=OuterRef("pk"))
    )
    count = 0
    for job in Job.objects.filter(last, kind__in=_REQUESTS, state__in=_FAILED):
        of_dataset = Job.objects.filter(kind=job.kind, dataset=job.dataset_id)
        done = of_dataset.filter(state=State.DONE).order_by("-pk").values_list("pk", flat=True).first()
        failures = of_dataset.filter(state__in=_FAILED, pk__gt=done or 0).count()
        wait = min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT)
        if job.finished_at is not None and job.finished_at + wait <= timezone.now():
            _REQUESTS[Job.Kind(job.kind)](job.dataset_id)
            count += 1
    return count


# --- rescoring: every stored run of a dataset is evaluated on other judgments

# An evaluation is a row, so a lost worker costs the run that it was at: the next one finds the others done. The job
# works in slices, so that verdicts which people wait for come between.


#: Seconds after which the job lets others have their turn.
SLICE = 20.0


def rescore_job(job: Job, lease: Lease) -> None:
    """Evaluate the runs that wait, then let the curator decide. Raises LeaseLost, or Cancelled once thrown away."""
    begin(job, State.SCORING)
    began = time.monotonic()
    while True:
        rescore = _evaluating(job)
        dataset = Dataset.objects.get(pk=rescore.dataset_id)
        settings = campaigns.scoring_settings(dataset)
        while (run := campaigns.waiting_runs(rescore).select_related("version").first()) is not None:
            if time.monotonic() - began > SLICE:
                requeue(job, counted=False)
                return
            _evaluate(job, lease, rescore, run)
            rescore = _evaluating(job)
        if get_policy(dataset).competition:
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
    """Return the job's rescore as it is now. Raises Cancelled where nobody waits for it any more."""
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
        if run_path(run.sha256).exists():  # something else that scoring needs is missing
            raise FileNotFoundError(
                "judgements, topics or document ids of the dataset are not in the store"
            ) from None
        campaigns.exclude_run(rescore, run, "its file is no longer stored")
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
        if job.attempts > 1:  # a long campaign may lose any number of workers, as long as each makes progress
            job.attempts = 1
            Job.objects.filter(pk=job.pk, fence=job.fence).update(attempts=1)
    campaigns.note_progress(rescore)


def _find_parts(rescore: Rescore, lease: Lease) -> None:
    """The means over a competition's parts, where they are not there yet, one evaluation after the other."""
    evaluations = Evaluation.objects.filter(qrels=rescore.to_qrels).order_by("pk")
    for key in list(evaluations.values_list("pk", flat=True)):
        lease.check()
        evaluate_parts(evaluations.select_related("qrels").get(pk=key))


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
