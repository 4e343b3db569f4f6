"""Scoring of uploaded runs: one pass over the file, a verification of the scores, and one transaction for the result.

For datasets that still collect runs, files are validated and stored, and scored with the first judgments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from django.db import transaction

from evaluation.archives.compression import FileLimits
from evaluation.core.problems import EndlessPattern, InvalidRun, format_count
from evaluation.judgements.responses import STATED_FIGURES
from evaluation.measures.registry import DEFAULT_MEASURES, RESPONSE_MEASURES, SPEC_VERSION
from evaluation.runs.answer_runs import read_answer_run
from evaluation.runs.forms import trec_text
from evaluation.runs.score import ScoredRun, check_run, score_run
from evaluation.runs.similarity import RunFingerprints
from evaluation.runs.top_documents import STORED_DEPTH
from evaluation.verification.comparing import StatedResponses, verify
from evaluation.verification.references import SlowAnswers
from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.runs import StoredRun, read_text, run_path, store_run
from leaderboard.core.storage.store import Area, path_of, remove
from leaderboard.datasets.derived_files import keep_first_documents
from leaderboard.datasets.qrels import (
    answer_texts,
    label_measures,
    label_records,
    scoring_rules,
    scoring_target,
    verifying_judgements,
)
from leaderboard.importing.topics.renewal import request_missed_repeats
from leaderboard.judgements.rescoring.campaigns import include_new_run
from leaderboard.models import Dataset, DatasetVersion, Entry, Evaluation, Qrels, Run, System
from leaderboard.results.board_rows.revisions import lock_board, lock_boards
from leaderboard.results.protection import evaluate_parts, get_policy
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import mark_published
from leaderboard.results.records import record_evaluation
from leaderboard.results.values import JUDGED_MEASURES, upper_bound_measures
from submissions.core.errors import ALREADY_SUBMITTED
from submissions.intake.run_records import record_job_run, record_waiting_run, shown_report, waiting_payload
from submissions.intake.runs import SAME_RUN_TWICE
from submissions.models import Job, State, Submission
from submissions.queue.lease import Lease, LeaseLost, WorkEnded, advance_claimed
from submissions.queue.queue import advance, append_log_line, requeue, write_log
from submissions.quotas import probes

#: Log lines by visibility of the result.
_LOG_LINES: Mapping[str, str] = {
    Entry.Visibility.PUBLIC: "Scored and published.",
    Entry.Visibility.HELD: "Scored: no significant change.",
    Entry.Visibility.SUPERSEDED: "Scored. The board shows a better result of the team or submitter.",
}


@dataclass(frozen=True, slots=True)
class ScoredResult:
    """Evaluated run with its provenance.

    `label` distinguishes the variants of one job. Keys of `facts` are names of evaluation.engines.FACTS. Only
    runs on hidden datasets have `fingerprints`.
    """

    stored_run: StoredRun
    scored_run: ScoredRun
    label: str = ""
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    fingerprints: RunFingerprints | None = None


#: Callback for the transaction that publishes results, with results and entries.
RecordMore = Callable[[Sequence[ScoredResult], Sequence[Entry]], None]
#: Maximum size of runs that are read into memory once for scoring and verification.
MAX_BYTES_IN_MEMORY = 16 * 2**20


def score_job(job: Job, lease: Lease) -> None:
    """Validate (unless done before), score, and publish an uploaded run.

    Without judgments the run is only validated and stored.

    Raises:
        InvalidRun: If the file is not valid.
        LeaseLost: If the claim was lost.
        ScoresDiffer: If the verification fails.
    """
    if job.dataset.awaits_judgements:
        _check_and_store(job, lease)
        return
    qrels = current_qrels(job.dataset)
    if job.validated:
        stored = StoredRun(job.payload["run_sha256"], job.payload["size"])
        begin(job, State.SCORING)
        lease.clock.enter("scoring")
        scored_run = evaluate_run(stored, job.dataset, qrels, lease.report)
    else:
        upload = path_of(Area.UPLOADS, job.upload_sha256)
        lease.clock.enter("scoring")
        scored_run = _score(upload, job.dataset, qrels, lease.report)
        begin(job, State.SCORING)
        stored = store_run(upload)
        verify_scored_run(stored.sha256, qrels, scored_run, lease.check)
    if job.submission is not None:
        system = job.submission.system
    else:
        system = System.objects.select_related("team").get(slug=job.payload["system_slug"])
    publish_on_current_qrels(job, lease, system, [ScoredResult(stored, scored_run)], qrels)
    delete_upload(job)


def _check_and_store(job: Job, lease: Lease) -> None:
    """Validate and store a run of a dataset without judgments; its job then waits for them."""
    version, submission = job.dataset.current_version, job.submission
    if version is None or submission is None:
        raise RuntimeError(f"Job {job.pk} has no dataset version or submission to store a run for.")
    upload = path_of(Area.UPLOADS, job.upload_sha256)
    report = check_run(upload, scoring_target(version), progress=lease.report)
    if not report.valid:
        raise InvalidRun(report)
    stored = store_run(upload)
    statistics = report.statistics
    payload = {**job.payload, **waiting_payload(stored, statistics)}
    with transaction.atomic():
        lock_boards([job.dataset.pk])
        submission = Submission.objects.select_for_update(no_key=True).get(pk=submission.pk)
        line = f"Validated: {format_count(statistics.lines, 'line')}. The run waits for the first judgments."
        columns = {"validated": True, "attempts": 0, "payload": payload, "report": report.as_dict()}
        advance_claimed(job, State.QUEUED, line=line, **columns)
        record_waiting_run(job, submission, stored, statistics, version)
    delete_upload(job)


class JudgementsChanged(WorkEnded):
    """Exception because the dataset's qrels changed during scoring. Nothing was published."""

    def settle(self, job: Job) -> None:
        """Requeue the job."""
        requeue(job, counts_attempt=False, line="The dataset has a new version. The job will be repeated.")


def evaluate_run(stored: StoredRun, dataset: Dataset, qrels: Qrels, progress: Callable[[float], None]) -> ScoredRun:
    """Return verified scores for every measure that the dataset shows or may show later.

    All evaluations of stored runs use this function. Raises InvalidContent or ScoresDiffer.
    """
    text = read_text(stored.sha256) if stored.size <= MAX_BYTES_IN_MEMORY else None
    run = run_path(stored.sha256) if text is None else text
    scored_run = _score(run, dataset, qrels, progress, may_be_empty=not stored.size)
    verify_scored_run(stored.sha256, qrels, scored_run, partial(progress, 1.0), text)
    return scored_run


def _score(
    run: Path | bytes,
    dataset: Dataset,
    qrels: Qrels,
    progress: Callable[[float], None],
    *,
    may_be_empty: bool = False,
) -> ScoredRun:
    """Score a run in any format without verification, with its top documents if judgments are open."""
    target, first_documents = scoring_target(qrels.version, qrels=qrels), 0 if dataset.hidden else STORED_DEPTH
    return score_run(
        run,
        target,
        get_stored_measures(dataset, qrels),
        progress=progress,
        first_documents=first_documents,
        may_be_empty=may_be_empty,
    )


def verify_scored_run(
    sha256: str,
    qrels: Qrels,
    scored_run: ScoredRun,
    after_block: Callable[[], object],
    text: bytes | None = None,
) -> None:
    """Compute the scores of a stored run again and compare them.

    Args:
        sha256: Key of the run in the store.
        qrels: Judgments that the run was scored on.
        scored_run: Scores to verify.
        after_block: Callback during the computation, which may raise.
        text: Content of the run, if the caller has read it.

    Raises:
        ScoresDiffer: If the scores differ; its message is for operators only.
        EndlessPattern: If a pattern of the answers takes too long.
    """
    rules, run = scoring_rules(qrels.version), run_path(sha256) if text is None else text
    stated = None
    if any(measure.family.reads_responses for measure in scored_run.measures):
        answer_run = read_answer_run(run, FileLimits())
        citations = BytesIO(answer_run.trec_lines(cited=True)[0])
        stated = StatedResponses(answer_run.responses, citations, label_records(qrels), qrels.version.dataset.hidden)
    with trec_text(run) as (_, stored):
        try:
            verify(
                stored,
                verifying_judgements(qrels),
                scored_run.as_claimed_scores(),
                rules,
                sha256,
                after_block,
                answer_texts(qrels),
                stated,
            )
        except SlowAnswers as error:
            raise EndlessPattern(error.line, "takes too long to be searched") from error


def get_stored_measures(dataset: Dataset, qrels: Qrels) -> Sequence[str]:
    """Return the dataset's measures and the default ones; all are stored, and the dataset selects those shown."""
    measures = [*dataset.measures, *DEFAULT_MEASURES, *JUDGED_MEASURES, *RESPONSE_MEASURES, *label_measures(qrels)]
    return list(dict.fromkeys([*measures, *upper_bound_measures(dataset)]))


def current_qrels(dataset: Dataset) -> Qrels:
    """Return the qrels of the dataset's board. Raises RuntimeError if there are none."""
    if dataset.current_qrels_id is None:
        raise RuntimeError(f"{dataset.name} has no relevance judgments.")
    qrels = Qrels.objects.select_related("version").get(pk=dataset.current_qrels_id)
    qrels.version.dataset = dataset
    return qrels


def judged_version(dataset: Dataset) -> DatasetVersion:
    """Return the version of the board's qrels, which retrievers cannot read. Raises RuntimeError without qrels."""
    if dataset.current_qrels_id is None:
        raise RuntimeError(f"{dataset.name} has no relevance judgments.")
    return DatasetVersion.objects.get(qrels=dataset.current_qrels_id)


def begin(job: Job, state: State, stage: str = "") -> None:
    """Move the job to the state in which it works. Raises LeaseLost if the claim was lost."""
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
    """Publish results, scoring the runs again if the board has switched to other qrels meanwhile.

    Call it outside of transactions. Raises JudgementsChanged if the dataset's content changed too.
    """
    while True:
        lease.clock.enter("publishing")
        try:
            publish_results(job, system, results, qrels, record_more)
            first_documents = {result.stored_run.sha256: result.scored_run.first_documents for result in results}
            keep_first_documents(first_documents, qrels.version.excluded_sha256)
            return
        except JudgementsChanged:
            latest_qrels = current_qrels(Dataset.objects.get(pk=job.dataset.pk))
            if (latest_qrels.version_id, latest_qrels.split) != (qrels.version_id, qrels.split):
                raise
        qrels = latest_qrels
        write_log(job.pk, f"The board now uses qrels v{qrels.number}; scored again on them.")
        lease.clock.enter("scoring")
        rescored_runs = [evaluate_run(result.stored_run, job.dataset, qrels, lease.report) for result in results]
        results = [
            replace(result, scored_run=scored_run) for result, scored_run in zip(results, rescored_runs, strict=True)
        ]


def publish_results(
    job: Job,
    system: System,
    results: Sequence[ScoredResult],
    qrels: Qrels,
    record_more: RecordMore | None = None,
) -> list[Entry]:
    """Store results and the job's state together, the state first, so that a lost claim publishes nothing.

    The last result is the main one; earlier ones are variants with a label and an entry each. On hidden datasets
    variants are dropped, so that each job reads the judgments once. The run of a seed set creates an entry only when
    the set is complete; until then the list is empty. `record_more` is called in the same transaction.

    Raises:
        LeaseLost: If the claim was lost.
        Cancelled: If cancellation was requested before this moment.
        JudgementsChanged: If the board has other qrels now.
    """
    if job.dataset.hidden:
        results = [
            replace(result, fingerprints=probes.fingerprint_submitted_run(job, result.stored_run, qrels))
            for result in results[-1:]
        ]
    with transaction.atomic():
        dataset = lock_board(job.dataset.pk)
        if job.submission_id is not None:
            # Read the submission again: it may have been made private or withdrawn while we scored.
            submissions = Submission.objects.select_for_update(no_key=True, of=("self",)).select_related("submitter")
            job.submission = submissions.filter(pk=job.submission_id).first()
        report = shown_report(job, results[-1].scored_run.report).as_dict()
        advance_claimed(job, State.DONE, progress=1.0, report=report)
        if dataset.current_qrels_id != qrels.pk:  # never publish outdated scores
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
        request_missed_repeats(job.dataset, job.created_at)
    return entries


def _is_baseline(job: Job) -> bool:
    return job.kind == Job.Kind.BASELINE or bool(job.payload.get("baseline"))


def _publish_entries(
    job: Job, dataset: Dataset, system: System, results: Sequence[ScoredResult], qrels: Qrels
) -> list[Entry]:
    """Publish an entry for each result, and link the main entry and its variants to the job.

    A repeated run by a model or by Runboard reuses the existing entry. Raises InvalidRun if an uploaded run already
    exists, or if the existing entry of a model was withdrawn.
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
    *further_entries, main = entries
    has_entry = Job.objects.filter(entry=main).exclude(pk=job.pk).exists()
    if has_entry and job.submission is not None:
        is_withdrawn = main.visibility == Entry.Visibility.WITHDRAWN
        if job.kind != Job.Kind.MODEL or is_withdrawn:
            # The same run with another compression, which the checksum of the upload did not show.
            message = f"The system already has the same run on {job.dataset}"
            hint = "Label it if it is another seed or configuration."
            raise InvalidRun.build(ALREADY_SUBMITTED.problem(message, hint))
        write_log(job.pk, "The run is identical to an earlier one. Its entry remains and is measured again.")
    columns: dict[str, Any] = {"log": append_log_line(_log_line(main))}
    if has_entry:
        further_entries = entries if job.submission is not None else []
    else:
        columns["entry"] = main
    Job.objects.filter(pk=job.pk).update(**columns)
    if further_entries:
        job.further_entries.set(further_entries)
    return entries


def _new_entry(provenance: Entry.Provenance, submission: Submission | None, **columns: Any) -> Entry:
    """Return an unsaved entry with the attributes of its submission."""
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
        return "Scored. The result waits for its release."
    return _LOG_LINES.get(entry.visibility, "Scored.")


def _publish_seed(job: Job, submission: Submission, evaluation: Evaluation) -> Entry | None:
    """Store a seed's evaluation and publish the seed set if it is complete; return the entry or None.

    Call it in the transaction that has locked the submission and marked the job as done, so that of two seeds that end
    at once the second sees the first. Raises InvalidRun if the run equals that of another seed, or if the set exists
    already.
    """
    Job.objects.filter(pk=job.pk).update(evaluation=evaluation)
    jobs = list(
        Job.objects.filter(submission=submission, dataset=job.dataset)
        .select_related("evaluation__run__version__dataset", "evaluation__run__system")
        .defer("evaluation__values")
    )
    evaluations = {job.seed: _match_qrels(evaluation, job.evaluation) for job in jobs if job.evaluation is not None}
    for label, other_evaluation in evaluations.items():
        if label != job.seed and other_evaluation.run.sha256 == evaluation.run.sha256:
            message = f"The run is identical to that of seed {label}"
            hint = "Seeds must differ. Check how the two runs were produced, and submit all seeds again."
            raise InvalidRun.build(SAME_RUN_TWICE.problem(message, hint))
    done_count = sum(job.state == State.DONE for job in jobs)
    if done_count < len(jobs):
        write_log(job.pk, f"Scored: {done_count} of {len(jobs)} seeds. The set is published when all are scored.")
        return None
    # Models create no seed sets.
    entry_data = _new_entry(Entry.Provenance.SCORED, submission, configuration=submission.configuration)
    entry = publish_entry(entry_data, evaluations)
    if entry.submission_reference != submission.pk:
        message = f"The system already has the same seeds on {job.dataset}"
        hint = "Label them if they are another configuration."
        raise InvalidRun.build(ALREADY_SUBMITTED.problem(message, hint))
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(entry=entry)
    write_log(job.pk, _log_line(entry))
    return entry


def _match_qrels(reference: Evaluation, evaluation: Evaluation) -> Evaluation:
    """Return the evaluation of the same run on the qrels of `reference`, or `evaluation` if there is none.

    The board may have switched to other qrels between two seeds of a set.
    """
    if evaluation.qrels_id == reference.qrels_id:
        return evaluation
    evaluations = Evaluation.objects.filter(
        run=evaluation.run_id, qrels=reference.qrels_id, specification=reference.specification
    )
    return evaluations.select_related("run__version__dataset", "run__system").first() or evaluation


def record_result(job: Job, system: System, result: ScoredResult, qrels: Qrels) -> Evaluation:
    """Store the run and its evaluation, unrounded, and flag suspicious runs."""
    statistics = shown_report(job, result.scored_run.report).statistics
    run = record_job_run(job, system, result.stored_run, statistics, qrels.version, result.label)
    evaluation = record_scored_run(run, qrels, result.scored_run)
    if job.submission is not None and result.fingerprints is not None:
        probes.flag_suspicious_run(job, job.submission, evaluation, result.fingerprints)
    return evaluation


def record_scored_run(run: Run, qrels: Qrels, scored_run: ScoredRun) -> Evaluation:
    """Store a run's evaluation, unrounded. In a competition, also store its scores on both parts.

    With hidden judgments, stated figures are means over all responses, and are stored without per-query values.
    """
    omitted = STATED_FIGURES if qrels.version.dataset.hidden else ()
    columns = {item.name: column for column, item in enumerate(scored_run.measures) if item.name not in omitted}
    evaluation = record_evaluation(
        run=run,
        qrels=qrels,
        specification=SPEC_VERSION,
        measures=list(columns),
        means=scored_run.means,
        per_query=scored_run.per_query[:, list(columns.values())],
        missing_queries=scored_run.missing_queries,
    )
    if get_policy(qrels.version.dataset).competition:
        evaluate_parts(evaluation)
    return evaluation


def delete_upload(job: Job) -> None:
    """Delete the job's uploaded file after the verdict, unless another job needs it.

    A file that was uploaded again in the meantime is kept, because the row of its submission may not be committed yet.
    Files are also kept during a backup. The sweep deletes both later.
    """
    if not job.upload_sha256:
        return
    other_jobs = Job.objects.filter(upload_sha256=job.upload_sha256, state__in=[State.VALIDATING, State.SCORING])
    path = path_of(Area.UPLOADS, job.upload_sha256)
    was_uploaded_again = path.exists() and path.stat().st_mtime > job.created_at.timestamp()
    is_needed = was_uploaded_again or other_jobs.exclude(pk=job.pk).exists()
    # Check the pause last: a backup that began meanwhile has copied the rows.
    if not is_needed and not deletion_lock.deletions_are_paused():
        remove(Area.UPLOADS, job.upload_sha256)
