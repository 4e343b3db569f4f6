"""A database of the earlier migrations is recognised, compared and adopted; any other is left alone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Model
from django.test import override_settings

from leaderboard.core.audit import record
from leaderboard.core.schema_version import (
    EARLIER_LAST,
    INITIAL,
    describe_earlier_history,
    describe_mismatch,
    recorded_migrations,
)
from leaderboard.management.commands import adopt_history
from leaderboard.management.supervisor import site
from leaderboard.management.supervisor.processes import SupervisorError
from leaderboard.models import AuditRecord, Benchmark
from tests.earlier_history import EARLIER, record_earlier_migrations

pytestmark = pytest.mark.database

triggers = import_module("leaderboard.migrations.0002_append_only_audit")
TABLES = {"leaderboard_auditrecord"}


@pytest.fixture(scope="module")
def built_once(django_db_setup: None, django_db_blocker: Any) -> Iterator[set[str]]:
    """A database of the earlier migrations, in a transaction around all tests; the tables of a new one.

    To take away what later migrations made takes SQLite seconds.
    """
    with django_db_blocker.unblock():
        with override_settings(MIGRATION_MODULES={}):  # with the migrations that `--nomigrations` hides
            new_tables = adopt_history.describe_new_tables()
        with rolled_back():
            build_earlier_database()
            yield new_tables


@pytest.fixture
def earlier_database(built_once: set[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The database of the tests, with the records of the earlier migrations and all triggers."""
    monkeypatch.setattr(adopt_history, "describe_new_tables", lambda: built_once)
    with rolled_back():
        yield


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction, or a part of one, of which nothing stays."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def build_earlier_database() -> None:
    """Leave no table and no column that a migration after the present first ones has made."""
    if connection.vendor == "sqlite":
        execute(*triggers.SQLITE)
    with override_settings(MIGRATION_MODULES={}):
        then = MigrationLoader(connection).project_state(sorted(INITIAL)).apps
    for model in (
        *apps.get_app_config("leaderboard").get_models(include_auto_created=True),
        *apps.get_app_config("submissions").get_models(include_auto_created=True),
    ):
        table, columns = model._meta.db_table, {field.column for field in model._meta.local_concrete_fields}
        try:
            earlier = then.get_model(model._meta.label)
        except LookupError:
            execute(f"DROP TABLE {table}{' CASCADE' if connection.vendor == 'postgresql' else ''}")
            continue
        changed = [each for each in earlier._meta.constraints if each not in model._meta.constraints]
        added = [each for each in model._meta.constraints if each not in earlier._meta.constraints]
        filled = {field.column for field in earlier._meta.local_concrete_fields if not field.null}
        filled &= {field.column for field in model._meta.local_concrete_fields if field.null}
        types = {field.column: field.db_type(connection) for field in model._meta.local_concrete_fields}
        earlier_types = {field.column: field.db_type(connection) for field in earlier._meta.local_concrete_fields}
        changed_types = {column: kind for column, kind in earlier_types.items() if types.get(column, kind) != kind}
        if (changed or changed_types or added or filled) and connection.vendor == "sqlite":
            recreate(earlier)
            continue
        execute(*(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {kind}" for column, kind in changed_types.items()))
        execute(*(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {each.name}" for each in added))
        execute(*(f"ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL" for column in filled))
        for column in columns - {field.column for field in earlier._meta.local_concrete_fields}:
            drop(table, column)
        for constraint in changed:
            execute(str(constraint.create_sql(earlier, connection.schema_editor())))
    record_earlier_migrations()


def recreate(model: type[Model]) -> None:
    """Make an empty table anew: SQLite changes no constraint that is part of a table."""
    editor = connection.schema_editor(collect_sql=True)
    editor.deferred_sql = []
    statement, _ = editor.table_sql(model)
    execute(f"DROP TABLE {model._meta.db_table}", statement)
    execute(*map(str, [*editor._model_indexes_sql(model), *editor.deferred_sql]))


def drop(table: str, column: str) -> None:
    """Drop a column with its indexes, which SQLite does not drop by itself."""
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table)
    indexes = [name for name, each in found.items() if each["index"] and column in each["columns"]]
    if connection.vendor == "sqlite":
        execute(*(f"DROP INDEX {name}" for name in indexes))
    execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def site_records() -> set[tuple[str, str]]:
    return {each for each in recorded_migrations() if each[0] in ("leaderboard", "submissions")}


def adopt() -> str:
    out = io.StringIO()
    call_command("adopt_history", stdout=out)
    return out.getvalue()


def test_an_equal_database_is_adopted_and_its_rows_stay(earlier_database: None) -> None:
    Benchmark.objects.create(slug="aardvark", name="Aardvark")
    record("tested", "nothing")
    others = recorded_migrations() - EARLIER
    assert "adopt_history" in describe_mismatch()
    assert "recorded as applied" in adopt()
    assert site_records() == INITIAL
    assert recorded_migrations() - INITIAL == others
    for said in ("The database lacks ", "leaderboard.0003", " more", "manage.py migrate"):
        assert said in describe_mismatch()
    assert Benchmark.objects.get().slug == "aardvark"
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        execute("DELETE FROM leaderboard_auditrecord")
    assert AuditRecord.objects.count() == 1
    assert "has the current migrations already" in adopt()


CHANGES = [
    ("any", "DROP INDEX leaderboard_dataset_4917e5_idx", "missing: index .*leaderboard_dataset_4917e5_idx"),
    ("any", "ALTER TABLE leaderboard_team ADD COLUMN more integer", "not expected: .*leaderboard_team.*more"),
    ("sqlite", "DROP TRIGGER audit_no_delete", "missing: trigger leaderboard_auditrecord"),
    ("sqlite", "DROP TABLE submissions_upload", "missing: table submissions_upload"),
    ("postgresql", "DROP TRIGGER audit_append_only ON leaderboard_auditrecord", "missing: trigger"),
    ("postgresql", "ALTER TABLE leaderboard_auditrecord DISABLE TRIGGER audit_append_only", "enabled: D"),
    ("postgresql", "ALTER TABLE leaderboard_team ALTER COLUMN name DROP NOT NULL", "not null: f"),
    ("postgresql", "ALTER TABLE leaderboard_team ALTER COLUMN name TYPE varchar(7)", r"varying\(7\)"),
    ("postgresql", "ALTER TABLE leaderboard_team ALTER COLUMN name SET DEFAULT 'x'", "default: 'x'"),
    ("postgresql", "ALTER TABLE leaderboard_price DROP CONSTRAINT price_not_negative", "missing: constraint"),
]  # fmt: skip


@pytest.mark.parametrize(("vendor", "statement", "said"), CHANGES)
def test_another_database_is_refused_by_what_differs(
    earlier_database: None, vendor: str, statement: str, said: str
) -> None:
    if vendor not in ("any", connection.vendor):
        pytest.skip(f"a statement of {vendor}")
    execute(statement)
    with pytest.raises(CommandError, match=f"the database was not changed(.|\n)*{said}"):
        adopt()
    assert site_records() == EARLIER


def test_rights_of_the_sites_roles_are_no_difference(earlier_database: None) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL has roles")
    from leaderboard.core import database_grants

    with connection.cursor() as cursor:
        database_grants._restrict_retrievers(cursor)
    assert "recorded as applied" in adopt()


def test_commands_and_the_site_say_what_to_do_and_change_nothing(
    earlier_database: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = describe_earlier_history()
    assert "manage.py adopt_history" in line
    assert "\n" not in line
    monkeypatch.setattr(connection, "close", lambda: None)  # the test is in a transaction
    with pytest.raises(SupervisorError) as stopped:
        site.migrations_are_pending()
    found = run_checks(databases=["default"], tags=["database"])  # what `migrate` asks first
    assert [each.msg for each in found if each.id == "leaderboard.E001"] == [str(stopped.value)] == [line]
    assert not [each for each in run_checks(tags=["database"]) if each.id == "leaderboard.E001"]
    assert site_records() == EARLIER


@pytest.mark.parametrize(
    ("recorded", "tables", "said"),
    [
        (EARLIER, TABLES, "adopt_history"),
        (EARLIER - {("submissions", "0009_signatures_are_nobodys")}, TABLES, "lacks submissions.0009_"),
        (EARLIER - EARLIER_LAST, TABLES, "lacks leaderboard.0008_approval_and_held_results_due, submissions."),
        ({("leaderboard", "0001_initial")}, {"leaderboard_team"}, "lacks leaderboard.0008_"),
        ({("leaderboard", "0001_initial")}, TABLES, ""),
        (INITIAL, TABLES, ""),
        (set(), set(), ""),
    ],
)  # fmt: skip
def test_an_older_database_is_told_which_version_to_pass_through(
    recorded: set[tuple[str, str]], tables: set[str], said: str
) -> None:
    line = describe_earlier_history(recorded, tables)
    assert (said in line) if said else (line == "")
    assert ("Migrate it with version 0.1.0 (commit 8b88ba7) first" in line) == ("lacks" in said)


@pytest.mark.parametrize("last", sorted(EARLIER_LAST))
def test_an_older_database_is_not_adopted(earlier_database: None, last: tuple[str, str]) -> None:
    MigrationRecorder(connection).record_unapplied(*last)
    with pytest.raises(CommandError, match=f"lacks {last[0]}.{last[1]}, which this version no longer has"):
        adopt()
    assert site_records() == EARLIER - {last}
