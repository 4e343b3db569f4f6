"""Efficiency measurements of entries as plain values, and their machines, which are never mixed in a comparison."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, TypeVar

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from evaluation.efficiency import noise_reasons
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Entry, Measurement, Price
from leaderboard.results.board_rows.entry_rows import EntryRow

Key = TypeVar("Key")
#: Minimum number of jobs that define BM25's usual latency.
MIN_JOBS = 3
#: Relative deviation of BM25 from its usual latency above which times are doubtful.
MAX_DEVIATION = 0.15


class Machine(NamedTuple):
    """A hardware class as shown on boards."""

    slug: str
    name: str
    has_gpu: bool = False


class MeasuredEntry(NamedTuple):
    """A measurement of a public entry.

    `figures` and `baseline` are as returned by `evaluation.efficiency.Figures.as_data`, `measured_at` is ISO text, and
    `per_hour` is the current price of the machine, or None if unknown. `baseline_off` is the relative deviation of
    BM25 in the same job from its usual latency on the dataset and machine, 0 if unknown.
    """

    dataset_id: int
    entry_id: int
    system_id: int
    configuration: str
    machine: Machine
    protocol: str
    measured_at: str
    figures: Mapping[str, Any]
    baseline: Mapping[str, Any]
    per_hour: float | None = None
    currency: str = ""
    baseline_off: float = 0.0

    def as_data(self) -> dict[str, Any]:
        """Return the measurement for the API and exports."""
        return {
            "hardware": self.machine.slug,
            "protocol": self.protocol,
            "measured_at": self.measured_at,
            "figures": self.figures,
            "baseline": self.baseline,
            "baseline_off": round(self.baseline_off, 3),
            "doubt": self.doubt,
        }

    def as_stored(self) -> dict[str, Any]:
        """Return the part that a stored row contains, without values that follow from the row or from other rows."""
        values = self._asdict()
        for name in ("dataset_id", "entry_id", "system_id", "configuration", "baseline_off"):
            del values[name]
        return {**values, "machine": list(self.machine)}

    @property
    def latency(self) -> Mapping[str, float]:
        """Search latency in milliseconds: mean, p50, p95, and p99."""
        return self.figures["latency_ms"]

    @property
    def baseline_latency(self) -> float | None:
        """Mean search latency of BM25 in the same job, in milliseconds, or None if not measured."""
        latency: float | None = self.baseline.get("latency_ms", {}).get("mean")
        return latency

    @property
    def doubt(self) -> str:
        """Reason why the times are doubtful, including those of BM25 in the same job; empty if they are not.

        Boards, exports, the API, figures, and pages show doubtful times with a mark, and neither rank nor plot them.
        """
        reasons = noise_reasons(self.figures)
        if self.baseline and self.baseline != self.figures:
            reasons += [f"for BM25, {reason}" for reason in noise_reasons(self.baseline)]
        if self.baseline_off > MAX_DEVIATION:
            reasons.append(f"BM25 was {100 * self.baseline_off:.0f}% off its usual latency here")
        return f"busy machine: {'; '.join(reasons)}" if reasons else ""

    @property
    def over_stored_runs(self) -> bool:
        """Whether the system re-ranks stored runs, so that its times lack part of a search."""
        return bool(self.figures.get("stored_runs"))


def median_latency(latencies: Iterable[float]) -> float | None:
    """Return BM25's usual latency, the median over jobs, or None for fewer than MIN_JOBS jobs."""
    values = list(latencies)
    return median(values) if len(values) >= MIN_JOBS else None


#: Scope in which BM25's latencies are comparable: dataset id, machine slug, and protocol.
LatencyScope = tuple[int, str, str]


def add_baseline_deviation(
    measurements: Sequence[MeasuredEntry],
    latencies: Iterable[tuple[LatencyScope, float | None]] | None = None,
) -> list[MeasuredEntry]:
    """Return the measurements with `baseline_off`, the relative deviation of BM25's latency from its usual one.

    The usual latency is the median over jobs on the same dataset, machine, and protocol. It is taken from `latencies`,
    by default from the jobs of these measurements. The deviation is 0 if it or BM25's latency is unknown.
    """
    if latencies is None:
        latencies = [(_latency_scope(measurement), measurement.baseline_latency) for measurement in measurements]
    latencies_by_place: dict[LatencyScope, list[float]] = {}
    for place, latency in latencies:
        if latency is not None:
            latencies_by_place.setdefault(place, []).append(latency)
    medians = {place: median_latency(place_latencies) for place, place_latencies in latencies_by_place.items()}

    def get_deviation(measurement: MeasuredEntry) -> float:
        usual_latency, latency = medians.get(_latency_scope(measurement)), measurement.baseline_latency
        return abs(latency / usual_latency - 1) if latency is not None and usual_latency else 0.0

    return [measurement._replace(baseline_off=get_deviation(measurement)) for measurement in measurements]


def _latency_scope(measurement: MeasuredEntry) -> LatencyScope:
    return measurement.dataset_id, measurement.machine.slug, measurement.protocol


def system_measurements(system_id: int) -> list[MeasuredEntry]:
    """Return the measurements of a system's public entries, oldest first, in at most three queries.

    The deviation of BM25 is computed from all public measurements of the same datasets.
    """
    measurements = _read_measurements(Measurement.objects.filter(entry__system=system_id))
    if not measurements:
        return measurements
    rows = Measurement.objects.filter(
        entry__visibility=Entry.Visibility.PUBLIC,
        entry__dataset__in={measurement.dataset_id for measurement in measurements},
    ).values_list("entry__dataset_id", "hardware__slug", "protocol", "baseline__latency_ms__mean")
    return add_baseline_deviation(measurements, [((row[0], row[1], row[2]), row[3]) for row in rows])


def entry_measurements(entries: Collection[int]) -> list[MeasuredEntry]:
    """Return the measurements of these entries if they are public, oldest first, in at most two queries."""
    return _read_measurements(Measurement.objects.filter(entry__in=entries))


_ENTRY_COLUMNS = ("entry__dataset_id", "entry_id", "entry__system_id", "entry__configuration")
_MACHINE_COLUMNS = ("hardware_id", "hardware__slug", "hardware__name", "hardware__details")


def _read_measurements(measurements: QuerySet[Measurement]) -> list[MeasuredEntry]:
    """Read the measurements of public entries, oldest first, in one query, and current prices in a second one."""
    rows: list[tuple[Any, ...]] = list(
        measurements.filter(entry__visibility=Entry.Visibility.PUBLIC)
        .order_by("measured_at", "pk")
        .values_list(
            *_ENTRY_COLUMNS,
            *_MACHINE_COLUMNS,
            "protocol",
            Cast("measured_at", TextField()),
            "figures",
            "baseline",
        )
    )
    prices = prices_today({row[4] for row in rows}) if rows else {}
    measured_entries = []
    for row in rows:
        hardware, slug, name, details = row[4:8]
        machine = Machine(slug, name, bool(details.get("gpu")))
        values: list[Any] = [*row[:4], machine, *row[8:], *prices.get(hardware, (None, ""))]
        measured_entries.append(MeasuredEntry(*values))
    return measured_entries


def measured_rows(dataset_id: int, entries: Iterable[EntryRow]) -> list[MeasuredEntry]:
    """Return the stored measurements of a board's entries, oldest first, with the prices that were stored with them.

    The deviation of BM25 is computed from these measurements.
    """
    measurements = [
        MeasuredEntry(
            **{**measurement, "machine": Machine(*measurement["machine"])},
            dataset_id=dataset_id,
            entry_id=entry.pk,
            system_id=entry.system_id,
            configuration=entry.configuration,
        )
        for entry in entries
        for measurement in entry.measured
    ]
    return add_baseline_deviation(
        sorted(measurements, key=lambda measurement: (measurement.measured_at, measurement.entry_id))
    )


def prices_today(hardware: Iterable[Any], name: str = "hardware_id") -> dict[Any, tuple[float, str]]:
    """Return the current price per hour and its currency, keyed by hardware class. Classes without a price are omitted.

    `name` is the lookup of the keys in `hardware`, such as `hardware__slug`.
    """
    rows = (
        Price.objects.filter(**{f"{name}__in": list(hardware)}, valid_from__lte=timezone.now().date())
        .order_by("valid_from")
        .values_list(name, "per_hour", "currency")
    )
    return {key: (float(per_hour), currency) for key, per_hour, currency in rows}


def list_machines(measurements: Sequence[MeasuredEntry]) -> list[Machine]:
    """Return the distinct machines, those with the most measured entries first, and of these the last measured first.

    The measurements must be in order of time.
    """
    entries: dict[Machine, set[int]] = {}
    latest_times: dict[Machine, str] = {}
    for measurement in measurements:
        entries.setdefault(measurement.machine, set()).add(measurement.entry_id)
        latest_times[measurement.machine] = measurement.measured_at
    return sorted(entries, key=lambda machine: (len(entries[machine]), latest_times[machine]), reverse=True)


def add_baseline_measurement(measurements: dict[Key, MeasuredEntry], bm25: Key | None) -> dict[Key, MeasuredEntry]:
    """Add a measurement of BM25 to those of one machine if BM25's row has none, and return the same mapping.

    The mapping is keyed by row, and `bm25` is the key of BM25's row, or None. BM25's figures are those from the job of
    the system measured last, if possible of one without doubt.
    """
    if bm25 is not None and bm25 not in measurements:
        with_bm25 = [measurement for measurement in measurements.values() if measurement.baseline]
        if with_bm25:
            source = max(with_bm25, key=lambda measurement: (not measurement.doubt, measurement.measured_at))
            measurements[bm25] = source._replace(figures=source.baseline)
    return measurements


def chosen_machine(machines: Sequence[Machine], slug: str, *, cpu_only: bool = False) -> Machine | None:
    """Return the machine with this slug, by default the first one, or None if there are no machines.

    If `cpu_only`, the default is the first machine without a GPU if there is one. Raises UnknownChoice for an unknown
    slug.
    """
    if not slug:
        cpu_machines = [machine for machine in machines if cpu_only and not machine.has_gpu]
        return next(iter(cpu_machines or machines), None)
    for machine in machines:
        if machine.slug == slug:
            return machine
    raise UnknownChoice("hardware", slug, [machine.slug for machine in machines])
