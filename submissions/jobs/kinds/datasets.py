"""Jobs on datasets without a submission: pools, merges, profiles, protection, reveals, significance, and rescoring.

Each job computes first, then stores result and state in one transaction, writing the state first so that a lost claim
stores nothing. All jobs can be repeated with the same result. All raise LeaseLost or Cancelled.
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
from leaderboard.boards.benchmark.significance import store_tests
from leaderboard.boards.pages import analyse_benchmarks
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
from leaderboard.results.publishing.protection import compute_part_means, switch_protection
from leaderboard.results.significance.computing import analyse_board, request_if_changed, store_certainty
from leaderboard.rounds.topics import summarise_topics
from submissions.jobs.kinds.score import begin, current_qrels, evaluate_run, record_scored_run
from submissions.models import Job, State
from submissions.queue.lease import Cancelled, Lease, LeaseLost, advance_claimed, finish
from submissions.queue.queue import ATTEMPTS, requeue, write_log

#: Maximum number of times that results may arrive between computing parts and switching the policy.
_ROUNDS = 20
#: Delay before a failed job is requested again: minimum and maximum.
FIRST_WAIT, LONGEST_WAIT = timedelta(hours=1), timedelta(days=1)
_FAILED_STATES = (State.FAILED, State.TIMED_OUT)
_REQUESTS = {Job.Kind.CERTAINTY: request_certainty, Job.Kind.STATISTICS: request_statistics}


def pool_job(job: Job, lease: Lease) -> None:
    """Draw the pool named in the payload. Runs on the scorer, since it reads judgments.

    A pool that is too large or not permitted fails with the reason; the job is then done.
    """
    key = job.payload["pool"]
    begin(job, State.SCORING)
    with _fail_on_last_attempt(job, lambda: fail_pool(key)), work_folder("judging") as folder:
        pool = Pool.objects.select_related("dataset__current_qrels", "version", "created_by").get(pk=key)
        if pool.state != Pool.State.DRAWING:
            finish(job, "The pool was drawn already.")
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
            finish(job, f"{stored['statistics']['pairs']:,} pairs to judge.")
            record_pool(pool, stored)


def merge_job(job: Job, lease: Lease) -> None:
    """Compare or merge the judgments named in the payload, depending on their state."""
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
            merge = comparing.merge_import(judgements, folder)
            lease.check()
            with acting(person, judgements.note), transaction.atomic():
                finish(job, "Merged.")
                write_log(job.pk, comparing.record_merge(judgements, merge))
        else:
            finish(job, "A curator has decided in the meantime.")


@contextmanager
def _fail_on_last_attempt(job: Job, give_up: Callable[[], None]) -> Iterator[None]:
    """Call `give_up`, which marks the pool or import as failed, if the block fails and will not be retried."""
    try:
        yield
    except LeaseLost:
        raise
    except Exception as error:
        if isinstance(error, Cancelled) or job.attempts >= ATTEMPTS:
            give_up()
        raise


def statistics_job(job: Job, lease: Lease) -> None:
    """Profile the dataset's texts and the top-ranked documents of its runs, unless profiled before.

    The profile of the texts is stored before it is compared with the profiles of other datasets.
    """
    begin(job, State.RETRIEVING, "reading")
    with work_folder("statistics") as folder:
        profile = profile_collection(job.dataset, folder, lambda share: lease.report_stage("reading", 0.9 * share))
    with transaction.atomic():
        begin(job, State.SCORING, "comparing")
        if profile is None:
            write_log(job.pk, "The dataset has no texts to profile.")
        else:
            store_collection_profile(profile)
            _, columns = profile
            if "tokens" in columns:
                write_log(job.pk, f"{columns['tokens']:,} words, {columns['vocabulary']:,} distinct.")
    comparison = find_overlaps(job.dataset, lambda share: lease.report_stage("comparing", 0.9 + 0.1 * share))
    with transaction.atomic():
        other_count, run_count = len(comparison[0]), len(comparison[1])
        finish(job, f"Other collections compared: {other_count:,}. Runs analyzed: {run_count:,}.")
        store_overlaps(job.dataset, comparison)


def protect_job(job: Job, lease: Lease) -> None:
    """Compute missing scores on the parts of a competition, then change policy and board together.

    Runs on the scorer, since it reads private storage. If it fails, the policy remains unchanged. Raises
    RuntimeError if new results keep arriving.
    """
    begin(job, State.SCORING)
    protection = Protection(job.payload["protection"])
    person = User.objects.filter(pk=job.payload.get("by")).first()
    for _ in range(_ROUNDS):
        part_count = compute_part_means(job.dataset, lease.report) if protection == Protection.COMPETITION else 0
        if part_count:
            write_log(job.pk, f"Results with scores on both parts: {part_count:,}.")
        with transaction.atomic(), acting(person, job.payload.get("why", "")):
            # Switch the policy first, since it detects results that arrived meanwhile.
            if switch_protection(job.dataset, protection):
                finish(job, f"{job.dataset} now has the {protection.label} policy.")
                return
    raise RuntimeError("Results arrived faster than their scores on the parts could be computed.")


def reveal_job(job: Job, lease: Lease) -> None:
    """Summarize the payload's round on its dataset: judged queries with their best, median, and worst scores."""
    row = Round.objects.get(pk=job.payload["round"])
    qrels = current_qrels(job.dataset)
    begin(job, State.SCORING)
    queries = load_qrels(qrels).query_ids
    lease.report(0.5)
    with transaction.atomic():
        advance_claimed(job, State.DONE, progress=1.0)
        summary = summarise_topics(row, job.dataset, qrels, queries)
        write_log(job.pk, f"Summarized {row}. Runs: {summary.runs}.")


def certainty_job(job: Job, lease: Lease) -> None:
    """Compute intervals, tests, and ranks of the dataset's board and benchmarks, and store those that are current."""
    begin(job, State.SCORING)
    finding = analyse_board(job.dataset, lease.report)
    benchmark_analyses = analyse_benchmarks(job.dataset)
    with transaction.atomic():
        advance_claimed(job, State.DONE, progress=1.0)
        if count := store_tests(job.dataset, benchmark_analyses):
            write_log(job.pk, f"Benchmarks analyzed: {count:,}.")
        if finding is not None and store_certainty(finding) is not None:
            write_log(job.pk, f"Results analyzed: {len(finding.board.entries):,}.")
        elif request_if_changed(job.dataset.pk):
            write_log(job.pk, "The board has changed in the meantime and will be analyzed again.")
        else:
            write_log(job.pk, "The results are up to date.")


def retry_failed_certainty() -> int:
    """Request failed significance and statistics jobs again after a delay; return their number.

    The delay is an hour after the first failure and doubles up to a day, since the cause may disappear and failures are
    cheap. Makes one query if no job has failed.
    """
    is_newest = ~Exists(Job.objects.filter(kind=OuterRef("kind"), dataset=OuterRef("dataset"), pk__gt=OuterRef("pk")))
    count = 0
    for job in Job.objects.filter(is_newest, kind__in=_REQUESTS, state__in=_FAILED_STATES):
        dataset_jobs = Job.objects.filter(kind=job.kind, dataset=job.dataset_id)
        last_success = dataset_jobs.filter(state=State.DONE).order_by("-pk").values_list("pk", flat=True).first()
        failures = dataset_jobs.filter(state__in=_FAILED_STATES, pk__gt=last_success or 0).count()
        wait = min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT)
        if job.finished_at is not None and job.finished_at + wait <= timezone.now():
            _REQUESTS[Job.Kind(job.kind)](job.dataset.pk)
            count += 1
    return count


# --- rescoring: evaluate all stored runs of a dataset on new judgments

# Each evaluation is stored as a row, so that a lost worker repeats only the current run. The job works in slices to let
# users' submissions be scored in between.


#: Seconds after which the job yields to other jobs.
SLICE = 20.0


def rescore_job(job: Job, lease: Lease) -> None:
    """Evaluate the waiting runs, then ask the curator to decide.

    After SLICE seconds, the job is requeued so that other jobs run. Raises LeaseLost, or Cancelled if the rescore was
    discarded.
    """
    begin(job, State.SCORING)
    started_at = time.monotonic()
    while True:
        rescore = _get_active_rescore(job)
        dataset = Dataset.objects.get(pk=rescore.dataset_id)
        settings = campaigns.scoring_settings(dataset)
        while (run := campaigns.waiting_runs(rescore).select_related("version").first()) is not None:
            if time.monotonic() - started_at > SLICE:
                requeue(job, counts_attempt=False)
                return
            _evaluate_waiting_run(job, lease, rescore, run)
            rescore = _get_active_rescore(job)
        if get_policy(dataset).competition:
            evaluations = Evaluation.objects.filter(qrels=rescore.to_qrels).order_by("pk")
            for key in list(evaluations.values_list("pk", flat=True)):
                lease.check()
                evaluate_parts(evaluations.select_related("qrels").get(pk=key))
        content, marks = prepare_content(dataset, rescore.to_qrels), count_marks(rescore)
        with transaction.atomic():
            # Write the state first: a worker that lost its claim must not finish the rescore.
            advance_claimed(job, State.DONE, progress=1.0)
            if campaigns.finish_rescore(rescore, content, settings, marks):
                write_log(job.pk, f"Runs evaluated: {rescore.done:,}. Not possible for: {len(rescore.lost):,}.")
                return
            transaction.set_rollback(True)


def _get_active_rescore(job: Job) -> Rescore:
    """Return the job's rescore in its present state. Raises Cancelled unless it is still being evaluated."""
    rescores = Rescore.objects.filter(pk=job.payload["rescore"], state=Rescore.State.EVALUATING)
    rescore = rescores.select_related("to_qrels__version__dataset", "from_qrels").first()
    if rescore is None:
        raise Cancelled
    return rescore


def _evaluate_waiting_run(job: Job, lease: Lease, rescore: Rescore, run: Run) -> None:
    """Evaluate one run, or add it to the list of runs that cannot be evaluated.

    Raises EndlessPattern, ScoresDiffer, LeaseLost, or Cancelled, and FileNotFoundError if another file than the run's
    is missing.
    """
    if not campaigns.begin_run(rescore, run):
        campaigns.note_progress(rescore)
        return
    total = max(rescore.total, 1)
    try:
        scored_run = evaluate_run(
            StoredRun(run.sha256, run.size),
            rescore.to_qrels.version.dataset,
            rescore.to_qrels,
            lambda share: lease.report((min(rescore.done, total - 1) + share) / total),
        )
        record_scored_run(run, rescore.to_qrels, scored_run)
    except FileNotFoundError:
        if run_path(run.sha256).exists():  # another file that scoring needs is missing
            raise FileNotFoundError(
                "Judgments, topics, or document ids of the dataset are missing from the store."
            ) from None
        campaigns.exclude_run(rescore, run, "its file is no longer stored")
    except EndlessPattern:
        campaigns.end_run(rescore)
        raise
    except InvalidContent as error:
        codes = ", ".join(sorted({problem.code for problem in error.report.problems}))
        campaigns.exclude_run(rescore, run, f"its file no longer passes validation ({codes})")
    except (SystemExit, KeyboardInterrupt, LeaseLost, Cancelled, ScoresDiffer):
        campaigns.end_run(rescore)
        raise
    else:
        campaigns.end_run(rescore)
        if job.attempts > 1:  # a long rescore may lose many workers if each of them makes progress
            job.attempts = 1
            Job.objects.filter(pk=job.pk, fence=job.fence).update(attempts=1)
    campaigns.note_progress(rescore)


def fail_lost_rescores() -> int:
    """Mark rescores as failed after their job has failed, so that the curator can continue; return their number."""
    count = 0
    for rescore in Rescore.objects.filter(state=Rescore.State.EVALUATING):
        criteria = {"kind": WorkRequest.Kind.RESCORE, "payload__rescore": rescore.pk}
        if WorkRequest.objects.filter(**criteria, taken_at=None).exists():
            continue
        last = Job.objects.filter(**criteria).order_by("-pk").first()
        if last is not None and last.state in (*_FAILED_STATES, State.REJECTED, State.CANCELLED):
            count += campaigns.fail_rescore(rescore)
    return count
