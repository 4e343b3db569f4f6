"""Make a backup: the database first, then the files, since rows name files and never the other way round.

What a row named when the database was copied, and none does any more, stays in the store until the files are copied.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import connection
from django.utils import timezone

from evaluation.core.files import sha256_of
from leaderboard.core.storage import shared
from leaderboard.core.storage.deletion_lock import pause_deletions
from leaderboard.core.storage.store import Area
from leaderboard.management.backup.archives import BackupProblem, FolderArchive, recipients_of, write_file
from leaderboard.management.backup.databases import applied_migrations, copy_database

#: What anyone's work is in, and what is made anew when it is missing.
STORE = ("store", "media")
MADE_ANEW = tuple(
    area.value
    for area in (Area.TOP_DOCUMENTS, Area.EXCERPTS, Area.EMBEDDINGS, Area.OPEN_QRELS, Area.WORD_INDEXES)
)
#: Whose files may be cut while they are copied: uploads that are under way, never below what their rows count.
CUT = ("store/pieces",)
#: Judgements, and the key that signs sessions.
PRIVATE = ("private", "secret-key")
#: The private files' hashes lie among them, encrypted like them.
HASHES = "hashes.json"
#: Counted up when a backup of before could no longer be read.
FORMAT = 1
NAME = "manifest.json"


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
            content = json.loads((folder / NAME).read_text())
        except (OSError, ValueError) as error:
            raise BackupProblem(f"{folder} is no backup, or an unfinished one: it has no {NAME}.") from error
        if content.get("format") != FORMAT:
            raise BackupProblem(
                f"This backup has format {content.get('format')}; this version of the site reads {FORMAT}."
            )
        return cls(**content)


def make_backup(destination: Path, recipients: Sequence[str], judgements_recipients: Sequence[str]) -> Path:
    """A new folder in `destination` with database, files and private files apart; returns it.

    The database is encrypted for the `recipients`, judgements for theirs, or else for the same; stored files, which
    are what people sent, are encrypted with the database. Without recipients nothing is: then the folder is to be
    guarded like the site's own. Raises BackupProblem.
    """
    moment = timezone.now()
    keys = recipients_of(recipients)
    private_keys = recipients_of(judgements_recipients) or keys
    folder = _new_folder(destination, moment)
    root = Path(settings.VAR)
    try:
        # A copy of SQLite's file is in the clear: it stays on the site's own disk, in a folder that is swept.
        work = root / "work"
        work.mkdir(exist_ok=True, mode=0o700)
        with pause_deletions():
            with tempfile.TemporaryDirectory(dir=work, prefix="backup-") as scratch:
                migrations = applied_migrations()
                database = folder / f"database{'.age' if keys else ''}"
                rows = copy_database(Path(scratch), lambda write: write_file(database, write, keys))
            shared.fetch_all()
            _write_folders(FolderArchive(root, STORE, MADE_ANEW, CUT), folder, "store", keys)
            _write_folders(FolderArchive(root, PRIVATE), folder, "private", private_keys)
        files: dict[str, dict[str, int | str]] = {
            path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for path in sorted(folder.iterdir())
        }
        Manifest(moment.isoformat(), connection.vendor, bool(keys), rows, migrations, files).write(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _new_folder(destination: Path, moment: datetime) -> Path:
    folder = destination / f"runboard-{moment:%Y%m%dT%H%M%SZ}"
    try:
        destination.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise BackupProblem(f"{folder} cannot be made: {error.strerror}.") from error
    return folder


def _write_folders(folders: FolderArchive, target: Path, name: str, keys: Sequence[Any]) -> None:
    """Their tar, and beside it the hashes of what went into it."""
    ending = ".age" if keys else ""
    write_file(target / f"{name}.tar{ending}", folders.write, keys)
    content = json.dumps(folders.hashes, sort_keys=True).encode()
    write_file(target / f"{name}-{HASHES}{ending}", lambda stream: stream.write(content), keys)
