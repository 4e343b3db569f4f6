"""Admin of systems, publications, benchmarks, machines and prices, and tables for export and import.

Tables use django-import-export and contain no secrets. Each changed row is recorded, and boards are updated. Imports
run within `leaderboard.core.audit.acting`.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import tablib
from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from import_export.fields import Field
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, JSONWidget

from evaluation.core.problems import format_count
from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, curator, folded
from leaderboard.admin.forms import FORM_FIELDS, MeasureInput, TextFileField, WhyField, display_value
from leaderboard.admin.pages import curation_page
from leaderboard.core.audit import acting, record
from leaderboard.core.http.downloads import send_text
from leaderboard.core.text.plain import safe_cell
from leaderboard.models import (
    DECLARED_NUMBERS,
    Benchmark,
    BenchmarkMember,
    Dataset,
    Entry,
    HardwareClass,
    Measurement,
    Price,
    Source,
    System,
)
from leaderboard.results.board_rows.revisions import Kind, benchmark_changed, boards_changed, lock_boards
from leaderboard.results.efficiency import datasets_with_costs, price_changed
from leaderboard.results.publishing.descriptions import boards_of_source, source_changed, system_changed
from leaderboard.systems.baselines import request_baseline_again


class ListWidget(JSONWidget):
    """A JSON list; an empty cell is an empty list."""

    def clean(self, value: Any, row: Any = None, **options: Any) -> list[Any]:
        items = super().clean(value) or []
        if not isinstance(items, list):
            raise ValueError('Enter a JSON list, such as ["msmarco", "nq"].')
        return items

    def render(self, value: Any, obj: Any = None, **options: Any) -> str:
        return json.dumps(value or [])


class CurationResource(ModelResource):
    """A table with a key for each row; imports skip unchanged rows and record changed ones."""

    class Meta:
        clean_model_instances = True
        import_id_fields = ("slug",)

    #: Whether imports may create rows; in most tables only the site does.
    takes_new: ClassVar[bool] = False
    _meta: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: Changes of the current row: column → (before, after).
        self.changed: dict[str, tuple[Any, Any]] = {}

    def get_or_init_instance(self, instance_loader: Any, row: Any) -> tuple[Any, bool]:
        """Return the row's object. Raises ValidationError if it does not exist and new rows are not allowed."""
        instance, is_new = super().get_or_init_instance(instance_loader, row)
        if is_new and not self.takes_new:
            identifiers = ", ".join(f"{name} {row.get(name)}" for name in self._meta.import_id_fields)
            kind = self._meta.model._meta.verbose_name
            raise ValidationError(f"There is no {kind} with {identifiers}. Only existing rows can be changed.")
        return instance, is_new

    def skip_row(self, instance: Any, original: Any, row: Any, import_validation_errors: Any = None) -> bool:
        """Return whether the row is valid and unchanged, and remember its changes."""
        columns = [field for field in self.get_import_fields() if field.attribute]
        before, after = (
            {field.column_name: _plain_value(field.get_value(row)) for field in columns} for row in (original, instance)
        )
        is_new = original.pk is None
        self.changed = {
            name: (None if is_new else before[name], value)
            for name, value in after.items()
            if is_new or before[name] != value
        }
        return not self.changed and not import_validation_errors

    def after_import_row(self, row: Any, row_result: Any, **kwargs: Any) -> None:
        row_result.changed = self.changed

    def after_save_instance(self, instance: Any, row: Any, **kwargs: Any) -> None:
        """Record the change and update dependents, except in a dry run, which is rolled back."""
        if kwargs.get("dry_run"):
            return
        record(
            "imported table", f"{self._meta.model._meta.verbose_name} {instance}",
            dataset=instance if isinstance(instance, Dataset) else None,
            before={name: pair[0] for name, pair in self.changed.items()},
            after={name: pair[1] for name, pair in self.changed.items()},
        )  # fmt: skip
        self.update_dependents(instance)

    def update_dependents(self, obj: Any) -> None:
        """Update everything that depends on a changed row."""


def _plain_value(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else str(value)


class DatasetResource(CurationResource):
    """Table of dataset descriptions and quotas."""

    class Meta:
        model = Dataset
        fields = (
            "slug", "name", "task", "domain", "language", "licence", "homepage", "citation", "description",
            "ir_datasets_id", "beir_name", "daily_quota", "monthly_quota",
        )  # fmt: skip

    def update_dependents(self, obj: Dataset) -> None:
        """Invalidate cached pages that name the dataset, and request a new BM25 baseline if the language changed."""
        boards_changed([obj.pk], Kind.DESCRIPTION)
        if "language" in self.changed:
            request_baseline_again(obj)


class SystemResource(CurationResource):
    """Table of system descriptions."""

    training_datasets = Field("training_datasets", "training_datasets", ListWidget())
    adapted_to = Field("adapted_to", "adapted_to", ListWidget())

    class Meta:
        model = System
        fields = (
            "slug", "name", "architecture", "description", "backbone",
            *sorted(number.name for number in DECLARED_NUMBERS),
            "training_declared", "training_datasets", "adapted_to", "training_compute",
            "paper_url", "code_url", "model_url", "licence", "open_weights", "commercial_use", "closed_api",
            "participant", "authors", "year", "bibtex",
        )  # fmt: skip

    def update_dependents(self, obj: System) -> None:
        system_changed(obj)


class HardwareResource(CurationResource):
    """Table of machine names."""

    class Meta:
        model = HardwareClass
        fields = ("slug", "name")

    def update_dependents(self, obj: HardwareClass) -> None:
        price_changed(obj)


class PriceResource(CurationResource):
    """Table of hourly prices of machines by starting day; new rows are allowed."""

    takes_new = True
    hardware = Field("hardware", "hardware", ForeignKeyWidget(HardwareClass, "slug"))

    class Meta:
        model = Price
        import_id_fields = ("hardware", "valid_from")
        fields = ("hardware", "valid_from", "per_hour", "currency", "note")

    def update_dependents(self, obj: Price) -> None:
        price_changed(obj.hardware)


class BenchmarkResource(CurationResource):
    """Table of benchmarks with their members in order; new rows are allowed."""

    takes_new = True
    source = Field("source", "source", ForeignKeyWidget(Source, "key"))
    efficiency_from = Field("efficiency_from", "efficiency_from", ForeignKeyWidget(Dataset, "slug"))
    members = Field(None, "members")

    class Meta:
        model = Benchmark
        fields = (
            "slug", "name", "description", "citation", "measure", "source", "efficiency_from", "position", "members",
        )  # fmt: skip

    def dehydrate_members(self, benchmark: Benchmark) -> str:
        return _JSON.render(_members(benchmark))

    def skip_row(self, instance: Any, original: Any, row: Any, import_validation_errors: Any = None) -> bool:
        """Return whether the row and its members are valid and unchanged, and remember their changes.

        Raises ValidationError if the members are not a list of known datasets.
        """
        is_unchanged = super().skip_row(instance, original, row, import_validation_errors)
        if "members" not in row:
            return is_unchanged
        before = _members(original) if original.pk else []
        after = _read_members(row["members"])
        if before != after:
            self.changed["members"] = (before, after)
        return is_unchanged and before == after

    def after_save_instance(self, instance: Any, row: Any, **kwargs: Any) -> None:
        """Store changed members, and delete removed ones; then record the change and update boards."""
        self.previous_member_ids = _member_ids(instance)
        if "members" in self.changed:
            keys = []
            for position, member in enumerate(self.changed["members"][1]):
                dataset = Dataset.objects.get(slug=member["dataset"])
                values = {**member, "dataset": dataset, "position": position}
                stored, _ = instance.members.update_or_create(dataset=dataset, defaults=values)
                keys.append(stored.pk)
            for member_row in instance.members.exclude(pk__in=keys):
                member_row.delete()
        super().after_save_instance(instance, row, **kwargs)

    def update_dependents(self, obj: Benchmark) -> None:
        benchmark_changed(obj)
        boards_changed(self.previous_member_ids | _member_ids(obj), Kind.DESCRIPTION)


_JSON = ListWidget()


def _members(benchmark: Benchmark) -> list[dict[str, Any]]:
    rows = benchmark.members.order_by("position", "pk").select_related("dataset")
    return [{"dataset": row.dataset.slug, "counted": row.counted, "stand_ins": row.stand_ins} for row in rows]


def _read_members(text: Any) -> list[dict[str, Any]]:
    """Return the members in a JSON cell. Raises ValidationError if they are not a list of known datasets."""
    try:
        rows = _JSON.clean(text) or []
        members = [
            {
                "dataset": str(row["dataset"]),
                "counted": bool(row.get("counted", True)),
                "stand_ins": dict(row.get("stand_ins") or {}),
            }
            for row in rows
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValidationError(
            'Enter members as an ordered JSON list: [{"dataset": "nfcorpus", "counted": true}, …].'
        ) from None
    known_slugs = set(Dataset.objects.values_list("slug", flat=True))
    unknown_slugs = [str(item["dataset"]) for item in members if item["dataset"] not in known_slugs]
    if unknown_slugs:
        raise ValidationError(f"There is no dataset {', '.join(unknown_slugs)}. Use slugs of existing datasets.")
    return members


FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
#: Tables by their names in commands.
TABLES: dict[str, type[CurationResource]] = {
    "datasets": DatasetResource, "systems": SystemResource, "benchmarks": BenchmarkResource,
    "hardware": HardwareResource, "prices": PriceResource,
}  # fmt: skip
#: Maximum size of a table in characters.
MAX_CHARACTERS = 2_000_000


class TableForm(forms.Form):
    """Form for a table: first as a file, then as the text of its preview."""

    file = TextFileField(
        max_bytes=MAX_CHARACTERS, help_text="CSV or JSON with columns of an export; other columns stay unchanged"
    )
    text = forms.CharField(required=False, widget=forms.HiddenInput, max_length=MAX_CHARACTERS, strip=False)
    why = WhyField()

    def clean(self) -> dict[str, Any]:
        """Return the values, with the text of the file or the preview. Raises ValidationError if both are missing."""
        cleaned = super().clean() or {}
        cleaned["text"] = cleaned.get("file") or cleaned.get("text")
        if not cleaned["text"] and not self.errors:
            raise forms.ValidationError("Choose a file.")
        return cleaned


class TableImportExportAdmin(CurationAdmin):
    """Base class of lists with export and import of their table."""

    resource: ClassVar[type[CurationResource]]
    pages: ClassVar = {"export": "table.<str:ending>", "table": "table/"}

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the list, with links to exports of the table and, for users who may change rows, to its import."""
        url_prefix = f"admin:{self.opts.app_label}_{self.opts.model_name}"
        ways = {
            "exports": [(ending.upper(), reverse(f"{url_prefix}_export", args=[ending])) for ending in FORMATS],
            "table_address": reverse(f"{url_prefix}_table") if self.has_change_permission(request) else "",
        }
        return super().changelist_view(request, {**(extra_context or {}), **ways})

    def export_view(self, request: HttpRequest, ending: str) -> HttpResponse:
        """Send the whole table as CSV or JSON. Raises PermissionDenied if the user may not view it."""
        if not self.has_view_permission(request) or ending not in FORMATS:
            raise PermissionDenied
        text = table_text(self.resource, self.get_queryset(request).order_by("pk"), ending)
        name = f"{self.opts.verbose_name_plural}-{timezone.now():%Y-%m-%d}.{ending}".replace(" ", "-")
        return send_text(text, name, FORMATS[ending])

    def table_view(self, request: HttpRequest) -> HttpResponse:
        """Show the form for a table, then a preview of its changes or problems, and store it after confirmation."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        form = TableForm(request.POST or None, request.FILES or None)
        rows: list[dict[str, Any]] = []
        problems: list[dict[str, Any]] = []
        if request.method == "POST" and form.is_valid():
            text = form.cleaned_data["text"]
            table = read_table(text)
            if table is None:
                problems = [{"message": "The file is neither CSV nor JSON.", "hint": "Start from an export."}]
            else:
                rows, problems = try_table(self.resource, table)
            if table is not None and not problems and "confirmed" in request.POST:
                with transaction.atomic(), acting(curator(request), form.cleaned_data["why"]):
                    self.message_user(request, store_table(self.resource, table))
                return HttpResponseRedirect(reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"))
            # The preview contains the text, so that the curator confirms exactly the changes shown.
            form = TableForm(initial={"text": text, "why": form.cleaned_data["why"]})
        return curation_page(
            request, self, "admin/curation_table.html", f"Import {self.opts.verbose_name_plural}",
            problems=problems, form=form, rows=rows,
            tried=request.method == "POST" and not problems and not form.errors,
            columns=[field.column_name for field in self.resource().get_import_fields()],
        )  # fmt: skip


def table_text(resource: type[CurationResource], rows: QuerySet[Any], file_format: str) -> str:
    """Return the rows as CSV or JSON; formulas in CSV cells are escaped."""
    table = resource().export(rows)
    if file_format == "csv":
        table = _map_cells(table, lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
    return str(table.export(file_format))


def try_table(
    resource: type[CurationResource], table: tablib.Dataset
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the changes of new and updated rows (`name`, `changes`) and all problems, without storing anything."""
    with transaction.atomic():
        result = resource().import_data(table, dry_run=True, raise_errors=False)
        transaction.set_rollback(True)
    rows = [
        {
            "name": row.object_repr,
            "changes": [
                {"field": name, "old": display_value(before), "new": display_value(after)}
                for name, (before, after) in row.changed.items()
            ],
        }
        for row in result.rows
        if row.is_new() or row.is_update()
    ]
    problems = [{"message": str(error.error), "lines": []} for error in result.base_errors]
    for number, errors in result.row_errors():  # The header is line 1.
        for row_error in errors:
            words = getattr(row_error.error, "messages", None) or [str(row_error.error)]
            problems.append({"message": " ".join(words), "lines": [number + 1]})
    for row in result.invalid_rows:
        for name, messages in row.field_specific_errors.items():
            problems += [{"message": f"{name}: {message}", "lines": [row.number + 1]} for message in messages]
        problems += [{"message": message, "lines": [row.number + 1]} for message in row.non_field_specific_errors]
    return rows, problems


def store_table(resource: type[CurationResource], table: tablib.Dataset) -> str:
    """Store a table and return a summary, with all boards locked. Call it within `audit.acting` and a transaction."""
    # Boards are locked before any row of these tables, in the order used everywhere.
    lock_boards(Dataset.objects.values_list("pk", flat=True))
    result = resource().import_data(table, dry_run=False, raise_errors=True)
    changed_count = result.totals["new"] + result.totals["update"]
    return f"{format_count(changed_count, 'row')} changed, {result.totals['skip']} unchanged."


def read_table(text: str) -> tablib.Dataset | None:
    """Parse a table, and undo the escaping of formulas in CSV cells. Return None if it is neither JSON nor CSV."""
    try:
        if text.lstrip().startswith(("[", "{")):
            return tablib.Dataset().load(text, format="json")
        table = tablib.Dataset().load(text, format="csv")
    except Exception:  # tablib's readers raise various exceptions for malformed input.
        return None
    return _map_cells(table, lambda cell: cell[1:] if safe_cell(cell[1:]) == cell else cell)


def _map_cells(table: tablib.Dataset, change: Callable[[Any], Any]) -> tablib.Dataset:
    return tablib.Dataset(*(tuple(map(change, row)) for row in table[:]), headers=table.headers)


class SystemAdmin(TableImportExportAdmin):
    """Admin of system descriptions. `submissions.admin` registers it, with merging."""

    resource = SystemResource
    list_display = ("name", "architecture", "team", "source", "created_at")
    list_filter = ("architecture", "training_declared", "closed_api")
    list_select_related = ("team", "source")
    search_fields = ("name", "slug", "team__name")
    readonly_fields = ("slug", "team", "source", "created_at")
    fieldsets = (
        (None, {"fields": ("name", "slug", "architecture", "description", "team", "source", "created_at")}),
        folded("Training data", "training_declared", "training_datasets", "adapted_to", "training_compute"),
        folded("Model", "parameters", "backbone", *(number.name for number in DECLARED_NUMBERS), "variant_of"),
        folded(
            "Links and rights", "paper_url", "code_url", "model_url", "licence", "commercial_use", "open_weights",
            "closed_api",
        ),
        folded("Authors and citation", "participant", "authors", "year", "bibtex", "anonymous_until"),
    )  # fmt: skip
    help_texts: ClassVar = {
        "parameters": 'A JSON object, for example {"k1": 0.9}',
        "training_datasets": "Slugs or names of datasets, one per line",
        "adapted_to": "Slugs or names of datasets whose corpus was used without labels, one per line",
    }
    may_add = may_delete = False  # Submissions create systems, and results depend on them.
    # autocomplete_fields cannot be used: select2 sets inline styles, which the CSP forbids.
    raw_id_fields = ("variant_of",)

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(system=key).values_list("dataset_id", flat=True)

    def update_dependents(self, obj: System) -> None:
        system_changed(obj)


@admin.register(Source)
class SourceAdmin(CurationAdmin):
    """Admin of publications with reported figures."""

    list_display = ("title", "authors", "year", "venue")
    search_fields = ("title", "authors", "year", "venue", "key")
    ordering = ("title",)
    fields = ("title", "authors", "year", "venue", "url", "bibtex", "key")
    help_texts: ClassVar = {"key": "Name of the publication in the API and in tables, for example beir-2021"}

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return boards_of_source(key)

    def update_dependents(self, obj: Source) -> None:
        source_changed(obj)


class MemberInline(admin.TabularInline):
    """The datasets of a benchmark, in order."""

    model = BenchmarkMember
    extra = 0
    formfield_overrides = FORM_FIELDS


@admin.register(Benchmark)
class BenchmarkAdmin(TableImportExportAdmin):
    """Admin of benchmarks with their members."""

    resource = BenchmarkResource
    list_display = ("name", "slug", "measure", "source", "position")
    search_fields = ("name", "slug")
    prepopulated_fields = {"slug": ("name",)}
    inlines = (MemberInline,)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        widget = {"widget": MeasureInput} if db_field.name == "measure" else {}
        return super().formfield_for_dbfield(db_field, request, **kwargs, **widget)

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return BenchmarkMember.objects.filter(benchmark=key).values_list("dataset_id", flat=True)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the members, and invalidate cached pages of the benchmark and of its current and removed members."""
        before = _member_ids(form.instance)
        super().save_related(request, form, formsets, change)
        benchmark_changed(form.instance)
        boards_changed(before | _member_ids(form.instance), Kind.DESCRIPTION)

    def delete_model(self, request: HttpRequest, obj: Benchmark) -> None:
        """Delete the benchmark, and invalidate cached pages of its members, which name it."""
        members = _member_ids(obj)
        super().delete_model(request, obj)
        boards_changed(members, Kind.DESCRIPTION)


def _member_ids(benchmark: Benchmark) -> set[int]:
    return set(benchmark.members.values_list("dataset_id", flat=True))


@admin.register(HardwareClass)
class HardwareClassAdmin(TableImportExportAdmin):
    """Admin of machines, which workers register and curators name."""

    resource = HardwareResource
    list_display = ("name", "slug", "created_at")
    search_fields = ("name", "slug")
    readonly_fields = ("slug", "details", "created_at")
    may_add = may_delete = False  # Workers register machines, and measurements depend on them.

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return datasets_with_costs([key])

    def update_dependents(self, obj: HardwareClass) -> None:
        price_changed(obj)


@admin.register(Measurement)
class MeasurementAdmin(ReadOnlyAdmin):
    """Read-only admin of measurements."""

    list_display = ("entry", "hardware", "protocol", "measured_at")
    list_filter = ("hardware", "protocol", "entry__dataset")
    list_select_related = ("entry__system", "entry__dataset", "hardware")
    search_fields = ("entry__system__name", "entry__dataset__name")


@admin.register(Price)
class PriceAdmin(TableImportExportAdmin):
    """Admin of hourly prices of machines by starting day."""

    resource = PriceResource
    list_display = ("hardware", "valid_from", "per_hour", "currency", "note")
    list_filter = ("hardware",)
    list_select_related = ("hardware",)
    date_hierarchy = "valid_from"
    search_fields = ("hardware__name", "note")

    def get_board_ids(self, key: Any) -> Iterable[int]:
        return datasets_with_costs(Price.objects.filter(pk=key).values_list("hardware_id", flat=True))

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        """Save the price, and invalidate cached pages with costs of its machine, or of both machines if it changed."""
        super().save_model(request, obj, form, change)
        machines = {obj.hardware_id, form.initial.get("hardware")} - {None}
        for hardware in HardwareClass.objects.filter(pk__in=machines):
            price_changed(hardware)

    def delete_model(self, request: HttpRequest, obj: Price) -> None:
        """Delete the price, and invalidate cached pages with costs of its machine."""
        super().delete_model(request, obj)
        price_changed(obj.hardware)
