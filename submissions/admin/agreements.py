"""Agreements: their texts and lists, who accepted them, and who is approved."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpRequest

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin
from leaderboard.admin.forms import CurationForm
from leaderboard.admin.pages import ActionRefused, confirmed_action
from leaderboard.admin.site import SOURCES, PendingRows
from leaderboard.models import Acceptance, Agreement, Dataset
from leaderboard.results.board_rows.revisions import lock_boards
from submissions.accounts.agreements import (
    apply_agreement,
    approve_registration,
    same_documents,
    waiting_acceptances,
    withdraw_registration,
)

#: Addresses on one list.
MOST_ADDRESSES = 20_000


def read_addresses(text: str) -> list[str]:
    """The e-mail addresses of a list, one a line or between commas, in small letters, each once.

    Raises ValidationError with every line that has something else.
    """
    found: dict[str, None] = {}
    wrong = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in filter(None, re.split(r"[\s,;]+", line)):
            try:
                validate_email(word)
                found[word.lower()] = None
            except ValidationError:
                wrong.append(
                    f"Line {number}: “{word[:80]}” is not an e-mail address, such as ada@example.org."
                )
    if len(found) > MOST_ADDRESSES:
        wrong.append(f"There are {len(found):,} addresses; a list has at most {MOST_ADDRESSES:,}.")
    if wrong:
        raise ValidationError(wrong)
    return list(found)


class AddressListField(forms.CharField):
    """A list of addresses, a line each."""

    widget = forms.Textarea(attrs={"rows": 8, "class": "vLargeTextField"})

    def prepare_value(self, value: Any) -> Any:
        """As it is edited."""
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        """The addresses. Raises ValidationError."""
        return read_addresses(super().clean(value))

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether other addresses are named."""
        return sorted(initial or []) != sorted((data or "").split())


class AgreementForm(CurationForm):
    """The agreement of a dataset or a round, and who is approved at once."""

    listed = AddressListField(
        label="Approved addresses",
        required=False,
        max_length=1_000_000,
        help_text="Whoever accepts the agreement with one of these verified e-mail addresses is approved at once; "
        "one a line, or between commas.",
    )

    class Meta:
        model = Agreement
        fields = ("dataset", "round", "text", "in_force", "needs_approval", "listed")

    def clean(self) -> dict[str, Any]:
        """What was entered, with one subject."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance.pk is None and bool(cleaned.get("dataset")) == bool(cleaned.get("round")):
            self.add_error("dataset", "Name either a dataset or a round.")
        return cleaned


@admin.register(Agreement)
class AgreementAdmin(CurationAdmin):
    """While one is in force, downloads and submissions wait for its acceptance."""

    form = AgreementForm
    list_display = ("subject", "version", "in_force", "needs_approval", "accepted_by")
    list_filter = ("in_force", "needs_approval")
    list_select_related = ("dataset", "round")
    search_fields = ("dataset__name", "dataset__slug", "round__name", "round__slug")
    readonly_fields = ("version",)
    view_on_site = False  # `tools` has it while there is a page
    may_delete = False  # acceptances stand on it; it is switched off instead
    fieldsets = (
        (None, {"fields": ("dataset", "round", "text", "version", "in_force")}),
        ("Approval", {"fields": ("needs_approval", "listed")}),
    )

    @admin.display(description="accepted by")
    def accepted_by(self, agreement: Agreement) -> int:
        """How many people accepted the present version."""
        return agreement.acceptances.filter(version=agreement.version).count()

    def get_readonly_fields(self, request: HttpRequest, obj: Agreement | None = None) -> Any:
        """What an agreement is of stays."""
        fixed = super().get_readonly_fields(request, obj)
        return (*fixed, "dataset", "round") if obj is not None else fixed

    def boards_of(self, key: Any) -> Iterable[int]:
        """That of its dataset."""
        return Dataset.objects.filter(agreement=key).values_list("pk", flat=True)

    def tools(self, request: HttpRequest, obj: Agreement) -> list[tuple[str, str]]:
        """The page that people see."""
        return [("On the site", obj.get_absolute_url())] if obj.in_force else []

    def save_model(self, request: HttpRequest, obj: Agreement, form: Any, change: bool) -> None:
        """Save: a changed text is the next version, and the dataset's settings follow."""
        lock_boards([obj.dataset_id] if obj.dataset_id else [])
        if change and "text" in form.changed_data:
            obj.version += 1
        super().save_model(request, obj, form, change)
        apply_agreement(obj)
        if others := same_documents(obj):
            messages.warning(
                request,
                f"{', '.join(map(str, others))}: the same documents are offered there without an agreement. Give it "
                "one of its own, or change who may see its documents.",
            )

    def recorded(self, name: str, value: Any) -> Any:
        """Of the addresses only how many there are: records are never deleted."""
        if name == "listed":
            return len(value or [])
        return super().recorded(name, value)


def _approve(acceptance: Any, _: object) -> str:
    if not approve_registration(acceptance.agreement, acceptance.person):
        raise ActionRefused(f"{acceptance.person} is approved already.")
    return f"Approved: {acceptance.person}, {acceptance.agreement}."


def _withdraw(acceptance: Any, _: object) -> str:
    if not withdraw_registration(acceptance.agreement, acceptance.person):
        raise ActionRefused(f"{acceptance.person} is not approved.")
    return f"Withdrawn: {acceptance.person}, {acceptance.agreement}."


class WaitingFilter(admin.SimpleListFilter):
    """Those that wait for a curator."""

    title, parameter_name = "approval", "approval"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The one choice beside all."""
        return [("waiting", "waiting")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Those that wait, or all."""
        return queryset.filter(pk__in=waiting_acceptances().values("pk")) if self.value() else queryset


@admin.register(Acceptance)
class AcceptanceAdmin(ReadOnlyAdmin):
    """Who accepted which version, and when."""

    list_display = ("accepted_at", "person", "agreement", "version", "approved")
    list_filter = (WaitingFilter, "agreement")
    list_select_related = ("agreement__dataset", "agreement__round", "person")
    search_fields = ("person__email", "person__name")
    actions = ("approve", "withdraw")

    @admin.display(description="approved")
    def approved(self, acceptance: Acceptance) -> str:
        """Whether a curator or the list approved the person, where the agreement asks for it."""
        if not acceptance.agreement.needs_approval:
            return "not needed"
        return "yes" if acceptance.agreement.approved.filter(pk=acceptance.person_id).exists() else "no"

    approve = confirmed_action(
        "Approve (asks why)", "leaderboard.change_agreement", _approve, title="Approve registrations",
        button="Approve",
        explanation="They may download and submit from now on, also after a new version once they have accepted it, "
        "and are told by mail.",
    )  # fmt: skip
    withdraw = confirmed_action(
        "Withdraw the approval (asks why)", "leaderboard.change_agreement", _withdraw, title="Withdraw approvals",
        button="Withdraw",
        explanation="Their downloads and submissions are refused. What they submitted stays.",
    )  # fmt: skip


SOURCES.append(
    lambda: [
        PendingRows(
            waiting_acceptances(),
            "registration waits for approval",
            "registrations wait for approval",
            "?approval=waiting",
        )
    ]
)
