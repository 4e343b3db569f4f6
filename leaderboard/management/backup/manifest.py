"""What a backup says of itself: what is in it, and how to tell that all of it came back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

#: Counted up when a backup of before could no longer be read.
FORMAT = 1
NAME = "manifest.json"


class BackupProblem(Exception):
    """The backup cannot be made or restored; the message says what is wrong and what would be right."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One backup. Row counts by table; files of the folder by name, with size and sha256; migrations by app."""

    made_at: str
    vendor: str
    encrypted: bool
    rows: dict[str, int]
    migrations: dict[str, list[str]]
    files: dict[str, dict[str, int | str]] = field(default_factory=dict)
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Into the backup's folder."""
        (folder / NAME).write_text(json.dumps(asdict(self), indent=1, sort_keys=True) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From a backup's folder. Raises BackupProblem."""
        try:
            found = json.loads((folder / NAME).read_text())
        except (OSError, ValueError) as error:
            raise BackupProblem(f"{folder} is no backup, or an unfinished one: it has no {NAME}.") from error
        if found.get("format") != FORMAT:
            raise BackupProblem(
                f"This backup has format {found.get('format')}; this version of the site reads {FORMAT}."
            )
        return cls(**found)


def count_rows() -> dict[str, int]:
    """How many rows every table of the database has."""
    with connection.cursor() as cursor:
        names = [
            table.name
            for table in connection.introspection.get_table_list(cursor)
            if table.type in ("t", "p")
        ]
        counts = {}
        for name in sorted(names):
            cursor.execute(f"SELECT COUNT(*) FROM {connection.ops.quote_name(name)}")  # noqa: S608
            counts[name] = int(cursor.fetchone()[0])
    return counts


def applied_migrations() -> dict[str, list[str]]:
    """The names of the migrations that the database has, by app."""
    found: dict[str, list[str]] = {}
    for app, name in sorted(MigrationRecorder(connection).applied_migrations()):
        found.setdefault(app, []).append(name)
    return found
