"""Columns of measured and reported costs, and the score that readers weight themselves (Dynascore)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Literal, NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_noop as _

from evaluation.efficiency import PROTOCOL, is_brief
from leaderboard.boards.model import EFFICIENCY, Cell, Column, Row, Value, fill_cells
from leaderboard.boards.state import BoardState
from leaderboard.core.text.numbers import format_quantity
from leaderboard.results.board_rows.entry_rows import UNRANKED
from leaderboard.results.board_rows.measurements import (
    Machine,
    MeasuredEntry,
    add_baseline_measurement,
    chosen_machine,
    list_machines,
)
from leaderboard.results.efficiency import cost_per_million

#: Uncertainty of a value for which there is no estimate.
UNKNOWN_NOISE = math.inf
#: Relative difference in a system's latency between jobs on an idle machine, due to memory layout.
BETWEEN_JOBS = 0.03
#: Mark of a doubtful value.
DOUBTFUL_MARK = "?"


def no_noise(measurement: MeasuredEntry) -> float:
    return 0.0


def latency_noise(measurement: MeasuredEntry) -> float:
    """Return the relative uncertainty of the mean latency: its spread over rounds."""
    return relative_spread(measurement.figures)


def ratio_noise(measurement: MeasuredEntry) -> float:
    """Return the relative uncertainty of × BM25: the sum of both spreads."""
    return relative_spread(measurement.figures) + relative_spread(measurement.baseline)


def relative_spread(figures: Mapping[str, Any]) -> float:
    """Return the relative spread of the mean latency, at least the difference between two jobs on one machine.

    It is UNKNOWN_NOISE under earlier protocols, and for a system too slow for many searches.
    """
    spread = figures.get("spread_ms")
    if spread is None or figures["protocol"] != PROTOCOL or is_brief(figures):
        return UNKNOWN_NOISE
    return max(float(spread / figures["latency_ms"]["mean"]), BETWEEN_JOBS)


def time_html(value: float, *, is_doubtful: bool) -> SafeString:
    """Return a time as HTML, with a superscript mark if it is doubtful."""
    return format_html("{}<sup>{}</sup>" if is_doubtful else "{}", format_quantity(value), DOUBTFUL_MARK)


class CostColumn(NamedTuple):
    """A column of costs.

    `compute` returns its value for a measurement, or None. `relative_noise` returns its relative uncertainty, which is
    unknown for quantities that are timed once. If `whole_searches`, the column is empty for measurements whose first
    search was not timed, so that boards never rank a part of a search.
    """

    key: str
    label: str
    unit: str
    note: str
    compute: Callable[[MeasuredEntry], float | None]
    relative_noise: Callable[[MeasuredEntry], float] = lambda measurement: UNKNOWN_NOISE
    better: Literal["higher", "lower", ""] = "lower"
    whole_searches: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether its values are times or depend on them, so that other work makes them doubtful."""
        return self.relative_noise is not no_noise

    def value(self, measurement: MeasuredEntry) -> float | None:
        return None if self.whole_searches and measurement.over_stored_runs else self.compute(measurement)


def _figure(name: str, divisor: float = 1.0) -> Callable[[MeasuredEntry], float | None]:
    """Return a function that reads a measurement's figure in units of `divisor`, None if there is none."""

    def value(measurement: MeasuredEntry) -> float | None:
        figure = measurement.figures.get(name)
        return None if figure is None else figure / divisor

    return value


def _bytes_per_document(measurement: MeasuredEntry) -> float | None:
    size, documents = measurement.figures.get("index_bytes"), measurement.figures.get("documents")
    return size / documents if size and documents else None


def times_baseline(measurement: MeasuredEntry) -> float | None:
    """Return the mean latency relative to BM25's on the same machine in the same job, None if unknown."""
    baseline = measurement.baseline_latency
    return measurement.latency["mean"] / baseline if baseline else None


def million_query_cost(measurement: MeasuredEntry) -> float | None:
    """Return the cost of a million queries at the machine's current price, None if it has no price."""
    if measurement.per_hour is None:
        return None
    return cost_per_million(measurement.latency["mean"], measurement.per_hour)


#: Note on missing times of systems that start from stored runs.
OVER_STORED_RUNS = _("starts from stored runs: the first search was not timed")


MILLION = 1e6
#: Key of the column that estimates the index size for the reader's own corpus.
CORPUS_INDEX = "corpus-index"
PER_MILLION = _("per M queries")

COSTS: tuple[CostColumn, ...] = (
    CostColumn(
        "mean-latency",
        _("Latency"),
        "ms",
        _(
            "mean over queries of the fastest of several warm searches, one at a time in one thread, from text to top "
            "100; p95 beside each value"
        ),
        lambda measurement: measurement.latency["mean"],
        latency_noise,
        whole_searches=True,
    ),
    CostColumn(
        "times-bm25",
        _("× BM25"),
        "",
        _("mean latency over BM25's, in the same job"),
        times_baseline,
        ratio_noise,
        whole_searches=True,
    ),
    CostColumn(
        "queries-per-second",
        _("Throughput"),
        "queries/s",
        _("all queries in batches"),
        _figure("queries_per_second"),
        better="higher",
        whole_searches=True,
    ),
    CostColumn(
        "documents-per-second",
        _("Encoding"),
        "docs/s",
        _("documents encoded or indexed a second"),
        _figure("documents_per_second"),
        better="higher",
    ),
    CostColumn("build-time", _("Build"), "s", _("from the corpus to a searchable index"), _figure("build_seconds")),
    CostColumn(
        "whole-job",
        _("Whole job"),
        "s",
        _("indexing the corpus and searching all queries of the dataset, in batches"),
        _figure("job_seconds"),
        whole_searches=True,
    ),
    CostColumn("index-bytes", _("Index"), "MB", _("the index on disk"), _figure("index_bytes", MILLION), no_noise),
    CostColumn(
        "bytes-per-document",
        _("Bytes/doc"),
        "B",
        _("the index on disk over the documents in it"),
        _bytes_per_document,
        no_noise,
    ),
    CostColumn(
        "peak-memory",
        _("Memory"),
        "MB",
        _("peak of the whole process, mapped files included"),
        _figure("peak_memory_bytes", MILLION),
        no_noise,
    ),
    CostColumn(
        "gpu-memory",
        _("VRAM"),
        "MB",
        _("peak on the GPU"),
        _figure("peak_gpu_memory_bytes", MILLION),
        no_noise,
    ),
    CostColumn(
        "model-parameters",
        _("Parameters"),
        "M",
        _("weights of the model"),
        _figure("parameters", MILLION),
        no_noise,
        better="",
    ),
    CostColumn(
        "flops-per-query",
        _("FLOPs/query"),
        "M",
        _("floating point operations of a search, model and index; the same on every machine"),
        _figure("flops_per_query", MILLION),
        no_noise,
        whole_searches=True,
    ),
    CostColumn(
        "flops-per-document",
        _("FLOPs/doc"),
        "M",
        _("floating point operations of encoding a document, without padding; the same on every machine"),
        _figure("flops_per_document", MILLION),
        no_noise,
    ),
    CostColumn(
        "energy",
        _("Energy"),
        "J/query",
        _("energy of a single search"),
        _figure("energy_joules_per_query"),
        whole_searches=True,
    ),
    CostColumn(
        "cost-per-million",
        _("Cost"),
        PER_MILLION,
        _("mean latency × 10⁶ × price of an hour / 3600"),
        million_query_cost,
        latency_noise,
        whole_searches=True,
    ),
)
#: Columns whose cells show their uncertainty.
WITH_SPREAD = frozenset({"mean-latency", "times-bm25"})


def estimated_index(documents: int) -> CostColumn:
    """Return a column that estimates the index size for `documents` documents from the measured bytes per document."""

    def value(measurement: MeasuredEntry) -> float | None:
        per_document = _bytes_per_document(measurement)
        return None if per_document is None else per_document * documents / MILLION

    note = (
        f"estimated for {documents:,} documents: measured index bytes per document × {documents:,}; "
        "shorter or longer documents need less or more"
    )
    return CostColumn(CORPUS_INDEX, _("My index"), "MB, estimated", note, value, no_noise)


def cost_columns(
    measurements: Iterable[MeasuredEntry], machine: Machine | None, dataset: str = "", corpus: int = 0
) -> list[Column]:
    """Return all cost columns, including those without measurements.

    Args:
        measurements: Measured entries, which determine the currency.
        machine: Machine on which costs were measured, named in the group label.
        dataset: Dataset on which costs were measured, named in the group label; empty if the board has only one.
        corpus: Number of documents for a column of estimated index size after the measured one; 0 for no such column.
    """
    shown_columns = list(COSTS)
    if corpus:
        position = next(number for number, column in enumerate(shown_columns) if column.key == "index-bytes")
        shown_columns.insert(position + 1, estimated_index(corpus))
    group, currency = cost_group(machine, dataset), common_currency(measurements)
    return [_cost_column(cost_column, group, currency) for cost_column in shown_columns]


def _cost_column(cost_column: CostColumn, group: str, currency: str) -> Column:
    """Return a cost as a column of boards: group, unit with the currency, and cells.

    A doubtful time is shown as text, without a value to rank or sort by.
    """

    def cell(line: Any) -> Cell | Value:
        """Return the line's cost with its absolute uncertainty, or None if it was not measured."""
        value = None if line.measured is None else cost_column.value(line.measured)
        if value is not None and cost_column.is_timed and line.measured.doubt:
            text, reason = format_quantity(value), line.measured.doubt
            return Cell(text=text, mark=DOUBTFUL_MARK, title=reason, doubtful_value=float(value))
        if value is None or not cost_column.better:
            return value
        return Cell(value, noise=value * cost_column.relative_noise(line.measured))

    unit = unit_with_currency(currency, cost_column.unit)
    return Column(
        cost_column.key,
        cost_column.label,
        group,
        "figure",
        cost_column.better,
        unit,
        cost_column.note,
        cell=cell,
    )


class CostLine(NamedTuple):
    """Input for the cells of a row's costs: the measurement, and the figures that a publication reports."""

    measured: MeasuredEntry | None
    figures: Sequence[Mapping[str, Any]]


def fill_costs(rows: Iterable[Row], columns: Sequence[Column], lines: Iterable[CostLine]) -> None:
    """Set the measurement and the cost cells of the rows that have any costs.

    `lines` has the costs of each row, in the same order.
    """
    rows_with_costs = [(row, line) for row, line in zip(rows, lines, strict=True) if line.measured or line.figures]
    for row, line in rows_with_costs:
        row.measured = line.measured
    fill_cells([row for row, _ in rows_with_costs], columns, [line for _, line in rows_with_costs])


def describe_costs(columns: Iterable[Column], rows: Iterable[Row]) -> None:
    """Set the text on hover and the uncertainty of latencies in the rows of a page.

    Doubtful values keep their own text.
    """
    keys = [column.key for column in columns if column.key in WITH_SPREAD]
    for row, key in product(rows, keys):
        if row.measured is None or row[key].mark:  # A doubtful value already has an explanation.
            continue
        value, noise = row.value(key), row[key].noise
        spread, title = spread_text(value, noise) if isinstance(value, float) else "", ""
        if row.measured.over_stored_runs:
            title = OVER_STORED_RUNS
        elif key == "mean-latency":
            title = latency_variation(row.measured)
        elif row.measured.baseline_latency is not None:
            title = f"BM25 took {format_quantity(row.measured.baseline_latency)} ms in the same job"
        row[key] = Cell(value, title=title, spread=spread and f"± {spread}", noise=noise)


def spread_text(value: float, noise: float) -> str:
    """Return the uncertainty `noise` of a cost with as many decimals as the cost; empty if it is 0 or unknown."""
    decimals = len(format_quantity(value).partition(".")[2])
    return f"{max(noise, 10**-decimals):,.{decimals}f}" if noise and math.isfinite(noise) else ""


def latency_spread(measurement: MeasuredEntry) -> str:
    """Return the uncertainty of the mean latency in milliseconds; empty if it is unknown."""
    mean = measurement.latency["mean"]
    return spread_text(mean, mean * latency_noise(measurement))


def cost_group(machine: Machine | None, dataset: str = "") -> str:
    return EFFICIENCY + (f" on {machine.name}" if machine else "") + (f", {dataset}" if dataset else "")


def latency_variation(measurement: MeasuredEntry) -> str:
    """Return a short text on the variation of latency over queries and the uncertainty of its mean."""
    latency, spread = measurement.latency, latency_spread(measurement)
    percentiles = " · ".join(f"{name} {format_quantity(latency[name])}" for name in ("p50", "p95", "p99"))
    brief_note = f" · {measurement.figures['queries']} queries only" if is_brief(measurement.figures) else ""
    return f"{percentiles} ms{brief_note}{spread and f' · mean ± {spread} ms'}"


def common_currency(measurements: Iterable[MeasuredEntry]) -> str:
    """Return the currency that all prices share; empty if there are no prices or several currencies."""
    currencies = {measurement.currency for measurement in measurements if measurement.currency}
    return currencies.pop() if len(currencies) == 1 else ""


def unit_with_currency(currency: str, unit: str) -> str:
    """Return the unit, preceded by the currency if it is a price."""
    return f"{currency} {unit}".strip() if unit == PER_MILLION else unit


class BoardCosts(NamedTuple):
    """The costs on a board: selected machine, all machines, measurements by row, and columns.

    `other_machine_count` is the number of rows measured only on other machines. `dataset` is the dataset of the costs
    if the board has several.
    """

    machine: Machine | None
    machines: list[Machine]
    measured: dict[Any, MeasuredEntry]
    other_machine_count: int
    columns: Sequence[Column] = ()
    dataset: str = ""

    @classmethod
    def for_dataset(cls, measurements: Sequence[MeasuredEntry], bm25: int | None, state: BoardState) -> BoardCosts:
        """Return the costs of a dataset's view on the selected machine. Raises UnknownChoice for the hardware.

        `bm25` is the entry of the site's own BM25. If the view has weights, the last column is the weighted score.
        """
        machines = list_machines(measurements)
        machine = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
        machine_costs = add_baseline_measurement(
            {measurement.entry_id: measurement for measurement in measurements if measurement.machine == machine},
            bm25,
        )
        columns = cost_columns(machine_costs.values(), machine, corpus=state.corpus)
        if state.weights:
            columns.append(weighted_column(cost_group(machine)))
        other_machine_ids = {measurement.entry_id for measurement in measurements}.difference(machine_costs)
        return cls(machine, machines, machine_costs, len(other_machine_ids), columns)

    @property
    def head(self) -> str:
        return cost_group(self.machine, self.dataset) if self.machine else ""

    def notes(self) -> list[str]:
        """Return the notes on protocol, hardware, and exceptions of the costs, empty if none were measured."""
        if self.machine is None:
            return []
        on_dataset, measurements = f" on {self.dataset}" if self.dataset else "", list(self.measured.values())
        notes = [
            f"Efficiency was measured by Runboard{on_dataset} under protocol {PROTOCOL} on {self.machine.name}; × BM25 "
            "is the latency divided by BM25's on the same machine in the same job. ± is the uncertainty of a value. No "
            "best value is marked within it, or if a system was timed only once."
        ]
        earlier_count = sum(measurement.protocol != PROTOCOL for measurement in measurements)
        if earlier_count:
            systems = "1 system was" if earlier_count == 1 else f"{earlier_count} systems were"
            notes.append(f"{systems} measured under an earlier protocol. These times are never marked best.")
        if any(is_brief(measurement.figures) for measurement in measurements):
            notes.append(
                _(
                    "Systems too slow for many searches were timed over fewer queries; hover over the latency for the "
                    "number. They are sorted and drawn like the others, and never marked best."
                )
            )
        if any(measurement.over_stored_runs for measurement in measurements):
            notes.append(
                _(
                    "Systems that start from stored runs (fusion, re-ranking of a run) have no latency, because the "
                    "first search was not timed; their pages show the other costs."
                )
            )
        if self.other_machine_count:
            systems = "1 system was" if self.other_machine_count == 1 else f"{self.other_machine_count} systems were"
            notes.append(f"{systems} measured on other hardware only. Choose it under Filters, Hardware.")
        return notes


WEIGHTED = "weighted-score"
#: Cost criteria of the weighted score, with their columns.
COST_COLUMNS = {"latency": "mean-latency", "memory": "peak-memory", "cost": "cost-per-million"}
#: Maximum number of systems named in the note; the score uses all of them.
MAX_NAMED = 12
#: Neighbors whose effectiveness differs by less than this share of the greatest are ignored, as in
#: Dynabench's implementation: their rate would be a division by almost 0.
MIN_DIFFERENCE = 1e-4


def weighted_column(group: str = EFFICIENCY) -> Column:
    """Return the column of the weighted score in a group.

    The score is Dynascore: Ma, Ethayarajh, Thrush, Jain, Wu, Jia, Potts, Williams and Kiela 2021, "Dynaboard: An
    Evaluation-As-A-Service Platform for Holistic Next-Generation Benchmarking", NeurIPS. Costs are converted to units
    of effectiveness by the rate at which neighboring systems trade them for it.
    """
    return Column(
        WEIGHTED,
        _("Weighted score"),
        group,
        "number",
        "higher",
        note=_(
            "Dynascore: effectiveness minus costs, each divided by its exchange rate, with the weights of this view"
        ),
    )


def fill_weighted(
    rows: Sequence[Row],
    effectiveness: Sequence[float | None],
    weights: Mapping[str, float],
    machine: Machine | None,
    *,
    lower_is_better: bool = False,
) -> list[str]:
    """Set the weighted scores of a board's rows, and return a note on them or on why there are none.

    `effectiveness` has a value per row. Exchange rates are computed over the rows that were measured on the board's
    machine and have effectiveness and all weighted costs. Without weights, there are neither scores nor notes.
    """
    if not weights:
        return []
    columns_by_criterion = {name: COST_COLUMNS[name] for name in weights if name in COST_COLUMNS}
    nonempty_columns = {
        key for row in rows for key in columns_by_criterion.values() if row[key].text or row[key].value is not None
    }
    unmeasured_criteria = [name for name, key in columns_by_criterion.items() if key not in nonempty_columns]
    if unmeasured_criteria:
        return [f"No weighted score: no system here has a measured {' or '.join(unmeasured_criteria)}."]
    sign = -1.0 if lower_is_better else 1.0
    complete_rows: list[tuple[Row, float]] = [
        (row, sign * value)
        for row, value in zip(rows, effectiveness, strict=True)
        if value is not None
        and row.measured is not None
        and row.ranked_in not in UNRANKED
        and all(row.value(key) is not None for key in columns_by_criterion.values())
    ]
    values = [value for _, value in complete_rows]
    rates = {
        name: average_rate(values, [float(row.value(key) or 0.0) for row, _ in complete_rows])
        for name, key in columns_by_criterion.items()
    }
    known_rates = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known_rates) < len(rates):
        return ["No weighted score: an exchange rate needs two measured systems of different effectiveness."]
    for row, value in complete_rows:
        costs = {name: float(row.value(key) or 0.0) for name, key in columns_by_criterion.items()}
        score = weighted_score(value, costs, known_rates, weights)
        if math.isfinite(score):
            row.values[WEIGHTED] = round(score, 4)
    total = sum(weights.values())
    shares = ", ".join(f"{name} {weight / total:.0%}" for name, weight in weights.items())
    names = list(dict.fromkeys(row.entry.system for row, _ in complete_rows))
    system_names = ", ".join(names[:MAX_NAMED]) + (
        f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    )
    on_machine = f" on {machine.name}" if machine else ""
    return [
        f"Weighted score: Dynascore with {shares}; costs count negatively, divided by their average exchange rate "
        f"among the {len(complete_rows)} complete rows measured{on_machine} ({system_names}). Filters do not change it."
    ]


def average_rate(effectiveness: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the average marginal rate of substitution of a quantity against effectiveness.

    Systems are ordered by effectiveness. Between each and the next better one the rate is |Δ quantity| / |Δ
    effectiveness|; the average of these rates is the amount of the quantity that one unit of effectiveness is worth.
    Returns None if no two neighbors differ in effectiveness.
    """
    sorted_pairs = sorted(zip(effectiveness, values, strict=True))
    if not sorted_pairs:
        return None
    min_difference = MIN_DIFFERENCE * max(abs(value) for value in effectiveness)
    rates = [
        abs((value - previous_value) / (better - worse))
        for (worse, previous_value), (better, value) in pairwise(sorted_pairs)
        if better - worse > min_difference
    ]
    return sum(rates) / len(rates) if rates else None


def weighted_score(
    effectiveness: float, costs: Mapping[str, float], rates: Mapping[str, float], weights: Mapping[str, float]
) -> float:
    """Return the sum of weight × quantity / rate with normalized weights; costs count negatively.

    Effectiveness has the weight named `effectiveness`, costs have weights of their names. A cost with rate 0 is the
    same for all systems and is ignored. Higher is better; with all weight on effectiveness, the score equals the
    effectiveness.
    """
    total = sum(weights.values())
    score = weights.get("effectiveness", 0.0) * effectiveness
    for name, cost in costs.items():
        if rates[name]:
            score -= weights[name] * cost / rates[name]
    return score / total
