"""Tables out and in: a page that exports what the list shows, and one that shows what would change before it does."""

from __future__ import annotations

from typing import Any, ClassVar

import tablib
from django import forms
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from leaderboard.admin.base import CurationAdmin, curator
from leaderboard.admin.forms import WhyField
from leaderboard.admin.locking import shown
from leaderboard.admin.pages import curation_page
from leaderboard.admin.resources import CurationResource
from leaderboard.audit import acting
from leaderboard.board_versions import lock_boards
from leaderboard.boards.exports.spreadsheet import FORMULA_STARTS
from leaderboard.models import Dataset

FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
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

    resource: ClassVar[type[CurationResource]]
    change_list_template = "admin/curation_change_list.html"

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
        table = self.resource().export(self.get_queryset(request).order_by("pk"))
        if ending == "csv":
            table = _without_formulas(table)
        response = HttpResponse(table.export(ending), content_type=FORMATS[ending])
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
                rows, problems = self._try(table)
            if table is not None and not problems and "confirmed" in request.POST:
                return self._store(request, table, form.cleaned_data["why"])
            # Shown again the form has the text itself: what is confirmed is what was shown.
            form = TableForm(initial={"text": text, "why": form.cleaned_data["why"]})
        return curation_page(
            request, self, "admin/curation_table.html", f"Import {self.opts.verbose_name_plural}",
            problems=problems, status=400 if problems or form.errors else 200, form=form, rows=rows,
            tried=request.method == "POST" and not problems and not form.errors,
            columns=[field.column_name for field in self.resource().get_import_fields()],
        )  # fmt: skip

    def _try(self, table: tablib.Dataset) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What each row would change, and everything that is wrong; nothing is stored."""
        resource = _Noting(self.resource)
        with transaction.atomic():
            result = resource.made.import_data(table, dry_run=True, raise_errors=False)
            transaction.set_rollback(True)
        return resource.rows, _problems_of(result)

    def _store(self, request: HttpRequest, table: tablib.Dataset, why: str) -> HttpResponse:
        with transaction.atomic(), acting(curator(request), why):
            # In the order in which all boards are locked, before any row of these tables.
            lock_boards(Dataset.objects.values_list("pk", flat=True))
            result = self.resource().import_data(table, dry_run=False, raise_errors=True)
        changed = result.totals["new"] + result.totals["update"]
        self.message_user(request, f"{changed} rows changed, {result.totals['skip']} were as they are.")
        opts = self.opts
        return HttpResponseRedirect(reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist"))


class _Noting:
    """A resource that notes what each row changes while it is tried."""

    def __init__(self, resource: type[CurationResource]) -> None:
        self.rows: list[dict[str, Any]] = []
        rows = self.rows

        class Noting(resource):  # type: ignore[misc, valid-type]
            def after_save_instance(self, instance: Any, row: Any, **kwargs: Any) -> None:
                super().after_save_instance(instance, row, **kwargs)
                changes = [
                    {"field": name, "old": shown(before), "new": shown(after)}
                    for name, (before, after) in self.changed.items()
                ]
                rows.append({"name": str(instance), "changes": changes})

        self.made = Noting()


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
    found = [{"message": str(error.error), "lines": []} for error in result.base_errors]
    for number, errors in result.row_errors():
        found += [{"message": _words(error.error), "lines": [number + 1]} for error in errors]
    for row in result.invalid_rows:
        for name, messages in row.field_specific_errors.items():
            found += [{"message": f"{name}: {message}", "lines": [row.number + 1]} for message in messages]
        found += [
            {"message": message, "lines": [row.number + 1]} for message in row.non_field_specific_errors
        ]
    return found


def _words(error: BaseException) -> str:
    messages = getattr(error, "messages", None)
    return " ".join(messages) if messages else str(error)
