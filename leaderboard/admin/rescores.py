"""Admin of rescores: comparison of results on new judgments, and the decision to use them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse

from leaderboard.admin.base import curator
from leaderboard.admin.forms import optional_text, text_line
from leaderboard.admin.judging import JUDGE, JudgingAdmin
from leaderboard.admin.pages import Operation, ReasonForm, curation_page, object_crumb, require, submit
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import send_text
from leaderboard.judgements.disclosure import is_secret_preview, record_preview_read
from leaderboard.judgements.rescoring import campaigns
from leaderboard.judgements.rescoring.switch import CannotSwitch, digest, get_comparison, switch_board
from leaderboard.judgements.rescoring.table import as_csv, comparison_table, unmoved_results
from leaderboard.models import Qrels, Rescore

State = Rescore.State


class StartForm(ReasonForm):
    """Form for the judgments with which to evaluate the runs."""

    qrels: forms.ModelChoiceField[Qrels] = forms.ModelChoiceField(queryset=Qrels.objects.none(), label="Judgments")
    note = text_line(
        max_length=300,
        required=False,
        help_text="Reason for the new judgments, shown in the news and on the page of the changes",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer all judgments of current dataset versions except those that boards use now."""
        super().__init__(*args, **kwargs)
        current_version_qrels = Qrels.objects.filter(version__dataset__current_version=F("version"))
        other_qrels = current_version_qrels.exclude(pk=F("version__dataset__current_qrels")).exclude(
            version__dataset__current_qrels=None
        )
        self.fields["qrels"].queryset = other_qrels.select_related("version__dataset").order_by(  # type: ignore[attr-defined]
            "version__dataset__name", "-number"
        )


class DecideForm(ReasonForm):
    """Form for a decision, which includes a digest of the numbers that the curator has seen."""

    seen = optional_text(widget=forms.HiddenInput)


def _switch(rescore: Rescore, values: Mapping[str, Any]) -> str:
    dataset = switch_board(rescore, reviewed_digest=values["seen"])
    return f"The board of {dataset} now uses qrels v{rescore.to_qrels.number}."


def _report_switch(rescore: Rescore, values: Mapping[str, Any]) -> str:
    """Return the command's message, with the numbers of changed and unchanged results."""
    moved_count, unmoved_count = len(rescore.comparison["rows"]), len(rescore.comparison["stays"])
    return (
        f"The board of {rescore.dataset} now uses qrels v{rescore.to_qrels.number}: {moved_count:,} results changed, "
        f"{unmoved_count:,} are unchanged."
    )


def _discard(rescore: Rescore, values: Mapping[str, Any]) -> str:
    campaigns.discard_rescore(rescore)
    return f"Discarded: the board of {rescore.dataset} still uses qrels v{rescore.from_qrels.number}."


def _resume(rescore: Rescore, values: Mapping[str, Any]) -> str:
    campaigns.resume_rescore(rescore)
    return "The missing evaluations have been requested."


_decision_operation = partial(
    Operation,
    permission=JUDGE,
    form=DecideForm,
    refusals=(CannotSwitch, campaigns.CannotRescore, campaigns.RescoreUnderWay),
)
#: Decisions on a rescore, by the last part of their URLs.
DECISIONS = {
    "switch": _decision_operation(
        "Switch",
        run=_switch,
        report=_report_switch,
        title="Switch the board",
        button="Switch the board",
        explanation="All results below change at once. Old evaluations remain, and permalinks still show them.",
        help="Switch a dataset's board to the judgments of its rescore; all numbers change at once.",
    ),
    "discard": _decision_operation(
        "Discard",
        run=_discard,
        title="Discard the rescore",
        button="Discard",
        danger=True,
        explanation="The board does not change. You can still use the new judgments and evaluations later.",
        help="Discard a dataset's rescore.",
    ),
    "evaluate": _decision_operation(
        "Evaluate",
        run=_resume,
        title="Evaluate again",
        button="Evaluate",
        explanation="Evaluate all runs that have no evaluation on the new judgments. The board does not change.",
    ),
}


@admin.register(Rescore)
class RescoreAdmin(JudgingAdmin):
    """Admin of rescores; the page of each shows its comparison instead of a form."""

    list_display = (
        "dataset", "judgements", "state", "progress", "reason", "created_by", "created_at", "decided_by",
    )  # fmt: skip
    list_display_links = ("dataset", "judgements")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    search_fields = ("dataset__name", "dataset__slug", "reason")

    pending = (
        "rescore is ready: review the changes, then publish or discard",
        "rescores are ready: review the changes, then publish or discard",
        "?state__exact=ready",
    )
    pages: ClassVar = {"csv": "<int:key>/comparison.csv"}

    @admin.display(description="judgments")
    def judgements(self, rescore: Rescore) -> str:
        return f"qrels v{rescore.from_qrels.number} → v{rescore.to_qrels.number}"

    @admin.display(description="runs")
    def progress(self, rescore: Rescore) -> str:
        return f"{rescore.done:,} of {rescore.total:,}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Rescore]:
        """Return the rescores with the related rows that pages show."""
        return (
            super()
            .get_queryset(request)
            .select_related(
                "dataset__current_qrels", "from_qrels__version", "to_qrels__version", "created_by", "decided_by"
            )
        )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(JUDGE)

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs, with one for each decision."""
        view = self.admin_site.admin_view(self.act_view)
        decisions = [
            path(f"<int:key>/{act}/", view, {"act": act}, name=f"leaderboard_rescore_{act}") for act in DECISIONS
        ]
        return [*decisions, *super().get_urls()]

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Show the form for a new rescore; on POST, start it or list problems."""
        require(request, JUDGE)
        form = StartForm(request.POST or None)

        def act(values: Mapping[str, Any]) -> str:
            qrels = values["qrels"]
            return _rescore_url(campaigns.start_rescore(qrels.version.dataset, qrels, values["note"]))

        redirect, problems = submit(request, form, act, campaigns.RescoreUnderWay, campaigns.CannotRescore)
        return redirect or curation_page(
            request, self, "admin/leaderboard/rescore/start.html", "Rescore a dataset", problems=problems, form=form,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show a rescore's comparison of results on old and new judgments."""
        rescore = self.get_row(request, object_id)
        dataset, evaluating = rescore.dataset, rescore.state == State.EVALUATING
        comparison = _visible_comparison(request, rescore)
        table = comparison_table(
            comparison, measure=request.GET.get("measure", ""), sort=request.GET.get("sort", ""), hidden=dataset.hidden
        )
        return curation_page(
            request, self, "admin/leaderboard/rescore/comparison.html",
            f"{dataset}: qrels v{rescore.from_qrels.number} → v{rescore.to_qrels.number}", rescore=rescore,
            dataset=dataset, table=table, stays=unmoved_results(comparison), seen=digest(comparison),
            evaluating=evaluating, later=evaluating and is_secret_preview(rescore), ready=rescore.state == State.READY,
            failed=rescore.state == State.FAILED,
        )  # fmt: skip

    def csv_view(self, request: HttpRequest, key: int) -> HttpResponse:
        """Send the comparison as CSV."""
        rescore = self.get_row(request, key)
        text = as_csv(_visible_comparison(request, rescore), hidden=rescore.dataset.hidden)
        return send_text(text, f"{rescore.dataset.slug}-rescore-{rescore.pk}.csv", "text/csv; charset=utf-8")

    def act_view(self, request: HttpRequest, key: int, act: str) -> HttpResponse:
        """Ask for a reason, then carry out the decision `act`, a key of `DECISIONS`, or list problems."""
        rescore = self.get_row(request, key)
        decision = DECISIONS[act]
        form = DecideForm(
            request.POST if request.method == "POST" else None, initial={"seen": request.GET.get("seen", "")}
        )

        def decide(values: Mapping[str, Any]) -> str:
            messages.success(request, decision.run(rescore, values))
            return _rescore_url(rescore)

        redirect, problems = submit(request, form, decide, *decision.refusals)
        if redirect is not None:
            return redirect
        comparison = _visible_comparison(request, rescore)
        return curation_page(
            request, self, "admin/leaderboard/rescore/decide.html", decision.title,
            crumbs=[object_crumb(self, rescore)], problems=problems, status=409 if problems else None, form=form,
            rescore=rescore, dataset=rescore.dataset, explanation=decision.explanation, button=decision.button,
            danger=decision.danger, table=comparison_table(comparison, hidden=rescore.dataset.hidden),
            stays=unmoved_results(comparison), back=_rescore_url(rescore),
        )  # fmt: skip


def _visible_comparison(request: HttpRequest, rescore: Rescore) -> dict[str, Any]:
    """Return the comparison for a page. If it reveals hidden judgments, record the access.

    During evaluation, its rows are omitted instead, because the page refreshes itself.
    """
    comparison = get_comparison(rescore)
    if is_secret_preview(rescore):
        if rescore.state == State.EVALUATING:
            return {**comparison, "rows": [], "stays": []}
        with acting(curator(request)):
            record_preview_read(rescore)
    return comparison


def _rescore_url(rescore: Rescore) -> str:
    return reverse("admin:leaderboard_rescore_change", args=[rescore.pk])
