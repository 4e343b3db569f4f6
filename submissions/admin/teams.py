"""Teams: their names are curators' to set right; who is in them decides who gets their runs, and is not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet
from django.http import HttpRequest, HttpResponseRedirect
from django.template.response import TemplateResponse

from leaderboard.admin.base import CurationAdmin, curator
from leaderboard.admin.pages import NotDone, ask, require
from leaderboard.admin.site import SOURCES, Waiting
from leaderboard.models import Membership, Team, User
from leaderboard.results.history.revisions import lock_boards
from leaderboard.results.publishing import boards_of_team, team_changed
from submissions.accounts import membership
from submissions.accounts.approval import approve_team, waiting_teams, withdraw_approval
from submissions.accounts.membership import TeamRefused, check_count, check_room

#: Who may change accounts may put people into teams: a team's own may read what no curator may.
RIGHT = "leaderboard.change_user"
#: Who may say that a team is welcome.
APPROVES = "leaderboard.change_team"
#: Fields that name somebody for a place in the team.
_NAMED = re.compile(r"memberships-[0-9]+-user")
_KEY = re.compile(r"[0-9]{1,18}")


class MembershipForm(forms.ModelForm):
    """A member, who may change roles; somebody else is another member."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None and "user" in self.fields:
            self.fields["user"].disabled = True


class MembershipFormSet(BaseInlineFormSet):
    """The members of a team, one of whom at least decides for it."""

    def clean(self) -> None:
        """Raises ValidationError where nobody would own the team, or somebody cannot join."""
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
                        check_count(person)
                    else:
                        check_room(self.instance, person)
                except TeamRefused as error:
                    raise ValidationError(f"{person} cannot join. They would be told: {error}") from error


class MembershipInline(admin.TabularInline):
    """Who is in a team: to look at, and to change for whoever may change accounts."""

    model = Membership
    form = MembershipForm
    formset = MembershipFormSet
    extra = 0
    raw_id_fields = ("user",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the person may let anybody in."""
        return request.user.has_perm(RIGHT) and super().has_add_permission(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the person may give roles."""
        return request.user.has_perm(RIGHT) and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the person may take anybody out."""
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

    @admin.action(description="Approve for hidden judgements (asks why)", permissions=["change"])
    def approve(self, request: HttpRequest, chosen: QuerySet[Team]) -> TemplateResponse | None:
        """Let the teams submit to hidden judgements."""
        require(request, APPROVES)
        return ask(
            self, request, chosen, _approve, title="Approve teams", button="Approve",
            explanation="They may submit to datasets with hidden judgements, and their owners are told by mail. "
            "Approve teams whose people you can name: several that work together read more of what is hidden.",
        )  # fmt: skip

    @admin.action(description="Withdraw the approval (asks why)", permissions=["change"])
    def withdraw_approval(self, request: HttpRequest, chosen: QuerySet[Team]) -> TemplateResponse | None:
        """Have the teams submit nothing more to hidden judgements."""
        require(request, APPROVES)
        return ask(
            self, request, chosen, _withdraw_approval, title="Withdraw approvals", button="Withdraw",
            explanation="They submit nothing more to datasets with hidden judgements, where teams need to be approved. "
            "Their results stay.",
        )  # fmt: skip

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may say who owns it: a team is never without an owner."""
        return request.user.has_perm(RIGHT) and super().has_add_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may take everybody out of it: nobody is in a team that is gone."""
        return request.user.has_perm(RIGHT) and super().has_delete_permission(request, obj)

    def lost(self, obj: Team) -> dict[str, Any]:
        """Who was in it, by account number, and whether they owned it."""
        members = obj.memberships.order_by("pk").values_list("user_id", "owner")
        return {"members": [{"person": person, "owner": owner} for person, owner in members]}

    def boards_of(self, key: Any) -> Iterable[int]:
        """Those that name it."""
        return boards_of_team(key)

    def lock(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        """Lock the boards, then those who are to join it, then the team: everybody's order."""
        key = self.key_of(object_id)
        lock_boards(self.boards_of(key))
        named = [str(value) for name, value in request.POST.items() if _NAMED.fullmatch(name)]
        people = User.objects.select_for_update(no_key=True)
        joining = people.filter(pk__in=[int(value) for value in named if _KEY.fullmatch(value)])
        list(joining.order_by("pk").values_list("pk"))
        self.lock_row(key)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """The form, and saving it; all or nothing where the team changed meanwhile."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except TeamRefused as error:
            messages.error(request, f"Nothing was saved: {error}")
            return HttpResponseRedirect(request.get_full_path())

    def save_model(self, request: HttpRequest, obj: Team, form: Any, change: bool) -> None:
        """Save, so that no cached page outlives the name."""
        super().save_model(request, obj, form, change)
        team_changed(obj)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Change who is in the team by the verbs that its own owners use, which record it. Raises TeamRefused."""
        formset.save(commit=False)
        team, by = form.instance, curator(request)
        # Of a new team nobody is locked yet: by number, as everywhere.
        for row in sorted(formset.new_objects, key=lambda each: each.user_id):
            membership.add(team, row.user, owner=row.owner, by=by)
        # Owners are made before others cease to be: the team is never without one.
        for row, _ in sorted(formset.changed_objects, key=lambda each: not each[0].owner):
            membership.set_role(team, row.pk, owner=row.owner, by=by, curating=True)
        for row in formset.deleted_objects:
            membership.remove(team, row.pk, by=by, curating=True)


def _approve(team: Any, _: object) -> str:
    if not approve_team(team):
        raise NotDone(f"{team} is approved already.")
    return f"Approved: {team}."


def _withdraw_approval(team: Any, _: object) -> str:
    if not withdraw_approval(team):
        raise NotDone(f"{team} is not approved.")
    return f"Approval withdrawn: {team}."


SOURCES.append(
    lambda: [
        Waiting(
            waiting_teams(),
            "team waits to be approved for hidden judgements",
            "teams wait to be approved for hidden judgements",
            "?approved_at__isempty=1",
        )
    ]
)
