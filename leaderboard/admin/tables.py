"""Systems, publications, benchmarks, machines, and prices, and the tables that curators export and import.

Rows go through django-import-export. Each changed row is recorded, and boards follow by the domain's own functions. No
secret is in a table. Imports run within `leaderboard.core.audit.acting`.
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

from evaluation.core.problems import number_of
from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, curator
from leaderboard.admin.forms import FORM_FIELDS, TextFileField, WhyField, shown
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
    """A JSON list; an empty cell is an empty one."""

    def clean(self, value: Any, row: Any = None, **options: Any) -> list[Any]:
        items = super().clean(value) or []
        if not isinstance(items, list):
            raise ValueError('This has to be a JSON list: ["msmarco", "nq"].')
        return items

    def render(self, value: Any, obj: Any = None, **options: Any) -> str:
        return json.dumps(value or [])


class CurationResource(ModelResource):
    """Rows found by a key; unchanged ones are left alone, changed ones recorded with both values."""

    class Meta:
        clean_model_instances = True
        import_id_fields = ("slug",)

    #: Whether rows may be new: most tables are filled by the site itself.
    takes_new: ClassVar[bool] = False
    _meta: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: What the row at hand changes: column → (before, after).
        self.changed: dict[str, tuple[Any, Any]] = {}

    def get_or_init_instance(self, instance_loader: Any, row: Any) -> tuple[Any, bool]:
        """Return the row's object. Raises ValidationError if it does not exist and may not be new."""
        instance, new = super().get_or_init_instance(instance_loader, row)
        if new and not self.takes_new:
            named = ", ".join(f"{name} {row.get(name)}" for name in self._meta.import_id_fields)
            kind = self._meta.model._meta.verbose_name
            raise ValidationError(
                f"There is no {kind} with {named}. Only those that are here can be changed."
            )
        return instance, new

    def skip_row(self, instance: Any, original: Any, row: Any, import_validation_errors: Any = None) -> bool:
        """Leave out what stays as it is; note what does not."""
        columns = [field for field in self.get_import_fields() if field.attribute]
        pairs = {
            field.column_name: (_plain(field.get_value(original)), _plain(field.get_value(instance)))
            for field in columns
        }
        self.changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if original.pk is None:
            self.changed = {name: (None, pair[1]) for name, pair in pairs.items()}
        return not self.changed and not import_validation_errors

    def after_import_row(self, row: Any, row_result: Any, **kwargs: Any) -> None:
        """Keep with the result of the row what it changes."""
        row_result.changed = self.changed

    def after_save_instance(self, instance: Any, row: Any, **kwargs: Any) -> None:
        """Write down the change, and let boards follow; not in a trial, which is taken back."""
        if kwargs.get("dry_run"):
            return
        record(
            "imported table", f"{self._meta.model._meta.verbose_name} {instance}",
            dataset=instance if isinstance(instance, Dataset) else None,
            before={name: pair[0] for name, pair in self.changed.items()},
            after={name: pair[1] for name, pair in self.changed.items()},
        )  # fmt: skip
        self.follow(instance)

    def follow(self, obj: Any) -> None:
        """Update what depends on a changed row."""


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else str(value)


class DatasetResource(CurationResource):
    """Descriptions and quotas of datasets."""

    class Meta:
        model = Dataset
        fields = (
            "slug", "name", "task", "domain", "language", "licence", "homepage", "citation", "description",
            "ir_datasets_id", "beir_name", "daily_quota", "monthly_quota",
        )  # fmt: skip

    def follow(self, obj: Dataset) -> None:
        """Record a change of the board, which names the dataset, and request BM25 again if the language changed."""
        boards_changed([obj.pk], Kind.DESCRIPTION)
        if "language" in self.changed:
            request_baseline_again(obj)


class SystemResource(CurationResource):
    """Descriptions of systems."""

    training_datasets = Field("training_datasets", "training_datasets", ListWidget())
    adapted_to = Field("adapted_to", "adapted_to", ListWidget())

    class Meta:
        model = System
        fields = (
            "slug", "name", "architecture", "description", "backbone",
            *sorted(each.name for each in DECLARED_NUMBERS),
            "training_declared", "training_datasets", "adapted_to", "training_compute",
            "paper_url", "code_url", "model_url", "licence", "open_weights", "commercial_use", "closed_api",
            "participant", "authors", "year", "bibtex",
        )  # fmt: skip

    def follow(self, obj: System) -> None:
        system_changed(obj)


class HardwareResource(CurationResource):
    """Names of machines."""

    class Meta:
        model = HardwareClass
        fields = ("slug", "name")

    def follow(self, obj: HardwareClass) -> None:
        price_changed(obj)


class PriceResource(CurationResource):
    """Prices of machines per hour from a day on, including new rows."""

    takes_new = True
    hardware = Field("hardware", "hardware", ForeignKeyWidget(HardwareClass, "slug"))

    class Meta:
        model = Price
        import_id_fields = ("hardware", "valid_from")
        fields = ("hardware", "valid_from", "per_hour", "currency", "note")

    def follow(self, obj: Price) -> None:
        price_changed(obj.hardware)


class BenchmarkResource(CurationResource):
    """Benchmarks with their members in order; new rows are taken."""

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
        """Treat members as a column. Raises ValidationError if they are not a list of known datasets."""
        same = super().skip_row(instance, original, row, import_validation_errors)
        if "members" not in row:
            return same
        before = _members(original) if original.pk else []
        after = _read_members(row["members"])
        if before != after:
            self.changed["members"] = (before, after)
        return same and before == after

    def after_save_instance(self, instance: Any, row: Any, **kwargs: Any) -> None:
        """Store the members before boards are updated."""
        self.touched = _members_of(instance)
        if "members" in self.changed:
            keys = []
            for position, member in enumerate(self.changed["members"][1]):
                dataset = Dataset.objects.get(slug=member["dataset"])
                values = {**member, "dataset": dataset, "position": position}
                stored, _ = instance.members.update_or_create(dataset=dataset, defaults=values)
                keys.append(stored.pk)
            for removed in instance.members.exclude(pk__in=keys):
                removed.delete()
        super().after_save_instance(instance, row, **kwargs)

    def follow(self, obj: Benchmark) -> None:
        benchmark_changed(obj)
        boards_changed(self.touched | _members_of(obj), Kind.DESCRIPTION)


_JSON = ListWidget()


def _members(benchmark: Benchmark) -> list[dict[str, Any]]:
    rows = benchmark.members.order_by("position", "pk").select_related("dataset")
    return [{"dataset": row.dataset.slug, "counted": row.counted, "stand_ins": row.stand_ins} for row in rows]


def _read_members(text: Any) -> list[dict[str, Any]]:
    try:
        rows = _JSON.clean(text) or []
        members = [
            {
                "dataset": str(each["dataset"]),
                "counted": bool(each.get("counted", True)),
                "stand_ins": dict(each.get("stand_ins") or {}),
            }
            for each in rows
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValidationError(
            'Members are a JSON list in order: [{"dataset": "nfcorpus", "counted": true}, …].'
        ) from None
    known = set(Dataset.objects.values_list("slug", flat=True))
    unknown = [str(each["dataset"]) for each in members if each["dataset"] not in known]
    if unknown:
        raise ValidationError(f"There is no dataset {', '.join(unknown)}: give slugs of those that are here.")
    return members


FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
#: The tables that there are, as commands name them.
TABLES: dict[str, type[CurationResource]] = {
    "datasets": DatasetResource,
    "systems": SystemResource,
    "benchmarks": BenchmarkResource,
    "hardware": HardwareResource,
    "prices": PriceResource,
}
#: The largest table that is taken, in characters.
LARGEST = 2_000_000


class TableForm(forms.Form):
    """A table, first as a file, then as the text that was shown."""

    file = TextFileField(
        largest=LARGEST, help_text="CSV or JSON with the columns of an export; others stay as they are."
    )
    text = forms.CharField(required=False, widget=forms.HiddenInput, max_length=LARGEST, strip=False)
    why = WhyField()

    def clean(self) -> dict[str, Any]:
        """Return the values, with the text from wherever it came."""
        cleaned = super().clean() or {}
        cleaned["text"] = cleaned.get("file") or cleaned.get("text")
        if not cleaned["text"] and not self.errors:
            raise forms.ValidationError("Choose a file.")
        return cleaned


class ExchangeAdmin(CurationAdmin):
    """A list whose table can be taken out and brought in."""

    resource: ClassVar[type[CurationResource]]
    pages: ClassVar = {"export": "table.<str:ending>", "table": "table/"}

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        named = f"admin:{self.opts.app_label}_{self.opts.model_name}"
        ways = {
            "exports": [(ending.upper(), reverse(f"{named}_export", args=[ending])) for ending in FORMATS],
            "table_address": reverse(f"{named}_table") if self.has_change_permission(request) else "",
        }
        return super().changelist_view(request, {**(extra_context or {}), **ways})

    def export_view(self, request: HttpRequest, ending: str) -> HttpResponse:
        """Send the whole table as a file."""
        if not self.has_view_permission(request) or ending not in FORMATS:
            raise PermissionDenied
        text = table_text(self.resource, self.get_queryset(request).order_by("pk"), ending)
        name = f"{self.opts.verbose_name_plural}-{timezone.now():%Y-%m-%d}.{ending}".replace(" ", "-")
        return send_text(text, name, FORMATS[ending])

    def table_view(self, request: HttpRequest) -> HttpResponse:
        """Bring a table in: what would change is shown first, and stored when that is confirmed."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        form = TableForm(request.POST or None, request.FILES or None)
        rows: list[dict[str, Any]] = []
        problems: list[dict[str, Any]] = []
        if request.method == "POST" and form.is_valid():
            text = form.cleaned_data["text"]
            table = read_table(text)
            if table is None:
                problems = [{"message": "This is neither CSV nor JSON.", "hint": "Begin with an export."}]
            else:
                rows, problems = try_table(self.resource, table)
            if table is not None and not problems and "confirmed" in request.POST:
                with transaction.atomic(), acting(curator(request), form.cleaned_data["why"]):
                    self.message_user(request, store_table(self.resource, table))
                name = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
                return HttpResponseRedirect(reverse(name))
            # Shown again the form has the text itself: what is confirmed is what was shown.
            form = TableForm(initial={"text": text, "why": form.cleaned_data["why"]})
        return curation_page(
            request, self, "admin/curation_table.html", f"Import {self.opts.verbose_name_plural}",
            problems=problems, form=form, rows=rows,
            tried=request.method == "POST" and not problems and not form.errors,
            columns=[field.column_name for field in self.resource().get_import_fields()],
        )  # fmt: skip


def table_text(resource: type[CurationResource], rows: QuerySet[Any], ending: str) -> str:
    """Return the rows as CSV or JSON; in CSV no cell is a formula."""
    table = resource().export(rows)
    if ending == "csv":
        table = _each_cell(table, lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
    return str(table.export(ending))


def try_table(
    resource: type[CurationResource], table: tablib.Dataset
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what each row would change (`name`, `changes`), and all problems; store nothing."""
    with transaction.atomic():
        result = resource().import_data(table, dry_run=True, raise_errors=False)
        transaction.set_rollback(True)
    rows = [
        {
            "name": row.object_repr,
            "changes": [
                {"field": name, "old": shown(before), "new": shown(after)}
                for name, (before, after) in row.changed.items()
            ],
        }
        for row in result.rows
        if row.is_new() or row.is_update()
    ]
    return rows, _problems_of(result)


def store_table(resource: type[CurationResource], table: tablib.Dataset) -> str:
    """Store a table that was tried; how many rows changed, in words. Within `audit.acting` and a transaction."""
    # In the order in which all boards are locked, before any row of these tables.
    lock_boards(Dataset.objects.values_list("pk", flat=True))
    result = resource().import_data(table, dry_run=False, raise_errors=True)
    changed = result.totals["new"] + result.totals["update"]
    return f"{number_of(changed, 'row')} changed, {result.totals['skip']} as before."


def read_table(text: str) -> tablib.Dataset | None:
    """Parse a table, or return None for what is neither JSON nor CSV."""
    try:
        if text.lstrip().startswith(("[", "{")):
            return tablib.Dataset().load(text, format="json")
        table = tablib.Dataset().load(text, format="csv")
    except Exception:  # whatever tablib's readers raise for what they cannot read
        return None
    return _each_cell(table, lambda cell: cell[1:] if safe_cell(cell[1:]) == cell else cell)


def _each_cell(table: tablib.Dataset, change: Callable[[Any], Any]) -> tablib.Dataset:
    return tablib.Dataset(*(tuple(map(change, row)) for row in table[:]), headers=table.headers)


def _problems_of(result: Any) -> list[dict[str, Any]]:
    """Return all problems by line of the file (the header is line 1)."""
    problems = [{"message": str(error.error), "lines": []} for error in result.base_errors]
    for number, errors in result.row_errors():
        for each in errors:
            words = getattr(each.error, "messages", None) or [str(each.error)]
            problems.append({"message": " ".join(words), "lines": [number + 1]})
    for row in result.invalid_rows:
        for name, messages in row.field_specific_errors.items():
            problems += [{"message": f"{name}: {message}", "lines": [row.number + 1]} for message in messages]
        problems += [
            {"message": message, "lines": [row.number + 1]} for message in row.non_field_specific_errors
        ]
    return problems


class SystemAdmin(ExchangeAdmin):
    """Descriptions of systems. `submissions.admin` registers the class, with merging."""

    resource = SystemResource
    list_display = ("name", "architecture", "team", "source", "created_at")
    list_filter = ("architecture", "training_declared", "closed_api")
    list_select_related = ("team", "source")
    search_fields = ("name", "slug", "team__name")
    readonly_fields = ("slug", "team", "source", "created_at")
    may_add = may_delete = False  # systems come with submissions, and results stand on them
    # Not autocomplete_fields: select2 sets styles inline, which the CSP refuses.
    raw_id_fields = ("variant_of",)

    def boards_of(self, key: Any) -> Iterable[int]:
        return Entry.objects.filter(system=key).values_list("dataset_id", flat=True)

    def follow(self, obj: System) -> None:
        system_changed(obj)


@admin.register(Source)
class SourceAdmin(CurationAdmin):
    """Publications that reported figures come from."""

    list_display = ("key", "title", "year")
    search_fields = ("key", "title", "authors")

    def boards_of(self, key: Any) -> Iterable[int]:
        return boards_of_source(key)

    def follow(self, obj: Source) -> None:
        source_changed(obj)


class MemberInline(admin.TabularInline):
    """The datasets of a benchmark, in order."""

    model = BenchmarkMember
    extra = 0
    formfield_overrides = FORM_FIELDS


@admin.register(Benchmark)
class BenchmarkAdmin(ExchangeAdmin):
    """Benchmarks with their members."""

    resource = BenchmarkResource
    list_display = ("name", "slug", "measure", "source", "position")
    search_fields = ("name", "slug")
    prepopulated_fields = {"slug": ("name",)}
    inlines = (MemberInline,)

    def boards_of(self, key: Any) -> Iterable[int]:
        return BenchmarkMember.objects.filter(benchmark=key).values_list("dataset_id", flat=True)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the members, so that no cached page outlives them: neither theirs nor that of one taken out."""
        before = _members_of(form.instance)
        super().save_related(request, form, formsets, change)
        benchmark_changed(form.instance)
        boards_changed(before | _members_of(form.instance), Kind.DESCRIPTION)

    def delete_model(self, request: HttpRequest, obj: Benchmark) -> None:
        """Delete, so that no page goes on naming it."""
        members = _members_of(obj)
        super().delete_model(request, obj)
        boards_changed(members, Kind.DESCRIPTION)


def _members_of(benchmark: Benchmark) -> set[int]:
    return set(benchmark.members.values_list("dataset_id", flat=True))


@admin.register(HardwareClass)
class HardwareClassAdmin(ExchangeAdmin):
    """Machines, as workers found them; how they are called is the curators' to say."""

    resource = HardwareResource
    list_display = ("name", "slug", "created_at")
    search_fields = ("name", "slug")
    readonly_fields = ("slug", "details", "created_at")
    may_add = may_delete = False  # workers describe their machines, and measurements stand on them

    def boards_of(self, key: Any) -> Iterable[int]:
        return datasets_with_costs([key])

    def follow(self, obj: HardwareClass) -> None:
        price_changed(obj)


@admin.register(Measurement)
class MeasurementAdmin(ReadOnlyAdmin):
    """Measurements, which are never edited."""

    list_display = ("entry", "hardware", "protocol", "measured_at")
    list_filter = ("hardware", "protocol", "entry__dataset")
    list_select_related = ("entry__system", "entry__dataset", "hardware")
    search_fields = ("entry__system__name", "entry__dataset__name")


@admin.register(Price)
class PriceAdmin(ExchangeAdmin):
    """Prices of machines per hour, from a day on."""

    resource = PriceResource
    list_display = ("hardware", "valid_from", "per_hour", "currency", "note")
    list_filter = ("hardware",)
    list_select_related = ("hardware",)
    date_hierarchy = "valid_from"
    search_fields = ("hardware__name", "note")

    def boards_of(self, key: Any) -> Iterable[int]:
        return datasets_with_costs(Price.objects.filter(pk=key).values_list("hardware_id", flat=True))

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        """Save, so that no cached page outlives the cost."""
        super().save_model(request, obj, form, change)
        machines = {obj.hardware_id, form.initial.get("hardware")} - {None}
        for hardware in HardwareClass.objects.filter(pk__in=machines):
            price_changed(hardware)

    def delete_model(self, request: HttpRequest, obj: Price) -> None:
        """Delete, so that no cached page outlives the cost."""
        super().delete_model(request, obj)
        price_changed(obj.hardware)
