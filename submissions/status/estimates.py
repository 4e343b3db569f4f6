"""How long a model's job will take: from jobs like it that ended here, else from a rule of thumb. Never a promise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median
from typing import Any

from evaluation.checkpoints.description import CheckpointKind
from evaluation.engines import EngineDescription
from leaderboard.models import Dataset
from submissions.models import Job, State

#: How many ended jobs an estimate looks at, the newest ones.
HISTORY = 20
#: What a job takes besides its documents: starting, loading, searching, measuring the model and BM25 beside it.
OVERHEAD = timedelta(seconds=60)
#: Searches of the efficiency protocol, beside those for the run.
TIMED_SEARCHES = 220
#: A model of which nothing is known yet: as large as BERT's small siblings.
TYPICAL_WEIGHTS = 30_000_000
#: The rule of thumb: two operations for each weight and word piece, some 200 pieces a text, and what one core does.
_PIECES = 200
_OPERATIONS = 2 * _PIECES
_OPERATIONS_PER_SECOND = 1e11
_RULE = (
    "a rule of thumb (two operations for each weight and word piece, 200 word pieces a text, 100 billion a second): "
    "no such model has ended here yet"
)
#: Documents a second where words are only counted or looked up.
_LIGHT_TEXTS_PER_SECOND = 3_000
_LIGHT_RULE = "a rule of thumb (3,000 documents a second): nothing of this kind has ended here yet"


@dataclass(frozen=True, slots=True)
class Load:
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

    def of(self, dataset: Dataset) -> float:
        """Texts times weights."""
        weights = 1 if self.light else self.weights or TYPICAL_WEIGHTS
        return self._texts(dataset) * weights

    def _texts(self, dataset: Dataset) -> int:
        """Documents where these are encoded or indexed; pairs where candidates are scored; else queries."""
        if self.engine.encoding_parameters is not None or self.light:
            return _count(dataset, "documents") * (1 + self._written_texts())
        return (_count(dataset, "queries") + TIMED_SEARCHES) * self._value("reranking_depth", 1)

    def _written_texts(self) -> int:
        """How many texts' worth of tokens a model writes for each that it reads."""
        tokens = self._value("queries_per_document", 0) * self._value("generated_tokens", 0)
        return math.ceil(tokens / _PIECES)

    def _value(self, name: str, otherwise: int) -> int:
        """What a parameter is set to; its default where it is not, and `otherwise` where the engine has none."""
        defaults = {parameter.name: parameter.default for parameter in self.engine.parameters}
        value = self.parameters.get(name, defaults.get(name, otherwise))
        return int(value) if isinstance(value, int | float) else otherwise


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds for a unit of load, and what says so."""

    seconds: float
    basis: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one dataset will probably take; `documents` are those of its corpus."""

    dataset: Dataset
    documents: int
    time: timedelta


def pace_of(load: Load) -> Pace:
    """How fast such models go through the workers here."""
    jobs = (
        Job.objects.filter(kind=Job.Kind.MODEL, state=State.DONE, submission__engine=load.engine.name)
        .exclude(started_at=None)
        .exclude(finished_at=None)
        .select_related("submission__checkpoint", "dataset__current_version")
        .order_by("-finished_at")
    )
    if load.kind:
        jobs = jobs.filter(submission__checkpoint__kind=load.kind)
    paces = [
        pace for pace in (_pace(job, load.engine, load.light) for job in jobs[:HISTORY]) if pace is not None
    ]
    if paces:
        count = f"the last {len(paces)} jobs" if len(paces) > 1 else "the one job"
        return Pace(median(paces), f"{count} of this kind that ended here, scaled by texts and weights")
    if load.light:
        return Pace(1 / _LIGHT_TEXTS_PER_SECOND, _LIGHT_RULE)
    return Pace(_OPERATIONS / _OPERATIONS_PER_SECOND, _RULE)


def estimate(load: Load, pace: Pace, dataset: Dataset) -> Estimate:
    """What the dataset will probably take."""
    seconds = pace.seconds * load.of(dataset)
    return Estimate(dataset, _count(dataset, "documents"), OVERHEAD + timedelta(seconds=seconds))


def _pace(job: Job, engine: EngineDescription, light: bool) -> float | None:
    """Seconds for a unit of load that the job took beyond the overhead; None where it was another kind of load."""
    if job.started_at is None or job.finished_at is None or job.submission is None:
        return None
    checkpoint = job.submission.checkpoint
    weights = checkpoint.description.get("parameters") if checkpoint else None
    done = Load(engine, checkpoint.kind if checkpoint else "", weights, job.submission.parameters)
    if done.light != light:
        return None
    load = done.of(job.dataset)
    return max((job.finished_at - job.started_at - OVERHEAD).total_seconds(), 1.0) / load if load else None


def _count(dataset: Dataset, what: str) -> int:
    version = dataset.current_version
    return int(version.statistics.get(what, 0)) if version else 0
