"""Systems that boards rank, and the publications that figures come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from leaderboard.admin.base import CurationAdmin
from leaderboard.admin.exchange import ExchangeAdmin
from leaderboard.admin.resources import SystemResource
from leaderboard.models import Entry, Source, System
from leaderboard.results.publishing.descriptions import boards_of_source, source_changed, system_changed


class SystemAdmin(ExchangeAdmin):
    """What a system says of itself. `submissions.admin` registers it, with the way to merge duplicates."""

    resource = SystemResource
    list_display = ("name", "architecture", "team", "source", "created_at")
    list_filter = ("architecture", "training_declared", "closed_api")
    list_select_related = ("team", "source")
    search_fields = ("name", "slug", "team__name")
    readonly_fields = ("slug", "team", "source", "created_at")
    may_add = may_delete = False  # systems come with submissions, and results stand on them
    # Not autocomplete_fields: select2 sets styles inline, which the CSP refuses.
    raw_id_fields = ("variant_of",)

    def boards_of(self, key: Any) -> Iterable[int]:
        """Those with results of it."""
        return Entry.objects.filter(system=key).values_list("dataset_id", flat=True)

    def save_model(self, request: HttpRequest, obj: System, form: Any, change: bool) -> None:
        """Save, so that its entries and every cached page follow."""
        super().save_model(request, obj, form, change)
        system_changed(obj)


@admin.register(Source)
class SourceAdmin(CurationAdmin):
    """Publications that reported figures come from."""

    list_display = ("key", "title", "year")
    search_fields = ("key", "title", "authors")

    def boards_of(self, key: Any) -> Iterable[int]:
        """Those that cite it."""
        return boards_of_source(key)

    def save_model(self, request: HttpRequest, obj: Source, form: Any, change: bool) -> None:
        """Save, so that the boards and pages that cite it follow."""
        super().save_model(request, obj, form, change)
        source_changed(obj)
