"""Storage of efficiency measurements; the only writer of `HardwareClass` and `Measurement`."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from evaluation.efficiency import PROTOCOL, EfficiencyFigures, Hardware, noise_reasons
from leaderboard.models import BoardChange, Entry, HardwareClass, Measurement, Price
from leaderboard.results.board_rows.revisions import Kind, board_changed, boards_changed


@transaction.atomic
def record_measurement(
    entry: Entry, hardware: Mapping[str, Any], figures: Mapping[str, Any], baseline: Mapping[str, Any]
) -> Measurement:
    """Store the costs of an entry's system on a hardware class, together with those of BM25 from the same job.

    A new measurement replaces an earlier one of the same entry, class, and protocol, unless only the new one is noisy;
    then the earlier one is returned. A change is recorded on the board of a public entry. The mappings are those of
    `as_data` in `evaluation.efficiency`; `baseline` may be empty, or equal to `figures` for BM25 itself. They come from
    a job, whose result is not trusted.

    Raises:
        ValueError: For invalid data, or for another protocol.
    """
    machine, system_figures = Hardware.from_data(hardware), EfficiencyFigures.from_data(figures)
    baseline_figures = EfficiencyFigures.from_data(baseline) if baseline else None
    for given_figures in filter(None, (system_figures, baseline_figures)):
        if given_figures.protocol != PROTOCOL:
            raise ValueError(f"the protocol is {given_figures.protocol!r}, but only {PROTOCOL} is stored")
    hardware_class, _ = HardwareClass.objects.get_or_create(
        slug=machine.slug, defaults={"name": machine.name, "details": dict(machine.details)}
    )
    lookup: dict[str, Any] = {"entry": entry, "hardware": hardware_class, "protocol": system_figures.protocol}
    stored_row = Measurement.objects.filter(**lookup).first()
    if stored_row is not None and noise_reasons(system_figures.as_data()) and not noise_reasons(stored_row.figures):
        return stored_row
    measurement, _ = Measurement.objects.update_or_create(
        **lookup,
        defaults={
            "figures": system_figures.as_data(),
            "baseline": baseline_figures.as_data() if baseline_figures else {},
            "measured_at": timezone.now(),
        },
    )
    if entry.visibility == Entry.Visibility.PUBLIC:
        board_changed(entry.dataset, Kind.MEASURED, entry, [entry.pk])
    return measurement


def cost_per_million(mean_latency_ms: float, per_hour: float) -> float:
    """Return the price of a million sequential queries: mean latency in seconds × 10⁶ × price per hour / 3600."""
    return mean_latency_ms / 1000 * 1e6 * per_hour / 3600


def price_changed(hardware: HardwareClass) -> None:
    """Record a change of every board that shows costs on the hardware class."""
    boards_changed(datasets_with_costs([hardware.pk]), Kind.PRICE, _measured_entries([hardware.pk]))


def apply_due_prices() -> int:
    """Record a change of each board with a price that takes effect today, unless recorded, and return their number.

    The dispatcher calls this every few seconds, because no other event at midnight would invalidate cached pages.
    """
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    hardware = list(Price.objects.filter(valid_from=today.date()).values_list("hardware_id", flat=True))
    if not hardware:
        return 0
    recorded_datasets = BoardChange.objects.filter(kind=Kind.PRICE, at__gte=today).values_list("dataset", flat=True)
    pending_ids = datasets_with_costs(hardware).difference(recorded_datasets)
    boards_changed(pending_ids, Kind.PRICE, _measured_entries(hardware))
    return len(pending_ids)


def datasets_with_costs(hardware: Iterable[int]) -> set[int]:
    """Return the ids of the datasets whose boards show costs on these hardware classes."""
    entries = _measured_entries(hardware).filter(visibility=Entry.Visibility.PUBLIC)
    return set(entries.values_list("dataset_id", flat=True))


def _measured_entries(hardware: Iterable[int]) -> QuerySet[Entry]:
    measurements = Measurement.objects.filter(hardware__in=list(hardware))
    return Entry.objects.filter(pk__in=measurements.values("entry"))
