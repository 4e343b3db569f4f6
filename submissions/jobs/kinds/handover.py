"""From retrieving to scoring: whoever retrieves may have no judgements, and then hands what it found to a scorer.

What was found lies in the store, and is named in the job's payload: the rest of the job is then the scorers' queue's.
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
from submissions.queue.queue import ATTEMPTS, WORKED, advance, seconds_worked_before, wake_worker

logger = logging.getLogger(__name__)

#: In a job's payload: what was found, and how often that was not there for who should score it.
KEY = "retrieved"
MISSED = "retrieved_missed"
#: Payload key of a job that measures again: the primary key of the measured entry.
MEASURES = "measures"


@dataclass(frozen=True, slots=True)
class RetrievedRun:
    """A ranking in the store: the main one has no label; `facts` are by names of evaluation.engines.FACTS."""

    sha256: str
    size: int
    label: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """What a retrieving worker found: for which system and version, the runs with the main one last, what it cost.

    `figures` are by label; empty where nothing may be said of times. `baseline` is BM25's measurement beside it.
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
        """What a job's payload names; None where nothing was retrieved yet."""
        told = payload.get(KEY)
        if not told:
            return None
        return cls(**{**told, "runs": [RetrievedRun(**run) for run in told["runs"]]})

    @property
    def sha256s(self) -> list[str]:
        """The runs' keys in the store."""
        return [run.sha256 for run in self.runs]


def store_checked_run(
    path: Path,
    version: DatasetVersion,
    label: str = "",
    facts: Mapping[str, Any] | None = None,
    *,
    may_be_empty: bool = False,
) -> RetrievedRun:
    """Check a run like an upload, without judgments, and store it. Raises InvalidRun.

    `may_be_empty` accepts the site's own run without any line, for example of BM25 over texts in another language.
    """
    report = check_run(path, scoring_target(version))
    if not report.valid and not (may_be_empty and not path.stat().st_size):
        raise InvalidRun(report)
    return RetrievedRun(*store_run(path), label, dict(facts or {}))


def finish_retrieval(job: Job, lease: Lease, found: RetrievalResult) -> None:
    """Score and publish what was found, or leave that to a scorer where judgements are not for this process.

    Raises LeaseLost, Cancelled, or JudgementsChanged.
    """
    if settings.PRIVATE_STORAGE:
        score_retrieved(job, lease, found)
    else:
        _hand_over(job, found)


def score_handed_over(job: Job, lease: Lease) -> bool:
    """Score what another worker found for this job; False where that is still to be retrieved.

    Retrieved over content that the dataset no longer has, or not in this worker's store, it goes back to where it came
    from; what is not there for the third time fails.
    """
    found = RetrievalResult.from_payload(job.payload)
    if found is None:
        return False
    if found.version != score.current_qrels(job.dataset).version_id:
        _return_to_retrievers(job, found, "The dataset has other content now: it is retrieved again.")
    elif missing := [sha256 for sha256 in found.sha256s if not run_path(sha256).exists()]:
        missed = job.payload.get(MISSED, 0) + 1
        fault = secrets.token_hex(4)
        logger.error(
            "fault %s in job %s (%s): %s is not in the store (time %d of %d); do retriever and scorer share one?",
            fault, job.pk, job.kind, run_path(missing[0]), missed, ATTEMPTS,
        )  # fmt: skip
        line = f"What was retrieved is not here: a fault of ours ({fault})"
        if missed < ATTEMPTS:
            job.payload = {**job.payload, MISSED: missed}
            _return_to_retrievers(job, found, f"{line}; it is retrieved again.")
        else:
            line = f"{line}, three times. We are sorry."
            advance(job.pk, State.FAILED, fence=job.fence, line=line, error_code="run_missing", fault=fault)
    else:
        score_retrieved(job, lease, found)
    return True


def _return_to_retrievers(job: Job, found: RetrievalResult, line: str) -> None:
    payload = {name: value for name, value in job.payload.items() if name != KEY}
    _move_to_queue(job, found.queue, payload, line)


def score_retrieved(job: Job, lease: Lease, found: RetrievalResult) -> None:
    """Score, publish, and record the costs, or record only the costs if an earlier result is measured again.

    Raises as `finish`.
    """
    if MEASURES in job.payload:
        _replace_measurements(job, found)
        return
    qrels = score.current_qrels(job.dataset)
    score.begin(job, State.SCORING)
    system = System.objects.get(slug=found.system)
    results = []
    lease.clock.enter("scoring")
    for run in found.runs:
        stored = StoredRun(run.sha256, run.size)
        scored = score.evaluate_run(stored, job.dataset, qrels, lease.report)
        results.append(score.ScoredResult(stored, scored, run.label, run.facts))
    is_baseline, examples = job.kind == Job.Kind.BASELINE, list[Any]()
    if is_baseline:
        with tempfile.TemporaryDirectory(prefix="runboard-") as name:
            text = Path(name) / "run.txt"
            write_text(found.runs[-1].sha256, text)
            examples = store_example_runs(job.dataset, text, Path(name))

    def record_more(results: Sequence[score.ScoredResult], entries: Sequence[Entry]) -> None:
        if found.figures and entries:
            labels = [result.label for result in results[-len(entries) :]]
            _record_measurements(dict(zip(labels, entries, strict=True)), found)
        if is_baseline:
            offer_example_runs(qrels.version, examples)

    score.publish_on_current_qrels(job, lease, system, results, qrels, record_more)


def _hand_over(job: Job, found: RetrievalResult) -> None:
    """Put the job into the scorers' queue, with what was found. Its attempts begin anew: the work is another."""
    payload = {**job.payload, KEY: asdict(found)}
    _move_to_queue(job, Job.Queue.SCORE, payload, "Retrieved; a scorer goes on.")


def _move_to_queue(job: Job, queue: str, payload: Mapping[str, Any], line: str) -> None:
    now = timezone.now()
    worked = seconds_worked_before(payload) + (now - (job.started_at or now)).total_seconds()
    payload = {**payload, WORKED: round(worked, 3)}
    # It has had its turn.
    advance_claimed(job, State.QUEUED, line=line, queue=queue, turn=0, payload=payload, attempts=0)
    wake_worker(queue)


def _replace_measurements(job: Job, retrieval: RetrievalResult) -> None:
    """Record the costs of the job's entry and of its variants, and end the job."""
    score.begin(job, State.SCORING)
    with transaction.atomic():
        lock_board(job.dataset_id)
        entry = Entry.objects.select_related("evaluation__run").get(pk=job.payload[MEASURES])
        same_run = entry.evaluation is not None and entry.evaluation.run.version_id == retrieval.version
        if not retrieval.figures or not same_run:
            reason = "it could not be timed" if same_run else "the dataset has other content now"
            finish(job, f"Not measured: {reason}. The earlier costs remain.")
            return
        finish(job, "Measured again. A noisy measurement does not replace a quiet one.")
        variants = Entry.objects.filter(
            dataset=entry.dataset, system=entry.system, submission_reference=entry.submission_reference
        )
        by_label = {each.configuration.split(" · ")[0]: each for each in variants}
        measured = {label: entry if label == "" else by_label.get(label) for label in retrieval.figures}
        _record_measurements({label: each for label, each in measured.items() if each}, retrieval)


def _record_measurements(entries: Mapping[str, Entry], retrieval: RetrievalResult) -> None:
    """Record the costs of each entry's system, by label, and those of BM25, also for BM25's own entry."""
    baseline = retrieval.baseline.get("figures") or {}
    for label, entry in entries.items():
        if figures := retrieval.figures.get(label):
            record_measurement(entry, retrieval.hardware, figures, baseline)
    own = next(iter(entries.values()))
    row = Entry.objects.filter(
        dataset=own.dataset, comparison_group=own.comparison_group, is_baseline=True, system__slug=BM25.slug
    ).first()
    if baseline and row is not None:
        record_measurement(row, retrieval.baseline["hardware"], baseline, baseline)
