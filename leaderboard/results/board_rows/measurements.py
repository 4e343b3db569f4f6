"""What was measured of entries, as plain values, and on which machine: figures of two are never mixed."""

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
#: From how many jobs on it is known what BM25 usually takes.
FEWEST_JOBS = 3
#: The relative deviation of BM25 from its usual latency above which times are doubtful.
OFF = 0.15


class Machine(NamedTuple):
    """A hardware class, as a board names it."""

    slug: str
    name: str
    has_gpu: bool = False


class MeasuredEntry(NamedTuple):
    """A measurement of a public entry.

    `figures` and `baseline` are as `evaluation.efficiency.Figures.as_data` gives them, `measured_at` is ISO text, and
    `per_hour` what the machine costs today, None where nobody said. `baseline_off` is by what share BM25 took another
    time in the job than it usually takes on the dataset and the machine, 0 where nobody knows yet.
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
        """Everything that was measured, as the API and exports give it."""
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
        """What a stored row has of it: not what the row says already, nor what follows from other rows."""
        values = self._asdict()
        for name in ("dataset_id", "entry_id", "system_id", "configuration", "baseline_off"):
            del values[name]
        return {**values, "machine": list(self.machine)}

    @property
    def latency(self) -> Mapping[str, float]:
        """Milliseconds of a search: mean, p50, p95 and p99."""
        return self.figures["latency_ms"]

    @property
    def baseline_latency(self) -> float | None:
        """Milliseconds of BM25's mean search on the same machine in the same job; None where it was not measured."""
        found: float | None = self.baseline.get("latency_ms", {}).get("mean")
        return found

    @property
    def doubt(self) -> str:
        """The reason why its times, and those of BM25 in the same job, are doubtful; empty if they are not.

        Boards, exports, the API, figures, and pages show doubtful times with a mark, and neither rank nor plot them.
        """
        reasons = noise_reasons(self.figures)
        if self.baseline and self.baseline != self.figures:
            reasons += [f"for BM25, {reason}" for reason in noise_reasons(self.baseline)]
        if self.baseline_off > OFF:
            reasons.append(f"BM25 was {100 * self.baseline_off:.0f}% off its usual latency here")
        return f"busy machine: {'; '.join(reasons)}" if reasons else ""

    @property
    def over_stored_runs(self) -> bool:
        """Whether it began with runs made before, so that part of a search is missing in its times."""
        return bool(self.figures.get("stored_runs"))


def median_latency(latencies: Iterable[float]) -> float | None:
    """What BM25 usually takes by what it took in several jobs: the median; None where these are fewer than three."""
    found = list(latencies)
    return median(found) if len(found) >= FEWEST_JOBS else None


#: A scope in which BM25's latencies are compared: a dataset, a machine's slug, and a protocol.
Place = tuple[int, str, str]


def add_baseline_deviation(
    measured: Sequence[MeasuredEntry], latencies: Iterable[tuple[Place, float | None]] | None = None
) -> list[MeasuredEntry]:
    """Return the measurements, each with the relative deviation of BM25 from its usual latency in the same place.

    `latencies` are those of BM25 in all jobs; by default, those in the jobs of these measurements.
    """
    if latencies is None:
        latencies = [(_place(one), one.baseline_latency) for one in measured]
    took: dict[Place, list[float]] = {}
    for place, latency in latencies:
        if latency is not None:
            took.setdefault(place, []).append(latency)
    usual = {place: median_latency(found) for place, found in took.items()}

    def off(one: MeasuredEntry) -> float:
        usually, latency = usual.get(_place(one)), one.baseline_latency
        return abs(latency / usually - 1) if latency is not None and usually else 0.0

    return [one._replace(baseline_off=off(one)) for one in measured]


def _place(one: MeasuredEntry) -> Place:
    return one.dataset_id, one.machine.slug, one.protocol


def measured_of(system_id: int) -> list[MeasuredEntry]:
    """Return the measurements of a system's public entries, oldest first. Three queries at most."""
    measured = _read(Measurement.objects.filter(entry__system=system_id))
    if not measured:
        return measured
    rows = Measurement.objects.filter(
        entry__visibility=Entry.Visibility.PUBLIC,
        entry__dataset__in={one.dataset_id for one in measured},
    ).values_list("entry__dataset_id", "hardware__slug", "protocol", "baseline__latency_ms__mean")
    return add_baseline_deviation(measured, [((row[0], row[1], row[2]), row[3]) for row in rows])


def measured_of_entries(entries: Collection[int]) -> list[MeasuredEntry]:
    """Return the measurements of the public ones of these entries, oldest first. Two queries at most."""
    return _read(Measurement.objects.filter(entry__in=entries))


_OF_ENTRY = ("entry__dataset_id", "entry_id", "entry__system_id", "entry__configuration")
_OF_MACHINE = ("hardware_id", "hardware__slug", "hardware__name", "hardware__details")


def _read(measurements: QuerySet[Measurement]) -> list[MeasuredEntry]:
    """One query, and a second one for prices where there is any."""
    rows: list[tuple[Any, ...]] = list(
        measurements.filter(entry__visibility=Entry.Visibility.PUBLIC)
        .order_by("measured_at", "pk")
        .values_list(
            *_OF_ENTRY, *_OF_MACHINE, "protocol", Cast("measured_at", TextField()), "figures", "baseline"
        )
    )
    prices = prices_today({row[4] for row in rows}) if rows else {}
    found = []
    for row in rows:
        hardware, slug, name, details = row[4:8]
        machine = Machine(slug, name, bool(details.get("gpu")))
        values: list[Any] = [*row[:4], machine, *row[8:], *prices.get(hardware, (None, ""))]
        found.append(MeasuredEntry(*values))
    return found


def measured_rows(dataset_id: int, entries: Iterable[EntryRow]) -> list[MeasuredEntry]:
    """What had been measured of the entries of a board, oldest first, at the prices of then."""
    found = [
        MeasuredEntry(
            **{**one, "machine": Machine(*one["machine"])},
            dataset_id=dataset_id,
            entry_id=entry.pk,
            system_id=entry.system_id,
            configuration=entry.configuration,
        )
        for entry in entries
        for one in entry.measured
    ]
    return add_baseline_deviation(sorted(found, key=lambda one: (one.measured_at, one.entry_id)))


def prices_today(hardware: Iterable[Any], name: str = "hardware_id") -> dict[Any, tuple[float, str]]:
    """What an hour costs today, by the class's id or `name`: a later price takes the place of an earlier one."""
    rows = (
        Price.objects.filter(**{f"{name}__in": list(hardware)}, valid_from__lte=timezone.now().date())
        .order_by("valid_from")
        .values_list(name, "per_hour", "currency")
    )
    return {key: (float(per_hour), currency) for key, per_hour, currency in rows}


def machines_of(measured: Sequence[MeasuredEntry]) -> list[Machine]:
    """The machines, that of most entries first; among equals the one measured on last."""
    entries: dict[Machine, set[int]] = {}
    newest: dict[Machine, str] = {}
    for one in measured:
        entries.setdefault(one.machine, set()).add(one.entry_id)
        newest[one.machine] = one.measured_at
    return sorted(entries, key=lambda machine: (len(entries[machine]), newest[machine]), reverse=True)


def with_baseline(measured: dict[Key, MeasuredEntry], bm25: Key | None) -> dict[Key, MeasuredEntry]:
    """Return the measurements by row, all of one machine, adding one for BM25 if its row has none.

    It is taken from the job of the system measured last, if possible one without doubt.
    """
    if bm25 is not None and bm25 not in measured:
        beside = [one for one in measured.values() if one.baseline]
        if beside:
            last = max(beside, key=lambda one: (not one.doubt, one.measured_at))
            measured[bm25] = last._replace(figures=last.baseline)
    return measured


def chosen_machine(machines: Sequence[Machine], wanted: str, *, cpu_only: bool = False) -> Machine | None:
    """The wanted one, by default the first, of those without a GPU if there is one and `cpu_only`.

    None where nothing was measured. Raises UnknownChoice.
    """
    if not wanted:
        without = [machine for machine in machines if cpu_only and not machine.has_gpu]
        return next(iter(without or machines), None)
    for machine in machines:
        if machine.slug == wanted:
            return machine
    raise UnknownChoice("hardware", wanted, [machine.slug for machine in machines])
