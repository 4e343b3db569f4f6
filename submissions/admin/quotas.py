"""Quotas: exceptions for single teams, the ledger, and flags of submissions that look like probes."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.html import format_html

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, reason_of
from leaderboard.admin.pages import ActionRefused, confirm, require
from leaderboard.admin.site import SOURCES, PendingRows
from submissions.models import Flag, QuotaException, QuotaUse
from submissions.quotas.curating import flag_details, refund_unit, settle_flag


@admin.register(QuotaException)
class QuotaExceptionAdmin(CurationAdmin):
    """Another quota for a team, with a reason and a history."""

    list_display = ("team", "for_dataset", "daily", "monthly", "until", "reason")
    list_filter = (("dataset", admin.RelatedOnlyFieldListFilter), "until")
    list_select_related = ("team", "dataset")
    search_fields = ("team__name", "team__slug", "reason")
    # Not autocomplete_fields: select2 sets styles inline, which the policy for browsers refuses.
    raw_id_fields = ("team",)
    fields = ("team", "dataset", ("daily", "monthly"), "until")

    def save_model(self, request: HttpRequest, obj: QuotaException, form: Any, change: bool) -> None:
        """Save, with the reason that was given as the exception's own."""
        obj.reason = reason_of(request)[:300]
        super().save_model(request, obj, form, change)

    @admin.display(description="dataset", ordering="dataset")
    def for_dataset(self, row: QuotaException) -> str:
        """Where it holds."""
        return str(row.dataset or "every hidden dataset")


@admin.register(QuotaUse)
class QuotaUseAdmin(ReadOnlyAdmin):
    """The ledger. Rows are only added; a unit that is given back stays, with the reason."""

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

    @admin.action(description="Give back (asks why)", permissions=["refund"])
    def refund(self, request: HttpRequest, chosen: QuerySet[QuotaUse]) -> TemplateResponse | None:
        """Give units back."""
        require(request, "submissions.change_quotause")
        return confirm(
            self,
            request,
            chosen,
            _refund,
            title="Give back what submissions cost",
            explanation="Each of these no longer counts for its person and team. They read the reason.",
            button="Give back",
        )

    def has_refund_permission(self, request: HttpRequest) -> bool:
        """Whoever may change the ledger."""
        return request.user.has_perm("submissions.change_quotause")


def _refund(use: Any, _: object) -> str:
    try:
        refund_unit(use)
    except ValueError as error:
        raise ActionRefused(str(error)) from error
    return f"Given back: {use}."


@admin.register(Flag)
class FlagAdmin(ReadOnlyAdmin):
    """What was noticed. Nothing was refused because of it."""

    list_display = ("created_at", "kind", "figures", "dataset", "its_team", "its_submission", "state", "note")
    list_filter = ("state", "kind", ("dataset", admin.RelatedOnlyFieldListFilter), "created_at")
    list_select_related = ("dataset", "team", "submission__system", "submission__submitter")
    search_fields = ("team__name", "team__slug", "submission__id", "submission__system__name")
    fields = (
        "kind", "figures", "dataset", "its_team", "its_submission", "submitter", "earlier", "state", "note",
        "settled_by", "settled_at", "created_at",
    )  # fmt: skip
    readonly_fields = ("figures", "its_team", "its_submission", "submitter", "earlier")
    actions = ("clear", "confirm")

    @admin.display
    def figures(self, flag: Flag) -> str:
        """What gave rise to it."""
        return flag_details(flag)

    @admin.display(description="team", ordering="team__name")
    def its_team(self, flag: Flag) -> str:
        """With a link to its page."""
        return format_html('<a href="{}">{}</a>', flag.team.get_absolute_url(), flag.team)

    @admin.display(description="submission", ordering="submission")
    def its_submission(self, flag: Flag) -> str:
        """With a link to its status."""
        return format_html('<a href="{}">{}</a>', flag.submission.get_absolute_url(), flag.submission)

    @admin.display
    def submitter(self, flag: Flag) -> str:
        """Who sent it."""
        return str(flag.submission.submitter)

    @admin.display(description="earlier submissions of the chain")
    def earlier(self, flag: Flag) -> str:
        """Their ids."""
        return ", ".join(flag.details.get("chain", [])) or flag.details.get("submission", "") or "none"

    @admin.action(description="Clear: it is no probe (asks for a note)", permissions=["settle"])
    def clear(self, request: HttpRequest, chosen: QuerySet[Flag]) -> TemplateResponse | None:
        """It is honest work."""
        return self._settle(request, chosen, Flag.State.CLEARED, "Clear flags", "Clear")

    @admin.action(description="Confirm: it is a probe (asks for a note)", permissions=["settle"])
    def confirm(self, request: HttpRequest, chosen: QuerySet[Flag]) -> TemplateResponse | None:
        """It is a probe."""
        return self._settle(request, chosen, Flag.State.CONFIRMED, "Confirm flags", "Confirm")

    def _settle(
        self, request: HttpRequest, chosen: QuerySet[Flag], state: Flag.State, title: str, button: str
    ) -> TemplateResponse | None:
        require(request, "submissions.change_flag")

        def act(flag: Any, _: object) -> str:
            settle_flag(flag, state)
            return f"{state.label.capitalize()}: {flag}."

        return confirm(
            self, request, chosen, act, title=title, button=button,
            explanation="The note is kept with the flag and in the record. What follows (a quarantine, another quota) "
            "is an act of its own.",
        )  # fmt: skip

    def has_settle_permission(self, request: HttpRequest) -> bool:
        """Whoever may change flags."""
        return request.user.has_perm("submissions.change_flag")


SOURCES.append(
    lambda: [
        PendingRows(
            Flag.objects.filter(state=Flag.State.OPEN),
            "run looks like a probe",
            "runs look like probes",
            "?state__exact=open",
        )
    ]
)
