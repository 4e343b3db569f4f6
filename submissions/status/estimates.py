"""How long a model's job will take: by jobs like it that ended here, else a wide range. Never a promise."""

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
from submissions.queue.queue import seconds_worked_before

#: How many ended jobs are looked at, the newest ones, and how many of those, the most alike, an estimate is made of.
HISTORY, ALIKE = 40, 5
#: So many jobs of a kind say how long the next one takes; fewer say it within this factor both ways.
ENOUGH, FACTOR = 3, 3.0
#: Jobs are of a kind where the rule of thumb gives them times within this factor.
SAME_KIND = 8.0
#: The rule of thumb. Seconds for starting and for loading libraries, twice, with BM25; documents that are read, counted
#: or looked up in a second; two operations for each weight and word piece, some 200 pieces a text; what a core does.
START_SECONDS = 8.0
LIGHT_TEXTS_PER_SECOND = 3_000
_PIECES = 200
#: Pieces of a word, and of the shortest text.
_PIECES_PER_WORD, _LEAST_PIECES = 1.3, 16
_OPERATIONS_PER_SECOND = 1e11
#: By what factor the rule may be wrong: a loaded machine, long texts, a processor with many cores, a graphics card.
RULE_FACTOR = 10.0


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """What decides how long a model takes: how many texts go through it, and how many weights each text meets."""

    engine: EngineDescription
    kind: str = ""
    weights: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def light(self) -> bool:
        """Whether a text meets few weights or none: words are counted, or vectors looked up."""
        return (
            not self.engine.needs_checkpoint
            or self.engine.architecture == "lexical"
            or self.kind == CheckpointKind.STATIC_EMBEDDINGS
        )

    @property
    def known(self) -> bool:
        """Whether it is known what each text meets."""
        return self.light or bool(self.weights)

    def seconds(self, dataset: Dataset) -> float:
        """What the rule of thumb gives for a load that is known."""
        meets = 0 if self.light else self.weights or 0
        work = self._texts(dataset) * meets * 2 * self._pieces(dataset) / _OPERATIONS_PER_SECOND
        return self.least(dataset) + work

    def least(self, dataset: Dataset) -> float:
        """What it gives where no text meets a weight."""
        return START_SECONDS + _count(dataset, "documents") / LIGHT_TEXTS_PER_SECOND

    def _texts(self, dataset: Dataset) -> int:
        """Documents where these are encoded or indexed; pairs where candidates are scored; else queries."""
        if self.engine.encoding_parameters is not None or self.light:
            # Tokens that a model writes for each text that it reads, as texts.
            tokens = self._value("queries_per_document", 0) * self._value("generated_tokens", 0)
            return _count(dataset, "documents") * (1 + math.ceil(tokens / _PIECES))
        return (_count(dataset, "queries") + FULL_EFFORT.searches) * self._value("reranking_depth", 1)

    def _pieces(self, dataset: Dataset) -> float:
        """Word pieces of a document that are read, as far as its words are counted: all of those in passages."""
        version = dataset.current_version
        words = (version.statistics if version else {}).get("words_per_document")
        longest = self._value("maximum_length", 0) or OWN_LENGTH_LIMIT
        if not words:
            return min(_PIECES, longest)
        passage = self._value("passage_words", 0)
        if 0 < passage < words:
            stride = self._value("passage_stride", 0) or max(passage // 2, 1)
            return float(_PIECES_PER_WORD * words * passage / stride)
        return float(min(max(_PIECES_PER_WORD * words, _LEAST_PIECES), longest))

    def _value(self, name: str, otherwise: int) -> int:
        """What a parameter is set to; its default where it is not, and `otherwise` where the engine has none."""
        defaults = {parameter.name: parameter.default for parameter in self.engine.parameters}
        value = self.parameters.get(name, defaults.get(name, otherwise))
        return int(value) if isinstance(value, int | float) else otherwise


class FinishedJob(NamedTuple):
    """A job that ended well: what the rule of thumb gives it, and what it took."""

    rule: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Between which times one dataset will probably take, equal where enough of the kind ended."""

    low: timedelta
    high: timedelta


def similar_finished_jobs(load: ModelLoad) -> list[FinishedJob]:
    """Jobs of the engine that ended here, newest first: of models of the same kind where that is known.

    On one queue, that of the newest: those of another have other processors.
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
    found, ended = list(jobs[:HISTORY]), []
    for job in found:
        if not (job.started_at and job.finished_at and job.submission) or _device(job) != _device(found[0]):
            continue
        checkpoint = job.submission.checkpoint
        weights = checkpoint.description.get("parameters") if checkpoint else None
        done = ModelLoad(load.engine, checkpoint.kind if checkpoint else "", weights, job.model_parameters)
        if done.light == load.light:  # else a text met something else in it
            took = (job.finished_at - job.started_at).total_seconds() + seconds_worked_before(job.payload)
            ended.append(FinishedJob(done.seconds(job.dataset), max(took, 1.0)))
    return ended


def estimate_time(load: ModelLoad, history: Sequence[FinishedJob], dataset: Dataset) -> TimeEstimate:
    """What a known load probably takes: the rule of thumb, times what jobs most like it took of it, their median."""
    expected = load.seconds(dataset)
    alike = sorted(history, key=lambda ended: abs(math.log(ended.rule / expected)))
    alike = [
        each for each in alike[:ALIKE] if max(each.rule, expected) <= SAME_KIND * min(each.rule, expected)
    ]
    takes = expected * (median(each.seconds / each.rule for each in alike) if alike else 1.0)
    factor = RULE_FACTOR if not alike else 1.0 if len(alike) >= ENOUGH else FACTOR
    return TimeEstimate(timedelta(seconds=takes / factor), timedelta(seconds=takes * factor))


def _device(job: Job) -> str:
    """What computed it: the queue that it was retrieved on."""
    return str(job.payload.get("retrieved", {}).get("queue", job.queue))


def _count(dataset: Dataset, what: str) -> int:
    version = dataset.current_version
    return int(version.statistics.get(what, 0)) if version else 0
