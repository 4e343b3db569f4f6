"""People and teams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import AdminUserCreationForm
from django.core.exceptions import ValidationError
from django.forms import BaseInlineFormSet
from django.http import HttpRequest

from leaderboard.admin.base import CurationAdmin
from leaderboard.models import Membership, Team, User
from leaderboard.publishing import boards_of_team, team_changed


class UserForm(AdminUserCreationForm):
    """A new account is known by its e-mail address."""

    class Meta:
        model = User
        fields = ("email", "name")


@admin.register(User)
class PersonAdmin(UserAdmin):
    """Accounts, by e-mail address."""

    add_form = UserForm
    list_display = ("email", "name", "is_staff", "is_active", "date_joined")
    search_fields = ("email", "name")
    ordering = ("email",)
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Record", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "name", "usable_password", "password1", "password2")}),)
    readonly_fields = ("last_login", "date_joined")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody: an account is closed by taking “active” away, so that teams and records keep their names."""
        return False


class MembershipFormSet(BaseInlineFormSet):
    """The members of a team, one of whom at least decides for it."""

    def clean(self) -> None:
        """Raises ValidationError where a change, or a new team, would have nobody who owns it."""
        super().clean()
        if any(form.errors for form in self.forms) or not (self.has_changed() or self.instance._state.adding):
            return
        kept = [form for form in self.forms if form not in self.deleted_forms]
        if not any(form.cleaned_data.get("owner") for form in kept):
            raise ValidationError(
                "A team is never without an owner. Tick “owner” for a member who stays, or add one."
            )


class MembershipInline(admin.TabularInline):
    """Who is in a team."""

    model = Membership
    formset = MembershipFormSet
    extra = 0
    raw_id_fields = ("user",)


@admin.register(Team)
class TeamAdmin(CurationAdmin):
    """Teams and their members."""

    list_display = ("name", "slug", "created_at")
    search_fields = ("name", "slug")
    inlines = (MembershipInline,)

    def boards_of(self, key: Any) -> Iterable[int]:
        """Those that name it."""
        return boards_of_team(key)

    def save_model(self, request: HttpRequest, obj: Team, form: Any, change: bool) -> None:
        """Save, so that no cached page outlives the name."""
        super().save_model(request, obj, form, change)
        team_changed(obj)
