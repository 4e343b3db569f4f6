"""Admin of systems and results: merging systems and measuring costs again."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse

from leaderboard.admin.pages import Crumb, Operation, ReasonForm, curation_page, object_crumb, require, submit
from leaderboard.admin.results import MODERATES, EntryAdmin
from leaderboard.admin.tables import SystemAdmin
from leaderboard.models import Entry, System
from leaderboard.systems.records import CannotMerge
from submissions.jobs.changes import CannotMeasure, merge_systems, request_measurement


class MergeForm(ReasonForm):
    """Form for the system that a duplicate is merged into."""

    into = forms.ModelChoiceField(
        System.objects.all(),
        to_field_name="slug",
        widget=forms.TextInput(attrs={"class": "vTextField", "autocomplete": "off"}),
        label="Merge into",
        help_text="Slug of the system that remains and gets all results, such as bm25 in /systems/bm25/.",
        error_messages={"invalid_choice": "No system has this slug."},
    )


def _merge_row(duplicate: System, values: Mapping[str, Any]) -> str:
    name, target = str(duplicate), values["into"]
    merge_systems(duplicate, target)
    return f"{name} was merged into {target}. Its URL redirects there."


MERGE = Operation(
    "Merge into another",
    MODERATES,
    _merge_row,
    form=MergeForm,
    refusals=(CannotMerge,),
    help="Move all results and submissions of a duplicate to the other system and redirect its URL there.",
    report=lambda duplicate, values: f"{duplicate} was merged into {values['into']} ({values['into'].slug}).",
    arguments={"into": "into"},
)


@admin.register(System)
class MergingSystemAdmin(SystemAdmin):
    """Admin of systems that can be merged."""

    pages: ClassVar = {**SystemAdmin.pages, "merge": "<int:pk>/merge/"}

    def tools(self, request: HttpRequest, obj: System) -> list[Crumb]:
        """Return a link to the merge page for curators who may merge systems."""
        if not request.user.has_perm(MERGE.permission):
            return []
        return [(MERGE.short_description, reverse("admin:leaderboard_system_merge", args=[obj.pk]))]

    def merge_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show or process the page that merges the system with the key `pk` into another one.

        If the systems conflict, the page lists the problems.
        """
        require(request, MERGE.permission)
        duplicate = get_object_or_404(System, pk=pk)
        form = MergeForm(request.POST or None)

        def act(values: Mapping[str, Any]) -> str:
            self.message_user(request, MERGE.run(duplicate, values))
            return reverse("admin:leaderboard_system_change", args=[values["into"].pk])

        redirect, problems = submit(request, form, act, *MERGE.refusals)
        return redirect or curation_page(
            request,
            self,
            "admin/submissions/merge_system.html",
            f"Merge {duplicate}",
            crumbs=[object_crumb(self, duplicate)],
            problems=problems,
            form=form,
            duplicate=duplicate,
        )


def _measure_row(entry: Entry, values: Mapping[str, Any]) -> str:
    job = request_measurement(entry)
    return f"Job {job.pk} measures {entry} again. The current costs remain until it has finished."


@admin.register(Entry)
class MeasuredEntryAdmin(EntryAdmin):
    """Admin of results whose costs can be measured again."""

    actions = (*EntryAdmin.actions, "measure_again")

    def acts(self, obj: Entry) -> Iterable[str]:
        was_measured = obj.provenance == Entry.Provenance.MEASURED
        return (*super().acts(obj), *(["measure_again"] if was_measured else []))

    measure_again = Operation(
        "Measure costs again (latency, memory, index; keeps scores)",
        MODERATES,
        _measure_row,
        refusals=(CannotMeasure,),
        title="Measure costs again",
        button="Measure again",
        explanation="A job runs the model again and times it. The current costs remain until it has finished.",
        help="Run a result's model again to measure its costs, for example if the machine was busy during "
        "the first measurement.",
    )
