"""Admin of quota exceptions, the quota ledger, and flags of submissions that look like probes."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html_join

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, get_reason
from leaderboard.admin.pages import ActionRefused, Operation, ReviewAdmin
from leaderboard.admin.results import MODERATES, EntryAdmin
from leaderboard.core.audit import actor
from submissions.models import Flag, QuotaException, QuotaUse
from submissions.quotas.ledger import flag_details, refund_unit, settle_flag
from submissions.quotas.probes import differing_queries


@admin.register(QuotaException)
class QuotaExceptionAdmin(CurationAdmin):
    """Admin of quota exceptions, with reason and history."""

    list_display = ("team", "for_dataset", "daily", "monthly", "until", "reason")
    list_filter = (("dataset", admin.RelatedOnlyFieldListFilter), "until")
    list_select_related = ("team", "dataset")
    search_fields = ("team__name", "team__slug", "reason")
    # autocomplete_fields is not usable: select2 sets inline styles, which the content security policy forbids.
    raw_id_fields = ("team",)
    fields = ("team", "dataset", ("daily", "monthly"), "until")

    def save_model(self, request: HttpRequest, obj: QuotaException, form: Any, change: bool) -> None:
        """Save the exception with the reason of the change."""
        obj.reason = get_reason(request)[:300]
        super().save_model(request, obj, form, change)

    @admin.display(description="dataset", ordering="dataset")
    def for_dataset(self, row: QuotaException) -> str:
        return str(row.dataset or "every hidden dataset")


def _refund_row(use: Any, _: object) -> str:
    refund_unit(use)
    return f"Refunded: {use}."


@admin.register(QuotaUse)
class QuotaUseAdmin(ReadOnlyAdmin):
    """Admin of the ledger. Rows are never removed; refunded units remain with the reason."""

    list_display = ("at", "kind", "dataset", "team", "person", "submission", "refunded_at", "refund_reason")
    list_filter = (
        "kind",
        ("dataset", admin.RelatedOnlyFieldListFilter),
        ("refunded_at", admin.EmptyFieldListFilter),
        "at",
    )
    list_select_related = ("dataset", "team", "person", "submission__system")
    search_fields = ("team__name", "team__slug", "person__name", "person__email", "submission__id")
    date_hierarchy = "at"
    actions = ("refund",)

    refund = Operation(
        "Refund (asks for a reason)",
        "submissions.change_quotause",
        _refund_row,
        button="Refund",
        refusals=(ValueError,),
        title="Refund quota",
        explanation="These submissions no longer count for their users and teams, who can see the reason.",
    )


def _settle_row(flag: Flag, _: object, state: Flag.State) -> str:
    settle_flag(flag, state)
    return f"{state.label.capitalize()}: {flag}."


def _quarantine_row(flag: Flag, values: Mapping[str, Any]) -> str:
    """Confirm a flag, and quarantine the results of its run that the board shows."""
    person = actor().person
    if person is None or not person.has_perm(MODERATES):
        raise ActionRefused("You do not have permission to quarantine results. Choose “Confirm”.")
    entries = flag.dataset.entries.public().filter(submission_reference=flag.submission_id)
    sentences = [EntryAdmin.quarantine.run(entry, values) for entry in entries]
    if not sentences:
        raise ActionRefused(f"{flag}: the board does not show the result. Choose “Confirm”.")
    return " ".join([*sentences, _settle_row(flag, values, state=Flag.State.CONFIRMED)])


@admin.register(Flag)
class FlagAdmin(ReviewAdmin):
    """Admin of flags. Flagged submissions are not rejected."""

    list_display = ("kind", "evidence", "runs", "dataset", "team", "age", "state")
    list_filter = ("state", "kind", ("dataset", admin.RelatedOnlyFieldListFilter), "created_at")
    list_select_related = ("dataset", "team", "submission__system", "submission__submitter")
    search_fields = ("team__name", "team__slug", "submission__id", "submission__system__name")
    actions = ("clear", "confirm", "quarantine")
    change_form_template = "admin/submissions/flag.html"

    pending = ("flagged run", "flagged runs", "?state__exact=open")

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        Flag.find_similar_runs(changelist.result_list)
        return changelist

    @admin.display
    def evidence(self, flag: Flag) -> str:
        return flag_details(flag)

    @admin.display(description="runs", ordering="submission")
    def runs(self, flag: Flag) -> str:
        """Return links to the flagged run and to the others that it resembles."""
        links = [("This run: ", flag.submission), *(("Similar run: ", run) for run in flag.similar_runs)]
        rows = ((label, run.get_absolute_url(), run) for label, run in links)
        return format_html_join("", '<div>{}<a href="{}">{}</a></div>', rows)

    def change_context(self, obj: Flag) -> dict[str, Any]:
        return {"differing_queries": differing_queries(obj)}

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Flag.objects.filter(pk=key).values_list("dataset_id", flat=True)

    def acts(self, obj: Flag) -> Iterable[str]:
        return self.actions if obj.state == Flag.State.OPEN else ()

    clear = Operation(
        "Clear: not a probe (asks for a note)",
        "submissions.change_flag",
        partial(_settle_row, state=Flag.State.CLEARED),
        title="Clear flags",
        button="Clear: not a probe",
        explanation="The flag is closed. The result, the team, and its quota are not affected.",
    )
    confirm = Operation(
        "Confirm: a probe (asks for a note)",
        "submissions.change_flag",
        partial(_settle_row, state=Flag.State.CONFIRMED),
        title="Confirm flags",
        button="Confirm: a probe",
        explanation="The flag stays on record for curators. The result remains on the board.",
    )
    quarantine = replace(
        EntryAdmin.quarantine,
        permission="submissions.change_flag",
        run=_quarantine_row,
        short_description="Confirm and quarantine: remove the result from the ranking with a public reason",
        title="Confirm flags and quarantine results",
        button="Confirm and quarantine",
    )
