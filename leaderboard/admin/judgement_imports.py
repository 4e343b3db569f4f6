"""Judgements that come back: brought, compared, and merged as the curator says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from evaluation.judgements.judges import Judge, agreement_sentence
from leaderboard.admin.base import curator
from leaderboard.admin.import_form import path_of_upload
from leaderboard.admin.judgements import JUDGE, READ, REFRESH, DatasetForm, JudgingAdmin, chosen_dataset
from leaderboard.admin.pages import ReasonForm, curation_page, require, submit
from leaderboard.core.audit import acting
from leaderboard.judgements import disclosure, imports
from leaderboard.judgements.comparing import list_conflicts
from leaderboard.judgements.pools import JudgingRefused
from leaderboard.judgements.rescoring.campaigns import under_way
from leaderboard.models import JudgementImport, Pool

#: So many conflicts are listed on a page.
LISTED = 100


class JudgementUploadForm(DatasetForm):
    """A file of judgements, and where they are from."""

    file = forms.FileField(
        label="Judgements",
        help_text="TREC qrels, BEIR’s tab-separated form, or a pool’s CSV with grades; .gz, .zst and .bz2 too. "
        "Empty and negative grades are not judged yet.",
    )
    pool = forms.ModelChoiceField(
        queryset=Pool.objects.filter(state=Pool.State.READY).select_related("dataset"),
        required=False,
        help_text="Which pool was judged: the runs that fed it are marked on the board.",
    )
    judge_kind = forms.ChoiceField(
        label="Judged by",
        choices=imports.JudgeKind.choices,
        initial=imports.JudgeKind.PEOPLE,
        widget=forms.RadioSelect,
    )
    judge_name = forms.CharField(
        label="Name",
        max_length=80,
        help_text="Of the people (“NIST assessors”) or of the model: public, on the board and in exports.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    judge_version = forms.CharField(
        label="Version of the model", max_length=80, required=False, help_text="As its maker calls it."
    )
    judge_prompt = forms.CharField(
        label="SHA-256 of its prompt",
        max_length=64,
        required=False,
        help_text="64 hexadecimal digits, so that others can tell whether they asked the same.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    note = forms.CharField(
        max_length=300,
        required=False,
        help_text="Where they are from: public, beside the new version of the judgements.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    scale_grew = forms.BooleanField(
        label="The scale grew",
        required=False,
        help_text="Grades above the highest present one are meant; otherwise they are taken for slips.",
    )
    strict = forms.BooleanField(
        required=False,
        help_text="Refuse judgments of documents that the corpus lacks. Default: count them.",
    )
    field_order = (
        "dataset", "file", "judge_kind", "judge_name", "judge_version", "judge_prompt", "scale_grew", "strict", "pool",
        "note", "why",
    )  # fmt: skip


class SettleForm(ReasonForm):
    """What is to become of the import."""

    policy = forms.ChoiceField(
        label="Where grades disagree",
        choices=imports.Conflicts.choices,
        initial=imports.Conflicts.KEEP,
        widget=forms.RadioSelect,
        required=False,
    )
    field_order = ("policy", "why")


@admin.register(JudgementImport)
class JudgementImportAdmin(JudgingAdmin):
    """What was brought, and what became of it."""

    list_display = ("file_name", "dataset", "state", "new_pairs", "conflicts", "created_by", "created_at")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("dataset", "created_by")
    search_fields = ("file_name", "note", "dataset__name", "dataset__slug")
    change_list_template = "admin/leaderboard/judgementimport/change_list.html"

    @admin.display(description="new pairs")
    def new_pairs(self, brought: JudgementImport) -> str:
        """How many pairs had no judgement."""
        return _count(brought, "new")

    @admin.display(description="conflicts")
    def conflicts(self, brought: JudgementImport) -> str:
        """How many pairs have another grade already."""
        return _count(brought, "conflicts")

    def get_queryset(self, request: HttpRequest) -> QuerySet[JudgementImport]:
        """With what pages name."""
        related = ("dataset", "against", "qrels", "pool", "created_by")
        return super().get_queryset(request).select_related(*related)

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses and bringing."""
        view = self.admin_site.admin_view(self.bring_view)
        return [path("bring/", view, name="leaderboard_judgementimport_bring"), *super().get_urls()]

    def bring_view(self, request: HttpRequest) -> HttpResponse:
        """*Import judgements*: the form, or everything that is wrong with the file."""
        require(request, JUDGE)
        dataset = chosen_dataset(request)
        form = JudgementUploadForm(
            request.POST or None,
            request.FILES or None,
            initial={"dataset": dataset.slug if dataset else None, "pool": request.GET.get("pool")},
        )

        def act(values: Mapping[str, Any]) -> str:
            options = {name: values[name] for name in ("note", "pool", "scale_grew", "strict")}
            uploaded = path_of_upload(values["file"])
            if uploaded is None:
                raise RuntimeError("uploads are written to disk")
            judge = Judge(
                values["judge_kind"],
                values["judge_name"],
                values["judge_version"],
                values["judge_prompt"].lower(),
            )
            brought = imports.import_judgements(
                values["dataset"], uploaded, judge, name=values["file"].name, **options
            )
            return reverse("admin:leaderboard_judgementimport_change", args=[brought.pk])

        redirect, problems = submit(request, form, act, JudgingRefused)
        return redirect or curation_page(
            request, self, "admin/leaderboard/judgementimport/bring.html", "Import judgements",
            problems=problems, problems_note="Nothing was stored:", form=form,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """One import: what was found, and what is to be done."""
        brought = self.get_row(request, object_id)
        form = SettleForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                with acting(curator(request), form.cleaned_data["why"]):
                    _settle(request, brought, form.cleaned_data["policy"])
            except JudgingRefused as error:
                messages.error(request, str(error))
            return HttpResponseRedirect(request.path)
        return self._page(request, brought, form)

    def _page(self, request: HttpRequest, brought: JudgementImport, form: SettleForm) -> TemplateResponse:
        reads, blind = request.user.has_perm(READ), disclosure.is_blind_decision(brought, request.user)
        # Nothing is told while the scorer is at it: the page looks again by itself, and each look is recorded.
        counts = {} if brought.state in imports.WORKING else disclosure.visible_counts(brought, request.user)
        listed = list(list_conflicts(brought, most=LISTED)) if "conflicts" in counts else []
        if "new" in counts and reads and (listed or disclosure.is_secret(brought, brought.against)):
            with acting(curator(request)):
                disclosure.record_comparison_read(brought, len(listed))
        answer = curation_page(
            request, self, "admin/leaderboard/judgementimport/import.html", f"Judgements: {brought.file_name}",
            brought=brought, counts=counts, of_file=brought.counts, form=form, reads=reads, blind=blind,
            # Grades of judgements are for those who may read them; the new ones the curator has brought.
            listed=[(each.query, each.document, each.old if reads else None, each.new) for each in listed],
            choices=[
                (each.value, each.label, None if blind else imports.count_changes(brought, each))
                for each in imports.Conflicts
            ],
            judge=imports.judge_of(brought) if brought.judge_name else None,
            agreement=[agreement_sentence(each) for each in counts.get("agreement", ())],
            refresh=REFRESH if brought.state in imports.WORKING else 0, rescore=_rescore(brought), State=imports.State,
        )  # fmt: skip
        answer["Cache-Control"] = "private, no-store"
        return answer


def _settle(request: HttpRequest, brought: JudgementImport, policy: str) -> None:
    """Do what the button says."""
    if "discard" in request.POST:
        imports.discard_import(brought)
        messages.success(request, "Thrown away: nothing changed.")
    elif "again" in request.POST:
        imports.compare_again(brought)
    else:
        imports.request_merge(brought, imports.Conflicts(policy or imports.Conflicts.KEEP))


def _rescore(brought: JudgementImport) -> Any:
    """The rescore that came of it and is to be decided."""
    rescore = under_way(brought.dataset)
    return rescore if rescore is not None and rescore.to_qrels_id == brought.qrels_id else None


def _count(brought: JudgementImport, name: str) -> str:
    # Hidden judgements are told on the import's own page alone, which records who looks.
    count = None if disclosure.is_secret(brought, brought.against) else brought.counts.get(name)
    return "—" if count is None else f"{count:,}"
