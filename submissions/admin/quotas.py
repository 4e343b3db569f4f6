"""Quotas: other ones for single teams, and the ledger, of which units can be given back."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, reason_of
from leaderboard.admin.pages import NotDone, ask, require
from submissions.models import QuotaException, QuotaUse
from submissions.quotas.curating import give_back


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
        return ask(
            self,
            request,
            chosen,
            _give_back,
            title="Give back what submissions cost",
            explanation="Each of these no longer counts for its person and team. They read the reason.",
            button="Give back",
        )

    def has_refund_permission(self, request: HttpRequest) -> bool:
        """Whoever may change the ledger."""
        return request.user.has_perm("submissions.change_quotause")


def _give_back(use: Any, _: object) -> str:
    try:
        give_back(use)
    except ValueError as error:
        raise NotDone(str(error)) from error
    return f"Given back: {use}."
