"""Handover of retrieved runs to a scorer, for retrievers without access to relevance judgments.

The runs are in the store and the job's payload names them; the job then moves to the scorers' queue.
"""

import logging
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from evaluation.core.problems import InvalidRun
from evaluation.runs.score import check_run
from leaderboard.core.storage.runs import StoredRun, run_path, store_run, write_text
from leaderboard.datasets.qrels import scoring_target
from leaderboard.importing.examples import offer_example_runs, store_example_runs
from leaderboard.models import DatasetVersion, Entry, System
from leaderboard.results.board_rows.revisions import lock_board
from leaderboard.results.efficiency import record_measurement
from leaderboard.systems.baselines import BM25
from submissions.jobs.kinds import score
from submissions.models import Job, State
from submissions.queue.lease import Lease, advance_claimed, finish
from submissions.queue.queue import ATTEMPTS, WORKED_SECONDS, advance, earlier_work_seconds, wake_worker

logger = logging.getLogger(__name__)

#: Payload keys: the retrieval result, and how often its runs were missing from the scorer's store.
RETRIEVAL = "retrieved"
MISS_COUNT = "retrieved_missed"
#: Payload key of a job that measures again: the primary key of the measured entry.
MEASURES = "measures"


@dataclass(frozen=True, slots=True)
class RetrievedRun:
    """Run in the store. The main run has no label; keys of `facts` are names of evaluation.engines.FACTS."""

    sha256: str
    size: int
    label: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """Result of a retrieval: system, dataset version, runs with the main one last, and measured costs.

    `figures` are costs by label, empty if times are not meaningful. `baseline` is BM25's measurement on the same
    machine.
    """

    system: str
    version: int
    queue: str
    runs: Sequence[RetrievedRun]
    hardware: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    baseline: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self | None:
        """Return the retrieval result in a job's payload, or None before retrieval."""
        values = payload.get(RETRIEVAL)
        if not values:
            return None
        return cls(**{**values, "runs": [RetrievedRun(**run) for run in values["runs"]]})

    @property
    def sha256s(self) -> list[str]:
        return [run.sha256 for run in self.runs]


def store_checked_run(
    path: Path,
    version: DatasetVersion,
    label: str = "",
    facts: Mapping[str, Any] | None = None,
    *,
    may_be_empty: bool = False,
) -> RetrievedRun:
    """Check a run like an upload, but without judgments, and store it. Raises InvalidRun.

    `may_be_empty` accepts an empty run of the site, for example BM25 over texts in another language.
    """
    report = check_run(path, scoring_target(version))
    if not report.valid and not (may_be_empty and not path.stat().st_size):
        raise InvalidRun(report)
    return RetrievedRun(*store_run(path), label, dict(facts or {}))


def finish_retrieval(job: Job, lease: Lease, retrieval: RetrievalResult) -> None:
    """Score and publish the result, or hand it over to a scorer if this process cannot read judgments.

    Raises LeaseLost, Cancelled, or JudgementsChanged.
    """
    if settings.PRIVATE_STORAGE:
        score_retrieved(job, lease, retrieval)
    else:
        _hand_over(job, retrieval)


def score_retrieval(job: Job, lease: Lease) -> bool:
    """Score a result that another worker retrieved for this job; return False if nothing was retrieved yet.

    If the dataset's content has changed, or the runs are missing from this worker's store, the job returns to the
    retrievers. It fails when runs are missing for the third time.
    """
    retrieval = RetrievalResult.from_payload(job.payload)
    if retrieval is None:
        return False
    if retrieval.version != score.current_qrels(job.dataset).version_id:
        _return_to_retrievers(job, retrieval, "The dataset has a new version; retrieving again.")
    elif missing_runs := [sha256 for sha256 in retrieval.sha256s if not run_path(sha256).exists()]:
        missing_count = job.payload.get(MISS_COUNT, 0) + 1
        fault = secrets.token_hex(4)
        logger.error(
            "Fault %s in job %s (%s): %s is not in the store (time %d of %d). Do retriever and scorer share one?",
            fault,
            job.pk,
            job.kind,
            run_path(missing_runs[0]),
            missing_count,
            ATTEMPTS,
        )
        line = f"The retrieved run is missing, a fault on our side ({fault})"
        if missing_count < ATTEMPTS:
            job.payload = {**job.payload, MISS_COUNT: missing_count}
            _return_to_retrievers(job, retrieval, f"{line}. Retrieving again.")
        else:
            line = f"{line}. It was missing three times. We are sorry."
            advance(job.pk, State.FAILED, fence=job.fence, line=line, error_code="run_missing", fault=fault)
    else:
        score_retrieved(job, lease, retrieval)
    return True


def _return_to_retrievers(job: Job, retrieval: RetrievalResult, line: str) -> None:
    payload = {name: value for name, value in job.payload.items() if name != RETRIEVAL}
    _move_to_queue(job, retrieval.queue, payload, line)


def score_retrieved(job: Job, lease: Lease, retrieval: RetrievalResult) -> None:
    """Score and publish the result with its costs, or only replace the costs if the job measures again.

    Raises the exceptions of `finish`.
    """
    if MEASURES in job.payload:
        _replace_measurements(job, retrieval)
        return
    qrels = score.current_qrels(job.dataset)
    score.begin(job, State.SCORING)
    system = System.objects.get(slug=retrieval.system)
    results = []
    lease.clock.enter("scoring")
    for run in retrieval.runs:
        stored_run = StoredRun(run.sha256, run.size)
        scored_run = score.evaluate_run(stored_run, job.dataset, qrels, lease.report)
        results.append(score.ScoredResult(stored_run, scored_run, run.label, run.facts))
    is_baseline, examples = job.kind == Job.Kind.BASELINE, list[Any]()
    if is_baseline:
        with tempfile.TemporaryDirectory(prefix="runboard-") as name:
            path = Path(name) / "run.txt"
            write_text(retrieval.runs[-1].sha256, path)
            examples = store_example_runs(job.dataset, path, Path(name))

    def record_more(results: Sequence[score.ScoredResult], entries: Sequence[Entry]) -> None:
        """Record the costs of new entries, and offer example runs if the run is the baseline."""
        if retrieval.figures and entries:
            labels = [result.label for result in results[-len(entries) :]]
            _record_measurements(dict(zip(labels, entries, strict=True)), retrieval)
        if is_baseline:
            offer_example_runs(qrels.version, examples)

    score.publish_on_current_qrels(job, lease, system, results, qrels, record_more)


def _hand_over(job: Job, retrieval: RetrievalResult) -> None:
    """Move the job to the scorers' queue with the retrieval result, and reset its attempts."""
    payload = {**job.payload, RETRIEVAL: asdict(retrieval)}
    _move_to_queue(job, Job.Queue.SCORE, payload, "Retrieved. Waiting for a scorer.")


def _move_to_queue(job: Job, queue: str, payload: Mapping[str, Any], line: str) -> None:
    """Requeue the claimed job in another queue with a new payload, in which the seconds worked so far are added.

    Raises LeaseLost or Cancelled.
    """
    now = timezone.now()
    seconds_worked = earlier_work_seconds(payload) + (now - (job.started_at or now)).total_seconds()
    payload = {**payload, WORKED_SECONDS: round(seconds_worked, 3)}
    # Turn 0: the job has already waited for its turn once.
    advance_claimed(job, State.QUEUED, line=line, queue=queue, turn=0, payload=payload, attempts=0)
    wake_worker(queue)


def _replace_measurements(job: Job, retrieval: RetrievalResult) -> None:
    """Replace the costs of the job's entry and its variants, and end the job.

    The earlier costs remain if the timing failed or the entry's run is for another dataset version.
    """
    score.begin(job, State.SCORING)
    with transaction.atomic():
        lock_board(job.dataset.pk)
        entry = Entry.objects.select_related("evaluation__run").get(pk=job.payload[MEASURES])
        same_run = entry.evaluation is not None and entry.evaluation.run.version_id == retrieval.version
        if not retrieval.figures or not same_run:
            reason = "the timing failed" if same_run else "the dataset has a new version"
            finish(job, f"Not measured: {reason}. The earlier costs remain.")
            return
        finish(job, "Measured again. A noisy measurement does not replace a reliable one.")
        variants = Entry.objects.filter(
            dataset=entry.dataset, system=entry.system, submission_reference=entry.submission_reference
        )
        by_label = {variant.configuration.split(" · ")[0]: variant for variant in variants}
        entries_by_label = {label: entry if label == "" else by_label.get(label) for label in retrieval.figures}
        _record_measurements({label: row for label, row in entries_by_label.items() if row}, retrieval)


def _record_measurements(entries: Mapping[str, Entry], retrieval: RetrievalResult) -> None:
    """Record the costs of each entry by label, and of the BM25 baseline."""
    baseline = retrieval.baseline.get("figures") or {}
    for label, entry in entries.items():
        if figures := retrieval.figures.get(label):
            record_measurement(entry, retrieval.hardware, figures, baseline)
    any_entry = next(iter(entries.values()))
    row = Entry.objects.filter(
        dataset=any_entry.dataset,
        comparison_group=any_entry.comparison_group,
        is_baseline=True,
        system__slug=BM25.slug,
    ).first()
    if baseline and row is not None:
        record_measurement(row, retrieval.baseline["hardware"], baseline, baseline)
