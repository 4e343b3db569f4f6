"""The database out of and into one file: SQLite's own copy, or PostgreSQL's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.db import connection, transaction

from leaderboard.core.schema_version import recorded_migrations
from leaderboard.management.backup.archives import BackupProblem, Writer


def copy_database(scratch: Path, write_out: Any) -> dict[str, int]:
    """Have a writer of a consistent copy called by `write_out(writer)`, and return the rows by table in that copy."""
    return _copy_sqlite(scratch, write_out) if connection.vendor == "sqlite" else _copy_postgresql(write_out)


def _copy_sqlite(scratch: Path, write_out: Any) -> dict[str, int]:
    copy = scratch / "copy.sqlite3"
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(copy)])
    copy.chmod(0o600)

    def write(stream: BinaryIO) -> None:
        with copy.open("rb") as file:
            shutil.copyfileobj(file, stream, 1 << 20)

    write_out(write)
    return _rows_of(copy)


def _rows_of(path: Path) -> dict[str, int]:
    import sqlite3

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as copy:
        tables = copy.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
        names = sorted(name for (name,) in tables)
        return {name: copy.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in names}  # noqa: S608


def _copy_postgresql(write_out: Any) -> dict[str, int]:
    """pg_dump and our counts see the same moment: it dumps the snapshot that this transaction exports."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            snapshot = cursor.fetchone()[0]
        rows = count_rows()
        arguments = ["--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}"]
        write_out(_output_of([_tool("pg_dump"), *arguments], _connection()))
    return rows


def _output_of(arguments: list[str], environment: Mapping[str, str]) -> Writer:
    def write(stream: BinaryIO) -> None:
        with subprocess.Popen(
            arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            shutil.copyfileobj(process.stdout, stream, 1 << 20)
            complaint = process.stderr.read().decode(errors="replace") if process.stderr else ""
        if process.returncode:
            raise BackupProblem(f"pg_dump failed: {complaint.strip()[-500:]}")

    return write


def is_empty() -> bool:
    """Whether the database has no table yet."""
    with connection.cursor() as cursor:
        return not connection.introspection.table_names(cursor)


def put_database(source: Path) -> None:
    """Fill the empty database from a copy. Raises BackupProblem."""
    if connection.vendor == "sqlite":
        target = Path(str(connection.settings_dict["NAME"]))
        connection.close()
        for ending in ("", "-wal", "-shm"):
            target.with_name(target.name + ending).unlink(missing_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o600)
        return
    options = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    restored = subprocess.run(
        [_tool("pg_restore"), *options, f"--dbname={connection.settings_dict['NAME']}", str(source)],
        env=_connection(),
        capture_output=True,
        text=True,
        check=False,
    )
    if restored.returncode:
        raise BackupProblem(f"pg_restore failed: {restored.stderr.strip()[-500:]}")


def _tool(name: str) -> str:
    program = shutil.which(name, path=settings.POSTGRESQL_BIN or None)
    if program is None:
        raise BackupProblem(
            f"{name} is not here. Install PostgreSQL's client programs, not older than the server, or name their "
            "folder in POSTGRESQL_BIN."
        )
    return program


def _connection() -> dict[str, str]:
    """The environment by which PostgreSQL's programs find the database: no password is on a command line."""
    database = connection.settings_dict
    variables = {
        "PGDATABASE": database["NAME"],
        "PGUSER": database["USER"],
        "PGPASSWORD": database["PASSWORD"],
        "PGHOST": database["HOST"] or database.get("OPTIONS", {}).get("host", ""),
        "PGPORT": database["PORT"],
    }
    return {**os.environ, **{name: str(value) for name, value in variables.items() if value}}


def count_rows() -> dict[str, int]:
    """How many rows every table of the database has."""
    with connection.cursor() as cursor:
        tables = connection.introspection.get_table_list(cursor)
        counts = {}
        for name in sorted(table.name for table in tables if table.type in ("t", "p")):
            cursor.execute(f"SELECT COUNT(*) FROM {connection.ops.quote_name(name)}")  # noqa: S608
            counts[name] = int(cursor.fetchone()[0])
    return counts


def applied_migrations() -> dict[str, list[str]]:
    """The names of the migrations that the database has, by app."""
    names: dict[str, list[str]] = {}
    for app, name in sorted(recorded_migrations()):
        names.setdefault(app, []).append(name)
    return names
