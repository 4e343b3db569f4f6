"""`manage.py adopt_history`: move a database of the earlier migrations to the current ones."""

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from leaderboard.core.schema_version import EARLIER_LAST, INITIAL, describe_earlier_history

SCRATCH = "adopt_history"
#: Definitions of the site's tables. Indexes and triggers are compared by their full text, which contains
#: neither a schema nor another table if `search_path` has one schema. Triggers of `database_rights` do not
#: come from migrations.
POSTGRESQL = r"""
WITH ours AS (
    SELECT oid, relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
        AND relname ~ '^(leaderboard|submissions)_'
)
SELECT format('column %s.%s %s %s not null: %s, identity: %s, default: %s', relname, attname,
    format_type(atttypid, atttypmod), attcollation::regcollation, attnotnull, attidentity, pg_get_expr(adbin, adrelid))
FROM ours JOIN pg_attribute ON attrelid = ours.oid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0 AND NOT attisdropped
UNION ALL SELECT format('constraint %s.%s %s', relname, conname, pg_get_constraintdef(pg_constraint.oid, true))
FROM ours JOIN pg_constraint ON conrelid = ours.oid
UNION ALL SELECT format('index %s', pg_get_indexdef(indexrelid, 0, true)) FROM ours JOIN pg_index ON indrelid = ours.oid
UNION ALL SELECT format('trigger %s, enabled: %s, %s', pg_get_triggerdef(pg_trigger.oid, true), tgenabled, prosrc)
FROM ours JOIN pg_trigger ON tgrelid = ours.oid JOIN pg_proc ON tgfoid = pg_proc.oid
WHERE NOT tgisinternal AND proname NOT IN ('runboard_only_kinds', 'runboard_stays_ended')
"""
#: Text casts. PostgreSQL moves the casts of `IN` after a dump was restored.
TEXT_CASTS = re.compile(r"::(character varying|text)(\[\])?")
SQLITE = r"""
SELECT type, tbl_name, sql FROM sqlite_master
WHERE sql IS NOT NULL AND (tbl_name LIKE 'leaderboard\_%' ESCAPE '\' OR tbl_name LIKE 'submissions\_%' ESCAPE '\')
"""


class Command(BaseCommand):
    """Command that compares the tables with those of the current migrations, then replaces the migration history."""

    help = (
        "Move a database of the earlier migrations to the current ones: if its tables match, record the current "
        "migrations as applied. It changes only that record. Run it as the owner of the tables."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Replace the migration history in one transaction, or report the differences between the tables."""
        recorder = MigrationRecorder(connection)
        with transaction.atomic():
            rows = recorder.migration_qs.select_for_update()
            recorded = {(row.app, row.name) for row in rows} if recorder.has_table() else set()
            if recorded >= INITIAL:
                self.stdout.write("The database has the current migrations already, so nothing was changed.")
                return
            if not recorded >= EARLIER_LAST:
                raise CommandError(
                    describe_earlier_history() or "The database has no tables yet: run manage.py migrate."
                )
            if differences := compare(describe_new_tables(), describe_tables(connection)):
                raise CommandError("The tables differ, so the database was not changed:\n  " + "\n  ".join(differences))
            rows.filter(app__in={app for app, _ in INITIAL}).delete()
            for app, name in sorted(INITIAL):
                recorder.record_applied(app, name)
        self.stdout.write("The tables match. The current migrations are now recorded as applied.")


def compare(expected: set[str], actual: set[str]) -> list[str]:
    """Return missing and unexpected definitions, one per line."""
    missing = [f"missing: {line}" for line in sorted(expected - actual)]
    return missing + [f"not expected: {line}" for line in sorted(actual - expected)]


def describe_new_tables() -> set[str]:
    """Return `describe_tables` of a new database: in memory, or a PostgreSQL schema that is rolled back."""
    scratch = connections[SCRATCH] = connection.copy(alias=SCRATCH)
    try:
        if scratch.vendor == "sqlite":
            scratch.settings_dict["NAME"] = ":memory:"
            return _migrate_and_describe(scratch)
        with transaction.atomic(using=SCRATCH):
            with scratch.cursor() as cursor:
                cursor.execute(f"CREATE SCHEMA {SCRATCH}")
                cursor.execute(f"SET LOCAL search_path TO {SCRATCH}")
            lines = _migrate_and_describe(scratch)
            transaction.set_rollback(True, using=SCRATCH)
        return lines
    finally:
        scratch.close()
        del connections[SCRATCH]


def _migrate_and_describe(scratch: BaseDatabaseWrapper) -> set[str]:
    MigrationExecutor(scratch).migrate(sorted(INITIAL))
    return describe_tables(scratch)


def describe_tables(database: BaseDatabaseWrapper) -> set[str]:
    """Return the definitions of the site's columns, constraints, indexes and triggers, one per line."""
    with database.cursor() as cursor:
        if database.vendor == "postgresql":
            cursor.execute(POSTGRESQL)
            return {TEXT_CASTS.sub("", line) for (line,) in cursor.fetchall()}
        cursor.execute(SQLITE)
        return {
            f"{kind} {table}: {part}"
            for kind, table, sql in cursor.fetchall()
            for part in (split_definitions(sql) if kind == "table" else [sql])
        }


def split_definitions(sql: str) -> list[str]:
    """Return the columns and constraints of a CREATE TABLE statement."""
    parts, depth = [""], 0
    for character in sql[sql.index("(") + 1 : sql.rindex(")")]:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
