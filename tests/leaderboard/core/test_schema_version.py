"""Columns that applied migrations did not add are noticed, and the repair migrations add them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from leaderboard.core import schema_version
from leaderboard.management.supervisor import site
from leaderboard.management.supervisor.processes import SupervisorError

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

REPAIRS = {
    "leaderboard_datasetversion.excluded_sha256": "leaderboard.migrations.0006_excluded_documents_column",
    "submissions_encoding.format": "submissions.migrations.0005_shard_format_column",
}


@pytest.fixture(params=REPAIRS)
def dropped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a column that the database lacks for the duration of a test."""
    table, column = request.param.split(".")
    monkeypatch.setattr(schema_version, "_is_complete", False)
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    try:
        yield request.param
    finally:
        repair(request.param)


def repair(column: str) -> None:
    """Run the repair migration, with the models in place of its state."""
    with connection.schema_editor() as editor:
        import_module(REPAIRS[column]).add_missing_column(apps, editor)


def test_a_missing_column_keeps_the_site_from_working_and_is_named_only_in_the_log(
    dropped: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert schema_version.missing_columns() == [dropped]
    assert dropped in schema_version.describe_mismatch()
    with caplog.at_level(logging.ERROR):
        answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["database"]) == (503, "another version")
    assert dropped not in answer.content.decode()
    assert dropped in caplog.text
    with pytest.raises(SupervisorError, match=dropped.partition(".")[2]):
        site._refuse_missing_columns()


def test_the_repair_adds_the_column_and_leaves_a_complete_database_alone(dropped: str) -> None:
    repair(dropped)
    assert schema_version.describe_mismatch() == ""
    table, column = dropped.split(".")
    with connection.cursor() as cursor:
        before = connection.introspection.get_table_description(cursor, table)
    assert not next(each for each in before if each.name == column).null_ok
    repair(dropped)
    with connection.cursor() as cursor:
        assert connection.introspection.get_table_description(cursor, table) == before


def test_a_complete_database_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_version, "_is_complete", False)
    assert schema_version.describe_mismatch() == ""
    monkeypatch.setattr(schema_version, "missing_columns", lambda: pytest.fail("compared again"))
    assert schema_version.describe_mismatch() == ""


def test_a_database_without_the_record_of_a_replacement_matches_the_code() -> None:
    recorder, key = MigrationRecorder(connection), ("submissions", "reworded_texts_in_one_step")
    recorder.record_unapplied(*key)
    try:
        assert schema_version.describe_mismatch() == ""
        recorder.record_unapplied("submissions", "0006_reworded_texts")
        assert ".".join(key) in schema_version.describe_mismatch()
    finally:
        for name in ("0006_reworded_texts", "reworded_texts_in_one_step"):
            recorder.record_applied("submissions", name)
