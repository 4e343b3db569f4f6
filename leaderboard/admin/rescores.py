"""Rescores: what changes with other judgements, and the decision to let a board stand on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse

from leaderboard.admin.base import curator
from leaderboard.admin.judgements import JUDGE, JudgingAdmin
from leaderboard.admin.pages import ReasonForm, curation_page, object_crumb, require, submit
from leaderboard.core.audit import acting
from leaderboard.judgements.disclosure import is_secret_preview, record_preview_read
from leaderboard.judgements.rescoring import campaigns
from leaderboard.judgements.rescoring.comparison import comparison_of, digest
from leaderboard.judgements.rescoring.switch import CannotSwitch, switch_board
from leaderboard.judgements.rescoring.table import as_csv, comparison_table, unmoved_results
from leaderboard.models import Qrels, Rescore

State = Rescore.State


class StartForm(ReasonForm):
    """Which judgements the runs are to be evaluated on."""

    qrels: forms.ModelChoiceField[Qrels] = forms.ModelChoiceField(
        queryset=Qrels.objects.none(), label="Judgements"
    )
    note = forms.CharField(
        max_length=300,
        required=False,
        help_text="What changed the judgements: public, in the news and on the page of what changed.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    field_order = ("qrels", "note", "why")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        present = Qrels.objects.filter(version__dataset__current_version=F("version"))
        others = present.exclude(pk=F("version__dataset__current_qrels")).exclude(
            version__dataset__current_qrels=None
        )
        self.fields["qrels"].queryset = others.select_related("version__dataset").order_by(  # type: ignore[attr-defined]
            "version__dataset__name", "-number"
        )


class DecideForm(ReasonForm):
    """The reason, and the numbers that it was decided on."""

    seen = forms.CharField(widget=forms.HiddenInput, required=False)


def _switch(rescore: Rescore, seen: str) -> str:
    dataset = switch_board(rescore, seen=seen)
    return f"The board of {dataset} stands on qrels v{rescore.to_qrels.number} now."


def _discard(rescore: Rescore, seen: str) -> str:
    campaigns.discard_rescore(rescore)
    return f"Discarded: the board of {rescore.dataset} stays on qrels v{rescore.from_qrels.number}."


def _resume(rescore: Rescore, seen: str) -> str:
    campaigns.resume_rescore(rescore)
    return "What is not evaluated is evaluated now."


#: By the word in the address: the act, the page's title, what it explains, and the button.
_ACTS: dict[str, tuple[Callable[[Rescore, str], str], str, str, str]] = {
    "switch": (
        _switch,
        "Switch the board",
        "All results below move at once. Old evaluations stay, and permalinks go on showing them.",
        "Switch the board",
    ),
    "discard": (
        _discard,
        "Discard the rescore",
        "No board changes. The new judgements and evaluations stay, and can be taken up again.",
        "Discard",
    ),
    "evaluate": (
        _resume,
        "Evaluate again",
        "Runs that have no evaluation on the new judgements get one; the board stays as it is.",
        "Evaluate",
    ),
}


@admin.register(Rescore)
class RescoreAdmin(JudgingAdmin):
    """Rescores by dataset; each has its comparison in the place of a form."""

    list_display = (
        "dataset",
        "judgements",
        "state",
        "progress",
        "reason",
        "created_by",
        "created_at",
        "decided_by",
    )
    list_display_links = ("dataset", "judgements")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    search_fields = ("dataset__name", "dataset__slug", "reason")

    @admin.display(description="judgements")
    def judgements(self, rescore: Rescore) -> str:
        """From which to which."""
        return f"qrels v{rescore.from_qrels.number} → v{rescore.to_qrels.number}"

    @admin.display(description="runs")
    def progress(self, rescore: Rescore) -> str:
        """How many are done."""
        return f"{rescore.done:,} of {rescore.total:,}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Rescore]:
        """With what pages name."""
        return (
            super()
            .get_queryset(request)
            .select_related(
                "dataset__current_qrels",
                "from_qrels__version",
                "to_qrels__version",
                "created_by",
                "decided_by",
            )
        )

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever extends judgements."""
        return request.user.has_perm(JUDGE)

    def get_urls(self) -> list[URLPattern]:
        """The comparison's CSV, and the page before each decision."""
        wrap = self.admin_site.admin_view
        return [
            path("<int:key>/comparison.csv", wrap(self.csv_view), name="leaderboard_rescore_csv"),
            *(
                path(
                    f"<int:key>/{act}/", wrap(self.act_view), {"act": act}, name=f"leaderboard_rescore_{act}"
                )
                for act in _ACTS
            ),
            *super().get_urls(),
        ]

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Start one by hand."""
        require(request, JUDGE)
        form = StartForm(request.POST or None)

        def act(values: Mapping[str, Any]) -> str:
            qrels = values["qrels"]
            return _address(campaigns.start_rescore(qrels.version.dataset, qrels, values["note"]))

        redirect, problems = submit(request, form, act, campaigns.RescoreUnderWay, campaigns.CannotRescore)
        return redirect or curation_page(
            request, self, "admin/leaderboard/rescore/start.html", "Rescore a dataset",
            problems=problems, form=form,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The comparison."""
        rescore = self.get_row(request, object_id)
        dataset, evaluating = rescore.dataset, rescore.state == State.EVALUATING
        comparison = _shown(request, rescore)
        table = comparison_table(
            comparison,
            measure=request.GET.get("measure", ""),
            sort=request.GET.get("sort", ""),
            hidden=dataset.hidden,
        )
        return curation_page(
            request, self, "admin/leaderboard/rescore/comparison.html",
            f"{dataset}: qrels v{rescore.from_qrels.number} → v{rescore.to_qrels.number}",
            rescore=rescore, dataset=dataset, table=table, stays=unmoved_results(comparison), seen=digest(comparison),
            evaluating=evaluating, later=evaluating and is_secret_preview(rescore), ready=rescore.state == State.READY,
            failed=rescore.state == State.FAILED,
        )  # fmt: skip

    def csv_view(self, request: HttpRequest, key: int) -> HttpResponse:
        """All of it, for a spreadsheet."""
        rescore = self.get_row(request, key)
        text = as_csv(_shown(request, rescore), hidden=rescore.dataset.hidden)
        name = f"{rescore.dataset.slug}-rescore-{rescore.pk}.csv"
        return HttpResponse(
            text,
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    def act_view(self, request: HttpRequest, key: int, act: str) -> HttpResponse:
        """Ask why, then decide."""
        rescore = self.get_row(request, key)
        verb, title, explanation, button = _ACTS[act]
        form = DecideForm(
            request.POST if request.method == "POST" else None, initial={"seen": request.GET.get("seen", "")}
        )

        def decide(values: Mapping[str, Any]) -> str:
            messages.success(request, verb(rescore, values["seen"]))
            return _address(rescore)

        refusals = CannotSwitch, campaigns.CannotRescore, campaigns.RescoreUnderWay
        redirect, problems = submit(request, form, decide, *refusals)
        if redirect is not None:
            return redirect
        comparison = _shown(request, rescore)
        return curation_page(
            request, self, "admin/leaderboard/rescore/decide.html", title,
            crumbs=[object_crumb(self, rescore)], problems=problems,
            status=409 if problems else None,
            form=form, rescore=rescore, dataset=rescore.dataset, explanation=explanation, button=button,
            danger=act == "discard", table=comparison_table(comparison, hidden=rescore.dataset.hidden),
            stays=unmoved_results(comparison), back=_address(rescore),
        )  # fmt: skip


def _shown(request: HttpRequest, rescore: Rescore) -> dict[str, Any]:
    """The comparison for a page. Of hidden judgements each look is recorded, and nothing is told while it is
    evaluated: the page looks again by itself.
    """
    comparison = comparison_of(rescore)
    if is_secret_preview(rescore):
        if rescore.state == State.EVALUATING:
            return {**comparison, "rows": [], "stays": []}
        with acting(curator(request)):
            record_preview_read(rescore)
    return comparison


def _address(rescore: Rescore) -> str:
    return reverse("admin:leaderboard_rescore_change", args=[rescore.pk])
