"""The page that changes which measures a board shows."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse

from evaluation.measures import DEFAULT_MEASURES
from leaderboard.admin.base import curator
from leaderboard.admin.pages import AskForm, curation_page, object_crumb, require
from leaderboard.core.audit import acting
from leaderboard.models import Dataset
from leaderboard.results.measures import RefusedMeasures, set_measures


class MeasuresForm(AskForm):
    """The primary measure, and the others."""

    primary = forms.CharField(max_length=40, help_text="The board is sorted by it.")
    others = forms.CharField(
        max_length=400,
        required=False,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="Separated by spaces or commas; with hidden judgements at most two beside the primary one.",
    )
    field_order = ("primary", "others", "why")


def measures_view(request: HttpRequest, page: admin.ModelAdmin, pk: int) -> HttpResponse:
    """Show the list, or change it; everything that is wrong with the new one is listed."""
    require(request, "leaderboard.change_dataset")
    dataset = get_object_or_404(Dataset, pk=pk)
    others = [name for name in dataset.measures if name != dataset.primary_measure]
    shown = {"primary": dataset.primary_measure, "others": " ".join(others)}
    form = MeasuresForm(request.POST or None, initial=shown)
    problems: list[dict[str, Any]] = []
    if request.method == "POST" and form.is_valid():
        asked = form.cleaned_data["others"].replace(",", " ").split()
        try:
            with transaction.atomic(), acting(curator(request), form.cleaned_data["why"]):
                measures = set_measures(dataset, form.cleaned_data["primary"].strip(), asked)
        except RefusedMeasures as error:
            problems = [each.as_dict() for each in error.problems]
        else:
            page.message_user(request, f"{dataset} shows {', '.join(measures)} now.")
            return HttpResponseRedirect(reverse("admin:leaderboard_dataset_change", args=[dataset.pk]))
    return curation_page(
        request, page, "admin/leaderboard/dataset/measures.html", f"Measures of {dataset}",
        crumbs=[object_crumb(page, dataset)], problems=problems, form=form, dataset=dataset,
        known=DEFAULT_MEASURES, status=400 if problems or form.errors else 200,
    )  # fmt: skip
