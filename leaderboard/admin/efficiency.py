"""What systems cost: measurements to look at, and the prices that curators say."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin
from leaderboard.efficiency import price_changed
from leaderboard.models import HardwareClass, Measurement, Price


@admin.register(HardwareClass)
class HardwareClassAdmin(ReadOnlyAdmin):
    """Machines, as workers found them."""

    list_display = ("name", "slug", "created_at")
    search_fields = ("name", "slug")


@admin.register(Measurement)
class MeasurementAdmin(ReadOnlyAdmin):
    """What was measured. Never edited."""

    list_display = ("entry", "hardware", "protocol", "measured_at")
    list_filter = ("hardware", "protocol", "entry__dataset")
    list_select_related = ("entry__system", "entry__dataset", "hardware")
    search_fields = ("entry__system__name", "entry__dataset__name")


@admin.register(Price)
class PriceAdmin(CurationAdmin):
    """What an hour of a machine costs, from a day on. The history of each price says who wrote it."""

    list_display = ("hardware", "valid_from", "per_hour", "currency", "note")
    list_filter = ("hardware",)
    list_select_related = ("hardware",)
    date_hierarchy = "valid_from"

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        """Save, so that no cached page outlives the cost."""
        super().save_model(request, obj, form, change)
        price_changed(obj.hardware)

    def delete_model(self, request: HttpRequest, obj: Price) -> None:
        """Delete, so that no cached page outlives the cost."""
        super().delete_model(request, obj)
        price_changed(obj.hardware)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Price]) -> None:
        """Delete several, likewise."""
        machines = {price.hardware for price in queryset.select_related("hardware")}
        super().delete_queryset(request, queryset)
        for hardware in machines:
            price_changed(hardware)
