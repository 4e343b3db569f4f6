"""Entries: to look at, to name the baseline among them, and to moderate. Scores are never edited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.pages import ReasonForm, confirm, confirmed_action
from leaderboard.admin.reported import report_view
from leaderboard.importing.reported.curated import withdraw_figure
from leaderboard.models import Entry
from leaderboard.results.publishing.visibility import (
    CannotModerate,
    name_baseline,
    quarantine,
    restore,
    unpublish,
)

#: Who may take results off boards and show them again.
MODERATES = "leaderboard.moderate_entry"


def _moderation(verb: Callable[[Entry, str], Entry], done: str) -> Callable[[Entry, Mapping[str, Any]], str]:
    """The verb as an action's act."""

    def act(entry: Entry, values: Mapping[str, Any]) -> str:
        verb(entry, values["why"])
        return f"{entry} {done}."

    return act


class WithdrawForm(ReasonForm):
    """Which figure of a reported row."""

    measure = forms.CharField(max_length=40, required=False, help_text="Empty: the whole row.")
    field_order = ("measure", "why")


def _withdraw(entry: Entry, values: Mapping[str, Any]) -> str:
    withdraw_figure(entry, values["measure"].strip(), values["why"])
    return f"{values['measure'] or 'All figures'} of {entry} withdrawn."


class EntryAdmin(ReadOnlyAdmin):
    """Results, as boards show them; `submissions.admin` registers it, with the actions that need a job."""

    list_display = (
        "system", "dataset", "configuration", "provenance", "visibility", "is_baseline", "moderation_reason",
        "published_at",
    )  # fmt: skip
    list_filter = (
        "provenance",
        "visibility",
        "is_baseline",
        "late",
        ("dataset", admin.RelatedOnlyFieldListFilter),
    )
    list_select_related = ("system", "dataset")
    search_fields = ("system__name", "system__slug", "dataset__name", "dataset__slug", "submission_reference")
    date_hierarchy = "published_at"
    change_list_template = "admin/leaderboard/entry/change_list.html"
    actions: Sequence[str] = ("make_baseline", "quarantine", "restore", "unpublish", "withdraw")

    def acts(self, obj: Entry) -> Iterable[str]:
        """What may be done in its state."""
        if obj.visibility == Entry.Visibility.PUBLIC and obj.provenance == Entry.Provenance.REPORTED:
            return ("withdraw", "quarantine")
        if obj.visibility == Entry.Visibility.PUBLIC:
            return ("quarantine", "unpublish")
        return ("restore",)

    def boards_of(self, key: Any) -> Iterable[int]:
        """The one that it is on."""
        return Entry.objects.filter(pk=key).values_list("dataset_id", flat=True)

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, and entering what publications report."""
        view = self.admin_site.admin_view(partial(report_view, self))
        return [path("report/", view, name="leaderboard_entry_report"), *super().get_urls()]

    def has_baseline_permission(self, request: HttpRequest) -> bool:
        """Who may name what others are compared with."""
        return request.user.has_perm("leaderboard.change_entry")

    @admin.action(description="Take deltas against this entry (the baseline)", permissions=["baseline"])
    def make_baseline(self, request: HttpRequest, entries: QuerySet[Entry]) -> HttpResponse | None:
        """Name the one chosen entry as its comparison group's baseline."""
        chosen = list(entries[:2])
        if len(chosen) != 1 or chosen[0].visibility != Entry.Visibility.PUBLIC:
            messages.error(request, "Choose one public entry.")
            return None
        if chosen[0].provenance == Entry.Provenance.REPORTED:
            messages.error(request, "Reported entries keep the baseline of their own source.")
            return None

        def act(entry: Entry, values: Mapping[str, Any]) -> str:
            name_baseline(entry)
            return f"{entry} is the baseline now."

        return confirm(
            self, request, entries, act,
            title="Name the baseline",
            explanation="All differences of its comparison group are taken against it from now on:",
            button="Name it the baseline",
        )  # fmt: skip

    quarantine = confirmed_action(
        "Quarantine: out of the ranking, with a public reason", MODERATES, _moderation(quarantine, "is quarantined"),
        refusals=(CannotModerate,), title="Quarantine results", button="Quarantine", danger=True,
        explanation="They keep a place below the ranking, without scores. The reason is public, on the board and in "
        "every export:",
    )  # fmt: skip
    restore = confirmed_action(
        "Restore: show it again", MODERATES, _moderation(lambda entry, why: restore(entry), "is restored"),
        refusals=(CannotModerate,), title="Restore results", button="Restore",
        explanation="They are ranked again; those that their teams keep back stay private:",
    )  # fmt: skip
    unpublish = confirmed_action(
        "Un-publish: off the board, its team is told why", MODERATES, _moderation(unpublish, "is off the board"),
        refusals=(CannotModerate,), title="Un-publish results", button="Un-publish", danger=True,
        explanation="Nothing of them stays on boards. Their teams see the reason:",
    )  # fmt: skip
    withdraw = confirmed_action(
        "Withdraw reported figures", MODERATES, _withdraw, refusals=(CannotModerate,), form_class=WithdrawForm,
        title="Withdraw reported figures", button="Withdraw a figure", danger=True,
        explanation="They leave the board; permalinks keep them. Entering them again brings them back:",
    )  # fmt: skip
