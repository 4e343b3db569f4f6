"""Entries: to look at, and to name the baseline among them."""

from __future__ import annotations

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.models import Entry
from leaderboard.publishing import name_baseline


@admin.register(Entry)
class EntryAdmin(ReadOnlyAdmin):
    """What boards show. Scores are never edited."""

    list_display = ("system", "dataset", "provenance", "visibility", "is_baseline", "published_at")
    list_filter = ("provenance", "visibility", "is_baseline", "dataset")
    list_select_related = ("system", "dataset")
    search_fields = ("system__name", "dataset__name", "dataset__slug", "submission_reference")
    actions = ("make_baseline",)

    @admin.action(description="Take deltas against this entry (the baseline)")
    def make_baseline(self, request: HttpRequest, entries: QuerySet[Entry]) -> None:
        """Name the one chosen entry as its comparison group's baseline."""
        if not request.user.has_perm("leaderboard.change_entry"):
            messages.error(request, "You may look at entries, not name baselines.")
            return
        chosen = list(entries[:2])
        if len(chosen) != 1 or chosen[0].visibility != Entry.Visibility.PUBLIC:
            messages.error(request, "Choose one public entry.")
            return
        if chosen[0].provenance == Entry.Provenance.REPORTED:
            messages.error(request, "Reported entries keep the baseline of their own source.")
            return
        name_baseline(chosen[0])
        messages.success(request, f"{chosen[0]} is the baseline now.")
