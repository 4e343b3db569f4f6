"""What systems cost: measurements to look at, and the prices that curators say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.exchange import ExchangeAdmin
from leaderboard.admin.resources import HardwareResource, PriceResource
from leaderboard.models import HardwareClass, Measurement, Price
from leaderboard.results.efficiency import datasets_with_costs, price_changed


@admin.register(HardwareClass)
class HardwareClassAdmin(ExchangeAdmin):
    """Machines, as workers found them; how they are called is the curators' to say."""

    resource = HardwareResource
    list_display = ("name", "slug", "created_at")
    search_fields = ("name", "slug")
    readonly_fields = ("slug", "details", "created_at")
    may_add = may_delete = False  # workers describe their machines, and measurements stand on them

    def boards_of(self, key: Any) -> Iterable[int]:
        """Those that name the machine."""
        return datasets_with_costs([key])

    def save_model(self, request: HttpRequest, obj: HardwareClass, form: Any, change: bool) -> None:
        """Save, so that every board that names the machine follows."""
        super().save_model(request, obj, form, change)
        price_changed(obj)


@admin.register(Measurement)
class MeasurementAdmin(ReadOnlyAdmin):
    """What was measured. Never edited."""

    list_display = ("entry", "hardware", "protocol", "measured_at")
    list_filter = ("hardware", "protocol", "entry__dataset")
    list_select_related = ("entry__system", "entry__dataset", "hardware")
    search_fields = ("entry__system__name", "entry__dataset__name")


@admin.register(Price)
class PriceAdmin(ExchangeAdmin):
    """What an hour of a machine costs, from a day on. The history of each price says who wrote it."""

    resource = PriceResource
    list_display = ("hardware", "valid_from", "per_hour", "currency", "note")
    list_filter = ("hardware",)
    list_select_related = ("hardware",)
    date_hierarchy = "valid_from"
    search_fields = ("hardware__name", "note")

    def boards_of(self, key: Any) -> Iterable[int]:
        """Those with costs on its machine."""
        return datasets_with_costs(Price.objects.filter(pk=key).values_list("hardware_id", flat=True))

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        """Save, so that no cached page outlives the cost."""
        super().save_model(request, obj, form, change)
        machines = {obj.hardware_id, form.initial.get("hardware")} - {None}
        for hardware in HardwareClass.objects.filter(pk__in=machines):
            price_changed(hardware)

    def delete_model(self, request: HttpRequest, obj: Price) -> None:
        """Delete, so that no cached page outlives the cost."""
        super().delete_model(request, obj)
        price_changed(obj.hardware)
