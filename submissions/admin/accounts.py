"""Accounts, their addresses, groups, teams, and agreements. Every change is recorded, and no secret with it.

Curators correct the names of teams. Who is in a team decides who gets its runs, and needs another permission.
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

#: Fields of a new account that no record has.
_SECRET = ("password1", "password2", "usable_password")

#: Who may say that an account or a team is welcome.
APPROVES = "leaderboard.change_team"
#: Who may change accounts may put people into teams: a team's own may read what no curator may.
RIGHT = "leaderboard.change_user"
#: Fields that name somebody for a place in the team.
_NAMED = re.compile(r"memberships-[0-9]+-user")
_KEY = re.compile(r"[0-9]{1,18}")
#: What nobody takes from their own account.
_OWN_WAY_IN = ("is_active", "is_staff", "is_superuser")

# The pages that come with Group and EmailAddress record nothing. Those of second factors and sessions would take a
# factor away, or add one, without the record and the end of all sessions that `manage.py reset_second_factor` makes.
admin.site.unregister(
    [Group, EmailAddress, Authenticator, UserSession, SocialAccount, SocialApp, SocialToken]
)


class NewPersonForm(CurationForm, AdminUserCreationForm):
    """A new account is known by its e-mail address."""

    class Meta:
        model = User
        fields = ("email", "name")

    @property
    def changed_data(self) -> list[str]:
        """Return the changed fields without passwords."""
        return [name for name in super().changed_data if name not in _SECRET]


class PersonForm(CurationForm, UserChangeForm):
    """An account; its password has a page of its own."""

    def clean(self) -> dict[str, Any] | None:
        """Refuse to remove one's own access, so that the last superuser keeps it."""
        cleaned = super().clean()
        if self.instance.pk == self.request.user.pk:
            for name in _OWN_WAY_IN:
                if name in self.changed_data and not self.cleaned_data.get(name):
                    self.add_error(
                        name, "You cannot take this from yourself. Ask somebody else who may change accounts."
                    )
        return cleaned


def _decision(decide: Callable[[Any], bool], done: str, refusal: str) -> Callable[[Any, object], str]:
    """Return the act of an operation. `decide` returns False where nothing is to be done, which `refusal` says."""

    def act(row: Any, _values: object) -> str:
        if not decide(row):
            raise ActionRefused(refusal.format(row))
        return done.format(row)

    return act


class AccountAdmin(CurationAdmin):
    """Base class of pages about accounts. Records, which are never deleted, abbreviate addresses."""

    def recorded(self, name: str, value: Any) -> Any:
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
    may_delete = False  # clearing “active” closes one, and teams and records keep their names

    approve = Operation(
        "Approve: it may sign in (asks why)", APPROVES,
        _decision(approval.approve_account, "Approved: account {0.pk}.", "Account {0.pk} does not wait for approval."),
        title="Approve accounts", button="Approve",
        explanation="They can sign in from now on, and are told by mail.",
    )  # fmt: skip

    pending = ("account waits for approval", "accounts wait for approval", "?approval_awaited__exact=1")

    def pending_rows(self) -> QuerySet[User]:
        return approval.waiting_accounts()

    def acts(self, obj: User) -> Iterable[str]:
        return ("approve",) if obj.approval_awaited else ()

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Save; who is closed out comes in no more, lets nobody in, and is told nothing."""
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data and not obj.is_active:
            record("access ended", obj, after={**end_access(obj), **teams.revoke_access(obj)})

    @transaction.atomic
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Set somebody's password: whoever knew the old one, or came in by it, is out, and so are their tokens."""
        with acting(curator(request)):
            key = self.parse_key(unquote(id))
            before = _password_of(key)
            answer = super().user_change_password(request, id, form_url)
            if _password_of(key) != before:
                person = User.objects.get(pk=key)
                after = end_access(person, keep=request.session.session_key)
                record("password set", person, after=after)
        return answer


def _password_of(key: Any) -> str | None:
    """Return the stored password hash, which differs each time it is set."""
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
            record("edited", self._record_name(address), before=before, after=after)

    def _record_name(self, obj: EmailAddress) -> str:
        return f"address {_ends(obj.email)} of account {obj.user_id}"


def _ends(address: str) -> str:
    """Return the first letter and the host of an address."""
    name, _, host = address.rpartition("@")
    return f"{name[:1]}…@{host}" if host else ""


class MembershipForm(forms.ModelForm):
    """A member, who may change roles; somebody else is another member."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None and "user" in self.fields:
            self.fields["user"].disabled = True


class MembershipFormSet(BaseInlineFormSet):
    """The members of a team, one of whom at least decides for it."""

    def clean(self) -> None:
        """Raise ValidationError if the team would have no owner, or a person cannot join."""
        super().clean()
        if any(form.errors for form in self.forms) or not (self.has_changed() or self.instance._state.adding):
            return
        kept = [form for form in self.forms if form not in self.deleted_forms]
        if not any(form.cleaned_data.get("owner") for form in kept):
            raise ValidationError(
                "A team is never without an owner. Tick “owner” for a member who stays, or add one."
            )
        for form in kept:
            person = form.cleaned_data.get("user")
            if form.instance.pk is None and person is not None:
                try:
                    if self.instance.pk is None:
                        teams.check_team_count(person)
                    else:
                        teams.check_can_join(self.instance, person)
                except teams.TeamRefused as error:
                    raise ValidationError(f"{person} cannot join. They would be told: {error}") from error


class MembershipInline(admin.TabularInline):
    """Members of a team, which curators who may change accounts can edit."""

    model = Membership
    form = MembershipForm
    formset = MembershipFormSet
    extra = 0
    raw_id_fields = ("user",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(RIGHT) and super().has_add_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(RIGHT) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(RIGHT) and super().has_delete_permission(request, obj)


@admin.register(Team)
class TeamAdmin(CurationAdmin):
    """Teams and their members."""

    list_display = ("name", "slug", "created_at", "approved_at")
    list_filter = (("approved_at", admin.EmptyFieldListFilter),)
    search_fields = ("name", "slug")
    inlines = (MembershipInline,)
    readonly_fields = ("approved_at",)
    actions = ("approve", "withdraw_approval")

    approve = Operation(
        "Approve for hidden judgements (asks why)", APPROVES,
        _decision(approval.approve_team, "Approved: {}.", "{} is approved already."),
        title="Approve teams", button="Approve",
        explanation="They may submit to datasets with hidden judgements, and their owners are told by mail. Approve "
        "teams whose people you can name: several that work together read more of what is hidden.",
    )  # fmt: skip
    withdraw_approval = Operation(
        "Withdraw the approval (asks why)", APPROVES,
        _decision(approval.withdraw_approval, "Approval withdrawn: {}.", "{} is not approved."),
        title="Withdraw approvals", button="Withdraw",
        explanation="They submit nothing more to datasets with hidden judgements, where teams need to be approved. "
        "Their results stay.",
    )  # fmt: skip

    pending = (
        "team waits to be approved for hidden judgements", "teams wait to be approved for hidden judgements",
        "?approved_at__isempty=1",
    )  # fmt: skip

    def pending_rows(self) -> QuerySet[Team]:
        return approval.waiting_teams()

    def acts(self, obj: Team) -> Iterable[str]:
        return ("withdraw_approval",) if obj.approved_at else ("approve",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Require the permission to name an owner, since a team always has one."""
        return request.user.has_perm(RIGHT) and super().has_add_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Require the permission to remove members, since a deleted team has none."""
        return request.user.has_perm(RIGHT) and super().has_delete_permission(request, obj)

    def lost(self, obj: Team) -> dict[str, Any]:
        """Return the members by account number, and whether they were owners."""
        members = obj.memberships.order_by("pk").values_list("user_id", "owner")
        return {"members": [{"person": person, "owner": owner} for person, owner in members]}

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return boards_of_team(key)

    def lock(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        """Lock the boards, then those who are to join it, then the team: everybody's order."""
        key = self.parse_key(object_id)
        lock_boards(self.get_board_ids(key))
        named = [str(value) for name, value in request.POST.items() if _NAMED.fullmatch(name)]
        people = User.objects.select_for_update(no_key=True)
        joining = people.filter(pk__in=[int(value) for value in named if _KEY.fullmatch(value)])
        list(joining.order_by("pk").values_list("pk"))
        self.lock_row(key)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show or save the form; save nothing if the team has changed meanwhile."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except teams.TeamRefused as error:
            messages.error(request, f"Nothing was saved: {error}")
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Team, form: Any, change: bool) -> None:
        """Save, so that no cached page outlives the name; the address follows it, and the earlier one leads there."""
        earlier = form.initial.get("slug", "")
        if change and obj.slug == earlier and "name" in form.changed_data:
            obj.slug = teams.free_team_slug(obj.name, obj)
        super().save_model(request, obj, form, change)
        if change:
            teams.keep_address(obj, earlier)
        team_changed(obj)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Change who is in the team by the verbs that its own owners use, which record it. Raises TeamRefused."""
        formset.save(commit=False)
        team, by = form.instance, curator(request)
        # Of a new team nobody is locked yet: by number, as everywhere.
        for row in sorted(formset.new_objects, key=lambda each: each.user_id):
            teams.add_member(team, row.user, owner=row.owner, by=by)
        # Owners are made before others cease to be: the team is never without one.
        for row, _ in sorted(formset.changed_objects, key=lambda each: not each[0].owner):
            teams.set_role(team, row.pk, owner=row.owner, by=by, curating=True)
        for row in formset.deleted_objects:
            teams.remove_member(team, row.pk, by=by, curating=True)


#: Addresses on one list.
MOST_ADDRESSES = 20_000


def read_addresses(text: str) -> list[str]:
    """Return the distinct lower-case e-mail addresses of a list, separated by lines or commas.

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
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        return read_addresses(super().clean(value))

    def has_changed(self, initial: Any, data: Any) -> bool:
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
        """Require either a dataset or a round."""
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
        """Return the number of people who accepted the present version."""
        return agreement.acceptances.filter(version=agreement.version).count()

    def get_readonly_fields(self, request: HttpRequest, obj: Agreement | None = None) -> Any:
        fixed = super().get_readonly_fields(request, obj)
        return (*fixed, "dataset", "round") if obj is not None else fixed

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Dataset.objects.filter(agreement=key).values_list("pk", flat=True)

    def tools(self, request: HttpRequest, obj: Agreement) -> list[tuple[str, str]]:
        return [("On the site", obj.get_absolute_url())] if obj.in_force else []

    def save_model(self, request: HttpRequest, obj: Agreement, form: Any, change: bool) -> None:
        """Save: a changed text is the next version, and the dataset's settings follow."""
        lock_boards([obj.dataset_id] if obj.dataset_id else [])
        if change and "text" in form.changed_data:
            obj.version += 1
        super().save_model(request, obj, form, change)
        approval.apply_agreement(obj)
        if others := approval.same_documents(obj):
            messages.warning(
                request,
                f"{', '.join(map(str, others))}: the same documents are offered there without an agreement. Give it "
                "one of its own, or change who may see its documents.",
            )

    def recorded(self, name: str, value: Any) -> Any:
        """Record only the number of addresses, since records are never deleted."""
        if name == "listed":
            return len(value or [])
        return super().recorded(name, value)


class WaitingFilter(admin.SimpleListFilter):
    """Filter of registrations that wait for a curator."""

    title, parameter_name = "approval", "approval"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("waiting", "waiting")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        waiting = approval.waiting_acceptances().values("pk")
        return queryset.filter(pk__in=waiting) if self.value() else queryset


@admin.register(Acceptance)
class AcceptanceAdmin(ReadOnlyAdmin):
    """Acceptances of agreements."""

    list_display = ("accepted_at", "person", "agreement", "version", "approved")
    list_filter = (WaitingFilter, "agreement")
    list_select_related = ("agreement__dataset", "agreement__round", "person")
    search_fields = ("person__email", "person__name")
    actions = ("approve", "withdraw")

    pending = ("registration waits for approval", "registrations wait for approval", "?approval=waiting")

    def pending_rows(self) -> QuerySet[Acceptance]:
        return approval.waiting_acceptances()

    @admin.display(description="approved")
    def approved(self, acceptance: Acceptance) -> str:
        """Return whether the person is approved, if the agreement needs approval."""
        if not acceptance.agreement.needs_approval:
            return "not needed"
        return "yes" if acceptance.agreement.approved.filter(pk=acceptance.person_id).exists() else "no"

    approve = Operation(
        "Approve (asks why)", "leaderboard.change_agreement",
        _decision(
            lambda each: approval.approve_registration(each.agreement, each.person),
            "Approved: {0.person}, {0.agreement}.", "{0.person} is approved already.",
        ),
        title="Approve registrations", button="Approve",
        explanation="They may download and submit from now on, also after a new version once they have accepted it, "
        "and are told by mail.",
    )  # fmt: skip
    withdraw = Operation(
        "Withdraw the approval (asks why)", "leaderboard.change_agreement",
        _decision(
            lambda each: approval.withdraw_registration(each.agreement, each.person),
            "Withdrawn: {0.person}, {0.agreement}.", "{0.person} is not approved.",
        ),
        title="Withdraw approvals", button="Withdraw",
        explanation="Their downloads and submissions are refused. What they submitted stays.",
    )  # fmt: skip
