"""Pools: drawn from runs, downloaded to be judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from leaderboard.admin.base import curator, reason_of
from leaderboard.admin.judgements import JUDGE, REFRESH, DatasetForm, JudgingAdmin, chosen_dataset
from leaderboard.admin.pages import curation_page, require, submit
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import send_private
from leaderboard.judgements import disclosure
from leaderboard.judgements.pools import (
    DEEPEST,
    JudgingRefused,
    draw_again,
    eligible_runs,
    pool_file,
    request_pool,
)
from leaderboard.models import Dataset, Pool, Round, Run


class RunChoice(forms.ModelMultipleChoiceField):
    """Runs by system, label and priority."""

    def label_from_instance(self, run: Run) -> str:
        """What tells runs apart."""
        team = run.system.team.name if run.system.team else "the site"
        priority = f", priority {run.priority}" if run.priority else ""
        return " · ".join(filter(None, [run.system.name, run.configuration, team])) + priority


class PoolForm(DatasetForm):
    """Depth, and from which runs: those ticked, or else each team's first, or else all."""

    depth = forms.IntegerField(
        initial=10, min_value=1, max_value=DEEPEST, help_text="So many of each query's first documents."
    )
    round = forms.ModelChoiceField(
        queryset=Round.objects.none(), required=False, help_text="Only runs that came in this round."
    )
    runs_per_team = forms.IntegerField(
        min_value=1,
        required=False,
        help_text="Only the runs of highest priority of each team or participant, for example 3. "
        "Default: as many as the round accepts, or all.",
    )
    runs = RunChoice(
        queryset=Run.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Tick some to draw from exactly these.",
    )
    field_order = ("dataset", "depth", "round", "runs_per_team", "runs", "why")

    def __init__(self, *args: Any, dataset: Dataset | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if dataset is None:
            for name in ("depth", "round", "runs_per_team", "runs", "why"):
                del self.fields[name]
            return
        runs: Any = self.fields["runs"]
        runs.queryset = eligible_runs(dataset)
        rounds = Round.objects.filter(dataset=dataset) | Round.objects.filter(
            benchmark__members__dataset=dataset
        )
        self.fields["round"].queryset = rounds.distinct()  # type: ignore[attr-defined]


@admin.register(Pool)
class PoolAdmin(JudgingAdmin):
    """What was drawn, and when. A pool's own page has its files."""

    list_display = ("__str__", "dataset", "state", "pairs", "depth", "created_by", "created_at")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("dataset", "created_by")
    search_fields = ("dataset__name", "dataset__slug")
    change_list_template = "admin/leaderboard/pool/change_list.html"

    @admin.display(description="pairs")
    def pairs(self, pool: Pool) -> str:
        """How many are to be judged."""
        # As of imports, hidden judgements are told on a page of one row alone, which records who looks.
        pairs = None if disclosure.reveals_judged(pool) else pool.statistics.get("pairs")
        return "—" if pairs is None else f"{pairs:,}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pool]:
        """With what pages name."""
        return super().get_queryset(request).select_related("dataset", "version", "qrels", "round")

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, drawing, and the files."""
        wrap = self.admin_site.admin_view
        return [
            path("draw/", wrap(self.draw_view), name="leaderboard_pool_draw"),
            path("<int:pool_id>/files/<str:form>/", wrap(self.file_view), name="leaderboard_pool_file"),
            *super().get_urls(),
        ]

    def draw_view(self, request: HttpRequest) -> HttpResponse:
        """*Draw a pool*: first of which dataset, then from which runs."""
        require(request, JUDGE)
        dataset = chosen_dataset(request)
        form = PoolForm(
            request.POST or None, dataset=dataset, initial={"dataset": dataset.slug if dataset else None}
        )

        def act(values: Mapping[str, Any]) -> str:
            pool = request_pool(
                values["dataset"],
                depth=values["depth"],
                runs=values["runs"] or None,
                runs_per_team=values["runs_per_team"],
                round=values["round"],
            )
            return reverse("admin:leaderboard_pool_change", args=[pool.pk])

        redirect, problems = submit(request, form, act, JudgingRefused)
        return redirect or curation_page(
            request, self, "admin/leaderboard/pool/draw.html", "Draw a pool",
            problems=problems, form=form, dataset=dataset,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """One pool: how far it is, what it holds, its files."""
        pool = self.get_row(request, object_id)
        if request.method == "POST":
            try:
                with acting(curator(request), reason_of(request)):
                    draw_again(pool)
            except JudgingRefused as error:
                messages.error(request, str(error))
            return HttpResponseRedirect(request.path)
        if pool.state == Pool.State.READY:
            with acting(curator(request)):
                disclosure.record_counts_read(pool)
        return curation_page(
            request, self, "admin/leaderboard/pool/pool.html", f"Pool {pool.pk} of {pool.dataset}",
            pool=pool, counts=pool.statistics, refresh=REFRESH if pool.state == Pool.State.DRAWING else 0,
            runs=pool.runs.select_related("system__team").order_by("system__name", "configuration"),
            imports=pool.imports.all(), forms=disclosure.downloadable_forms(pool, request.user),
            knows=disclosure.may_see_counts(pool.dataset, request.user),
        )  # fmt: skip

    def file_view(self, request: HttpRequest, pool_id: int, form: str) -> HttpResponseBase:
        """A file of a pool, for whoever may judge and may read what is in it; each download is recorded."""
        require(request, JUDGE)
        pool = self.get_queryset(request).filter(pk=pool_id).first()
        if pool is None or form not in pool.files:
            raise Http404
        if form not in disclosure.downloadable_forms(pool, request.user):
            raise PermissionDenied
        with acting(curator(request)):
            place, name = pool_file(pool, form)
        kind = "csv" if form == "csv" else "plain"
        return send_private(place, name, f"text/{kind}; charset=utf-8")
