"""Columns of costs: measured here or stated by publications, and the score that a reader weighs (Dynascore)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from django.utils.text import slugify
from django.utils.translation import gettext_noop as _

from evaluation.efficiency import PROTOCOL, is_brief
from leaderboard.boards.model import EFFICIENCY, REPORTED_BESIDE, Cell, Column, Row, Value, fill_cells
from leaderboard.boards.state import BoardState
from leaderboard.core.text.numbers import format_quantity
from leaderboard.results import reported_facts
from leaderboard.results.board_rows.entry_rows import UNRANKED
from leaderboard.results.board_rows.measurements import (
    Machine,
    MeasuredEntry,
    chosen_machine,
    list_machines,
    with_baseline,
)
from leaderboard.results.efficiency import cost_per_million

#: How far a value may be off of which nothing says so.
UNKNOWN = math.inf
#: By what share the latency of one system differs from job to job on an idle machine: where in memory things lie.
BETWEEN_JOBS = 0.03
#: The mark behind a doubtful value.
DOUBTFUL_MARK = "?"


def no_noise(measured: MeasuredEntry) -> float:
    """Of what is counted."""
    return 0.0


def latency_noise(measured: MeasuredEntry) -> float:
    """Return the relative uncertainty of the mean latency: its spread over rounds."""
    return relative_spread(measured.figures)


def ratio_noise(measured: MeasuredEntry) -> float:
    """Return the relative uncertainty of × BM25: the sum of both spreads."""
    return relative_spread(measured.figures) + relative_spread(measured.baseline)


def relative_spread(figures: Mapping[str, Any]) -> float:
    """Return the spread of the mean latency as a share of it; at least the difference of two jobs on one machine.

    It is unknown under earlier protocols, and for a system too slow for many searches.
    """
    spread = figures.get("spread_ms")
    if spread is None or figures["protocol"] != PROTOCOL or is_brief(figures):
        return UNKNOWN
    return max(float(spread / figures["latency_ms"]["mean"]), BETWEEN_JOBS)


class CostColumn(NamedTuple):
    """A column of costs: `value` returns its value for a measurement, or None.

    `known` returns the relative uncertainty of the value, which is unknown for figures that are timed once. With
    `whole_searches`, it has no value if the first search was not timed, so that no board ranks a part of a search.
    """

    key: str
    label: str
    unit: str
    note: str
    value_of: Callable[[MeasuredEntry], float | None]
    known: Callable[[MeasuredEntry], float] = lambda measured: UNKNOWN
    better: Literal["higher", "lower", ""] = "lower"
    whole_searches: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether its values are times or depend on them, so that other work makes them doubtful."""
        return self.known is not no_noise

    def value(self, measured: MeasuredEntry) -> float | None:
        """Return the value for a measurement, or None."""
        return None if self.whole_searches and measured.over_stored_runs else self.value_of(measured)


def _figure(name: str, per: float = 1.0) -> Callable[[MeasuredEntry], float | None]:
    def value(measured: MeasuredEntry) -> float | None:
        found = measured.figures.get(name)
        return None if found is None else found / per

    return value


def _bytes_per_document(measured: MeasuredEntry) -> float | None:
    size, documents = measured.figures.get("index_bytes"), measured.figures.get("documents")
    return size / documents if size and documents else None


def times_baseline(measured: MeasuredEntry) -> float | None:
    """How many times the mean latency of BM25, on the same machine in the same job."""
    baseline = measured.baseline_latency
    return measured.latency["mean"] / baseline if baseline else None


def cost(measured: MeasuredEntry) -> float | None:
    """What a million queries cost at today's price of the machine."""
    if measured.per_hour is None:
        return None
    return cost_per_million(measured.latency["mean"], measured.per_hour)


#: What is said wherever a time is shown, or left out, that begins with runs made before.
OVER_STORED_RUNS = _("starts from stored runs: the first search was not timed")


MILLION = 1e6
#: The column of the estimate for the reader's own corpus.
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
        lambda measured: measured.latency["mean"],
        latency_noise,
        whole_searches=True,
    ),
    CostColumn(
        "times-bm25", _("× BM25"), "", _("mean latency over BM25's, in the same job"), times_baseline, ratio_noise,
        whole_searches=True,
    ),
    CostColumn(
        "queries-per-second", _("Throughput"), "queries/s", _("all queries in batches"), _figure("queries_per_second"),
        better="higher", whole_searches=True,
    ),
    CostColumn(
        "documents-per-second", _("Encoding"), "docs/s", _("documents encoded or indexed a second"),
        _figure("documents_per_second"), better="higher",
    ),
    CostColumn("build-time", _("Build"), "s", _("from the corpus to a searchable index"), _figure("build_seconds")),
    CostColumn(
        "whole-job", _("Whole job"), "s",
        _("indexing the corpus and searching all queries of the dataset, in batches"), _figure("job_seconds"),
        whole_searches=True,
    ),
    CostColumn(
        "index-bytes", _("Index"), "MB", _("the index on disk"), _figure("index_bytes", MILLION), no_noise,
    ),
    CostColumn(
        "bytes-per-document", _("Bytes/doc"), "B", _("the index on disk over the documents in it"),
        _bytes_per_document, no_noise,
    ),
    CostColumn(
        "peak-memory", _("Memory"), "MB", _("peak of the whole process, mapped files included"),
        _figure("peak_memory_bytes", MILLION), no_noise,
    ),
    CostColumn(
        "gpu-memory", _("VRAM"), "MB", _("peak on the GPU"), _figure("peak_gpu_memory_bytes", MILLION), no_noise,
    ),
    CostColumn(
        "model-parameters", _("Parameters"), "M", _("weights of the model"), _figure("parameters", MILLION), no_noise,
        better="",
    ),
    CostColumn(
        "flops-per-query", _("FLOPs/query"), "M",
        _("floating point operations of a search, model and index; the same on every machine"),
        _figure("flops_per_query", MILLION), no_noise, whole_searches=True,
    ),
    CostColumn(
        "flops-per-document", _("FLOPs/doc"), "M",
        _("floating point operations of encoding a document, without padding; the same on every machine"),
        _figure("flops_per_document", MILLION), no_noise,
    ),
    CostColumn(
        "energy", _("Energy"), "J/query", _("of a single search"), _figure("energy_joules_per_query"),
        whole_searches=True,
    ),
    CostColumn(
        "cost-per-million", _("Cost"), PER_MILLION, _("mean latency × 10⁶ × price of an hour / 3600"), cost,
        latency_noise, whole_searches=True,
    ),
)  # fmt: skip
#: The columns whose cells say how far their values may be off.
WITH_SPREAD = frozenset({"mean-latency", "times-bm25"})


def estimated_index(documents: int) -> CostColumn:
    """Return the column of the index size of so many documents, by the measured bytes of each document."""

    def value(measured: MeasuredEntry) -> float | None:
        each = _bytes_per_document(measured)
        return None if each is None else each * documents / MILLION

    note = (
        f"estimated for {documents:,} documents: measured bytes of the index for each document × {documents:,}; "
        "documents of another length take more or less"
    )
    return CostColumn(CORPUS_INDEX, _("My index"), "MB, estimated", note, value, no_noise)


def cost_columns(
    measured: Iterable[MeasuredEntry], machine: Machine | None, dataset: str = "", corpus: int = 0
) -> list[Column]:
    """Return the columns of costs, whether or not any was measured; `dataset` is named if the board has several.

    With a `corpus` of so many documents, the size of its index is estimated beside the measured one.
    """
    offered = list(COSTS)
    if corpus:
        place = next(number for number, each in enumerate(offered) if each.key == "index-bytes")
        offered.insert(place + 1, estimated_index(corpus))
    group, currency = cost_group(machine, dataset), currency_of(measured)
    return [_column(each, group, currency) for each in offered]


def _column(each: CostColumn, group: str, currency: str) -> Column:
    def cell(line: Any) -> Cell | Value:
        value = None if line.measured is None else each.value(line.measured)
        if value is not None and each.is_timed and line.measured.doubt:
            return Cell(text=format_quantity(value), mark=DOUBTFUL_MARK, title=line.measured.doubt)
        if value is None or not each.better:
            return value
        return Cell(value, noise=value * each.known(line.measured))

    unit = unit_with_currency(currency, each.unit)
    return Column(each.key, each.label, group, "figure", each.better, unit, each.note, cell=cell)


class CostLine(NamedTuple):
    """What the cells of a row's costs are made from: what was measured here, and what a publication states."""

    measured: MeasuredEntry | None
    figures: Sequence[Mapping[str, Any]]


def fill_costs(rows: Iterable[Row], columns: Sequence[Column], lines: Iterable[CostLine]) -> None:
    """Give each row its costs, where it has any."""
    found = [(row, line) for row, line in zip(rows, lines, strict=True) if line.measured or line.figures]
    for row, line in found:
        row.measured = line.measured
    fill_cells([row for row, _ in found], columns, [line for _, line in found])


def describe_costs(columns: Iterable[Column], rows: Iterable[Row]) -> None:
    """Add the variation and the uncertainty of latencies to the cells of the rows that a page shows."""
    keys = [column.key for column in columns if column.key in WITH_SPREAD]
    for row in rows if keys else ():
        if row.measured is None:
            continue
        for key in keys:
            value, noise = row.value(key), row[key].noise
            if row[key].mark:  # doubtful, and says why
                continue
            row[key] = Cell(value, title=_title(key, row.measured), spread=_spread(value, noise), noise=noise)


def _spread(value: Value, noise: float | None) -> str:
    """How far a cost may be off, as exact as the cost itself is written; empty where that is not known."""
    if not isinstance(value, float) or not noise or not math.isfinite(noise):
        return ""
    decimals = len(format_quantity(value).partition(".")[2])
    return f"± {max(noise, 10**-decimals):,.{decimals}f}"


def _title(key: str, measured: MeasuredEntry) -> str:
    """Return the cell's text on hover."""
    if key in ("mean-latency", "times-bm25") and measured.over_stored_runs:
        return OVER_STORED_RUNS
    if key == "mean-latency":
        return spread_of_latency(measured)
    if key == "times-bm25" and measured.baseline_latency is not None:
        return f"BM25 took {format_quantity(measured.baseline_latency)} ms in the same job"
    return ""


def cost_group(machine: Machine | None, dataset: str = "") -> str:
    """Return the common head of the columns."""
    return EFFICIENCY + (f" on {machine.name}" if machine else "") + (f", {dataset}" if dataset else "")


def spread_of_latency(measured: MeasuredEntry) -> str:
    """How latency varies over queries, and how far its mean may be off, in few words."""
    latency, spread = measured.latency, measured.figures.get("spread_ms")
    over_queries = " · ".join(f"{name} {format_quantity(latency[name])}" for name in ("p50", "p95", "p99"))
    few = f" · {measured.figures['queries']} queries only" if is_brief(measured.figures) else ""
    return f"{over_queries} ms{few}" + (
        "" if spread is None else f" · mean ± {format_quantity(spread, 2)} ms"
    )


def currency_of(measured: Iterable[MeasuredEntry]) -> str:
    """The currency of the prices, empty where there is none or more than one."""
    currencies = {one.currency for one in measured if one.currency}
    return currencies.pop() if len(currencies) == 1 else ""


def unit_with_currency(currency: str, unit: str) -> str:
    """The unit, with the currency before it where it is a cost's."""
    return f"{currency} {unit}".strip() if unit == PER_MILLION else unit


class BoardCosts(NamedTuple):
    """The costs that a board shows: on the chosen machine, of which ones, what was measured there by row, and columns.

    `elsewhere` counts the rows that were measured on other machines only; `dataset` is named where there are several.
    """

    machine: Machine | None
    machines: list[Machine]
    measured: dict[Any, MeasuredEntry]
    elsewhere: int
    columns: Sequence[Column] = ()
    dataset: str = ""

    @classmethod
    def of_dataset(cls, measured: Sequence[MeasuredEntry], bm25: int | None, state: BoardState) -> BoardCosts:
        """Those of a dataset's view; `bm25` is the entry of our own BM25. Raises UnknownChoice for another machine."""
        machines = list_machines(measured)
        machine = chosen_machine(machines, state.hardware, cpu_only=state.cpu_only)
        on_machine = with_baseline({one.entry_id: one for one in measured if one.machine == machine}, bm25)
        columns = cost_columns(on_machine.values(), machine, corpus=state.corpus)
        if state.weights:
            columns.append(weighted_column(cost_group(machine)))
        elsewhere = {one.entry_id for one in measured}.difference(on_machine)
        return cls(machine, machines, on_machine, len(elsewhere), columns)

    @property
    def head(self) -> str:
        """The common head of the columns, empty if nothing was measured."""
        return cost_group(self.machine, self.dataset) if self.machine else ""

    def notes(self) -> list[str]:
        """Return the notes on the columns that a board shows below its table."""
        if self.machine is None:
            return []
        where, found = f" on {self.dataset}" if self.dataset else "", list(self.measured.values())
        notes = [
            f"Efficiency was measured here{where} under protocol {PROTOCOL} on {self.machine.name}; × BM25 is the "
            "latency divided by BM25's on the same machine in the same job. ± is the uncertainty of a value; no best "
            "is marked within it, or where a system was timed only once."
        ]
        earlier = sum(one.protocol != PROTOCOL for one in found)
        if earlier:
            systems = "1 system was" if earlier == 1 else f"{earlier} systems were"
            notes.append(f"{systems} measured under an earlier protocol; such times are never marked best.")
        if any(is_brief(one.figures) for one in found):
            notes.append(
                _(
                    "Systems too slow for many searches were timed over fewer queries, as their latency says on hover. "
                    "They are sorted and drawn like the others, and never marked best."
                )
            )
        if any(one.over_stored_runs for one in found):
            notes.append(
                _(
                    "Systems that start from stored runs (fusion, re-ranking of a run) have no latency, because the "
                    "first search was not timed; their pages show the other costs."
                )
            )
        if self.elsewhere:
            systems = "1 system was" if self.elsewhere == 1 else f"{self.elsewhere} systems were"
            notes.append(f"{systems} measured on other hardware only: choose it under Filters, Hardware.")
        return notes


WEIGHTED = "weighted-score"
#: What is weighed, and the column that says it.
COST_COLUMNS = {"latency": "mean-latency", "memory": "peak-memory", "cost": "cost-per-million"}
#: So many systems of the fixed set are named below the board; the set itself has no limit.
NAMED = 12
#: Neighbours whose effectiveness differs by less than this share of the greatest trade nothing, as in Dynabench's own
#: implementation: their rate would be a division by almost 0.
LEAST_DIFFERENCE = 1e-4


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
            "Dynascore: effectiveness less costs, each over its rate of exchange, by the weights of this view"
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
    """Set the weighted score of all rows of a board, in the order of `effectiveness`, and return the notes on it.

    Rates of exchange are over all rows that were measured on the board's machine and have an effectiveness and every
    weighed cost. Without weights, nothing is set.
    """
    if not weights:
        return []
    wanted = {name: COST_COLUMNS[name] for name in weights if name in COST_COLUMNS}
    filled = {key for row in rows for key in wanted.values() if row[key].text or row[key].value is not None}
    unmeasured = [name for name, key in wanted.items() if key not in filled]
    if unmeasured:
        return [f"No weighted score: nothing here has a measured {' or '.join(unmeasured)}."]
    sign = -1.0 if lower_is_better else 1.0
    complete: list[tuple[Row, float]] = [
        (row, sign * value)
        for row, value in zip(rows, effectiveness, strict=True)
        if value is not None
        and row.measured is not None
        and row.ranked_in not in UNRANKED
        and all(row.value(key) is not None for key in wanted.values())
    ]
    values = [value for _, value in complete]
    rates = {
        name: average_rate(values, [float(row.value(key) or 0.0) for row, _ in complete])
        for name, key in wanted.items()
    }
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known) < len(rates):
        return [
            "No weighted score: a rate of exchange needs two measured systems of different effectiveness."
        ]
    for row, value in complete:
        costs = {name: float(row.value(key) or 0.0) for name, key in wanted.items()}
        score = weighted_score(value, costs, known, weights)
        if math.isfinite(score):
            row.values[WEIGHTED] = round(score, 4)
    total = sum(weights.values())
    shares = ", ".join(f"{name} {weight / total:.0%}" for name, weight in weights.items())
    names = list(dict.fromkeys(row.entry.system for row, _ in complete))
    named = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    measured = f" on {machine.name}" if machine else ""
    return [
        f"Weighted score: Dynascore with {shares}; costs count negatively, divided by their average rate of exchange "
        f"among the {len(complete)} complete rows measured{measured} ({named}). Filters do not change it."
    ]


def average_rate(effectiveness: Sequence[float], values: Sequence[float]) -> float | None:
    """The average marginal rate of substitution of a quantity against effectiveness.

    Systems are ordered by effectiveness; between each and the next better one the rate is |Δ quantity| / |Δ
    effectiveness|, and the average of all rates is returned: how much of the quantity a unit of effectiveness is
    worth, 1 for effectiveness itself. None where no two neighbours differ in effectiveness.
    """
    ordered = sorted(zip(effectiveness, values, strict=True))
    if not ordered:
        return None
    least = LEAST_DIFFERENCE * max(abs(value) for value in effectiveness)
    rates = [
        abs((value - previous) / (better - worse))
        for (worse, previous), (better, value) in pairwise(ordered)
        if better - worse > least
    ]
    return sum(rates) / len(rates) if rates else None


def weighted_score(
    effectiveness: float,
    costs: Mapping[str, float],
    rates: Mapping[str, float],
    weights: Mapping[str, float],
) -> float:
    """Σ weight × quantity / its rate, the weights summing to 1; costs count negative.

    Effectiveness has the weight named `effectiveness`, costs those of their names. A cost that is the same for all
    systems has rate 0: it tells none from another, and adds nothing. Higher is better; with all weight on
    effectiveness the score is the effectiveness.
    """
    total = sum(weights.values())
    score = weights.get("effectiveness", 0.0) * effectiveness
    for name, cost in costs.items():
        if rates[name]:
            score -= weights[name] * cost / rates[name]
    return score / total


class FigureKey(NamedTuple):
    """Figures of one key share a column. `hardware` is set only where an entry has the figure on several."""

    name: str
    unit: str
    hardware: str


Figures = Sequence[Mapping[str, Any]]

#: Seconds are told in milliseconds, so that one column can be sorted.
MILLISECONDS = {"s": 1000.0}


def figure_columns(
    of_rows: Sequence[tuple[Figures, Mapping[str, float]]], taken: Iterable[str] = ()
) -> list[Column]:
    """The columns that the figures of rows need, each row with its scores: a figure that repeats one needs none.

    `taken` are the keys that other columns of the board have.
    """
    counts = [Counter(figure["name"] for figure in figures) for figures, _ in of_rows]
    split = {name for of_row in counts for name, number in of_row.items() if number > 1}
    keys, found = set(taken), dict[FigureKey, Column]()
    for figures, scores in of_rows:
        for key in (key_of(figure, split) for figure in figures if figure["name"] not in scores):
            if key not in found:
                found[key] = _stated_column(key, split, keys)
                keys.add(found[key].key)
    return [
        column
        for _, column in sorted(
            found.items(), key=lambda item: (item[1].group != EFFICIENCY, _position(item[0]))
        )
    ]


def _stated_cell(figure: Mapping[str, Any]) -> Cell:
    """Make the cell of a figure; a doubtful one is shown as printed and has no value to sort by."""
    factor = MILLISECONDS.get(str(figure.get("unit", "")), 1.0)
    printed = str(figure.get("as_printed") or f"{figure['value']:g}")
    if figure.get("doubtful"):
        return Cell(text=f"{printed} {figure['unit']}" if factor != 1.0 else printed, mark="?")
    value = round(float(figure["value"]) * factor, 6)
    return Cell(value, printed if factor == 1.0 else f"{value:g}")


def _position(key: FigureKey) -> tuple[int, str, str]:
    names = list(reported_facts.COSTS)
    return (names.index(key.name) if key.name in reported_facts.COSTS else len(names), key.name, key.hardware)


def key_of(figure: Mapping[str, Any], split: set[str]) -> FigureKey:
    """The column that the figure belongs to; those of `split` names have one for each hardware."""
    hardware = str(figure.get("hardware", "")) if figure["name"] in split else ""
    unit = str(figure.get("unit", ""))
    return FigureKey(str(figure["name"]), "ms" if unit in MILLISECONDS else unit, hardware)


def _stated_column(key: FigureKey, split: set[str], taken: set[str]) -> Column:
    def cell(line: Any) -> Cell | None:
        found = [figure for figure in line.figures if key_of(figure, split) == key]
        return _stated_cell(found[-1]) if found else None

    label = f"{key.name[:1].upper()}{key.name[1:]}" + (f", {key.hardware}" if key.hardware else "")
    slug = slugify(f"{key.name} {key.hardware}") or "figure"
    return Column(
        key=slugify(f"{slug} {key.unit or 'reported'}") if slug in taken else slug,
        label=label,
        group=EFFICIENCY if key.name in reported_facts.COSTS else REPORTED_BESIDE,
        kind="figure",
        better="lower" if reported_facts.COSTS.get(key.name) == "lower" else "",
        unit=key.unit,
        note=_("As the source states it; hardware differs between sources."),
        cell=cell,
    )


def has_doubtful(rows: Iterable[Row], columns: Iterable[Column]) -> bool:
    """Whether a row shows a doubtful figure in one of the columns."""
    keys = [column.key for column in columns if column.kind == "figure"]
    return any(key in row.cells and row.cells[key].mark == "?" for row in rows for key in keys)
