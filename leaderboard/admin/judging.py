"""Admin of pools, which are drawn from runs for judging, and of judgment imports."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from evaluation.judgements.merge import Judge, agreement_sentence
from leaderboard.admin.base import ReadOnlyAdmin, curator, get_reason
from leaderboard.admin.forms import optional_choice, optional_integer, optional_text, text_line, tick_box
from leaderboard.admin.import_form import uploaded_path
from leaderboard.admin.pages import REFRESH, ReasonForm, curation_page, require, submit
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import send_private
from leaderboard.core.permissions import READS_JUDGEMENTS
from leaderboard.judgements import disclosure, imports
from leaderboard.judgements.comparing import list_conflicts
from leaderboard.judgements.pools import (
    MAX_DEPTH,
    JudgingRefused,
    draw_again,
    eligible_runs,
    record_download,
    request_pool,
)
from leaderboard.judgements.rescoring.campaigns import get_pending_rescore
from leaderboard.models import Dataset, JudgementImport, Pool, Round, Run

JUDGE, READ = "leaderboard.judge_dataset", READS_JUDGEMENTS


class JudgingAdmin(ReadOnlyAdmin):
    """Base class of pages for users who may judge datasets."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(JUDGE))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm(JUDGE))

    def get_row(self, request: HttpRequest, object_id: str | int) -> Any:
        """Return the row with this id.

        Raises PermissionDenied if the user may not judge datasets, or Http404 if the row does not exist.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_queryset(request).filter(pk=self.parse_key(str(object_id))).first()
        if row is None:
            raise Http404
        return row


class DatasetForm(ReasonForm):
    """A form about one dataset, which a link may preselect."""

    dataset = forms.ModelChoiceField(queryset=Dataset.objects.none(), to_field_name="slug")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["dataset"].queryset = self.datasets()  # type: ignore[attr-defined]

    @staticmethod
    def datasets() -> QuerySet[Dataset]:
        """Return the datasets that have queries; others cannot be judged."""
        return Dataset.objects.filter(current_version__isnull=False).order_by("name")


def selected_dataset(request: HttpRequest) -> Dataset | None:
    """Return the dataset selected in the form or, failing that, in the URL; None if there is none."""
    datasets = DatasetForm.datasets().select_related("current_qrels", "current_version")
    field = forms.ModelChoiceField(datasets, to_field_name="slug", required=False)
    try:
        return field.clean(request.POST.get("dataset") or request.GET.get("dataset"))
    except ValidationError:
        return None


class RunChoice(forms.ModelMultipleChoiceField):
    """A choice of runs, labelled by system, configuration, team and priority."""

    def label_from_instance(self, run: Run) -> str:
        team = run.system.team.name if run.system.team else "the site"
        priority = f", priority {run.priority}" if run.priority else ""
        return " · ".join(filter(None, [run.system.name, run.configuration, team])) + priority


class PoolForm(DatasetForm):
    """Form for the depth and the runs of a pool: selected runs, each team's first runs, or all runs."""

    depth = forms.IntegerField(
        initial=10, min_value=1, max_value=MAX_DEPTH, help_text="Number of top documents per query, for example 10."
    )
    round = forms.ModelChoiceField(
        queryset=Round.objects.none(), required=False, help_text="Use only runs submitted to this round."
    )
    runs_per_team = optional_integer(
        min_value=1,
        help_text="Use only this number of highest-priority runs per team or participant, for example 3. "
        "Default: as many as the round accepts, or all.",
    )
    runs = RunChoice(
        queryset=Run.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Select runs to draw from exactly these.",
    )

    def __init__(self, *args: Any, dataset: Dataset | None, **kwargs: Any) -> None:
        """Offer the eligible runs and the rounds of the dataset; if it is None, offer only the choice of a dataset."""
        super().__init__(*args, **kwargs)
        if dataset is None:
            for name in ("depth", "round", "runs_per_team", "runs", "why"):
                del self.fields[name]
            return
        runs: Any = self.fields["runs"]
        runs.queryset = eligible_runs(dataset)
        rounds = Round.objects.filter(dataset=dataset) | Round.objects.filter(benchmark__members__dataset=dataset)
        self.fields["round"].queryset = rounds.distinct()  # type: ignore[attr-defined]


@admin.register(Pool)
class PoolAdmin(JudgingAdmin):
    """Admin of pools; the page of each lists its files."""

    list_display = ("__str__", "dataset", "state", "pairs", "depth", "created_by", "created_at")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("dataset", "created_by")
    search_fields = ("dataset__name", "dataset__slug")
    task_pages = (("Draw a pool", "admin:leaderboard_pool_draw", (JUDGE,)),)

    pages: ClassVar = {"draw": "draw/", "file": "<int:pool_id>/files/<str:form>/"}

    @admin.display(description="pairs")
    def pairs(self, pool: Pool) -> str:
        """Return the number of query-document pairs to judge."""
        # Hidden judgments are shown only on the page of a single row, which records access.
        pairs = None if disclosure.reveals_judged(pool) else pool.statistics.get("pairs")
        return "—" if pairs is None else f"{pairs:,}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pool]:
        return super().get_queryset(request).select_related("dataset", "version", "qrels", "round")

    def draw_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form of *Draw a pool*: first the dataset, then its runs. On POST, request the pool."""
        require(request, JUDGE)
        dataset = selected_dataset(request)
        form = PoolForm(request.POST or None, dataset=dataset, initial={"dataset": dataset.slug if dataset else None})

        def act(values: Mapping[str, Any]) -> str:
            """Request the pool, and return the URL of its page."""
            pool = request_pool(
                values["dataset"], depth=values["depth"], runs=values["runs"] or None,
                runs_per_team=values["runs_per_team"], round=values["round"],
            )  # fmt: skip
            return reverse("admin:leaderboard_pool_change", args=[pool.pk])

        redirect, problems = submit(request, form, act, JudgingRefused)
        return redirect or curation_page(
            request, self, "admin/leaderboard/pool/draw.html", "Draw a pool", problems=problems, form=form,
            dataset=dataset,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show a pool's progress, content, and files; on POST, draw it again."""
        pool = self.get_row(request, object_id)
        if request.method == "POST":
            try:
                with acting(curator(request), get_reason(request)):
                    draw_again(pool)
            except JudgingRefused as error:
                messages.error(request, str(error))
            return HttpResponseRedirect(request.path)
        if pool.state == Pool.State.READY:
            with acting(curator(request)):
                disclosure.record_counts_read(pool)
        return curation_page(
            request, self, "admin/leaderboard/pool/pool.html", f"Pool {pool.pk} of {pool.dataset}", pool=pool,
            counts=pool.statistics, refresh=REFRESH if pool.state == Pool.State.DRAWING else 0,
            runs=pool.runs.select_related("system__team").order_by("system__name", "configuration"),
            imports=pool.imports.all(), forms=disclosure.downloadable_forms(pool, request.user),
            knows=disclosure.may_see_counts(pool.dataset, request.user),
        )  # fmt: skip

    def file_view(self, request: HttpRequest, pool_id: int, form: str) -> HttpResponseBase:
        """Record the download, and send a file of a pool.

        Raises Http404 if there is no such file, or PermissionDenied if the user may not read it.
        """
        require(request, JUDGE)
        pool = self.get_queryset(request).filter(pk=pool_id).first()
        if pool is None or form not in pool.files:
            raise Http404
        if form not in disclosure.downloadable_forms(pool, request.user):
            raise PermissionDenied
        with acting(curator(request)):
            path, name = record_download(pool, form)
        kind = "csv" if form == "csv" else "plain"
        return send_private(path, name, f"text/{kind}; charset=utf-8")


#: Maximum number of conflicts that a page lists.
MAX_CONFLICTS = 100


class JudgementUploadForm(DatasetForm):
    """Form for a file of judgments and its origin."""

    file = forms.FileField(
        label="Judgments",
        help_text="TREC qrels, BEIR’s tab-separated format, or a pool’s CSV with grades; plain, .gz, .zst or .bz2. "
        "Empty and negative grades mean unjudged. Labels of answers are JSON Lines.",
    )
    judge_kind = forms.ChoiceField(
        label="Judged by", choices=imports.JudgeKind.choices, initial=imports.JudgeKind.PEOPLE, widget=forms.RadioSelect
    )
    judge_name = text_line(
        label="Name", max_length=80, required=False,
        help_text="Name of the assessors (“NIST assessors”) or the model, shown on the board and in exports. Leave it "
        "empty for labels of answers: their file names the judges.",
    )  # fmt: skip
    judge_version = optional_text(
        label="Version of the model", max_length=80, help_text="Version as published, for example 2024-08-06"
    )
    judge_prompt = text_line(
        label="SHA-256 of its prompt",
        max_length=64,
        required=False,
        help_text="64 hexadecimal digits, so that others can verify that they use the same prompt",
    )
    scale_grew = tick_box(
        label="Accept higher grades",
        help_text="Accept grades above the highest existing one, which are otherwise rejected as mistakes",
    )
    strict = tick_box(help_text="Reject judgments of documents that are not in the corpus. Default: count them.")
    pool = forms.ModelChoiceField(
        queryset=Pool.objects.filter(state=Pool.State.READY).select_related("dataset"),
        required=False,
        help_text="The judged pool. The board marks the runs that contributed to it.",
    )
    note = text_line(
        max_length=300, required=False, help_text="Origin of the judgments, shown publicly with their new version"
    )


class SettleForm(ReasonForm):
    """Form for the decision on an import."""

    policy = optional_choice(
        label="If grades disagree",
        choices=imports.Conflicts.choices,
        initial=imports.Conflicts.KEEP,
        widget=forms.RadioSelect,
    )


@admin.register(JudgementImport)
class JudgementImportAdmin(JudgingAdmin):
    """Admin of judgment imports."""

    list_display = ("file_name", "dataset", "state", "new_pairs", "conflicts", "created_by", "created_at")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("dataset", "created_by")
    search_fields = ("file_name", "note", "dataset__name", "dataset__slug")
    task_pages = (("Import judgments", "admin:leaderboard_judgementimport_bring", (JUDGE,)),)

    pages: ClassVar = {"bring": "bring/"}
    pending = ("judgment import ready to merge", "judgment imports ready to merge", "?state__exact=ready")

    @admin.display(description="new pairs")
    def new_pairs(self, judgement_import: JudgementImport) -> str:
        return _visible_count(judgement_import, "new")

    @admin.display(description="conflicts")
    def conflicts(self, judgement_import: JudgementImport) -> str:
        """Return the number of pairs that already have a different grade."""
        return _visible_count(judgement_import, "conflicts")

    def get_queryset(self, request: HttpRequest) -> QuerySet[JudgementImport]:
        related = ("dataset", "against", "qrels", "pool", "created_by")
        return super().get_queryset(request).select_related(*related)

    def bring_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form of *Import judgments*; on POST, store the file and redirect to the import, or list problems."""
        require(request, JUDGE)
        dataset = selected_dataset(request)
        form = JudgementUploadForm(
            request.POST or None,
            request.FILES or None,
            initial={"dataset": dataset.slug if dataset else None, "pool": request.GET.get("pool")},
        )

        def act(values: Mapping[str, Any]) -> str:
            """Store the uploaded judgments, and return the URL of the import's page."""
            options = {name: values[name] for name in ("note", "pool", "scale_grew", "strict")}
            judge = Judge(*(values[f"judge_{name}"] for name in Judge._fields))
            judge = judge._replace(prompt=judge.prompt.lower())
            dataset, file = values["dataset"], values["file"]
            judgement_import = imports.import_judgements(dataset, uploaded_path(file), judge, name=file.name, **options)
            return reverse("admin:leaderboard_judgementimport_change", args=[judgement_import.pk])

        redirect, problems = submit(request, form, act, JudgingRefused)
        return redirect or curation_page(
            request, self, "admin/leaderboard/judgementimport/bring.html", "Import judgments", problems=problems,
            problems_note="The file was not stored:", form=form,
        )  # fmt: skip

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show an import with its comparison; on POST, discard it, compare it again, or request the merge."""
        judgement_import = self.get_row(request, object_id)
        form = SettleForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                with acting(curator(request), form.cleaned_data["why"]):
                    if "discard" in request.POST:
                        imports.discard_import(judgement_import)
                        messages.success(request, "The import was discarded without changes.")
                    elif "again" in request.POST:
                        imports.compare_again(judgement_import)
                    else:
                        policy = form.cleaned_data["policy"] or imports.Conflicts.KEEP
                        imports.request_merge(judgement_import, imports.Conflicts(policy))
            except JudgingRefused as error:
                messages.error(request, str(error))
            return HttpResponseRedirect(request.path)
        return self._render(request, judgement_import, form)

    def _render(self, request: HttpRequest, judgement_import: JudgementImport, form: SettleForm) -> TemplateResponse:
        """Render an import with the counts and conflicts that the user may see; record access to hidden judgments."""
        reads, blind = request.user.has_perm(READ), disclosure.is_blind_decision(judgement_import, request.user)
        # Counts are not shown while the scorer works, because the page refreshes itself and each view is recorded.
        is_busy = judgement_import.state in imports.SCORER_STATES
        counts = {} if is_busy else disclosure.visible_counts(judgement_import, request.user)
        conflicts = list(list_conflicts(judgement_import, limit=MAX_CONFLICTS)) if "conflicts" in counts else []
        is_secret = disclosure.is_secret(judgement_import, judgement_import.against)
        if "new" in counts and reads and (conflicts or is_secret):
            with acting(curator(request)):
                disclosure.record_comparison_read(judgement_import, len(conflicts))
        rescore = get_pending_rescore(judgement_import.dataset)
        if rescore is not None and rescore.to_qrels_id != judgement_import.qrels_id:
            rescore = None
        answer = curation_page(
            request,
            self,
            "admin/leaderboard/judgementimport/import.html",
            f"Judgments: {judgement_import.file_name}",
            brought=judgement_import,
            counts=counts,
            is_labels=judgement_import.judge_kind == imports.JudgeKind.LABELS,
            form=form,
            reads=reads,
            # Only users who may read judgments see the old grades. The curator's own file contains the new ones.
            blind=blind,
            listed=[(pair.query, pair.document, pair.old if reads else None, pair.new) for pair in conflicts],
            choices=[
                (policy.value, policy.label, None if blind else imports.count_changes(judgement_import, policy))
                for policy in imports.Conflicts
            ],
            judge=imports.get_judge(judgement_import) if judgement_import.judge_name else None,
            agreement=[agreement_sentence(figures) for figures in counts.get("agreement", ())],
            refresh=REFRESH if is_busy else 0,
            rescore=rescore,
            State=imports.State,
        )
        answer["Cache-Control"] = "private, no-store"
        return answer


def _visible_count(judgement_import: JudgementImport, name: str) -> str:
    """Return a count of the import as text, or “—” if it is unknown or would reveal hidden judgments."""
    # Hidden judgments are shown only on the page of the import, which records access.
    is_secret = disclosure.is_secret(judgement_import, judgement_import.against)
    count = None if is_secret else judgement_import.counts.get(name)
    return "—" if count is None else f"{count:,}"
