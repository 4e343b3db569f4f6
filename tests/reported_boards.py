"""The boards of papers for tests that need some, and do not ask how they came: copied after the first time.

Loading them takes half a second each time, which some hundred tests would wait for. The boards of current figures are
left out of most tests, because they are twenty times as large. What the loader itself does is asked where
`leaderboard.importing.reported.loader` is called by its own name.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

from django.apps import apps
from django.db import connection, transaction
from django.db.models import Model

from leaderboard.importing.reported import loader, tables

#: With and without current figures, by table what the loader wrote: COPY's text on PostgreSQL, rows on SQLite.
_kept: dict[bool, dict[str, Any]] = {True: {}, False: {}}


@transaction.atomic
def load_reported(*, current: bool = False) -> None:
    """Put the boards of papers, or all, into a database that has none of their kind; load them where it has."""
    before, kept = _counts(), _kept[current]
    if kept and not any(before[table] for table in kept):
        for table, content in kept.items():
            _put(table, content)
        return
    with mock.patch.object(tables, "FOLDERS", tables.FOLDERS if current else (tables.DATA,)):
        loader.load_reported()
    written = [table for table, count in _counts().items() if count != before[table]]
    if not kept and not any(before[table] for table in written):
        kept.update({table: _take(table) for table in written})


def _models() -> dict[str, type[Model]]:
    return {model._meta.db_table: model for model in apps.get_app_config("leaderboard").get_models(True)}


def _counts() -> dict[str, int]:
    asked = " UNION ALL ".join(f"SELECT '{table}', COUNT(*) FROM \"{table}\"" for table in _models())
    with connection.cursor() as cursor:
        cursor.execute(asked)
        return dict(cursor.fetchall())


def _take(table: str) -> Any:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.cursor.copy(f'COPY "{table}" TO STDOUT') as copy:
                return b"".join(bytes(piece) for piece in copy)
        cursor.execute(f'SELECT * FROM "{table}"')
        return cursor.fetchall()


def _put(table: str, content: Any) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.cursor.copy(f'COPY "{table}" FROM STDIN') as copy:
                copy.write(content)
            key = _models()[table]._meta.pk
            if key is not None and key.get_internal_type().endswith("AutoField"):
                sequence = f"pg_get_serial_sequence('\"{table}\"', '{key.column}')"
                cursor.execute(f'SELECT setval({sequence}, (SELECT MAX("{key.column}") FROM "{table}"))')
        else:
            places = ", ".join(["%s"] * len(content[0]))
            cursor.executemany(f'INSERT INTO "{table}" VALUES ({places})', content)
