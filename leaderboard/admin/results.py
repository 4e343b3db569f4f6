"""Entries: to look at, to name the baseline among them, and to moderate. Scores are never edited."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.forms import optional_text
from leaderboard.admin.pages import Operation, ReasonForm
from leaderboard.admin.reported import report_view
from leaderboard.importing.reported.loader import withdraw_figure
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


class WithdrawForm(ReasonForm):
    """The figure of a reported row."""

    measure = optional_text(max_length=40, help_text="Empty: the whole row.")


def _withdraw(entry: Entry, values: Mapping[str, Any]) -> str:
    withdraw_figure(entry, values["measure"].strip(), values["why"])
    return f"{values['measure'] or 'All figures'} of {entry} withdrawn."


def _moderate(verb: Callable[[Entry, str], Entry], state: str) -> Callable[[Entry, Mapping[str, Any]], str]:
    def run(entry: Entry, values: Mapping[str, Any]) -> str:
        verb(entry, values["why"])
        return f"{entry} {state}."

    return run


def _name_baseline(entry: Entry, values: Mapping[str, Any]) -> str:
    name_baseline(entry)
    return f"{entry} is the baseline now."


def _check_baseline(entries: QuerySet[Entry]) -> str:
    chosen = list(entries[:2])
    if len(chosen) != 1 or chosen[0].visibility != Entry.Visibility.PUBLIC:
        return "Choose one public entry."
    reported = chosen[0].provenance == Entry.Provenance.REPORTED
    return "Reported entries keep the baseline of their own source." if reported else ""


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
    pages: ClassVar = {"report": "report/"}
    report_view = report_view
    actions: Sequence[str] = ("make_baseline", "quarantine", "restore", "unpublish", "withdraw")

    def acts(self, obj: Entry) -> Iterable[str]:
        if obj.visibility == Entry.Visibility.PUBLIC and obj.provenance == Entry.Provenance.REPORTED:
            return ("withdraw", "quarantine")
        if obj.visibility == Entry.Visibility.PUBLIC:
            return ("quarantine", "unpublish")
        return ("restore",)

    def boards_of(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(pk=key).values_list("dataset_id", flat=True)

    make_baseline = Operation(
        "Take deltas against this entry (the baseline)", "leaderboard.change_entry", _name_baseline,
        check=_check_baseline, title="Name the baseline", button="Name it the baseline",
        explanation="All differences of its comparison group are taken against it from now on:",
        help="Take the deltas of a board against this result, which is public and was scored here.",
        report=lambda entry, values: f"{entry} (entry {entry.pk}) is the baseline now.",
    )  # fmt: skip
    quarantine = Operation(
        "Quarantine: out of the ranking, with a public reason", MODERATES, _moderate(quarantine, "is quarantined"),
        refusals=(CannotModerate,), title="Quarantine results", button="Quarantine", danger=True,
        explanation="They keep a place below the ranking, without scores. The reason is public, on the board and in "
        "every export:",
        help="Take a result out of the ranking: it keeps its place below, without scores, and --why is public.",
        report=lambda entry, values: f"Quarantined: {entry} (entry {entry.pk}).",
    )  # fmt: skip
    restore = Operation(
        "Restore: show it again", MODERATES, _moderate(lambda entry, why: restore(entry), "is restored"),
        refusals=(CannotModerate,), title="Restore results", button="Restore",
        explanation="They are ranked again; those that their teams keep back stay private:",
        help="Show a result again that was quarantined or taken off; where its team keeps it back, it stays private.",
        report=lambda entry, values: f"Restored: {entry} (entry {entry.pk}), {entry.get_visibility_display()} now.",
    )  # fmt: skip
    unpublish = Operation(
        "Un-publish: off the board, its team is told why", MODERATES, _moderate(unpublish, "is off the board"),
        refusals=(CannotModerate,), title="Un-publish results", button="Un-publish", danger=True,
        explanation="Nothing of them stays on boards. Their teams see the reason:",
        help="Take a result off its board: nothing of it stays there, and its team reads --why.",
        report=lambda entry, values: f"Taken off the board: {entry} (entry {entry.pk}).",
    )  # fmt: skip
    withdraw = Operation(
        "Withdraw reported figures", MODERATES, _withdraw, form=WithdrawForm,
        refusals=(CannotModerate,), title="Withdraw reported figures", button="Withdraw a figure", danger=True,
        explanation="They leave the board; permalinks keep them. Entering them again brings them back:",
    )  # fmt: skip
