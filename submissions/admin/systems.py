"""Systems, and merging two that are one: with their submissions, so it stands here."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AutocompleteSelect
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse

from leaderboard.admin.base import curator
from leaderboard.admin.pages import AskForm, Crumb, curation_page, object_crumb, require
from leaderboard.admin.systems import SystemAdmin
from leaderboard.audit import acting
from leaderboard.merging_systems import CannotMerge
from leaderboard.models import System
from submissions.merging import merge_systems

RIGHT = "leaderboard.moderate_entry"


class MergeForm(AskForm):
    """Which system it is."""

    into = forms.ModelChoiceField(
        System.objects.all(), label="It is", help_text="The system that stays, and gets all results."
    )
    field_order = ("into", "why")

    def __init__(self, *args: Any, duplicate: System, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["into"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = System.objects.exclude(pk=duplicate.pk)
        field.widget = AutocompleteSelect(System._meta.get_field("variant_of"), admin.site)
        field.widget.choices = field.choices


@admin.register(System)
class MergingSystemAdmin(SystemAdmin):
    """Systems, each with the way to merge it into the one that it is."""

    def tools(self, request: HttpRequest, obj: System) -> list[Crumb]:
        """The way to merge it, for whoever may."""
        found = [("On the site", obj.get_absolute_url())]
        if request.user.has_perm(RIGHT):
            found.append(("Merge into another", reverse("admin:leaderboard_system_merge", args=[obj.pk])))
        return found

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, and the merge's."""
        view = self.admin_site.admin_view(self.merge_view)
        return [path("<int:pk>/merge/", view, name="leaderboard_system_merge"), *super().get_urls()]

    def merge_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask which system it is and why; list all that stands against it, or merge."""
        require(request, RIGHT)
        duplicate = get_object_or_404(System, pk=pk)
        form = MergeForm(request.POST or None, duplicate=duplicate)
        problems: list[dict[str, str]] = []
        if request.method == "POST" and form.is_valid():
            into, named = form.cleaned_data["into"], str(duplicate)
            try:
                with transaction.atomic(), acting(curator(request), form.cleaned_data["why"]):
                    merge_systems(duplicate, into)
            except CannotMerge as error:
                problems = [{"message": conflict} for conflict in error.conflicts]
            else:
                self.message_user(request, f"{named} is {into} now; its address leads there.")
                return HttpResponseRedirect(reverse("admin:leaderboard_system_change", args=[into.pk]))
        return curation_page(
            request, self, "admin/submissions/merge_system.html", f"Merge {duplicate}",
            crumbs=[object_crumb(self, duplicate)], problems=problems, form=form, duplicate=duplicate,
            status=400 if problems or form.errors else 200, media=self.media + form.media,
        )  # fmt: skip
