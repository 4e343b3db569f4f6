"""Benchmarks with their members."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from leaderboard.admin.exchange import ExchangeAdmin
from leaderboard.admin.forms import FORM_FIELDS
from leaderboard.admin.resources import BenchmarkResource
from leaderboard.models import Benchmark, BenchmarkMember
from leaderboard.results.board_rows.revisions import Kind, benchmark_changed, boards_changed


class MemberInline(admin.TabularInline):
    """The datasets of a benchmark, in order."""

    model = BenchmarkMember
    extra = 0
    formfield_overrides = FORM_FIELDS


@admin.register(Benchmark)
class BenchmarkAdmin(ExchangeAdmin):
    """Which datasets a benchmark shows, and which of them count."""

    resource = BenchmarkResource
    list_display = ("name", "slug", "measure", "source", "position")
    search_fields = ("name", "slug")
    prepopulated_fields = {"slug": ("name",)}
    inlines = (MemberInline,)

    def boards_of(self, key: Any) -> Iterable[int]:
        """Its members', which name it."""
        return BenchmarkMember.objects.filter(benchmark=key).values_list("dataset_id", flat=True)

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


def _members_of(benchmark: Benchmark) -> set[int]:
    return set(benchmark.members.values_list("dataset_id", flat=True))
