"""Additional status of model jobs: stage, shards, variants, and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db.models import Count, Sum
from django.utils import timezone

from evaluation.engines import ENGINES
from evaluation.execution.failures import MODEL_FAILURES
from evaluation.runs.problems import RANK_ORDER, SEVERAL_TAGS, SHALLOW, TIES
from leaderboard.boards.columns.costs import COSTS, OVER_STORED_RUNS, latency_variation, times_baseline
from leaderboard.boards.system.depth import DEPTH, Axis, DepthPoint, DepthSeries, depth_series, variant_depth
from leaderboard.core.text.numbers import format_quantity
from leaderboard.models import Entry, Measurement
from leaderboard.results.board_rows.measurements import Machine, MeasuredEntry, prices_today
from leaderboard.results.reported_facts import fact_texts
from submissions.accounts.permissions import run_stays_private
from submissions.models import TERMINAL, Job, State

#: Stages of a model job in order, with their descriptions.
STAGES = {
    "fetching": "downloading the model",
    "checking": "verifying the checkpoint",
    "loading": "loading the model",
    "encoding": "encoding the documents",
    "storing": "writing the embeddings to shared storage",
    "bringing": "copying the embeddings to this machine",
    "indexing": "building the index",
    "searching": "searching",
    "measuring": "measuring search latency",
}
#: Steps of a model job as the status page names them, each with its stages.
STEPS: Mapping[str, Sequence[str]] = {
    "queued": (), "loading": ("fetching", "checking", "loading"),
    "encoding and indexing": ("encoding", "storing", "bringing", "indexing"), "searching": ("searching",),
    "timing": ("measuring",), "scoring": (),
}  # fmt: skip
#: Hints for warnings about runs by Runboard, if they differ from the hints for uploaded runs.
_HINTS = {
    **dict.fromkeys(
        ("judged_queries_missing", "queries_missing"),
        "The model retrieved no document for these queries. Check whether that is expected.",
    ),
    SHALLOW: "Compare by measures with smaller cutoffs.",
}
#: Codes of warnings about how scores and ranks are written.
_FILE_FORMAT = frozenset({RANK_ORDER, TIES, SEVERAL_TAGS})
#: Share of the work from which the remaining time is estimated.
_MIN_PROGRESS = 0.02
#: Number of recent shards from which the encoding rate is computed.
_RECENT_SHARDS = 17


@dataclass(frozen=True, slots=True)
class ResultVariant:
    """One of several results of a job."""

    entry: Entry

    @property
    def place(self) -> tuple[Axis, float] | None:
        """Axis and value (depth or bytes) of the variant, from the first part of the configuration."""
        return variant_depth(self.entry.configuration.split(" · ")[0], self.entry.facts)

    @property
    def latency_ms(self) -> float | None:
        """Mean latency of a search, or None if it is missing or doubtful."""
        measurement = _get_newest_measurement(self.entry)
        if measurement is None or _convert_measurement(measurement).doubt:
            return None
        return float(measurement.figures["latency_ms"]["mean"])

    @property
    def label(self) -> str:
        return self.entry.configuration

    def score(self, measure: str) -> float | None:
        """Return the published value of a measure, if any."""
        value: float | None = self.entry.scores.get(measure)
        return value


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """Progress of encoding a corpus in shards: finished shards, common rate of all workers, and cost so far.

    The rate is that of the latest shards, None before there are two. The cost is None if a machine has no hourly price,
    or prices are in several currencies.
    """

    done: int
    expected: int
    documents_per_second: float | None
    time_left: timedelta | None
    cost: float | None
    currency: str

    @property
    def seconds_left(self) -> float | None:
        return self.time_left.total_seconds() if self.time_left is not None else None


@dataclass(frozen=True, slots=True)
class ModelPart:
    """Status of a model job, with its stage, shards, and remaining time while it runs."""

    stage: str = ""
    note: str = ""
    #: Steps of an unfinished job, each with "done", "current", or "".
    steps: Sequence[tuple[str, str]] = ()
    time_left: timedelta | None = None
    shards: ShardProgress | None = None
    facts: Sequence[tuple[str, str]] = ()
    variants: Sequence[ResultVariant] = ()
    depth: DepthSeries | None = None
    costs: MeasuredCosts | None = None
    meaning: str = ""
    remedy: str = ""
    #: Whether variants are omitted because the dataset is hidden.
    main_alone: bool = False
    #: Whether the run cannot be downloaded.
    run_stays: bool = False
    #: Parameters that apply to this dataset only.
    own_parameters: Mapping[str, Any] = field(default_factory=dict)


def model_part(job: Job, entry: Entry | None, *, complete: bool) -> ModelPart:
    """Return the status of a model job, with its variants and costs if it has an entry.

    Stage, remaining time, and shards are given only for running jobs. Unless `complete` is true, only public facts are
    given, without the cause of a failure.
    """
    failure = MODEL_FAILURES.get(job.error_code) if complete else None
    is_running = job.state == State.RETRIEVING and complete
    further_entries = [
        variant
        for variant in (job.further_entries.all() if entry else ())
        if complete or variant.visibility == Entry.Visibility.PUBLIC
    ]
    variants = [ResultVariant(variant) for variant in (*further_entries, entry)] if entry and further_entries else []
    variants.sort(key=lambda variant: (variant.place or (DEPTH, 0), variant.label))
    measurement = _get_newest_measurement(entry) if entry else None
    shards = _shard_progress(job) if is_running else None
    # Effectiveness and latency against depth for re-rankers, against bytes for truncated embeddings.
    measure, points = job.dataset.primary_measure, []
    for variant in variants:
        value = variant.score(measure)
        if variant.place and value is not None:
            points.append(DepthPoint(variant.place[1], value, variant.latency_ms))
    axis = next((variant.place[0] for variant in variants if variant.place), DEPTH)
    submission, main_alone = job.submission, False
    if submission is not None and job.dataset.hidden and submission.engine in ENGINES:
        omitted_parameters = ENGINES[submission.engine].main_alone
        main_alone = any(submission.parameters.get(name) != value for name, value in omitted_parameters.items())
    return ModelPart(
        stage=STAGES.get(job.stage, job.stage) if is_running else "",
        note=job.progress_note if is_running else "",
        steps=_describe_steps(job) if complete and job.state not in TERMINAL else (),
        time_left=shards.time_left if shards else _estimate_time_left(job) if is_running else None,
        shards=shards,
        facts=fact_texts(entry.facts) if entry else (),
        variants=variants,
        depth=depth_series(measure, points, axis),
        costs=_describe_costs(measurement) if measurement else None,
        meaning=failure.meaning if failure else "",
        remedy=failure.remedy if failure else "",
        main_alone=main_alone,
        run_stays=run_stays_private(job),
        own_parameters=job.payload.get("parameters", {}),
    )


def _describe_steps(job: Job) -> list[tuple[str, str]]:
    """Return the steps of an unfinished model job, each with "done", "current", or "" for those to come."""
    names = list(STEPS)
    running_step = next((name for name, stages in STEPS.items() if job.stage in stages), "loading")
    current = {State.RETRIEVING: running_step, State.SCORING: "scoring"}.get(State(job.state), "queued")
    position = names.index(current)
    return [(name, "current" if name == current else "done" if n < position else "") for n, name in enumerate(names)]


def model_problems(problems: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the problems of a run by Runboard, with hints for the submitter of the model.

    Warnings about the format of the file are omitted, because the submitter did not write it.
    """
    return [
        {**problem, "hint": _HINTS.get(problem["code"], problem["hint"])}
        for problem in problems
        if problem["code"] not in _FILE_FORMAT
    ]


def _estimate_time_left(job: Job) -> timedelta | None:
    """Estimate the remaining time of encoding from its progress.

    Return None in other stages, for jobs that wait for shards, and while there is little progress.
    """
    if job.stage != "encoding" or job.started_at is None or job.waits_for_id or job.progress < _MIN_PROGRESS:
        return None
    elapsed: timedelta = timezone.now() - job.started_at
    return elapsed * (1 - job.progress) / job.progress


def _shard_progress(job: Job) -> ShardProgress | None:
    """Return the progress of the encoding that the job waits for, or None if it does not wait for shards."""
    encoding = job.waits_for
    if encoding is None or job.lease_expires_at is not None:
        # A running job refers to the encoding only to protect it from the sweep.
        return None
    finished_shards = encoding.shards.exclude(done_at=None)
    by_machine = list(
        finished_shards.order_by("hardware").values_list("hardware").annotate(Count("pk"), Sum("seconds"))
    )
    finished_count = sum(count for _, count, _ in by_machine)
    latest_shards = list(finished_shards.order_by("-done_at").values_list("done_at", "documents")[:_RECENT_SHARDS])
    moments = [moment for moment, _ in latest_shards if moment]
    elapsed_seconds = (moments[0] - moments[-1]).total_seconds() if moments else 0.0
    rate = sum(documents for _, documents in latest_shards[:-1]) / elapsed_seconds if elapsed_seconds > 0 else None
    remaining_documents = (encoding.shards_expected - finished_count) * encoding.shard_size
    prices = prices_today((machine for machine, *_ in by_machine), "hardware__slug")
    currencies = {prices[machine][1] if machine in prices else "" for machine, *_ in by_machine}
    currency = currencies.pop() if len(currencies) == 1 else ""
    return ShardProgress(
        finished_count,
        encoding.shards_expected,
        rate,
        timedelta(seconds=remaining_documents / rate) if rate else None,
        sum(seconds / 3600 * prices[machine][0] for machine, _, seconds in by_machine) if currency else None,
        currency,
    )


def _get_newest_measurement(entry: Entry) -> Measurement | None:
    return max(entry.measurements.all(), key=lambda row: row.measured_at, default=None)


#: Columns with their own fields in `MeasuredCosts`.
_SEPARATE_COLUMNS = frozenset({"mean-latency", "times-bm25", "cost-per-million"})


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Costs of a measurement as text.

    `spread` has the percentiles p50, p95, and p99, and `figures` has label, value, and note of the remaining columns.
    """

    latency_ms: float
    spread: str
    hardware: str
    machine: str
    remark: str
    times_bm25: str
    bm25_ms: float | None
    figures: Sequence[tuple[str, str, str]]
    data: dict[str, Any]


def _describe_costs(measurement: Measurement) -> MeasuredCosts:
    """Return the costs of a measurement as text, in the form that boards show."""
    measured_entry = _convert_measurement(measurement)
    ratio = None if measured_entry.over_stored_runs else times_baseline(measured_entry)
    other_columns = [(column, column.value(measured_entry)) for column in COSTS if column.key not in _SEPARATE_COLUMNS]
    return MeasuredCosts(
        latency_ms=measured_entry.latency["mean"],
        spread=latency_variation(measured_entry),
        hardware=measured_entry.machine.name,
        machine=measured_entry.machine.slug,
        remark="; ".join(
            filter(None, (OVER_STORED_RUNS if measured_entry.over_stored_runs else "", measured_entry.doubt))
        ),
        times_bm25="" if ratio is None else format_quantity(ratio),
        bm25_ms=measured_entry.baseline_latency,
        figures=[
            (column.label, f"{format_quantity(value)} {column.unit}".strip(), column.note)
            for column, value in other_columns
            if value is not None
        ],
        data={**measured_entry.as_data(), "times_bm25": ratio},
    )


def _convert_measurement(measurement: Measurement) -> MeasuredEntry:
    """Convert a measurement to the form that board columns read."""
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
