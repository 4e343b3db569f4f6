"""Systems, and merging two that are one: with their submissions, so it stands here."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse

from leaderboard.admin.base import curator
from leaderboard.admin.pages import Crumb, ReasonForm, curation_page, object_crumb, require
from leaderboard.admin.systems import SystemAdmin
from leaderboard.core.audit import acting
from leaderboard.models import System
from leaderboard.systems.records import CannotMerge
from submissions.intake.merge_systems import merge_systems

RIGHT = "leaderboard.moderate_entry"


class MergeForm(ReasonForm):
    """Which system it is."""

    into = forms.ModelChoiceField(
        System.objects.all(),
        to_field_name="slug",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
        label="It is",
        help_text="The slug of the system that stays and gets all results: /systems/slug/",
        error_messages={"invalid_choice": "There is no system with this slug."},
    )
    field_order = ("into", "why")


@admin.register(System)
class MergingSystemAdmin(SystemAdmin):
    """Systems, each with the way to merge it into the one that it is."""

    def tools(self, request: HttpRequest, obj: System) -> list[Crumb]:
        """The way to merge it, for whoever may."""
        links = [("On the site", obj.get_absolute_url())]
        if request.user.has_perm(RIGHT):
            links.append(("Merge into another", reverse("admin:leaderboard_system_merge", args=[obj.pk])))
        return links

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, and the merge's."""
        view = self.admin_site.admin_view(self.merge_view)
        return [path("<int:pk>/merge/", view, name="leaderboard_system_merge"), *super().get_urls()]

    def merge_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask which system it is and why; list all that stands against it, or merge."""
        require(request, RIGHT)
        duplicate = get_object_or_404(System, pk=pk)
        form = MergeForm(request.POST or None)
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
            status=400 if problems or form.errors else 200,
        )  # fmt: skip
