"""Quotas: exceptions for single teams, the ledger, and flags of submissions that look like probes."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, get_reason
from leaderboard.admin.pages import Operation
from submissions.models import Flag, QuotaException, QuotaUse
from submissions.quotas.ledger import flag_details, refund_unit, settle_flag


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
        obj.reason = get_reason(request)[:300]
        super().save_model(request, obj, form, change)

    @admin.display(description="dataset", ordering="dataset")
    def for_dataset(self, row: QuotaException) -> str:
        return str(row.dataset or "every hidden dataset")


def _refund(use: Any, _: object) -> str:
    refund_unit(use)
    return f"Given back: {use}."


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

    refund = Operation(
        "Give back (asks why)", "submissions.change_quotause", _refund, button="Give back", refusals=(ValueError,),
        title="Give back what submissions cost",
        explanation="Each of these no longer counts for its person and team. They read the reason.",
    )  # fmt: skip


def _settle(flag: Flag, _: object, state: Flag.State) -> str:
    settle_flag(flag, state)
    return f"{state.label.capitalize()}: {flag}."


#: An operation that settles flags with a note.
_settlement = partial(
    Operation, permission="submissions.change_flag",
    explanation="The note is kept with the flag and in the record. What follows (a quarantine, another quota) is "
    "an act of its own.",
)  # fmt: skip


@admin.register(Flag)
class FlagAdmin(ReadOnlyAdmin):
    """Flags of submissions. A flag refuses nothing."""

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

    pending = ("run looks like a probe", "runs look like probes", "?state__exact=open")

    def pending_rows(self) -> QuerySet[Flag]:
        return Flag.objects.filter(state=Flag.State.OPEN)

    @admin.display
    def figures(self, flag: Flag) -> str:
        return flag_details(flag)

    @admin.display(description="team", ordering="team__name")
    def its_team(self, flag: Flag) -> str:
        return format_html('<a href="{}">{}</a>', flag.team.get_absolute_url(), flag.team)

    @admin.display(description="submission", ordering="submission")
    def its_submission(self, flag: Flag) -> str:
        return format_html('<a href="{}">{}</a>', flag.submission.get_absolute_url(), flag.submission)

    @admin.display
    def submitter(self, flag: Flag) -> str:
        return str(flag.submission.submitter)

    @admin.display(description="earlier submissions of the chain")
    def earlier(self, flag: Flag) -> str:
        return ", ".join(flag.details.get("chain", [])) or flag.details.get("submission", "") or "none"

    def acts(self, obj: Flag) -> Iterable[str]:
        return ("clear", "confirm") if obj.state == Flag.State.OPEN else ()

    clear = _settlement(
        "Clear: it is no probe (asks for a note)", run=partial(_settle, state=Flag.State.CLEARED),
        title="Clear flags", button="Clear",
    )  # fmt: skip
    confirm = _settlement(
        "Confirm: it is a probe (asks for a note)", run=partial(_settle, state=Flag.State.CONFIRMED),
        title="Confirm flags", button="Confirm",
    )  # fmt: skip
