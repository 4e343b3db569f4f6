"""Tables as text: taken out, tried, and stored; alike for the admin's pages and for the commands."""

from __future__ import annotations

from typing import Any

import tablib
from django.db import transaction
from django.db.models import QuerySet

from evaluation.core.problems import number_of
from evaluation.judgements.import_file import FORMULA_STARTS
from leaderboard.admin.locking import shown
from leaderboard.admin.resources import (
    BenchmarkResource,
    CurationResource,
    DatasetResource,
    HardwareResource,
    PriceResource,
    SystemResource,
)
from leaderboard.models import Dataset
from leaderboard.results.history.revisions import lock_boards

FORMATS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
#: The tables that there are, as commands name them.
TABLES: dict[str, type[CurationResource]] = {
    "datasets": DatasetResource,
    "systems": SystemResource,
    "benchmarks": BenchmarkResource,
    "hardware": HardwareResource,
    "prices": PriceResource,
}


def table_text(resource: type[CurationResource], rows: QuerySet[Any], ending: str) -> str:
    """The rows as CSV or JSON; in CSV no cell is a formula."""
    table = resource().export(rows)
    return str((_without_formulas(table) if ending == "csv" else table).export(ending))


def try_table(
    resource: type[CurationResource], table: tablib.Dataset
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each row would change (`name`, `changes`), and everything that is wrong; nothing is stored."""
    noting = _Noting(resource)
    with transaction.atomic():
        result = noting.made.import_data(table, dry_run=True, raise_errors=False)
        transaction.set_rollback(True)
    return noting.rows, _problems_of(result)


def store_table(resource: type[CurationResource], table: tablib.Dataset) -> str:
    """Store a table that was tried; how many rows changed, in words. Within `audit.acting` and a transaction."""
    # In the order in which all boards are locked, before any row of these tables.
    lock_boards(Dataset.objects.values_list("pk", flat=True))
    result = resource().import_data(table, dry_run=False, raise_errors=True)
    changed = result.totals["new"] + result.totals["update"]
    return f"{number_of(changed, 'row')} changed, {result.totals['skip']} as before."


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
