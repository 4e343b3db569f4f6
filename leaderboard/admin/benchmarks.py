"""Benchmarks with their members, and the systems that boards rank."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from leaderboard.admin.base import CurationAdmin
from leaderboard.board_versions import Kind, benchmark_changed, boards_changed
from leaderboard.models import Benchmark, BenchmarkMember, Source, System
from leaderboard.publishing import source_changed, system_changed


class MemberInline(admin.TabularInline):
    """The datasets of a benchmark, in order."""

    model = BenchmarkMember
    extra = 0
    autocomplete_fields = ("dataset",)


@admin.register(Benchmark)
class BenchmarkAdmin(CurationAdmin):
    """Which datasets a benchmark shows, and which of them count."""

    list_display = ("name", "slug", "measure", "source", "position")
    prepopulated_fields = {"slug": ("name",)}
    inlines = (MemberInline,)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the members, so that no cached page outlives them: neither theirs nor that of one taken out."""
        before = _members_of(form.instance)
        super().save_related(request, form, formsets, change)
        benchmark_changed(form.instance)
        boards_changed(before | _members_of(form.instance), Kind.DESCRIPTION)

    def delete_model(self, request: HttpRequest, obj: Benchmark) -> None:
        """Delete, so that no page goes on naming it."""
        members = _members_of(obj)
        super().delete_model(request, obj)
        boards_changed(members, Kind.DESCRIPTION)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Benchmark]) -> None:
        """Delete several, likewise."""
        members = set().union(*(_members_of(benchmark) for benchmark in queryset))
        super().delete_queryset(request, queryset)
        boards_changed(members, Kind.DESCRIPTION)


def _members_of(benchmark: Benchmark) -> set[int]:
    return set(benchmark.members.values_list("dataset_id", flat=True))


@admin.register(System)
class SystemAdmin(CurationAdmin):
    """What a system says of itself."""

    list_display = ("name", "architecture", "team", "source", "created_at")
    list_filter = ("architecture",)
    search_fields = ("name", "slug", "team__name")
    readonly_fields = ("slug", "team", "source", "created_at")
    autocomplete_fields = ("variant_of",)

    def save_model(self, request: HttpRequest, obj: System, form: Any, change: bool) -> None:
        """Save, so that its entries and every cached page follow."""
        super().save_model(request, obj, form, change)
        system_changed(obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Systems come with submissions."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: System | None = None) -> bool:
        """Not by hand: results stand on them."""
        return False


@admin.register(Source)
class SourceAdmin(CurationAdmin):
    """Publications that reported figures come from."""

    list_display = ("key", "title", "year")
    search_fields = ("key", "title", "authors")

    def save_model(self, request: HttpRequest, obj: Source, form: Any, change: bool) -> None:
        """Save, so that the boards and pages that cite it follow."""
        super().save_model(request, obj, form, change)
        source_changed(obj)
