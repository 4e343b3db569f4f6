"""Score a job's run: one pass over the file, a verification of the scores, one transaction for result and state.

Runs of a dataset that collects are checked and kept, and scored when its first judgements come.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from django.db import transaction

from evaluation.core.problems import EndlessPattern, InvalidRun
from evaluation.measures.registry import DEFAULT_MEASURES, SPEC_VERSION
from evaluation.runs.forms import trec_text
from evaluation.runs.score import ScoredRun, check_run, score_run
from evaluation.runs.similarity import RunFingerprints
from evaluation.runs.top_documents import KEPT
from evaluation.verification.comparing import verify
from evaluation.verification.references import SlowAnswers
from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.runs import StoredRun, read_text, run_path, store_run
from leaderboard.core.storage.store import Area, path_of, remove
from leaderboard.datasets.derived_files import keep_first_documents
from leaderboard.datasets.qrels import answer_texts, scoring_rules, scoring_target, verifying_judgements
from leaderboard.judgements.rescoring.campaigns import include_new_run
from leaderboard.models import Dataset, DatasetVersion, Entry, Evaluation, Qrels, Run, System
from leaderboard.results.board_rows.revisions import lock_board, lock_boards
from leaderboard.results.protection import evaluate_parts, get_policy
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import mark_published
from leaderboard.results.records import record_evaluation
from leaderboard.results.values import JUDGED_MEASURES, upper_bound_measures
from submissions.core.errors import ALREADY_SUBMITTED
from submissions.intake.run_records import record_job_run, record_waiting_run, waiting_payload
from submissions.intake.runs import SAME_RUN_TWICE
from submissions.models import Job, State, Submission
from submissions.queue.lease import Lease, LeaseLost, WorkEnded, advance_claimed
from submissions.queue.queue import advance, append_log_line, requeue, write_log
from submissions.quotas import probes

#: What the log says of a result, by who sees it.
_LOGGED: Mapping[str, str] = {
    Entry.Visibility.PUBLIC: "Scored and published.",
    Entry.Visibility.HELD: "Scored: no significant change.",
    Entry.Visibility.SUPERSEDED: "Scored; a better result of the team or of its sender stands on the board.",
}


@dataclass(frozen=True, slots=True)
class ScoredResult:
    """A run that was evaluated, and what is known of how it came to be.

    `label` tells the variants of one job apart; `facts` are by names of evaluation.engines.FACTS. `signed` is what is
    kept of runs over hidden judgements.
    """

    stored: StoredRun
    scored: ScoredRun
    label: str = ""
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    signed: RunFingerprints | None = None


#: Called in the transaction that publishes results, with them and their entries.
RecordMore = Callable[[Sequence[ScoredResult], Sequence[Entry]], None]
#: A run of at most so many bytes is read into memory once, to be scored and verified there.
IN_MEMORY = 16 * 2**20


def score_job(job: Job, lease: Lease) -> None:
    """Validate (if the upload was not), score and publish an uploaded run.

    Without judgments yet, check and store it. Raises InvalidRun for a file that does not pass, LeaseLost when the claim
    is gone, and ScoresDiffer.
    """
    if job.dataset.awaits_judgements:
        _check_and_store(job, lease)
        return
    qrels = current_qrels(job.dataset)
    if job.validated:
        stored = StoredRun(job.payload["run_sha256"], job.payload["size"])
        begin(job, State.SCORING)
        lease.clock.enter("scoring")
        scored = evaluate_run(stored, job.dataset, qrels, lease.report)
    else:
        upload = path_of(Area.UPLOADS, job.upload_sha256)
        lease.clock.enter("scoring")
        scored = _score(upload, job.dataset, qrels, lease.report)
        begin(job, State.SCORING)
        stored = store_run(upload)
        verify_scored(stored.sha256, qrels, scored, lease.check)
    if job.submission is not None:
        system = job.submission.system
    else:
        system = System.objects.select_related("team").get(slug=job.payload["system_slug"])
    publish_on_current_qrels(job, lease, system, [ScoredResult(stored, scored)], qrels)
    delete_upload(job)


def _check_and_store(job: Job, lease: Lease) -> None:
    """Validate an uploaded run of a dataset without judgements and store it; its job then waits for these."""
    version, submission = job.dataset.current_version, job.submission
    if version is None or submission is None:
        raise RuntimeError(f"job {job.pk}: nothing to keep a run for")
    upload = path_of(Area.UPLOADS, job.upload_sha256)
    report = check_run(upload, scoring_target(version), progress=lease.report)
    if not report.valid:
        raise InvalidRun(report)
    stored = store_run(upload)
    statistics = report.statistics
    payload = {**job.payload, **waiting_payload(stored, statistics)}
    with transaction.atomic():
        lock_boards([job.dataset_id])
        submission = Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
        line = f"Validated: {statistics.lines:,} lines. It waits for the first judgements."
        columns = {"validated": True, "attempts": 0, "payload": payload, "report": report.as_dict()}
        advance_claimed(job, State.QUEUED, line=line, **columns)
        record_waiting_run(job, submission, stored, statistics, version)
    delete_upload(job)


class JudgementsChanged(WorkEnded):
    """The dataset stands on other judgements than those that the job scored against: nothing was published."""

    def settle(self, job: Job) -> None:
        """Do the job again."""
        requeue(job, counted=False, line="The dataset has a new version: the job is done again.")


def evaluate_run(
    stored: StoredRun, dataset: Dataset, qrels: Qrels, progress: Callable[[float], None]
) -> ScoredRun:
    """Return the run's verified values for every measure that the dataset shows, or may come to show.

    Every evaluation of a stored run is computed here. Raises InvalidContent or ScoresDiffer.
    """
    text = read_text(stored.sha256) if stored.size <= IN_MEMORY else None
    run = run_path(stored.sha256) if text is None else text
    scored = _score(run, dataset, qrels, progress, may_be_empty=not stored.size)
    verify_scored(stored.sha256, qrels, scored, partial(progress, 1.0), text)
    return scored


def _score(
    run: Path | bytes,
    dataset: Dataset,
    qrels: Qrels,
    progress: Callable[[float], None],
    *,
    may_be_empty: bool = False,
) -> ScoredRun:
    """Score a run in any format, without verification. Pages show its first documents if judgments are open."""
    target, first_documents = scoring_target(qrels.version, qrels=qrels), 0 if dataset.hidden else KEPT
    return score_run(
        run, target, measures_of(dataset), progress=progress, first_documents=first_documents,
        may_be_empty=may_be_empty,
    )  # fmt: skip


def verify_scored(
    sha256: str,
    qrels: Qrels,
    scored: ScoredRun,
    after_block: Callable[[], object],
    text: bytes | None = None,
) -> None:
    """Compute the scores of a stored run again, and compare them.

    Args:
        sha256: the run's key in the store.
        qrels: the judgments that it was scored on.
        scored: the scores to verify.
        after_block: called now and then, and may raise.
        text: the content in the store, if the caller has read it.

    Raises ScoresDiffer, whose message is for operators alone.
    """
    rules = scoring_rules(qrels.version)
    with trec_text(run_path(sha256) if text is None else text) as (_, stored):
        try:
            verify(
                stored,
                verifying_judgements(qrels),
                scored.claimed(),
                rules,
                sha256,
                after_block,
                answer_texts(qrels),
            )
        except SlowAnswers as error:
            raise EndlessPattern(error.line, "takes too long to be searched") from error


def measures_of(dataset: Dataset) -> Sequence[str]:
    """Return the dataset's own measures, then the default ones: stored for all, shown as the dataset says."""
    return list(
        dict.fromkeys(
            [*dataset.measures, *DEFAULT_MEASURES, *JUDGED_MEASURES, *upper_bound_measures(dataset)]
        )
    )


def current_qrels(dataset: Dataset) -> Qrels:
    """Return the qrels of the dataset's board. Raises RuntimeError if there are none: such jobs do not start."""
    if dataset.current_qrels_id is None:
        raise RuntimeError(f"{dataset.slug} has no judgements")
    qrels = Qrels.objects.select_related("version").get(pk=dataset.current_qrels_id)
    qrels.version.dataset = dataset
    return qrels


def judged_version(dataset: Dataset) -> DatasetVersion:
    """Return the version of the board's qrels, which retrievers may not read. Raises RuntimeError without qrels."""
    if dataset.current_qrels_id is None:
        raise RuntimeError(f"{dataset.slug} has no judgements")
    return DatasetVersion.objects.get(qrels=dataset.current_qrels_id)


def begin(job: Job, state: State, stage: str = "") -> None:
    """Move the job to the state in which its work begins. Raises LeaseLost when the claim is gone."""
    if not advance(job.pk, state, fence=job.fence, stage=stage):
        raise LeaseLost


def publish_on_current_qrels(
    job: Job,
    lease: Lease,
    system: System,
    results: Sequence[ScoredResult],
    qrels: Qrels,
    record_more: RecordMore | None = None,
) -> None:
    """Publish results, after scoring the stored runs again where the board was switched to other judgements meanwhile.

    Outside of transactions. Raises JudgementsChanged where the content changed too: then the job is to be done again.
    """
    while True:
        lease.clock.enter("publishing")
        try:
            publish_results(job, system, results, qrels, record_more)
            found = {each.stored.sha256: each.scored.first_documents for each in results}
            keep_first_documents(found, qrels.version.excluded_sha256)
            return
        except JudgementsChanged:
            present = current_qrels(Dataset.objects.get(pk=job.dataset_id))
            if (present.version_id, present.split) != (qrels.version_id, qrels.split):
                raise
        qrels = present
        write_log(job.pk, f"The board stands on qrels v{qrels.number} now: scored again on these.")
        lease.clock.enter("scoring")
        anew = [evaluate_run(each.stored, job.dataset, qrels, lease.report) for each in results]
        results = [replace(each, scored=scored) for each, scored in zip(results, anew, strict=True)]


def publish_results(
    job: Job,
    system: System,
    results: Sequence[ScoredResult],
    qrels: Qrels,
    record_more: RecordMore | None = None,
) -> list[Entry]:
    """Write results and state together. The state goes first: a lost claim publishes nothing.

    The last result is the job's own, those before it are variants with a label and an entry each. Over hidden
    judgements variants are dropped: a job is one reading of these, however many rankings it makes. The run of a seed
    set makes an entry only with all others of the set; until then nothing is returned. `record_more` is called in the
    same transaction.
    Raises LeaseLost, Cancelled where the submitter asked to stop before this moment, or JudgementsChanged.
    """
    if job.dataset.hidden:
        results = [
            replace(each, signed=probes.signature_of(job, each.stored, qrels)) for each in results[-1:]
        ]
    with transaction.atomic():
        dataset = lock_board(job.dataset_id)
        if job.submission_id is not None:
            # Read it again: its team may have made it private, or withdrawn it, while we scored.
            locked = Submission.objects.select_for_update(no_key=True, of=("self",)).select_related(
                "submitter"
            )
            job.submission = locked.filter(pk=job.submission_id).first()
        report = results[-1].scored.report.as_dict()
        advance_claimed(job, State.DONE, progress=1.0, report=report)
        if dataset.current_qrels_id != qrels.pk:  # no number is stale from the start
            raise JudgementsChanged
        dataset.current_qrels = qrels
        include_new_run(job.dataset)
        if job.submission is not None and job.seed:
            result = replace(results[-1], label=job.seed)
            entry = _publish_seed(job, job.submission, record_result(job, system, result, qrels))
            entries = [entry] if entry else []
        else:
            entries = _publish_entries(job, dataset, system, results, qrels)
        if record_more is not None:
            record_more(results, entries)
        if _is_baseline(job):
            mark_published(job.dataset)
    return entries


def _is_baseline(job: Job) -> bool:
    return job.kind == Job.Kind.BASELINE or bool(job.payload.get("baseline"))


def _publish_entries(
    job: Job, dataset: Dataset, system: System, results: Sequence[ScoredResult], qrels: Qrels
) -> list[Entry]:
    """Publish an entry for each result, and store them with the job: its own, and a further one for each variant.

    An existing run is refused if it was uploaded; a model that was run again, or a retrieval of ours that was requested
    again, comes to the same entry. Raises InvalidRun.
    """
    provenance = Entry.Provenance.SCORED if job.kind == Job.Kind.SCORE else Entry.Provenance.MEASURED
    entries = [
        publish_entry(
            _new_entry(provenance, job.submission, facts=result.facts),
            record_result(job, system, result, qrels),
            is_baseline=_is_baseline(job),
            locked_dataset=dataset,
        )
        for result in results
    ]
    *further, main = entries
    already_there = Job.objects.filter(entry=main).exclude(pk=job.pk).exists()
    if already_there and job.submission is not None:
        withdrawn = main.visibility == Entry.Visibility.WITHDRAWN
        if job.kind != Job.Kind.MODEL or withdrawn:
            # The same text sent again, compressed otherwise, which its bytes alone did not show.
            message = f"this system has the same run on {job.dataset} already"
            hint = "If it is another seed or configuration, label it."
            raise InvalidRun.of(ALREADY_SUBMITTED.problem(message, hint))
        write_log(job.pk, "It found what it had found before: the entry stays, and is measured again.")
    columns: dict[str, Any] = {"log": append_log_line(_log_line(main))}
    if already_there:
        further = entries if job.submission is not None else []
    else:
        columns["entry"] = main
    Job.objects.filter(pk=job.pk).update(**columns)
    if further:
        job.further_entries.set(further)
    return entries


def _new_entry(provenance: Entry.Provenance, submission: Submission | None, **columns: Any) -> Entry:
    """Return an unsaved entry with what its submission says."""
    if submission is not None:
        columns |= {
            "public_wanted": submission.public,
            "submission_reference": submission.pk,
            "submitter": submission.submitter,
            "round_id": submission.round_id,
            "late": submission.late,
            "run_type": submission.run_type,
        }
    return Entry(provenance=provenance, **columns)


def _log_line(entry: Entry) -> str:
    if entry.waits_for_its_turn:
        return "Scored: it is told in its turn."
    return _LOGGED.get(entry.visibility, "Scored.")


def _publish_seed(job: Job, submission: Submission, evaluation: Evaluation) -> Entry | None:
    """Store a seed's evaluation with its job, and publish the seed set if that completes it; else return None.

    Call it in the transaction that has locked the submission and moved the job to done, so that of two seeds that end
    at once the second sees the first. Raises InvalidRun for the run of another seed under another compression, and for
    a set that exists already.
    """
    Job.objects.filter(pk=job.pk).update(evaluation=evaluation)
    jobs = list(
        Job.objects.filter(submission=submission, dataset=job.dataset)
        .select_related("evaluation__run__version__dataset", "evaluation__run__system")
        .defer("evaluation__values")
    )
    evaluations = {
        each.seed: _on_same_qrels(evaluation, each.evaluation) for each in jobs if each.evaluation is not None
    }
    for label, other in evaluations.items():
        if label != job.seed and other.run.sha256 == evaluation.run.sha256:
            message = f"this is the same run as that of seed {label}"
            hint = "Seeds differ: look at how the two were made, and send all seeds again."
            raise InvalidRun.of(SAME_RUN_TWICE.problem(message, hint))
    done = sum(each.state == State.DONE for each in jobs)
    if done < len(jobs):
        write_log(
            job.pk, f"Scored: {done} of {len(jobs)} seeds are. The set is published when all of them are."
        )
        return None
    # Models make no seed sets.
    new = _new_entry(Entry.Provenance.SCORED, submission, configuration=submission.configuration)
    entry = publish_entry(new, evaluations)
    if entry.submission_reference != submission.pk:
        message = f"this system has the same seeds on {job.dataset} already"
        hint = "If they are of another configuration, label it."
        raise InvalidRun.of(ALREADY_SUBMITTED.problem(message, hint))
    Job.objects.filter(pk__in=[each.pk for each in jobs]).update(entry=entry)
    write_log(job.pk, _log_line(entry))
    return entry


def _on_same_qrels(last: Evaluation, earlier: Evaluation) -> Evaluation:
    """Return an earlier seed's evaluation on the qrels of the last one: the board may have been switched between."""
    if earlier.qrels_id == last.qrels_id:
        return earlier
    rescored = Evaluation.objects.filter(
        run=earlier.run_id, qrels=last.qrels_id, specification=last.specification
    )
    return rescored.select_related("run__version__dataset", "run__system").first() or earlier


def record_result(job: Job, system: System, result: ScoredResult, qrels: Qrels) -> Evaluation:
    """Store the rows of the run and of its evaluation, unrounded, and flag a run that looks like a probe."""
    statistics = result.scored.report.statistics
    run = record_job_run(job, system, result.stored, statistics, qrels.version, result.label)
    evaluation = record_scored(run, qrels, result.scored)
    if job.submission is not None and result.signed is not None:
        probes.flag_suspicious_run(job, job.submission, evaluation, result.signed)
    return evaluation


def record_scored(run: Run, qrels: Qrels, scored: ScoredRun) -> Evaluation:
    """Store the row of a run's evaluation, unrounded; in a competition with its means over both parts."""
    evaluation = record_evaluation(
        run=run,
        qrels=qrels,
        specification=SPEC_VERSION,
        measures=[measure.name for measure in scored.measures],
        means=scored.means,
        per_query=scored.per_query,
        missing_queries=scored.missing_queries,
    )
    if get_policy(qrels.version.dataset).competition:
        evaluate_parts(evaluation)
    return evaluation


def delete_upload(job: Job) -> None:
    """Drop the uploaded bytes once the verdict is there, unless somebody else needs the same ones.

    Bytes that came again since may belong to a submission whose row is not committed yet: the sweep sees to those, and
    to all that is forgotten while a backup runs.
    """
    if not job.upload_sha256:
        return
    others = Job.objects.filter(upload_sha256=job.upload_sha256, state__in=[State.VALIDATING, State.SCORING])
    path = path_of(Area.UPLOADS, job.upload_sha256)
    came_again = path.exists() and path.stat().st_mtime > job.created_at.timestamp()
    needed = came_again or others.exclude(pk=job.pk).exists()
    # The pause is checked last: a backup that began since has copied the rows.
    if not needed and not deletion_lock.deletions_are_paused():
        remove(Area.UPLOADS, job.upload_sha256)
