"""Restore a backup into an empty site, and prove that all of it came back."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from evaluation.core.files import sha256_of
from leaderboard.core.schema_version import EARLIER_LAST, describe_earlier_history
from leaderboard.management.backup.archives import BackupProblem, decrypt, hashes_of, identities_in, unpack
from leaderboard.management.backup.databases import count_rows, is_empty, put_database
from leaderboard.management.backup.making import HASHES, Manifest


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What came back: rows and files that equal the backup's, and what does not (empty where all is well)."""

    rows: int
    tables: int
    files: int
    private_files: int | None
    differences: list[str]


def restore_backup(
    folder: Path, identities: Path | None, judgements_identities: Path | None
) -> RestoreResult:
    """Fill the empty database and the empty folder of state; compare rows and hashes.

    Without a key for them judgements stay out, and are said to. Raises BackupProblem: before anything is written where
    the backup is damaged, of another kind of database or too old, or the site is not empty.
    """
    manifest = Manifest.read(folder)
    _require_whole(folder, manifest)
    _require_migrations(manifest)
    _require_empty(manifest)
    root = Path(settings.VAR)
    keys = identities_in(identities) if identities else []
    private_keys = identities_in(judgements_identities) if judgements_identities else keys
    with tempfile.TemporaryDirectory(dir=root, prefix=".restoring-") as name:
        scratch = Path(name)
        database = _decrypted(folder, "database", scratch, keys)
        store = _decrypted(folder, "store.tar", scratch, keys)
        store_hashes = _decrypted(folder, f"store-{HASHES}", scratch, keys)
        if database is None or store is None or store_hashes is None:
            raise BackupProblem("The backup is encrypted: name the file with the key (--identity).")
        private = _decrypted(folder, "private.tar", scratch, private_keys)
        private_hashes = _decrypted(folder, f"private-{HASHES}", scratch, private_keys)
        put_database(database)
        unpack(store, root)
        differences = _compare_rows(manifest)
        files, found = _compare_files(root, store_hashes)
        differences += found
        private_files = None
        if private is not None and private_hashes is not None:
            (root / "secret-key").unlink(missing_ok=True)  # this command made one, to start with
            unpack(private, root)
            private_files, found = _compare_files(root, private_hashes)
            differences += found
    return RestoreResult(sum(manifest.rows.values()), len(manifest.rows), files, private_files, differences)


def _decrypted(folder: Path, name: str, scratch: Path, keys: list[Any]) -> Path | None:
    """A file of the backup, decrypted where it is encrypted; None where there is no key for it."""
    if (folder / name).exists():
        return folder / name
    if not keys:
        return None
    decrypt(folder / f"{name}.age", scratch / name, keys)
    return scratch / name


def _require_whole(folder: Path, manifest: Manifest) -> None:
    for name, expected in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise BackupProblem(f"The backup is damaged: {name} is missing.")
        if sha256_of(path) != expected["sha256"]:
            raise BackupProblem(f"The backup is damaged: {name} is not what was written.")


def _require_migrations(manifest: Manifest) -> None:
    """Refuse a database that this version could neither migrate nor adopt."""
    recorded = {(app, name) for app, names in manifest.migrations.items() for name in names}
    problem = describe_earlier_history(recorded, manifest.rows)
    if problem and not recorded >= EARLIER_LAST:
        raise BackupProblem(f"This version cannot restore the backup. {problem}")


def _require_empty(manifest: Manifest) -> None:
    if manifest.vendor != connection.vendor:
        raise BackupProblem(
            f"The backup is of {manifest.vendor}, and this site is set up on {connection.vendor}: set DATABASE_URL to "
            "match."
        )
    root = Path(settings.VAR)
    if not is_empty():
        raise BackupProblem("The database is not empty. Restore into a new one, then let the site use that.")
    if taken := [name for name in ("store", "private", "media") if any((root / name).rglob("*"))]:
        raise BackupProblem(f"{root} is not empty ({', '.join(taken)}). Set RUNBOARD_VAR to a new folder.")


def _compare_rows(manifest: Manifest) -> list[str]:
    counted = count_rows()
    names = sorted(manifest.rows.keys() | counted.keys())
    return [
        f"{name}: {manifest.rows.get(name)} rows in the backup, {counted.get(name)} here"
        for name in names
        if manifest.rows.get(name) != counted.get(name)
    ]


def _compare_files(root: Path, expected_in: Path) -> tuple[int, list[str]]:
    """How many files are as they were, and what is not."""
    expected = json.loads(expected_in.read_text())
    found = hashes_of(root, expected)
    differences = [
        f"{name}: {'missing' if name not in found else 'other content'}"
        for name, sha256 in expected.items()
        if found.get(name) != sha256
    ]
    return len(expected) - len(differences), differences
