"""The audit log cannot be changed, whoever asks: not by the site's own code, and not past it."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.db import DatabaseError, connection, transaction

from leaderboard.core.audit import record
from leaderboard.models import AuditRecord

pytestmark = [pytest.mark.django_db, pytest.mark.database]

migration = import_module("leaderboard.migrations.0002_append_only_audit")
ATTEMPTS = [
    "UPDATE leaderboard_auditrecord SET reason = 'another'",
    "DELETE FROM leaderboard_auditrecord",
    "TRUNCATE leaderboard_auditrecord",
]


@pytest.fixture
def triggers() -> None:
    """Those of the migration, where it did not run or the tests took them away."""
    if connection.vendor == "sqlite":
        for statement in migration.SQLITE:
            _execute(statement)


@pytest.mark.parametrize("statement", ATTEMPTS)
def test_the_database_refuses_to_change_what_was_recorded(triggers: None, statement: str) -> None:
    if connection.vendor == "sqlite" and statement.startswith("TRUNCATE"):
        pytest.skip("SQLite has no TRUNCATE")
    kept = record("tested", "nothing")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        _execute(statement)
    record("tested", "again")  # writing goes on
    assert AuditRecord.objects.get(pk=kept.pk).reason == ""
    assert AuditRecord.objects.count() == 2


def test_no_row_takes_the_place_of_a_record(triggers: None) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has REPLACE")
    kept = record("tested", "nothing")
    columns = [field.column for field in AuditRecord._meta.concrete_fields]
    copied = ", ".join("'another'" if name == "reason" else f'"{name}"' for name in columns)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        _execute(f"INSERT OR REPLACE INTO leaderboard_auditrecord SELECT {copied} FROM leaderboard_auditrecord")
    assert AuditRecord.objects.get().reason == kept.reason


def test_the_site_itself_neither_saves_nor_deletes_a_record() -> None:
    kept = record("tested", "nothing")
    with pytest.raises(TypeError):
        kept.save()
    with pytest.raises(TypeError):
        kept.delete()


def test_the_migration_can_be_taken_back(triggers: None) -> None:
    record("tested", "nothing")
    back = migration.SQLITE_BACK if connection.vendor == "sqlite" else [migration.POSTGRESQL_BACK]
    with transaction.atomic():
        for statement in back:
            _execute(statement)
        assert AuditRecord.objects.update(reason="another") == 1
        transaction.set_rollback(True)


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
