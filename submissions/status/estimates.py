"""Estimated duration of model jobs, from similar finished jobs or else as a wide range."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from typing import Any, NamedTuple

from evaluation.checkpoints.description import CheckpointKind
from evaluation.efficiency.measurements import FULL_EFFORT
from evaluation.engines import EngineDescription
from evaluation.engines.base import OWN_LENGTH_LIMIT
from leaderboard.models import Dataset
from submissions.models import Job, State
from submissions.queue.queue import earlier_work_seconds

#: Maximum number of finished jobs considered (newest first), and of the most similar ones that an estimate uses.
MAX_FINISHED_JOBS, MAX_USED = 40, 5
#: Minimum number of similar jobs for a single estimate, their median. With fewer, the bounds
#: are the median divided and multiplied by this factor.
MIN_SIMILAR, SIMILAR_FACTOR = 3, 3.0
#: Jobs are similar if their times by the rule of thumb differ at most by this factor.
MAX_RATIO = 8.0
#: Constants of the rule of thumb: seconds for two starts with imports and BM25, documents read or counted per second,
#: and operations per second of a core. Each weight takes two operations per word piece, and a text has 200 pieces.
START_SECONDS = 8.0
LIGHT_TEXTS_PER_SECOND = 3_000
_PIECES_PER_TEXT = 200
#: Word pieces per word, and of the shortest text.
_PIECES_PER_WORD, _MIN_PIECES = 1.3, 16
_OPERATIONS_PER_SECOND = 1e11
#: Uncertainty of the rule of thumb: a loaded machine, long texts, many cores, or a GPU.
RULE_FACTOR = 10.0


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """Amount of work of a model: the number of texts it reads, and the number of weights applied to each."""

    engine: EngineDescription
    kind: str = ""
    weights: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def light(self) -> bool:
        """Whether few or no weights are applied to each text, as for word counts or vector lookups."""
        return (
            not self.engine.needs_checkpoint
            or self.engine.architecture == "lexical"
            or self.kind == CheckpointKind.STATIC_EMBEDDINGS
        )

    @property
    def known(self) -> bool:
        """Whether the number of weights per text is known."""
        return self.light or bool(self.weights)

    def seconds(self, dataset: Dataset) -> float:
        """Return the seconds by the rule of thumb; the load must be known."""
        weights = 0 if self.light else self.weights or 0
        work = self._count_texts(dataset) * weights * 2 * self._mean_pieces(dataset) / _OPERATIONS_PER_SECOND
        return self.minimum_seconds(dataset) + work

    def minimum_seconds(self, dataset: Dataset) -> float:
        """Return the seconds by the rule of thumb for a model that applies no weights, a lower bound for all models."""
        return START_SECONDS + _count(dataset, "documents") / LIGHT_TEXTS_PER_SECOND

    def _count_texts(self, dataset: Dataset) -> int:
        """Return the number of texts that the model reads, including generated ones.

        These are documents if they are encoded or indexed. Otherwise they are queries, or pairs if candidates are
        re-ranked.
        """
        if self.engine.encoding_parameters is not None or self.light:
            # Count generated tokens as texts of 200 pieces that the model reads.
            tokens = self._parameter("queries_per_document", 0) * self._parameter("generated_tokens", 0)
            return _count(dataset, "documents") * (1 + math.ceil(tokens / _PIECES_PER_TEXT))
        return (_count(dataset, "queries") + FULL_EFFORT.searches) * self._parameter("reranking_depth", 1)

    def _mean_pieces(self, dataset: Dataset) -> float:
        """Return the mean number of word pieces that the model reads per document.

        If documents are split into overlapping passages, repeated pieces count again.
        """
        version = dataset.current_version
        words = (version.statistics if version else {}).get("words_per_document")
        max_length = self._parameter("maximum_length", 0) or OWN_LENGTH_LIMIT
        if not words:
            return min(_PIECES_PER_TEXT, max_length)
        passage = self._parameter("passage_words", 0)
        if 0 < passage < words:
            stride = self._parameter("passage_stride", 0) or max(passage // 2, 1)
            return float(_PIECES_PER_WORD * words * passage / stride)
        return float(min(max(_PIECES_PER_WORD * words, _MIN_PIECES), max_length))

    def _parameter(self, name: str, fallback: int) -> int:
        """Return the value of a parameter, its default, or `fallback` if the engine has no such parameter."""
        value = {**self.engine.complete({}), **self.parameters}.get(name, fallback)
        return int(value) if isinstance(value, int | float) else fallback


class FinishedJob(NamedTuple):
    """A finished job: seconds by the rule of thumb, and actual seconds."""

    estimate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Range of the probable duration on one dataset; both ends are equal if enough similar jobs finished."""

    low: timedelta
    high: timedelta


def similar_finished_jobs(load: ModelLoad) -> list[FinishedJob]:
    """Return finished jobs of the same engine and kind of model, newest first, with estimated and actual seconds.

    Only jobs of the newest one's queue are returned, since other queues run on other hardware.
    """
    jobs = (
        Job.objects.filter(kind=Job.Kind.MODEL, state=State.DONE, submission__engine=load.engine.name)
        .exclude(started_at=None)
        .exclude(finished_at=None)
        .select_related("submission__checkpoint", "dataset__current_version")
        .order_by("-finished_at")
    )
    if load.kind:
        jobs = jobs.filter(submission__checkpoint__kind=load.kind)
    jobs_found, finished_jobs = list(jobs[:MAX_FINISHED_JOBS]), []
    for job in jobs_found:
        if not (job.started_at and job.finished_at and job.submission) or _device(job) != _device(jobs_found[0]):
            continue
        checkpoint = job.submission.checkpoint
        weights = checkpoint.description.get("parameters") if checkpoint else None
        job_load = ModelLoad(load.engine, checkpoint.kind if checkpoint else "", weights, job.model_parameters)
        if job_load.light == load.light:  # other loads apply different numbers of weights to a text
            seconds = (job.finished_at - job.started_at).total_seconds() + earlier_work_seconds(job.payload)
            finished_jobs.append(FinishedJob(job_load.seconds(job.dataset), max(seconds, 1.0)))
    return finished_jobs


def estimate_time(load: ModelLoad, history: Sequence[FinishedJob], dataset: Dataset) -> TimeEstimate:
    """Estimate how long a known load takes on the dataset, from the rule of thumb and similar jobs in `history`.

    The rule of thumb is multiplied by the median ratio of the most similar jobs. With few or no similar jobs, the
    result is a range around this value.
    """
    estimate = load.seconds(dataset)
    similar_jobs = sorted(history, key=lambda job: abs(math.log(job.estimate / estimate)))
    similar_jobs = [
        job for job in similar_jobs[:MAX_USED] if max(job.estimate, estimate) <= MAX_RATIO * min(job.estimate, estimate)
    ]
    seconds = estimate * (median(job.seconds / job.estimate for job in similar_jobs) if similar_jobs else 1.0)
    factor = RULE_FACTOR if not similar_jobs else 1.0 if len(similar_jobs) >= MIN_SIMILAR else SIMILAR_FACTOR
    return TimeEstimate(timedelta(seconds=seconds / factor), timedelta(seconds=seconds * factor))


def _device(job: Job) -> str:
    """Return the queue on which the job was retrieved."""
    return str(job.payload.get("retrieved", {}).get("queue", job.queue))


def _count(dataset: Dataset, name: str) -> int:
    version = dataset.current_version
    return int(version.statistics.get(name, 0)) if version else 0
