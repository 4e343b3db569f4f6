"""Pools, which are drawn from runs to be judged, and judgements that come back."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from evaluation.judgements.merge import Judge, agreement_sentence
from leaderboard.admin.base import ReadOnlyAdmin, curator, reason_of
from leaderboard.admin.forms import optional_choice, optional_integer, optional_text, text_line, tick_box
from leaderboard.admin.import_form import path_of_upload
from leaderboard.admin.pages import ReasonForm, curation_page, require, submit
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import send_private
from leaderboard.core.permissions import READS_JUDGEMENTS
from leaderboard.judgements import disclosure, imports
from leaderboard.judgements.comparing import list_conflicts
from leaderboard.judgements.pools import (
    DEEPEST,
    JudgingRefused,
    draw_again,
    eligible_runs,
    pool_file,
    request_pool,
)
from leaderboard.judgements.rescoring.campaigns import under_way
from leaderboard.models import Dataset, JudgementImport, Pool, Round, Run

JUDGE, READ = "leaderboard.judge_dataset", READS_JUDGEMENTS
#: Seconds after which a page looks again while the scorer works.
REFRESH = 4


class JudgingAdmin(ReadOnlyAdmin):
    """Pages for those who may judge datasets, and nobody else."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(JUDGE))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm(JUDGE))

    def get_row(self, request: HttpRequest, object_id: str | int) -> Any:
        """Return the row of a page. Raises PermissionDenied, or Http404 if there is none."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_queryset(request).filter(pk=self.key_of(str(object_id))).first()
        if row is None:
            raise Http404
        return row


class DatasetForm(ReasonForm):
    """A form about one dataset, which a link may have chosen already."""

    dataset = forms.ModelChoiceField(queryset=Dataset.objects.none(), to_field_name="slug")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["dataset"].queryset = self.datasets()  # type: ignore[attr-defined]

    @staticmethod
    def datasets() -> QuerySet[Dataset]:
        """Return the datasets that have queries here; others cannot be judged."""
        return Dataset.objects.filter(current_version__isnull=False).order_by("name")


def chosen_dataset(request: HttpRequest) -> Dataset | None:
    """Return the dataset that an address or a form names."""
    slug = request.POST.get("dataset") or request.GET.get("dataset")
    chosen = DatasetForm.datasets().filter(slug=slug) if slug else DatasetForm.datasets().none()
    return chosen.select_related("current_qrels", "current_version").first()


class RunChoice(forms.ModelMultipleChoiceField):
    """Runs by system, label and priority."""

    def label_from_instance(self, run: Run) -> str:
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
    runs_per_team = optional_integer(
        min_value=1,
        help_text="Only the runs of highest priority of each team or participant, for example 3. "
        "Default: as many as the round accepts, or all.",
    )
    runs = RunChoice(
        queryset=Run.objects.none(),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="Tick some to draw from exactly these.",
    )

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
    """Pools. Each has a page with its files."""

    list_display = ("__str__", "dataset", "state", "pairs", "depth", "created_by", "created_at")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("dataset", "created_by")
    search_fields = ("dataset__name", "dataset__slug")
    change_list_template = "admin/leaderboard/pool/change_list.html"

    pages: ClassVar = {"draw": "draw/", "file": "<int:pool_id>/files/<str:form>/"}

    @admin.display(description="pairs")
    def pairs(self, pool: Pool) -> str:
        """Return the number of pairs to judge."""
        # As of imports, hidden judgements are told on a page of one row alone, which records who looks.
        pairs = None if disclosure.reveals_judged(pool) else pool.statistics.get("pairs")
        return "—" if pairs is None else f"{pairs:,}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pool]:
        return super().get_queryset(request).select_related("dataset", "version", "qrels", "round")

    def draw_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form of *Draw a pool*: first the dataset, then its runs."""
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
        """Show a pool's progress, content, and files."""
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
        """Send a file of a pool to curators who may read its content, and record the download."""
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


#: So many conflicts are listed on a page.
LISTED = 100


class JudgementUploadForm(DatasetForm):
    """A file of judgements, and where they are from."""

    file = forms.FileField(
        label="Judgements",
        help_text="TREC qrels, BEIR’s tab-separated form, or a pool’s CSV with grades; .gz, .zst and .bz2 too. "
        "Empty and negative grades are not judged yet.",
    )
    judge_kind = forms.ChoiceField(
        label="Judged by",
        choices=imports.JudgeKind.choices,
        initial=imports.JudgeKind.PEOPLE,
        widget=forms.RadioSelect,
    )
    judge_name = text_line(
        label="Name",
        max_length=80,
        help_text="Of the people (“NIST assessors”) or of the model: public, on the board and in exports.",
    )
    judge_version = optional_text(
        label="Version of the model", max_length=80, help_text="As its maker calls it."
    )
    judge_prompt = text_line(
        label="SHA-256 of its prompt",
        max_length=64,
        required=False,
        help_text="64 hexadecimal digits, so that others can tell whether they asked the same.",
    )
    scale_grew = tick_box(
        label="The scale grew",
        help_text="Grades above the highest present one are meant; otherwise they are taken for slips.",
    )
    strict = tick_box(help_text="Refuse judgments of documents that the corpus lacks. Default: count them.")
    pool = forms.ModelChoiceField(
        queryset=Pool.objects.filter(state=Pool.State.READY).select_related("dataset"),
        required=False,
        help_text="Which pool was judged: the runs that fed it are marked on the board.",
    )
    note = text_line(
        max_length=300,
        required=False,
        help_text="Where they are from: public, beside the new version of the judgements.",
    )


class SettleForm(ReasonForm):
    """The decision on an import."""

    policy = optional_choice(
        label="Where grades disagree",
        choices=imports.Conflicts.choices,
        initial=imports.Conflicts.KEEP,
        widget=forms.RadioSelect,
    )


@admin.register(JudgementImport)
class JudgementImportAdmin(JudgingAdmin):
    """Imports of judgements."""

    list_display = ("file_name", "dataset", "state", "new_pairs", "conflicts", "created_by", "created_at")
    list_filter = ("state", ("dataset", admin.RelatedOnlyFieldListFilter))
    list_select_related = ("dataset", "created_by")
    search_fields = ("file_name", "note", "dataset__name", "dataset__slug")
    change_list_template = "admin/leaderboard/judgementimport/change_list.html"

    pages: ClassVar = {"bring": "bring/"}
    pending = (
        "judgement import waits to be merged",
        "judgement imports wait to be merged",
        "?state__exact=ready",
    )

    @admin.display(description="new pairs")
    def new_pairs(self, brought: JudgementImport) -> str:
        return _count(brought, "new")

    @admin.display(description="conflicts")
    def conflicts(self, brought: JudgementImport) -> str:
        """Return the number of pairs with another grade already."""
        return _count(brought, "conflicts")

    def get_queryset(self, request: HttpRequest) -> QuerySet[JudgementImport]:
        related = ("dataset", "against", "qrels", "pool", "created_by")
        return super().get_queryset(request).select_related(*related)

    def bring_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form of *Import judgements*, store the file, or list its problems."""
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
        """Show an import with its comparison, or settle it."""
        brought = self.get_row(request, object_id)
        form = SettleForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                with acting(curator(request), form.cleaned_data["why"]):
                    if "discard" in request.POST:
                        imports.discard_import(brought)
                        messages.success(request, "Thrown away: nothing changed.")
                    elif "again" in request.POST:
                        imports.compare_again(brought)
                    else:
                        policy = form.cleaned_data["policy"] or imports.Conflicts.KEEP
                        imports.request_merge(brought, imports.Conflicts(policy))
            except JudgingRefused as error:
                messages.error(request, str(error))
            return HttpResponseRedirect(request.path)
        return self._page(request, brought, form)

    def _page(self, request: HttpRequest, brought: JudgementImport, form: SettleForm) -> TemplateResponse:
        reads, blind = request.user.has_perm(READ), disclosure.is_blind_decision(brought, request.user)
        # Nothing is told while the scorer is at it: the page looks again by itself, and each look is recorded.
        counts = {} if brought.state in imports.WORKING else disclosure.visible_counts(brought, request.user)
        listed = list(list_conflicts(brought, limit=LISTED)) if "conflicts" in counts else []
        if "new" in counts and reads and (listed or disclosure.is_secret(brought, brought.against)):
            with acting(curator(request)):
                disclosure.record_comparison_read(brought, len(listed))
        rescore = under_way(brought.dataset)
        if rescore is not None and rescore.to_qrels_id != brought.qrels_id:
            rescore = None
        answer = curation_page(
            request, self, "admin/leaderboard/judgementimport/import.html", f"Judgements: {brought.file_name}",
            brought=brought, counts=counts, of_file=brought.counts, form=form, reads=reads, blind=blind,
            # Grades of judgements are for those who may read them; the new ones the curator has brought.
            listed=[(each.query, each.document, each.old if reads else None, each.new) for each in listed],
            choices=[
                (each.value, each.label, None if blind else imports.count_changes(brought, each))
                for each in imports.Conflicts
            ],
            judge=imports.get_judge(brought) if brought.judge_name else None,
            agreement=[agreement_sentence(each) for each in counts.get("agreement", ())],
            refresh=REFRESH if brought.state in imports.WORKING else 0, rescore=rescore, State=imports.State,
        )  # fmt: skip
        answer["Cache-Control"] = "private, no-store"
        return answer


def _count(brought: JudgementImport, name: str) -> str:
    # Hidden judgements are told on the import's own page alone, which records who looks.
    count = None if disclosure.is_secret(brought, brought.against) else brought.counts.get(name)
    return "—" if count is None else f"{count:,}"
