"""Empty the database between tests, of what tests put there.

Django empties the tables of permissions and of models' names too, and fills them again with the same, which takes
nine parts in ten of the time. On PostgreSQL it truncates all tables, which makes new files for a hundred of them and
their indexes: a second each time, where a test filled three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.core.management.commands import flush
from django.db import connection
from django.db.backends.postgresql.operations import DatabaseOperations
from django.db.backends.sqlite3.base import DatabaseOperations as SQLiteOperations

#: What migrations fill, the same each time, and no test changes.
KEPT = {"auth_permission", "django_content_type"}

_truncate = DatabaseOperations.sql_flush
_delete_all = SQLiteOperations.sql_flush


def delete_rows(
    operations: DatabaseOperations,
    style: Any,
    tables: Iterable[str],
    *,
    reset_sequences: bool = False,
    allow_cascade: bool = False,
) -> list[str]:
    """What Django would do, in fewer steps; with sequences to begin anew, exactly what Django does."""
    names = sorted(set(tables) - KEPT)
    if reset_sequences or not names or not _may_leave_out_references():
        statements = _truncate(operations, style, names, reset_sequences=reset_sequences, allow_cascade=allow_cascade)
        return _without_triggers(statements) if statements and _may_leave_out_references() else statements
    return _without_triggers([f"DELETE FROM {operations.quote_name(name)};" for name in _with_rows(operations, names)])


def _without_triggers(statements: Sequence[str]) -> list[str]:
    """References are not checked meanwhile, and the one that keeps the audit log whole is not asked."""
    return [
        "SET session_replication_role = replica;", *statements, "SET session_replication_role = DEFAULT;"
    ]  # fmt: skip


def _with_rows(operations: DatabaseOperations, names: Sequence[str]) -> list[str]:
    asked = " UNION ALL ".join(
        f"SELECT '{name}' WHERE EXISTS (SELECT FROM {operations.quote_name(name)})" for name in names
    )
    with connection.cursor() as cursor:
        cursor.execute(asked)
        return [name for (name,) in cursor.fetchall()]


def _may_leave_out_references() -> bool:
    """Whether the tests are the server's superuser, as on a server of their own."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('is_superuser') = 'on'")
        return bool(cursor.fetchone()[0])


def _delete_all_but_kept(operations: SQLiteOperations, style: Any, tables: Iterable[str], **how: bool) -> list[str]:
    return _delete_all(operations, style, [name for name in tables if name not in KEPT], **how)


def empty_quickly() -> None:
    """Do so from now on."""
    DatabaseOperations.sql_flush = delete_rows  # type: ignore[method-assign]
    SQLiteOperations.sql_flush = _delete_all_but_kept  # type: ignore[method-assign]
    flush.emit_post_migrate_signal = lambda *_, **__: None
