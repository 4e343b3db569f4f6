"""What was measured of entries, read as plain values, and on which machine: figures of two are never mixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from typing import Any, NamedTuple, TypeVar

import orjson
from django.db import connection
from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Entry, Measurement, Price

Key = TypeVar("Key")
#: From how many jobs on it is known what BM25 usually takes.
FEWEST_JOBS = 3


class Machine(NamedTuple):
    """A hardware class, as a board names it."""

    slug: str
    name: str
    has_gpu: bool = False


class Measured(NamedTuple):
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
        }

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
    def over_stored_runs(self) -> bool:
        """Whether it began with runs made before, so that part of a search is missing in its times."""
        return bool(self.figures.get("stored_runs"))


def measured_on(dataset_ids: Iterable[int]) -> list[Measured]:
    """What was measured on these datasets, oldest first. One query, and a second one for prices where there is any."""
    ids = sorted(set(dataset_ids))
    if not ids:
        return []
    sql, parameters = _query(len(ids))
    return beside_usual(_read(sql, [*ids, *parameters[len(ids) :]]))


def usual_latency(latencies: Iterable[float]) -> float | None:
    """What BM25 usually takes by what it took in several jobs: the median; None where these are fewer than three."""
    found = list(latencies)
    return median(found) if len(found) >= FEWEST_JOBS else None


def beside_usual(measured: Sequence[Measured]) -> list[Measured]:
    """The measurements, each with how far BM25 was off what it usually takes there under the same protocol."""
    took: dict[tuple[int, Machine, str], list[float]] = {}
    for one in measured:
        if one.baseline_latency is not None:
            took.setdefault((one.dataset_id, one.machine, one.protocol), []).append(one.baseline_latency)
    usual = {where: usual_latency(latencies) for where, latencies in took.items()}

    def off(one: Measured) -> float:
        usually = usual.get((one.dataset_id, one.machine, one.protocol))
        latency = one.baseline_latency
        return abs(latency / usually - 1) if latency is not None and usually else 0.0

    return [one._replace(baseline_off=off(one)) for one in measured]


def measured_of(system_id: int) -> list[Measured]:
    """What was measured of a system's public entries, oldest first. Queries as `measured_on`."""
    return _read(*_values(Measurement.objects.filter(entry__system=system_id)))


@lru_cache(maxsize=64)
def _query(number: int) -> tuple[str, tuple[Any, ...]]:
    """The SQL for so many datasets, and its parameters, their ids first.

    Kept, since it takes the ORM longer to write than the database to answer where nothing was measured.
    """
    return _values(Measurement.objects.filter(entry__dataset__in=list(range(number))))


def _values(measurements: QuerySet[Measurement]) -> tuple[str, tuple[Any, ...]]:
    """The SQL and the parameters of a query for what `_measured` takes."""
    values = (
        measurements.filter(entry__visibility=Entry.Visibility.PUBLIC)
        .order_by("measured_at", "pk")
        .values_list(
            "entry__dataset_id",
            "entry_id",
            "entry__system_id",
            "entry__configuration",
            "protocol",
            "hardware_id",
            "hardware__slug",
            "hardware__name",
            Cast("hardware__details", TextField()),
            Cast("measured_at", TextField()),
            Cast("figures", TextField()),
            Cast("baseline", TextField()),
        )
    )
    return values.query.sql_with_params()


def _read(sql: str, parameters: Sequence[Any]) -> list[Measured]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found = cursor.fetchall()
    prices = _prices({row[5] for row in found}) if found else {}
    return [_measured(row, prices.get(row[5])) for row in found]


def _measured(row: Sequence[Any], price: tuple[float, str] | None) -> Measured:
    dataset, entry, system, configuration, protocol, _, slug, name, details, *texts = row
    measured_at, figures, baseline = texts
    return Measured(
        dataset,
        entry,
        system,
        configuration,
        Machine(slug, name, bool(orjson.loads(details).get("gpu"))),
        protocol,
        measured_at,
        orjson.loads(figures),
        orjson.loads(baseline),
        *(price or (None, "")),
    )


def _prices(hardware: Iterable[int]) -> dict[int, tuple[float, str]]:
    """What an hour costs today, by the class's id: a later price takes the place of an earlier one."""
    rows = (
        Price.objects.filter(hardware__in=list(hardware), valid_from__lte=timezone.now().date())
        .order_by("valid_from")
        .values_list("hardware_id", "per_hour", "currency")
    )
    return {key: (float(per_hour), currency) for key, per_hour, currency in rows}


def machines_of(measured: Sequence[Measured]) -> list[Machine]:
    """The machines, that of most entries first; among equals the one measured on last."""
    entries: dict[Machine, set[int]] = {}
    newest: dict[Machine, str] = {}
    for one in measured:
        entries.setdefault(one.machine, set()).add(one.entry_id)
        newest[one.machine] = one.measured_at
    return sorted(entries, key=lambda machine: (len(entries[machine]), newest[machine]), reverse=True)


def with_baseline(measured: dict[Key, Measured], bm25: Key | None) -> dict[Key, Measured]:
    """The measurements by row, all of one machine, and for the row of BM25, if it has none of its own, what it did
    beside the one measured last."""
    if bm25 is not None and bm25 not in measured:
        beside = [one for one in measured.values() if one.baseline]
        if beside:
            last = max(beside, key=lambda one: one.measured_at)
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
