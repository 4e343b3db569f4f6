"""Admin of datasets, their versions, and their judgments. `submissions.admin.datasets` extends the dataset admin.

Curators edit descriptions. Content is imported by *Import dataset*; separate pages change measures and protection.
Judgments can be read in one place only, which records each access.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.db.models import Case, Count, ForeignKey, Q, QuerySet, When
from django.db.models.functions import Lower
from django.forms import ModelChoiceField
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from evaluation.archives.compression import open_blocks
from evaluation.core.problems import format_count
from leaderboard.admin import importing
from leaderboard.admin.base import ReadOnlyAdmin, curator, folded
from leaderboard.admin.forms import CurationForm, MeasureInput, MeasuresInput, optional_share, optional_text, tick_box
from leaderboard.admin.import_form import uploaded_path
from leaderboard.admin.pages import (
    ActionRefused,
    Crumb,
    Operation,
    ReasonForm,
    curation_page,
    object_crumb,
    require,
    submit,
)
from leaderboard.admin.tables import DatasetResource, TableImportExportAdmin
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import send_private
from leaderboard.core.permissions import READS_JUDGEMENTS, conflicting_visibility_settings, may_read_judgements
from leaderboard.datasets.files import seals_queries
from leaderboard.datasets.qrels import recorded_qrels_path
from leaderboard.judgements.disclosure import may_see_counts
from leaderboard.models import Dataset, DatasetVersion, Entry, Protection, Qrels, Round
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards
from leaderboard.results.measures import RefusedMeasures, describe_shown, set_measures
from leaderboard.results.publishing.protection import CannotProtect, CannotReveal, request_change, reveal_private
from leaderboard.results.slices import set_tags
from leaderboard.systems.baselines import request_baseline_again

#: Maximum size of a tag file, which is enough for 10 tags of each of 20,000 queries.
MAX_TAGS_BYTES = 4 * 2**20
#: Permission to change what is revealed about hidden judgments.
REVEAL = "leaderboard.reveal_dataset"


class ProtectForm(ReasonForm):
    """Form for the new protection policy."""

    protection = forms.ChoiceField(choices=Protection.choices)
    share = optional_share(
        label="Public share",
        help_text="Share of judged queries that are public in a competition. Default: unchanged, or one third at "
        "first. It is drawn only once.",
    )
    although_told = tick_box(
        label="Proceed even though results were published in full",
        help_text="The private part of these results can be computed from published scores, and systems may be tuned "
        "on it. Their private scores are then not an independent check.",
    )
    although_reveals = tick_box(
        label="Proceed even though the private part becomes public",
        help_text="Leaving a competition publishes means over all judged queries. Unrevealed private scores can then "
        "be computed, and permalinks keep them.",
    )


class RevealForm(ReasonForm):
    """Form for the results to reveal the private part of."""

    round = forms.ModelChoiceField(
        queryset=Round.objects.all(), required=False, help_text="Default: all results on the board"
    )
    show_held = tick_box(
        label="Release withheld results", help_text="Include results that were not a significant change"
    )


class TagsForm(ReasonForm):
    """Form for a tag file."""

    tags = forms.FileField(
        label="Query tags",
        required=False,
        help_text="One query id and one tag per line, with a tab between them, for example `q12`, a tab, and `hard`. "
        "The file may be compressed. Leave this empty to remove all tags.",
    )


class MeasuresForm(ReasonForm):
    """Form for the primary measure and the others."""

    primary = forms.CharField(
        max_length=40, widget=MeasureInput, help_text="Measure that sorts the board, such as nDCG@10"
    )
    others = optional_text(
        max_length=400, widget=MeasuresInput, help_text="With hidden judgments, choose at most two other measures."
    )


def _protect(dataset: Dataset, values: Mapping[str, Any]) -> str:
    """Request the protection policy of the form for the dataset, and return a message."""
    request_change(
        dataset, competition=values["protection"] == Protection.COMPETITION, share=values["share"],
        although_told=values["although_told"], although_reveals=values["although_reveals"],
    )  # fmt: skip
    return f"Requested: {dataset} will use the {Protection(values['protection']).label} policy."


def _reveal(dataset: Dataset, values: Mapping[str, Any]) -> str:
    """Reveal the private part of the dataset's results, of a round or all, and return a message with their number."""
    outcome = reveal_private(dataset, values["round"], show_held=values["show_held"])
    return (
        f"{dataset}: revealed the private part of {format_count(outcome.results, 'result')}, and released "
        f"{format_count(outcome.held, 'withheld result')}."
    )


def _tag(dataset: Dataset, values: Mapping[str, Any]) -> str:
    """Replace the tags of the dataset's queries with those in the form's file, and return a message."""
    if dataset.hidden:
        raise ActionRefused(f"The queries of {dataset} cannot be tagged, because its judgments are hidden.")
    tags = values["tags"]
    path = uploaded_path(tags) if tags and not isinstance(tags, Path) else tags
    if path and any(size > MAX_TAGS_BYTES for size in accumulate(map(len, open_blocks(path)))):
        raise ActionRefused(f"The tags are longer than {MAX_TAGS_BYTES:,} bytes. Use fewer or shorter tags.")
    count = set_tags(dataset, path)
    return f"{dataset}: {format_count(count, 'query has', 'queries have')} tags."


#: Display of shares that are simple fractions.
_FRACTIONS = {round(number / of, 4): sign for sign, number, of in (
    ("¼", 1, 4), ("⅓", 1, 3), ("½", 1, 2), ("⅔", 2, 3), ("¾", 3, 4),
)}  # fmt: skip


class DatasetForm(CurationForm):
    """Form that checks visibility settings against the dataset's agreement."""

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for name, message in conflicting_visibility_settings(self.instance, cleaned).items():
            self.add_error(name, message)
        return cleaned


class DatasetAdmin(TableImportExportAdmin):
    """Admin of dataset descriptions and settings. Content and scoring change only by import."""

    form = DatasetForm
    resource = DatasetResource
    pages: ClassVar = {
        **TableImportExportAdmin.pages, "import": "import/", "imported": "<int:pk>/imported/",
        "measures": "<int:pk>/measures/",
    }  # fmt: skip
    task_pages = (("Import dataset", "admin:leaderboard_dataset_import", ("leaderboard.add_dataset",)),)
    list_display = ("name", "page", "state", "judgements", "results", "primary_measure", "version", "updated_at")
    list_filter = ("state", "hidden", "runs_only")
    list_select_related = ("current_version",)
    search_fields = ("name", "slug", "task", "domain")
    # Datasets with hosted content come first, because curators work on them. Most others only have reported results.
    ordering = (Case(When(state=Dataset.State.REPORTED, then=1), default=0), Lower("name"))
    actions = ("make_baseline", "tag_queries", "change_protection", "reveal")
    may_add = may_delete = False  # Datasets are imported, and results depend on them.
    readonly_fields = (
        "slug", "state", "judgements", "protection", "share", "runs_only", "primary_measure", "shown_measures",
        "relevance_level", "drop_self_matches", "current_version", "current_qrels", "board_revision", "created_at",
        "updated_at",
    )  # fmt: skip
    fieldsets = (
        (None, {"fields": ("name", "slug", "task", "domain", "language", "licence", "homepage")}),
        folded("Description", "description", "citation", "ir_datasets_id", "beir_name", "part_of"),
        folded("Visibility", "queries_visibility", "documents_visibility", "runs_visibility"),
        folded(
            "Hidden judgments", "daily_quota", "monthly_quota", "protection", "share",
            description="Quotas are submissions per user and per team; leave them empty for no limit. To change policy "
            "or share, use the action in the list of datasets. It draws new parts and changes all published values.",
        ),
        folded(
            "Scoring and record", "state", "judgements", "runs_only", "primary_measure", "shown_measures",
            "relevance_level", "drop_self_matches", "current_version", "current_qrels", "board_revision",
            "created_at", "updated_at",
            description="To change measures, open their page (above). To change other settings, import the dataset "
            "again with different options.",
        ),
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Dataset]:
        """Return the datasets, each with the number of its public results."""
        public_results = Count("entries", filter=Q(entries__visibility=Entry.Visibility.PUBLIC))
        return super().get_queryset(request).annotate(result_count=public_results)

    @admin.display(ordering="result_count")
    def results(self, dataset: Any) -> int:
        return int(dataset.result_count)

    def tools(self, request: HttpRequest, obj: Dataset) -> list[tuple[str, str]]:
        """Return links to the curation pages that the user may open."""
        update = f"{reverse('admin:leaderboard_dataset_import')}?dataset={obj.slug}"
        measures = reverse("admin:leaderboard_dataset_measures", args=[obj.pk])
        links = ("Update from a file", update, "add_dataset"), ("Measures", measures, "change_dataset")
        return [(words, url) for words, url, right in links if request.user.has_perm(f"leaderboard.{right}")]

    @admin.display(description="judgments", ordering="hidden")
    def judgements(self, dataset: Dataset) -> str:
        if dataset.current_qrels_id is None:
            return "—"
        return "hidden" if dataset.hidden else "open"

    @admin.display(description="public share")
    def share(self, dataset: Dataset) -> str:
        """Return the public share of a competition's judged queries, as a simple fraction if possible."""
        share = dataset.public_share
        return _FRACTIONS.get(round(share, 4), f"{share:.4g}") if share is not None else "—"

    @admin.display(description="measures")
    def shown_measures(self, dataset: Dataset) -> str:
        chips = format_html_join("", "<li>{}</li>", ((name,) for name in dataset.measures))
        return format_html('<ul class="chips">{}</ul>', chips)

    @admin.display(ordering="current_version__number")
    def version(self, dataset: Dataset) -> int | None:
        return dataset.current_version.number if dataset.current_version else None

    @admin.display(description="board")
    def page(self, dataset: Dataset) -> str:
        return format_html('<a href="/datasets/{}/">View board</a>', dataset.slug)

    @admin.action(description="Rebuild BM25 baseline", permissions=["change"])
    def make_baseline(self, request: HttpRequest, datasets: QuerySet[Dataset]) -> None:
        """Request another BM25 run for each dataset that has documents and judgments, and show their number."""
        requested = sum(request_baseline_again(dataset) for dataset in datasets)
        self.message_user(request, f"Requested {format_count(requested, 'baseline')}.")

    def get_readonly_fields(self, request: HttpRequest, obj: Dataset | None = None) -> Any:
        """Return the read-only fields, with the visibility of hidden queries if the user may not read judgments."""
        field_names = super().get_readonly_fields(request, obj)
        if obj is not None and seals_queries(obj) and not may_read_judgements(curator(request)):
            return (*field_names, "queries_visibility")
        return field_names

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return [key]

    def save_model(self, request: HttpRequest, obj: Dataset, form: Any, change: bool) -> None:
        """Save the dataset, and invalidate cached pages of it and of the datasets that it is or was a part of.

        If its language changed, request a new BM25 baseline.
        """
        whole_ids = {form.initial.get("part_of"), obj.part_of_id} if "part_of" in form.changed_data else set()
        changed_ids = {obj.pk, *whole_ids} - {None}
        lock_boards(changed_ids)
        super().save_model(request, obj, form, change)
        boards_changed(changed_ids, Kind.DESCRIPTION)
        if form.initial.get("language", obj.language) != obj.language and request_baseline_again(obj):
            self.message_user(request, "The BM25 baseline will be rebuilt for the new language.")

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: HttpRequest, **options: Any
    ) -> ModelChoiceField[Any] | None:
        """Return the form field; `part_of` offers only datasets that have no content and are not parts themselves."""
        if db_field.name == "part_of":
            options["queryset"] = Dataset.objects.filter(current_version=None, part_of=None)
        return super().formfield_for_foreignkey(db_field, request, **options)

    change_protection = Operation(
        "Change protection of hidden judgments…", REVEAL, _protect, listed=True, form=ProtectForm,
        danger=True, title="Change protection", button="Change protection", refusals=(CannotProtect,),
        explanation="Standard: the board shows means over all judged queries. Competition: the board shows a public "
        "part, and changes only for significant differences. All published values change at once after a worker has "
        "drawn the parts. Returning to standard publishes means over all queries, which reveals the private part.",
        help="Make a hidden dataset a competition (public and private part, Ladder), or return it to the standard "
        "policy.",
        guards_command=True, arguments={"protection": ""},
    )  # fmt: skip
    tag_queries = Operation(
        "Tag queries…", "leaderboard.change_dataset", _tag, form=TagsForm, title="Tag queries", button="Save tags",
        explanation="Boards with open judgments show scores for the queries of each tag. The file replaces all tags.",
        help="Replace the tags of a dataset's queries. The board shows scores for each tag.",
    )  # fmt: skip
    reveal = Operation(
        "Reveal the private part of a competition…", REVEAL, _reveal, listed=True, form=RevealForm,
        danger=True, title="Reveal the private part", button="Reveal the private part", refusals=(CannotReveal,),
        explanation="The board gets columns for the values of the private part and their difference from the public "
        "part. This cannot be undone, because permalinks keep the values.",
        help="Publish the private part of a competition's results, for a round or for all. This cannot be undone.",
        guards_command=True,
    )  # fmt: skip

    def measures_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the form for the board's measures; set them on POST, or list all problems with them."""
        require(request, "leaderboard.change_dataset")
        dataset = get_object_or_404(Dataset, pk=pk)
        others = " ".join(name for name in dataset.measures if name != dataset.primary_measure)
        form = MeasuresForm(request.POST or None, initial={"primary": dataset.primary_measure, "others": others})

        def act(values: Mapping[str, Any]) -> str:
            names = values["others"].replace(",", " ").split()
            measures = set_measures(dataset, values["primary"].strip(), names)
            self.message_user(request, describe_shown(dataset, measures))
            return reverse("admin:leaderboard_dataset_change", args=[dataset.pk])

        redirect, problems = submit(request, form, act, RefusedMeasures)
        return redirect or curation_page(
            request, self, "admin/leaderboard/dataset/measures.html", f"Measures of {dataset}",
            crumbs=[object_crumb(self, dataset)], problems=problems, form=form, dataset=dataset,
        )  # fmt: skip

    import_view = importing.import_view
    imported_view = importing.imported_view


@admin.register(DatasetVersion)
class DatasetVersionAdmin(ReadOnlyAdmin):
    """Read-only admin of imported versions."""

    list_display = ("dataset", "number", "label", "created_at")
    list_filter = (("dataset", admin.RelatedOnlyFieldListFilter),)
    list_select_related = ("dataset",)
    search_fields = ("dataset__name", "dataset__slug", "label")

    def get_fields(self, request: HttpRequest, obj: DatasetVersion | None = None) -> Any:
        """Return the fields, without statistics and checksums if the user may not read the version's hidden queries.

        Checksums could confirm a guessed text.
        """
        fields = super().get_fields(request, obj)
        if obj is None or not seals_queries(obj.dataset) or may_see_counts(obj.dataset, request.user):
            return fields
        return [name for name in fields if name != "statistics" and not str(name).endswith("_sha256")]


@admin.register(Qrels)
class QrelsAdmin(ReadOnlyAdmin):
    """Admin of the metadata of judgments. Reading them requires a separate permission and is recorded."""

    list_display = ("version", "split", "number", "note", "created_at")
    list_filter = ("version__dataset", "split")
    list_select_related = ("version__dataset",)
    search_fields = ("version__dataset__name", "version__dataset__slug", "note")
    fields = ("version", "split", "number", "note", "made_from", "sha256", "statistics", "created_at")
    pages: ClassVar = {"read": "<int:pk>/read/"}

    def get_fields(self, request: HttpRequest, obj: Qrels | None = None) -> Any:
        """Return the fields, without counts and checksum if the user may not read the hidden judgments.

        Counts by grade reveal what a merge changed, and checksums could confirm a guessed file.
        """
        fields = super().get_fields(request, obj)
        if obj is None or may_see_counts(obj.version.dataset, request.user):
            return fields
        return [name for name in fields if name not in ("statistics", "sha256")]

    def tools(self, request: HttpRequest, obj: Qrels) -> list[Crumb]:
        """Return a link to the judgments for users who may read them."""
        if not request.user.has_perm(READS_JUDGEMENTS):
            return []
        return [("Read the judgments (recorded)", reverse("admin:leaderboard_qrels_read", args=[obj.pk]))]

    def read_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        """Record the access, and send the judgments as a file. Raises PermissionDenied without the permission."""
        require(request, READS_JUDGEMENTS)
        qrels = get_object_or_404(Qrels.objects.select_related("version__dataset"), pk=pk)
        if request.method != "GET":
            raise Http404
        with acting(curator(request), request.GET.get("why", "").strip()[:300]):
            file = recorded_qrels_path(qrels)
        name = f"{qrels.version.dataset.slug}-{qrels.split}-{qrels.number}.qrels"
        return send_private(file, name, "text/plain; charset=utf-8")
