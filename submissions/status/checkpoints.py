"""What the status of a model's job has beside that of a run's: where it is, what it found, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Count, Sum
from django.utils import timezone

from evaluation.engines import ENGINES
from evaluation.execution.failures import MODEL_FAILURES
from leaderboard.boards.columns.costs import COSTS, OVER_STORED_RUNS, latency_variation, times_baseline
from leaderboard.boards.system.depth import DEPTH, Axis, DepthPoint, DepthSeries, depth_series, variant_depth
from leaderboard.core.text.numbers import format_quantity
from leaderboard.models import Entry, Measurement
from leaderboard.results.board_rows.measurements import Machine, MeasuredEntry, prices_today
from leaderboard.results.reported_facts import fact_texts
from submissions.accounts.permissions import run_stays_private
from submissions.models import Job, State

#: The stages of a model's job, in their order, in words.
STAGES = {
    "fetching": "fetching the model from the hub",
    "checking": "checking the model against its library",
    "loading": "loading the model",
    "encoding": "encoding the documents",
    "storing": "writing the embeddings to shared storage",
    "bringing": "bringing the embeddings to this machine",
    "indexing": "building the index",
    "searching": "searching",
    "measuring": "measuring what a search costs",
}
#: What helps against a warning on a run that was made here, where it is not what helps whoever sent one.
_HINTS = dict.fromkeys(
    ("judged_queries_missing", "queries_missing"),
    "The model found no document for them. Nothing to do, if that is to be expected of it.",
)
#: Before this share is done, what is left is anybody's guess.
_TELLING = 0.02
#: Shards that say how fast the next ones will come.
_LATELY = 17


@dataclass(frozen=True, slots=True)
class ResultVariant:
    """One of a job's results: its entry, its place among several by depth or bytes, and what a search took."""

    entry: Entry

    @property
    def place(self) -> tuple[Axis, float] | None:
        """Its depth or bytes. Its own label precedes the submission's in the configuration."""
        return variant_depth(self.entry.configuration.split(" · ")[0], self.entry.facts)

    @property
    def latency_ms(self) -> float | None:
        """The mean latency of a search, unless it is in doubt."""
        measured = _measured(self.entry)
        if measured is None or _measured_entry(measured).doubt:
            return None
        return float(measured.figures["latency_ms"]["mean"])

    @property
    def label(self) -> str:
        """What tells it apart."""
        return self.entry.configuration

    def score(self, measure: str) -> float | None:
        """Its published value."""
        value: float | None = self.entry.scores.get(measure)
        return value


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """Shards of a corpus: how many are encoded, how fast all workers are together, what their time cost so far.

    The rate is that of the shards that came last; None before there are two. The cost is None where an hour of some
    machine has no price, or prices are in several currencies.
    """

    done: int
    expected: int
    documents_per_second: float | None
    time_left: timedelta | None
    cost: float | None
    currency: str

    @property
    def seconds_left(self) -> float | None:
        """The time left in seconds."""
        return self.time_left.total_seconds() if self.time_left is not None else None


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A model's job: `stage` in words, shards of the corpus and the time left while it runs."""

    stage: str = ""
    note: str = ""
    time_left: timedelta | None = None
    shards: ShardProgress | None = None
    facts: Sequence[tuple[str, str]] = ()
    variants: Sequence[ResultVariant] = ()
    depth: DepthSeries | None = None
    costs: MeasuredCosts | None = None
    meaning: str = ""
    remedy: str = ""
    #: Whether it would have further results, and has none because the judgements are hidden.
    main_alone: bool = False
    #: Whether its run is for nobody to download.
    run_stays: bool = False
    #: Parameters that the dataset has for itself.
    own_parameters: Mapping[str, Any] = field(default_factory=dict)


def model_part(job: Job, entry: Entry | None, *, complete: bool) -> ModelPart:
    """What there is to say of a model's job; without `complete` what boards show alone."""
    failure = MODEL_FAILURES.get(job.error_code) if complete else None
    running = job.state == State.RETRIEVING and complete
    further = [
        each
        for each in (job.further_entries.all() if entry else ())
        if complete or each.visibility == Entry.Visibility.PUBLIC
    ]
    variants = [ResultVariant(each) for each in (*further, entry)] if entry and further else []
    variants.sort(key=lambda variant: (variant.place or (DEPTH, 0), variant.label))
    measured = _measured(entry) if entry else None
    shards = _shards(job) if running else None
    # Effectiveness and latency against depth, of a re-ranker; against bytes where dimensions differ.
    measure, points = job.dataset.primary_measure, []
    for variant in variants:
        value = variant.score(measure)
        if variant.place and value is not None:
            points.append(DepthPoint(variant.place[1], value, variant.latency_ms))
    axis = next((variant.place[0] for variant in variants if variant.place), DEPTH)
    submission, main_alone = job.submission, False
    if submission is not None and job.dataset.hidden and submission.engine in ENGINES:
        left_out = ENGINES[submission.engine].main_alone
        main_alone = any(submission.parameters.get(name) != value for name, value in left_out.items())
    return ModelPart(
        stage=STAGES.get(job.stage, job.stage) if running else "",
        note=job.progress_note if running else "",
        time_left=shards.time_left if shards else _time_left(job) if running else None,
        shards=shards,
        facts=fact_texts(entry.facts) if entry else (),
        variants=variants,
        depth=depth_series(measure, points, axis),
        costs=costs_of(measured) if measured else None,
        meaning=failure.meaning if failure else "",
        remedy=failure.remedy if failure else "",
        main_alone=main_alone,
        run_stays=run_stays_private(job),
        own_parameters=job.payload.get("parameters", {}),
    )


def model_problems(problems: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was found in a run that a model made here, in words for whoever sent the model."""
    return [{**each, "hint": _HINTS.get(each["code"], each["hint"])} for each in problems]


def _time_left(job: Job) -> timedelta | None:
    """From how long encoding has taken so far; other stages are short, or say nothing of their pace."""
    if job.stage != "encoding" or job.started_at is None or job.waits_for_id or job.progress < _TELLING:
        return None
    taken: timedelta = timezone.now() - job.started_at
    return taken * (1 - job.progress) / job.progress


def _shards(job: Job) -> ShardProgress | None:
    encoding = job.waits_for
    if (
        encoding is None or job.lease_expires_at is not None
    ):  # where it runs, it only keeps them from the sweep
        return None
    made = encoding.shards.exclude(done_at=None)
    by_machine = list(made.order_by("hardware").values_list("hardware").annotate(Count("pk"), Sum("seconds")))
    done = sum(count for _, count, _ in by_machine)
    lately = list(made.order_by("-done_at").values_list("done_at", "documents")[:_LATELY])
    moments = [moment for moment, _ in lately if moment]
    taken = (moments[0] - moments[-1]).total_seconds() if moments else 0.0
    rate = sum(documents for _, documents in lately[:-1]) / taken if taken > 0 else None
    left = (encoding.shards_expected - done) * encoding.shard_size
    prices = prices_today((machine for machine, *_ in by_machine), "hardware__slug")
    currencies = {prices[machine][1] if machine in prices else "" for machine, *_ in by_machine}
    currency = currencies.pop() if len(currencies) == 1 else ""
    return ShardProgress(
        done,
        encoding.shards_expected,
        rate,
        timedelta(seconds=left / rate) if rate else None,
        sum(seconds / 3600 * prices[machine][0] for machine, _, seconds in by_machine) if currency else None,
        currency,
    )


def _measured(entry: Entry) -> Measurement | None:
    """Return the entry's newest measurement."""
    return max(entry.measurements.all(), key=lambda each: each.measured_at, default=None)


#: Columns that a sentence of their own stands for.
_TOLD = frozenset({"mean-latency", "times-bm25", "cost-per-million"})


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """A measurement in words. `spread` is p50, p95 and p99; `figures` are labels and values of all else."""

    latency_ms: float
    spread: str
    hardware: str
    machine: str
    remark: str
    times_bm25: str
    bm25_ms: float | None
    figures: Sequence[tuple[str, str]]
    data: dict[str, Any]


def costs_of(measurement: Measurement) -> MeasuredCosts:
    """Return the measurement as a board would show it."""
    measured = _measured_entry(measurement)
    ratio = None if measured.over_stored_runs else times_baseline(measured)
    others = [(each, each.value(measured)) for each in COSTS if each.key not in _TOLD]
    return MeasuredCosts(
        latency_ms=measured.latency["mean"],
        spread=latency_variation(measured),
        hardware=measured.machine.name,
        machine=measured.machine.slug,
        remark="; ".join(
            filter(None, (OVER_STORED_RUNS if measured.over_stored_runs else "", measured.doubt))
        ),
        times_bm25="" if ratio is None else format_quantity(ratio),
        bm25_ms=measured.baseline_latency,
        figures=[
            (each.label, f"{format_quantity(value)} {each.unit}".strip())
            for each, value in others
            if value is not None
        ],
        data={**measured.as_data(), "times_bm25": ratio},
    )


def _measured_entry(measurement: Measurement) -> MeasuredEntry:
    """Return the measurement as boards read theirs."""
    entry, hardware = measurement.entry, measurement.hardware
    return MeasuredEntry(
        entry.dataset_id,
        entry.pk,
        entry.system_id,
        entry.configuration,
        Machine(hardware.slug, hardware.name),
        measurement.protocol,
        measurement.measured_at.isoformat(),
        measurement.figures,
        measurement.baseline,
    )
