"""Tables as text, out and in: pages of lists that export them, and show what would change before it does.

The commands of the same name use the functions below.
"""

from __future__ import annotations

from typing import Any, ClassVar

import tablib
from django import forms
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from evaluation.core.problems import number_of
from evaluation.judgements.import_file import FORMULA_STARTS
from leaderboard.admin import resources
from leaderboard.admin.base import CurationAdmin, curator
from leaderboard.admin.forms import WhyField
from leaderboard.admin.locking import shown
from leaderboard.admin.pages import curation_page
from leaderboard.core.audit import acting
from leaderboard.models import Dataset
from leaderboard.results.board_rows.revisions import lock_boards

FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
#: The tables that there are, as commands name them.
TABLES: dict[str, type[resources.CurationResource]] = {
    "datasets": resources.DatasetResource,
    "systems": resources.SystemResource,
    "benchmarks": resources.BenchmarkResource,
    "hardware": resources.HardwareResource,
    "prices": resources.PriceResource,
}
#: The largest table that is taken, in characters.
LARGEST = 2_000_000


class TableForm(forms.Form):
    """A table, first as a file, then as the text that was shown."""

    file = forms.FileField(
        required=False, help_text="CSV or JSON with the columns of an export; others stay as they are."
    )
    text = forms.CharField(required=False, widget=forms.HiddenInput, max_length=LARGEST, strip=False)
    why = WhyField()

    def clean(self) -> dict[str, Any]:
        """The text of the table, from wherever it came. Raises ValidationError for none, and for what is no text."""
        cleaned = super().clean() or {}
        file = cleaned.get("file")
        if file is not None:
            if file.size > LARGEST:
                raise forms.ValidationError(f"The table is larger than {LARGEST:,} bytes: bring it in parts.")
            try:
                cleaned["text"] = file.read().decode("utf-8-sig")
            except UnicodeDecodeError:
                raise forms.ValidationError(
                    "The file is no UTF-8 text: save it as CSV (UTF-8) or JSON."
                ) from None
        if not cleaned.get("text"):
            raise forms.ValidationError("Choose a file.")
        return cleaned


class ExchangeAdmin(CurationAdmin):
    """A list whose table can be taken out and brought in."""

    resource: ClassVar[type[resources.CurationResource]]

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, those of exports, and the import's."""
        named = f"{self.opts.app_label}_{self.opts.model_name}"
        view = self.admin_site.admin_view
        return [
            path("table.<str:ending>", view(self.export_view), name=f"{named}_export"),
            path("table/", view(self.table_view), name=f"{named}_table"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """The list, with the ways out and in."""
        named = f"admin:{self.opts.app_label}_{self.opts.model_name}"
        ways = {
            "exports": [(ending.upper(), reverse(f"{named}_export", args=[ending])) for ending in FORMATS],
            "table_address": reverse(f"{named}_table") if self.has_change_permission(request) else "",
        }
        return super().changelist_view(request, {**(extra_context or {}), **ways})

    def export_view(self, request: HttpRequest, ending: str) -> HttpResponse:
        """The whole table as a file."""
        if not self.has_view_permission(request) or ending not in FORMATS:
            raise PermissionDenied
        text = table_text(self.resource, self.get_queryset(request).order_by("pk"), ending)
        response = HttpResponse(text, content_type=FORMATS[ending])
        name = f"{self.opts.verbose_name_plural}-{timezone.now():%Y-%m-%d}.{ending}".replace(" ", "-")
        response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
        return response

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


def table_text(resource: type[resources.CurationResource], rows: QuerySet[Any], ending: str) -> str:
    """The rows as CSV or JSON; in CSV no cell is a formula."""
    table = resource().export(rows)
    return str((_without_formulas(table) if ending == "csv" else table).export(ending))


def try_table(
    resource: type[resources.CurationResource], table: tablib.Dataset
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each row would change (`name`, `changes`), and everything that is wrong; nothing is stored."""
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


def store_table(resource: type[resources.CurationResource], table: tablib.Dataset) -> str:
    """Store a table that was tried; how many rows changed, in words. Within `audit.acting` and a transaction."""
    # In the order in which all boards are locked, before any row of these tables.
    lock_boards(Dataset.objects.values_list("pk", flat=True))
    result = resource().import_data(table, dry_run=False, raise_errors=True)
    changed = result.totals["new"] + result.totals["update"]
    return f"{number_of(changed, 'row')} changed, {result.totals['skip']} as before."


def read_table(text: str) -> tablib.Dataset | None:
    """The table that the text is; None for what is neither JSON nor CSV."""
    try:
        if text.lstrip().startswith(("[", "{")):
            return tablib.Dataset().load(text, format="json")
        table = tablib.Dataset().load(text, format="csv")
    except Exception:  # whatever tablib's readers raise for what they cannot read
        return None
    plain = tablib.Dataset(headers=table.headers)
    for row in table[:]:
        plain.append([_unquoted(cell) for cell in row])
    return plain


def _without_formulas(table: tablib.Dataset) -> tablib.Dataset:
    safe = tablib.Dataset(headers=table.headers)
    for row in table[:]:
        safe.append([f"'{cell}" if str(cell).startswith(FORMULA_STARTS) else cell for cell in row])
    return safe


def _unquoted(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA_STARTS) else cell


def _problems_of(result: Any) -> list[dict[str, Any]]:
    """Everything that is wrong, by line of the file (the head is line 1)."""
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
