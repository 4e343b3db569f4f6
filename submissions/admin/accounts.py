"""Admin of accounts, addresses, groups, teams, and agreements. Every change is recorded, without secrets.

Curators may change the names of teams. Changing members needs another permission, because members can access the
team's runs.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import allauth.mfa.admin
import allauth.socialaccount.admin
import allauth.usersessions.admin  # noqa: F401
from allauth.account.admin import EmailAddressAdmin
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm, UserChangeForm
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, curator
from leaderboard.admin.forms import CurationForm
from leaderboard.admin.pages import ActionRefused, Operation
from leaderboard.core.audit import acting, record
from leaderboard.models import Acceptance, Agreement, Dataset, Membership, Team, User
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.publishing.descriptions import boards_of_team, team_changed
from submissions.accounts import approval, teams
from submissions.accounts.access import end_access

#: Fields of a new account that are never recorded.
_SECRET = ("password1", "password2", "usable_password")

#: Permission to approve accounts and teams.
APPROVES = "leaderboard.change_team"
#: Permission to change members of teams, the same as for accounts: members can read what curators cannot.
CHANGE_USERS = "leaderboard.change_user"
#: Form fields that contain users to be added to the team.
_MEMBER_FIELD = re.compile(r"memberships-[0-9]+-user")
_KEY = re.compile(r"[0-9]{1,18}")
#: Rights that users cannot remove from their own account.
_ACCESS_FIELDS = ("is_active", "is_staff", "is_superuser")

# The default admin pages of groups and addresses do not record changes. The pages of second factors and sessions would
# change factors without the record and the end of all sessions that `manage.py reset_second_factor` ensures.
admin.site.unregister([Group, EmailAddress, Authenticator, UserSession, SocialAccount, SocialApp, SocialToken])


class NewPersonForm(CurationForm, AdminUserCreationForm):
    """Form that creates an account with an email address."""

    class Meta:
        model = User
        fields = ("email", "name")

    @property
    def changed_data(self) -> list[str]:
        return [name for name in super().changed_data if name not in _SECRET]


class PersonForm(CurationForm, UserChangeForm):
    """Form that edits an account. Passwords are set on a separate page."""

    def clean(self) -> dict[str, Any] | None:
        """Add an error if users would remove their own access, so that a superuser remains."""
        values = super().clean()
        if self.instance.pk == self.request.user.pk:
            for name in _ACCESS_FIELDS:
                if name in self.changed_data and not self.cleaned_data.get(name):
                    self.add_error(name, "You cannot remove your own access. Ask another administrator.")
        return values


def _decision_action(decide: Callable[[Any], bool], success: str, refusal: str) -> Callable[[Any, object], str]:
    """Return a function that applies `decide` to a row and returns the message `success`.

    It raises ActionRefused with `refusal` if `decide` returns False. Both texts are templates for the row.
    """

    def act(row: Any, _values: object) -> str:
        if not decide(row):
            raise ActionRefused(refusal.format(row))
        return success.format(row)

    return act


class AccountAdmin(CurationAdmin):
    """Base of admin pages about accounts. Permanent records contain only abbreviated addresses."""

    def audit_value(self, name: str, value: Any) -> Any:
        return _abbreviate_address(str(value or "")) if name == "email" else super().audit_value(name, value)


@admin.register(User)
class PersonAdmin(AccountAdmin, UserAdmin):
    """Admin of accounts."""

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
    may_delete = False  # clearing “active” closes an account; teams and records still refer to it

    approve = Operation(
        "Approve sign-in (asks for a reason)",
        APPROVES,
        _decision_action(
            approval.approve_account, "Approved: account {0.pk}.", "Account {0.pk} is not waiting for approval."
        ),
        title="Approve accounts",
        button="Approve",
        explanation="The users can sign in from now on and get an email.",
    )

    pending = ("account waits for approval", "accounts wait for approval", "?approval_awaited__exact=1")
    pending_since = "date_joined"

    def pending_rows(self) -> QuerySet[User]:
        return approval.waiting_accounts()

    def acts(self, obj: User) -> Iterable[str]:
        return ("approve",) if obj.approval_awaited else ()

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save the account. If it was deactivated, end its sessions, tokens, invitations, and webhooks."""
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data and not obj.is_active:
            record("access ended", obj, after={**end_access(obj), **teams.revoke_access(obj)})

    @transaction.atomic
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Show or process the page that sets a user's password. A new password ends the user's sessions and tokens.

        The curator's own session remains. The change is recorded.
        """
        with acting(curator(request)):
            key = self.parse_key(unquote(id))
            hash_before = _get_password_hash(key)
            answer = super().user_change_password(request, id, form_url)
            if _get_password_hash(key) != hash_before:
                person = User.objects.get(pk=key)
                record("password set", person, after=end_access(person, keep=request.session.session_key))
        return answer


def _get_password_hash(key: Any) -> str | None:
    """Return the stored password hash, which changes whenever the password is set."""
    return User.objects.filter(pk=key).values_list("password", flat=True).first()


@admin.register(Group)
class RightsAdmin(AccountAdmin, GroupAdmin):
    """Admin of groups and their permissions."""


@admin.register(EmailAddress)
class AddressAdmin(AccountAdmin, EmailAddressAdmin):
    """Admin of addresses. A verified address allows sign-in and joining teams that invited it."""

    actions = ["make_verified"]

    @admin.action(description="Mark as verified", permissions=["change"])
    @transaction.atomic
    def make_verified(self, request: HttpRequest, queryset: QuerySet[EmailAddress]) -> None:
        """Mark addresses as verified and record each."""
        unverified_ids = list(queryset.filter(verified=False).values_list("pk", flat=True))
        super().make_verified(request, queryset)
        for address in EmailAddress.objects.filter(pk__in=unverified_ids, verified=True).order_by("pk"):
            record("edited", self._record_name(address), before={"verified": False}, after={"verified": True})

    def _record_name(self, obj: EmailAddress) -> str:
        return f"address {_abbreviate_address(obj.email)} of account {obj.user_id}"


def _abbreviate_address(address: str) -> str:
    name, _, host = address.rpartition("@")
    return f"{name[:1]}…@{host}" if host else ""


class MembershipForm(forms.ModelForm):
    """Form of a membership. The role can change, but not the user."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None and "user" in self.fields:
            self.fields["user"].disabled = True


class MembershipFormSet(BaseInlineFormSet):
    """Memberships of a team, at least one of which must be an owner's."""

    def clean(self) -> None:
        """Raise ValidationError if the team would have no owner, or a new member cannot join it."""
        super().clean()
        is_unchanged = not self.has_changed() and not self.instance._state.adding
        if is_unchanged or any(form.errors for form in self.forms):
            return
        remaining_forms = [form for form in self.forms if form not in self.deleted_forms]
        if not any(form.cleaned_data.get("owner") for form in remaining_forms):
            raise ValidationError("A team needs an owner. Tick “owner” for a remaining member, or add an owner.")
        for form in remaining_forms:
            person = form.cleaned_data.get("user")
            if form.instance.pk is None and person is not None:
                try:
                    if self.instance.pk is None:
                        teams.check_team_count(person)
                    else:
                        teams.check_can_join(self.instance, person)
                except teams.TeamRefused as error:
                    raise ValidationError(f"{person} cannot join the team: {error}") from error


class MembershipInline(admin.TabularInline):
    """Memberships of a team, editable for curators who may change accounts."""

    model = Membership
    form = MembershipForm
    formset = MembershipFormSet
    extra = 0
    raw_id_fields = ("user",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(CHANGE_USERS) and super().has_add_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(CHANGE_USERS) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(CHANGE_USERS) and super().has_delete_permission(request, obj)


@admin.register(Team)
class TeamAdmin(CurationAdmin):
    """Admin of teams and their members."""

    list_display = ("name", "slug", "created_at", "approved_at")
    list_filter = (("approved_at", admin.EmptyFieldListFilter),)
    search_fields = ("name", "slug")
    inlines = (MembershipInline,)
    readonly_fields = ("approved_at",)
    actions = ("approve", "withdraw_approval")

    approve = Operation(
        "Approve for hidden datasets (asks for a reason)",
        APPROVES,
        _decision_action(approval.approve_team, "Approved: {}.", "{} is already approved."),
        title="Approve teams",
        button="Approve",
        explanation="The teams can submit to datasets with hidden judgments, and their owners get an email. "
        "Approve only teams with members that you can identify, because colluding teams can infer more of the hidden "
        "judgments.",
    )
    withdraw_approval = Operation(
        "Withdraw approval (asks for a reason)",
        APPROVES,
        _decision_action(approval.withdraw_approval, "Approval withdrawn: {}.", "{} is not approved."),
        title="Withdraw approvals",
        button="Withdraw",
        danger=True,
        explanation="The teams can no longer submit to datasets with hidden judgments if teams need "
        "approval. Their results remain.",
    )

    pending = (
        "team waits for approval for hidden datasets",
        "teams wait for approval for hidden datasets",
        "?approved_at__isempty=1",
    )

    def pending_rows(self) -> QuerySet[Team]:
        return approval.waiting_teams()

    def acts(self, obj: Team) -> Iterable[str]:
        return ("withdraw_approval",) if obj.approved_at else ("approve",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require the permission to change members, because a team needs an owner."""
        return request.user.has_perm(CHANGE_USERS) and super().has_add_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require the permission to change members, because deleting a team removes them."""
        return request.user.has_perm(CHANGE_USERS) and super().has_delete_permission(request, obj)

    def deleted_values(self, obj: Team) -> dict[str, Any]:
        """Return the members by account number, with their roles, for the record."""
        members = obj.memberships.order_by("pk").values_list("user_id", "owner")
        return {"members": [{"person": person, "owner": owner} for person, owner in members]}

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return boards_of_team(key)

    def lock(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        """Lock the team's boards, new members, and the team, always in this order."""
        key = self.parse_key(object_id)
        lock_boards(self.get_board_ids(key))
        user_ids = [str(value) for name, value in request.POST.items() if _MEMBER_FIELD.fullmatch(name)]
        people = User.objects.select_for_update(no_key=True)
        new_members = people.filter(pk__in=[int(value) for value in user_ids if _KEY.fullmatch(value)])
        list(new_members.order_by("pk").values_list("pk"))
        self.lock_row(key)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show or save the form. If TeamRefused is raised, nothing is saved and the page shows the reason."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except teams.TeamRefused as error:
            messages.error(request, f"Your changes were not saved: {error}")
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Team, form: Any, change: bool) -> None:
        """Save the team and update boards.

        If the name changed, the slug changes too, and the earlier slug redirects.
        """
        earlier_slug = form.initial.get("slug", "")
        if change and obj.slug == earlier_slug and "name" in form.changed_data:
            obj.slug = teams.free_team_slug(obj.name, obj)
        super().save_model(request, obj, form, change)
        if change:
            teams.redirect_earlier_slug(obj, earlier_slug)
        team_changed(obj)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Add, change, and remove members with the same functions as team owners, which record the changes.

        Raises TeamRefused.
        """
        formset.save(commit=False)
        team, user = form.instance, curator(request)
        # Members of a new team are not locked yet. Lock them in the order of their numbers, as everywhere.
        for row in sorted(formset.new_objects, key=lambda membership: membership.user_id):
            teams.add_member(team, row.user, owner=row.owner, actor=user)
        # Add owners before removing others, so that the team always has one.
        for row, _ in sorted(formset.changed_objects, key=lambda change: not change[0].owner):
            teams.set_role(team, row.pk, owner=row.owner, actor=user, curating=True)
        for row in formset.deleted_objects:
            teams.remove_member(team, row.pk, actor=user, curating=True)


#: Maximum number of addresses per list.
MAX_ADDRESSES = 20_000


def read_addresses(text: str) -> list[str]:
    """Parse distinct lowercase email addresses, separated by whitespace, commas, or semicolons.

    Raises ValidationError with every invalid line.
    """
    addresses: dict[str, None] = {}
    messages = []
    for number, line in enumerate(text.splitlines(), 1):
        for word in filter(None, re.split(r"[\s,;]+", line)):
            try:
                validate_email(word)
                addresses[word.lower()] = None
            except ValidationError:
                messages.append(
                    f"Line {number}: “{word[:80]}” is not an email address. Enter one like ada@example.org."
                )
    if len(addresses) > MAX_ADDRESSES:
        messages.append(f"The list has {len(addresses):,} addresses. Enter at most {MAX_ADDRESSES:,}.")
    if messages:
        raise ValidationError(messages)
    return list(addresses)


class AddressListField(forms.CharField):
    """List of email addresses, one per line."""

    widget = forms.Textarea(attrs={"rows": 8, "class": "vLargeTextField"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        return read_addresses(super().clean(value))

    def has_changed(self, initial: Any, data: Any) -> bool:
        return sorted(initial or []) != sorted((data or "").split())


class AgreementForm(CurationForm):
    """Form for the agreement of a dataset or a round, with addresses that are approved automatically."""

    listed = AddressListField(
        label="Approved addresses",
        required=False,
        max_length=1_000_000,
        help_text="Users with one of these verified addresses are approved as soon as they accept the "
        "agreement. Enter one per line or separate them by commas.",
    )

    class Meta:
        model = Agreement
        fields = ("dataset", "round", "text", "in_force", "needs_approval", "listed")

    def clean(self) -> dict[str, Any]:
        """Add an error unless a new agreement has either a dataset or a round."""
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if self.instance.pk is None and bool(values.get("dataset")) == bool(values.get("round")):
            self.add_error("dataset", "Choose either a dataset or a round.")
        return values


@admin.register(Agreement)
class AgreementAdmin(CurationAdmin):
    """Admin of agreements. While one is in force, downloads and submissions require its acceptance."""

    form = AgreementForm
    list_display = ("subject", "version", "in_force", "needs_approval", "accepted_by")
    list_filter = ("in_force", "needs_approval")
    list_select_related = ("dataset", "round")
    search_fields = ("dataset__name", "dataset__slug", "round__name", "round__slug")
    readonly_fields = ("version",)
    view_on_site = False  # `tools` links to the page while it exists
    may_delete = False  # acceptances refer to it; clear “in force” instead
    fieldsets = (
        (None, {"fields": ("dataset", "round", "text", "version", "in_force")}),
        ("Approval", {"fields": ("needs_approval", "listed")}),
    )

    @admin.display(description="accepted by")
    def accepted_by(self, agreement: Agreement) -> int:
        return agreement.acceptances.filter(version=agreement.version).count()

    def get_readonly_fields(self, request: HttpRequest, obj: Agreement | None = None) -> Any:
        readonly_fields = super().get_readonly_fields(request, obj)
        return (*readonly_fields, "dataset", "round") if obj is not None else readonly_fields

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Dataset.objects.filter(agreement=key).values_list("pk", flat=True)

    def tools(self, request: HttpRequest, obj: Agreement) -> list[tuple[str, str]]:
        return [("On the site", obj.get_absolute_url())] if obj.in_force else []

    def save_model(self, request: HttpRequest, obj: Agreement, form: Any, change: bool) -> None:
        """Save the agreement. A changed text becomes the next version, and the dataset's settings are updated.

        Warns the curator of other datasets that offer the same documents without an agreement.
        """
        lock_boards([obj.dataset_id] if obj.dataset_id else [])
        if change and "text" in form.changed_data:
            obj.version += 1
        super().save_model(request, obj, form, change)
        approval.apply_agreement(obj)
        if other_datasets := approval.same_documents(obj):
            messages.warning(
                request,
                f"{', '.join(map(str, other_datasets))}: the same documents are available there without an "
                "agreement. Add an agreement there, or restrict access to the documents.",
            )

    def audit_value(self, name: str, value: Any) -> Any:
        """Record only the number of addresses, because records are permanent."""
        if name == "listed":
            return len(value or [])
        return super().audit_value(name, value)


class WaitingFilter(admin.SimpleListFilter):
    """Filter for registrations that wait for approval."""

    title, parameter_name = "approval", "approval"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("waiting", "waiting")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        waiting_ids = approval.waiting_acceptances().values("pk")
        return queryset.filter(pk__in=waiting_ids) if self.value() else queryset


@admin.register(Acceptance)
class AcceptanceAdmin(ReadOnlyAdmin):
    """Admin of accepted agreements and registrations."""

    list_display = ("accepted_at", "person", "agreement", "version", "approved")
    list_filter = (WaitingFilter, "agreement")
    list_select_related = ("agreement__dataset", "agreement__round", "person")
    search_fields = ("person__email", "person__name")
    actions = ("approve", "withdraw")

    pending = ("registration waits for approval", "registrations wait for approval", "?approval=waiting")
    pending_since = "accepted_at"

    def pending_rows(self) -> QuerySet[Acceptance]:
        return approval.waiting_acceptances()

    @admin.display(description="approved")
    def approved(self, acceptance: Acceptance) -> str:
        if not acceptance.agreement.needs_approval:
            return "not needed"
        return "yes" if acceptance.agreement.approved.filter(pk=acceptance.person_id).exists() else "no"

    approve = Operation(
        "Approve (asks for a reason)",
        "leaderboard.change_agreement",
        _decision_action(
            lambda acceptance: approval.approve_registration(acceptance.agreement, acceptance.person),
            "Approved: {0.person}, {0.agreement}.",
            "{0.person} is already approved.",
        ),
        title="Approve registrations",
        button="Approve",
        explanation="The users can download and submit from now on and get an email. After a change of the "
        "agreement, they only need to accept it again.",
    )
    withdraw = Operation(
        "Withdraw approval (asks for a reason)",
        "leaderboard.change_agreement",
        _decision_action(
            lambda acceptance: approval.withdraw_registration(acceptance.agreement, acceptance.person),
            "Withdrawn: {0.person}, {0.agreement}.",
            "{0.person} is not approved.",
        ),
        title="Withdraw approvals",
        button="Withdraw",
        danger=True,
        explanation="The users can no longer download or submit. Their earlier submissions remain.",
    )
