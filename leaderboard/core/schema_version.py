"""Comparison of the code with the database: migrations on both sides, and the columns of all tables."""

import functools
from collections.abc import Collection, Iterable, Sequence, Set

from django.apps import apps
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from leaderboard.core.database_grants import AUDIT_TABLE

MigrationKey = tuple[str, str]

_MAX_NAMES = 3
#: Whether this process has confirmed that all columns exist.
_is_complete = False
#: Initial migrations of the current history. A database that was created by the earlier history has the same
#: tables.
INITIAL: frozenset[MigrationKey] = frozenset(
    {
        ("leaderboard", "0001_initial"),
        ("leaderboard", "0002_append_only_audit"),
        ("submissions", "0001_initial"),
    }
)
#: A migration that every database of the earlier history has, unless it was only begun.
_EARLIER_MIGRATION = ("leaderboard", "0002_model_results")
#: Last migrations of the earlier history, and the last version that includes them.
EARLIER_LAST: frozenset[MigrationKey] = frozenset(
    {("leaderboard", "0008_approval_and_held_results_due"), ("submissions", "0009_signatures_are_nobodys")}
)
EARLIER_VERSION = "0.1.0 (commit 8b88ba7)"
#: Queries for the table and name of each column. Unlike the information schema, the catalog of PostgreSQL
#: also lists columns that the role may not read.
_COLUMNS = {
    "postgresql": "SELECT relname, attname FROM pg_namespace JOIN pg_class ON relnamespace = pg_namespace.oid "
    "JOIN pg_attribute ON attrelid = pg_class.oid WHERE nspname = ANY (current_schemas(false)) "
    "AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped",
    "sqlite": "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'",
}


@functools.cache
def known_migrations() -> dict[MigrationKey, frozenset[MigrationKey]]:
    """Return the migrations that each migration in the code replaces, by app and name."""
    migrations = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    return {key: frozenset(migration.replaces) for key, migration in migrations.items()}


@functools.cache
def _recorder() -> MigrationRecorder:
    """Return a cached recorder: a new one lists all tables to find its own, which takes PostgreSQL a millisecond."""
    return MigrationRecorder(connection)


def recorded_migrations() -> set[MigrationKey]:
    """Return the app and name of each applied migration. Raises django.db.Error if the database is unavailable.

    A replacement is applied if all that it replaces is, even before `migrate` records it, as in Django.
    """
    applied = set(_recorder().applied_migrations())
    return applied | {key for key, replaced in known_migrations().items() if replaced and replaced <= applied}


def missing_columns() -> list[str]:
    """Return the columns of models, as `table.column`, that the database lacks. Raises django.db.Error.

    Migrations that are recorded as applied do not guarantee them: a migration may have been edited after it was
    applied.
    """
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS[connection.vendor])
        database_columns = set(cursor.fetchall())
    models = (model._meta for model in apps.get_models(include_auto_created=True))
    model_columns = {
        (meta.db_table, field.column) for meta in models if meta.managed for field in meta.local_concrete_fields
    }
    return sorted(f"{table}.{column}" for table, column in model_columns - database_columns)


def describe_missing_columns() -> str:
    """Return a sentence that names missing columns, or an empty string.

    Once a process has found none missing, it does not compare again.
    """
    global _is_complete
    columns = [] if _is_complete else missing_columns()
    _is_complete = not columns
    if not columns:
        return ""
    return (
        f"The database lacks {_shorten(columns)}, although the migrations that add them are recorded as applied. "
        "A migration was edited after it was applied: see “Missing columns” in docs/operations.md."
    )


def describe_mismatch() -> str:
    """Return a sentence about the difference between this code and the database; empty if they match.

    Raises django.db.Error if the database is unavailable.
    """
    code_migrations, database_migrations = known_migrations().keys(), recorded_migrations()
    if missing_migrations := code_migrations - database_migrations:
        return (
            describe_earlier_history()
            or f"The database lacks {_join_names(missing_migrations)}: run manage.py migrate."
        )
    apps = {app for app, _ in code_migrations}
    if unknown_migrations := {migration for migration in database_migrations if migration[0] in apps} - code_migrations:
        return (
            f"The database has {_join_names(unknown_migrations)}, which this version does not know. "
            "Upgrade the code, which is older than the database."
        )
    return describe_missing_columns()


def describe_earlier_history(recorded: Set[MigrationKey] | None = None, tables: Collection[str] | None = None) -> str:
    """Return instructions for a database of the earlier migrations in one line; empty for any other database.

    Args:
        recorded: Applied migrations, such as those of a backup. Default: those of the connected database.
        tables: Names of tables. Default: those of the connected database.
    """
    recorded = recorded_migrations() if recorded is None else recorded
    if recorded >= EARLIER_LAST:
        return (
            "The database was created by earlier migrations. Run manage.py adopt_history once: it compares the tables "
            "and changes only the migration history."
        )
    tables = connection.introspection.table_names() if tables is None else tables
    if _EARLIER_MIGRATION in recorded or (("leaderboard", "0001_initial") in recorded and AUDIT_TABLE not in tables):
        return (
            f"The database lacks {_join_names(EARLIER_LAST - recorded)}, which this version no longer has. Migrate it "
            f"with version {EARLIER_VERSION} first."
        )
    return ""


def _join_names(migrations: Iterable[MigrationKey]) -> str:
    return _shorten([f"{app}.{name}" for app, name in sorted(migrations)])


def _shorten(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + rest
