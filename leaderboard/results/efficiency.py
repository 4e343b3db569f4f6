"""What systems cost: the only writer of `HardwareClass` and `Measurement`. Prices are curators', in the admin."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from evaluation.efficiency import PROTOCOL, EfficiencyFigures, Hardware, noise_reasons
from leaderboard.models import BoardChange, Dataset, Entry, HardwareClass, Measurement, Price
from leaderboard.results.board_rows.revisions import Kind, board_changed, boards_changed


@transaction.atomic
def record_measurement(
    entry: Entry, hardware: Mapping[str, Any], figures: Mapping[str, Any], baseline: Mapping[str, Any]
) -> Measurement:
    """Store the costs of an entry's system on a hardware class, with those of BM25 in the same job.

    All values are as returned by `as_data` in `evaluation.efficiency`; `baseline` may be empty, or that of the system
    itself. An earlier measurement of the entry on the same class under the same protocol is replaced, unless it was
    made on a quiet machine and the new one was not. Raises ValueError for anything that is not a measurement: a
    job's result is not trusted.
    """
    of_machine, of_system = Hardware.from_data(hardware), EfficiencyFigures.from_data(figures)
    of_baseline = EfficiencyFigures.from_data(baseline) if baseline else None
    for measured in filter(None, (of_system, of_baseline)):
        if measured.protocol != PROTOCOL:
            raise ValueError(f"measured under {measured.protocol!r}; figures are kept of {PROTOCOL}")
    hardware_class, _ = HardwareClass.objects.get_or_create(
        slug=of_machine.slug, defaults={"name": of_machine.name, "details": dict(of_machine.details)}
    )
    place: dict[str, Any] = {"entry": entry, "hardware": hardware_class, "protocol": of_system.protocol}
    earlier = Measurement.objects.filter(**place).first()
    if earlier is not None and noise_reasons(of_system.as_data()) and not noise_reasons(earlier.figures):
        return earlier
    measurement, _ = Measurement.objects.update_or_create(
        **place,
        defaults={
            "figures": of_system.as_data(),
            "baseline": of_baseline.as_data() if of_baseline else {},
            "measured_at": timezone.now(),
        },
    )
    if entry.visibility == Entry.Visibility.PUBLIC:
        board_changed(entry.dataset, Kind.MEASURED, entry, [entry.pk])
    return measurement


def cost_per_million(mean_latency_ms: float, per_hour: float) -> float:
    """What a million queries cost, one after the other: mean latency in seconds × 10⁶ × price per hour / 3600."""
    return mean_latency_ms / 1000 * 1e6 * per_hour / 3600


def price_changed(hardware: HardwareClass) -> None:
    """Count a change of every board that shows costs on the class."""
    boards_changed(datasets_with_costs([hardware.pk]), Kind.PRICE, _measured_on([hardware.pk]))


def apply_due_prices() -> int:
    """Count a change of the boards whose machines have a price from today on, once. Returns how many boards those are.

    The dispatcher asks this every few seconds: nothing else happens at midnight that would tell a kept page.
    """
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    hardware = list(Price.objects.filter(valid_from=today.date()).values_list("hardware_id", flat=True))
    if not hardware:
        return 0
    told = BoardChange.objects.filter(kind=Kind.PRICE, at__gte=today).values("dataset")
    waiting = datasets_with_costs(hardware) - set(
        Dataset.objects.filter(pk__in=told).values_list("pk", flat=True)
    )
    boards_changed(waiting, Kind.PRICE, _measured_on(hardware))
    return len(waiting)


def datasets_with_costs(hardware: Iterable[int]) -> set[int]:
    """The ids of the datasets whose boards show costs on these classes."""
    found = _measured_on(hardware).filter(visibility=Entry.Visibility.PUBLIC)
    return set(found.values_list("dataset_id", flat=True))


def _measured_on(hardware: Iterable[int]) -> QuerySet[Entry]:
    measurements = Measurement.objects.filter(hardware__in=list(hardware))
    return Entry.objects.filter(pk__in=measurements.values("entry"))
