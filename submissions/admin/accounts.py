"""Accounts, their addresses, and groups: who has which rights. Every change is recorded, and no secret with it."""

from __future__ import annotations

from typing import Any

import allauth.mfa.admin
import allauth.usersessions.admin  # noqa: F401
from allauth.account.admin import EmailAddressAdmin
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from leaderboard.admin.base import CurationAdmin, curator
from leaderboard.admin.forms import CurationForm
from leaderboard.admin.pages import NotDone, ask, require
from leaderboard.admin.site import SOURCES, Waiting
from leaderboard.core.audit import acting, record
from leaderboard.models import User
from submissions.accounts.approval import approve_account, waiting_accounts
from submissions.accounts.membership import end_reach
from submissions.accounts.sessions import end_access

#: Fields of a new account that no record has.
_SECRET = ("password1", "password2", "usable_password")

#: Who may say that an account or a team is welcome.
APPROVES = "leaderboard.change_team"
#: What nobody takes from their own account.
_OWN_WAY_IN = ("is_active", "is_staff", "is_superuser")

# The pages that come with Group and EmailAddress record nothing. Those of second factors and sessions would take a
# factor away, or add one, without the record and the end of all sessions that `manage.py reset_second_factor` makes.
admin.site.unregister([Group, EmailAddress, Authenticator, UserSession])


class NewPersonForm(CurationForm, AdminUserCreationForm):
    """A new account is known by its e-mail address."""

    class Meta:
        model = User
        fields = ("email", "name")

    @property
    def changed_data(self) -> list[str]:
        """What was said of the person; not of the password."""
        return [name for name in super().changed_data if name not in _SECRET]


class PersonForm(CurationForm, UserChangeForm):
    """An account; its password has a page of its own."""

    def clean(self) -> dict[str, Any] | None:
        """Nobody takes from themselves what lets them in here: so the last who has every right keeps it."""
        cleaned = super().clean()
        if self.instance.pk == self.request.user.pk:
            for name in _OWN_WAY_IN:
                if name in self.changed_data and not self.cleaned_data.get(name):
                    self.add_error(
                        name, "You cannot take this from yourself. Ask somebody else who may change accounts."
                    )
        return cleaned


class AccountAdmin(CurationAdmin):
    """What is recorded of accounts tells them by number, and of addresses only the ends: a record is never deleted."""

    def recorded(self, name: str, value: Any) -> Any:
        """The value; an address by its ends."""
        return _ends(str(value or "")) if name == "email" else super().recorded(name, value)


@admin.register(User)
class PersonAdmin(AccountAdmin, UserAdmin):
    """Accounts, by e-mail address."""

    form = PersonForm
    add_form = NewPersonForm
    list_display = ("email", "name", "is_staff", "is_active", "approval_awaited", "date_joined")
    list_filter = ("approval_awaited", *UserAdmin.list_filter)
    actions = ("approve",)
    search_fields = ("email", "name")
    ordering = ("email",)
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Record", {"fields": ("approval_awaited", "last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "name", "usable_password", "password1", "password2")}),)
    readonly_fields = ("approval_awaited", "last_login", "date_joined")

    @admin.action(description="Approve: it may sign in (asks why)", permissions=["approve"])
    def approve(self, request: HttpRequest, chosen: QuerySet[User]) -> TemplateResponse | None:
        """Let people in who signed up and wait."""
        require(request, APPROVES)
        return ask(
            self, request, chosen, _approve, title="Approve accounts", button="Approve",
            explanation="They can sign in from now on, and are told by mail.",
        )  # fmt: skip

    def has_approve_permission(self, request: HttpRequest) -> bool:
        """Whoever approves teams: curators, who change nothing else of accounts."""
        return request.user.has_perm(APPROVES)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: an account is closed by taking “active” away, so that teams and records keep their names."""
        return False

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save; who is closed out comes in no more, lets nobody in, and is told nothing."""
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data and not obj.is_active:
            record("access ended", obj, after={**end_access(obj), **end_reach(obj)})

    @transaction.atomic
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Set somebody's password: whoever knew the old one, or came in by it, is out, and so are their tokens."""
        with acting(curator(request)):
            key = self.key_of(unquote(id))
            before = _password_of(key)
            answer = super().user_change_password(request, id, form_url)
            if _password_of(key) != before:
                person = User.objects.get(pk=key)
                after = end_access(person, keep=request.session.session_key)
                record("password set", person, after=after)
        return answer


def _approve(person: Any, _: object) -> str:
    if not approve_account(person):
        raise NotDone(f"Account {person.pk} does not wait for approval.")
    return f"Approved: account {person.pk}."


SOURCES.append(
    lambda: [
        Waiting(
            waiting_accounts(),
            "account waits for approval",
            "accounts wait for approval",
            "?approval_awaited__exact=1",
        )
    ]
)


def _password_of(key: Any) -> str | None:
    """As it is stored: another one whenever it is set, even to what it was."""
    return User.objects.filter(pk=key).values_list("password", flat=True).first()


@admin.register(Group)
class RightsAdmin(AccountAdmin, GroupAdmin):
    """Groups: what all who are in them may do."""


@admin.register(EmailAddress)
class AddressAdmin(AccountAdmin, EmailAddressAdmin):
    """Addresses that accounts have; a verified one lets its account sign in, and into teams that invited it."""

    actions = ["make_verified"]

    @admin.action(description="Mark as verified", permissions=["change"])
    @transaction.atomic
    def make_verified(self, request: HttpRequest, queryset: QuerySet[EmailAddress]) -> None:
        """Take it for granted that the address is the person's."""
        waiting = list(queryset.filter(verified=False).values_list("pk", flat=True))
        super().make_verified(request, queryset)
        for address in EmailAddress.objects.filter(pk__in=waiting, verified=True).order_by("pk"):
            before, after = {"verified": False}, {"verified": True}
            record("edited", self._named(address), before=before, after=after)

    def _named(self, obj: EmailAddress) -> str:
        return f"address {_ends(obj.email)} of account {obj.user_id}"


def _ends(address: str) -> str:
    """An address by its first letter and its host."""
    name, _, host = address.rpartition("@")
    return f"{name[:1]}…@{host}" if host else ""
