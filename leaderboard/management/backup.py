"""Backups of the database, the stored files, and the private files, each encrypted with age and verified by hash.

The database is copied before the files, because rows reference files and not vice versa. Files that a row references
when the database is copied remain in the store until the files are copied.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyrage
from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from evaluation.core.files import file_sha256
from leaderboard.core.schema_version import EARLIER_LAST, describe_earlier_history, recorded_migrations
from leaderboard.core.storage import shared
from leaderboard.core.storage.deletion_lock import pause_deletions
from leaderboard.core.storage.store import PARTIAL, Area, work_folder

#: Folders of submitted files; areas that the site can rebuild are skipped.
STORE = ("store", "media")
REBUILT_AREAS = {
    Area.TOP_DOCUMENTS, Area.EXCERPTS, Area.EMBEDDINGS, Area.OPEN_QRELS, Area.WORD_INDEXES, Area.DOWNLOADS,
}  # fmt: skip
#: Uploads in pieces, which may shrink while they are read, but never below the size in their rows.
PIECES_PREFIX = "store/pieces/"
#: Judgments, and the key that signs sessions.
PRIVATE = ("private", "secret-key")
#: Version of the backup format; increase it when earlier backups become unreadable.
FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A backup's description: row counts by table, files with size and SHA-256, and migrations by app."""

    made_at: str
    vendor: str
    encrypted: bool
    rows: dict[str, int]
    migrations: dict[str, list[str]]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a backup folder. Raises CommandError if it is unreadable or has another format."""
        try:
            content = json.loads((folder / MANIFEST).read_text())
        except (OSError, ValueError) as error:
            raise CommandError(f"{folder} is not a complete backup: it has no {MANIFEST}.") from error
        if (number := content.get("format")) != FORMAT:
            raise CommandError(f"This backup has format {number}; this version of the site reads {FORMAT}.")
        return cls(**content)


def make_backup(destination: Path, recipients: Sequence[str], judgements_recipients: Sequence[str]) -> Path:
    """Write a backup to a new folder in `destination` and return the folder.

    Files are encrypted for `recipients`; judgments for `judgements_recipients` if there are any. Without recipients the
    backup is not encrypted, and its folder must be protected like the site's own. Raises CommandError for invalid
    recipients or an unusable folder.
    """
    moment = timezone.now()
    try:
        keys, private_keys = (
            [pyrage.x25519.Recipient.from_str(text.strip()) for text in texts]
            for texts in (recipients, judgements_recipients)
        )
    except pyrage.RecipientError as error:
        raise CommandError("A recipient must be an age public key: age1 followed by 58 characters.") from error
    folder = destination / f"runboard-{moment:%Y%m%dT%H%M%SZ}"
    try:
        destination.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise CommandError(f"{folder} cannot be created: {error.strerror}.") from error
    try:
        migrations: dict[str, list[str]] = {}
        for app, name in sorted(recorded_migrations()):
            migrations.setdefault(app, []).append(name)
        with pause_deletions():
            with _new_file(folder / "database", keys) as stream:
                rows = copy_database(stream)
            shared.fetch_all()
            _write_folders(folder, "store", STORE, keys)
            _write_folders(folder, "private", PRIVATE, private_keys or keys)
        files = {
            path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in sorted(folder.iterdir())
        }
        manifest = Manifest(moment.isoformat(), connection.vendor, bool(keys), rows, migrations, files)
        (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def _write_folders(folder: Path, name: str, parts: Iterable[str], keys: Sequence[Any]) -> None:
    """Write a tar of some of the site's folders, and the hashes of its files to a second file."""
    with _new_file(folder / f"{name}.tar", keys) as stream:
        hashes = write_archive(stream, Path(settings.VAR), parts)
    with _new_file(folder / f"{name}-hashes.json", keys) as stream:
        stream.write(json.dumps(hashes, sort_keys=True).encode())


@contextmanager
def _new_file(target: Path, keys: Sequence[Any]) -> Iterator[BinaryIO]:
    """Open a new file readable only by the current user, encrypted as `.age` if there are keys."""
    target = target.with_name(f"{target.name}.age") if keys else target
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        if keys:
            reading, writing = os.pipe()

            def encrypt() -> None:
                with os.fdopen(reading, "rb") as plaintext:
                    pyrage.encrypt_io(plaintext, file, keys)

            with ThreadPoolExecutor(1) as pool:
                encryption = pool.submit(encrypt)
                try:
                    with os.fdopen(writing, "wb") as stream:
                        yield stream
                finally:
                    encryption.result()
        else:
            yield file
        file.flush()
        os.fsync(file.fileno())


def copy_database(stream: BinaryIO) -> dict[str, int]:
    """Write a consistent copy of the database and return the number of rows by table."""
    if connection.vendor == "sqlite":
        # The copy is not encrypted, so it is written to the site's own disk, in a folder that is swept.
        with work_folder("backup") as scratch:
            copy = scratch / "copy.sqlite3"
            with connection.cursor() as cursor:
                cursor.execute("VACUUM INTO %s", [str(copy)])
            with copy.open("rb") as file:
                shutil.copyfileobj(file, stream, 1 << 20)
            database = connection.copy("backup")
            database.settings_dict["NAME"] = str(copy)
            with closing(database):
                return count_rows(database)
    # pg_dump exports the snapshot of this transaction, so its dump and our counts agree.
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            snapshot = cursor.fetchone()[0]
        rows = count_rows()
        _run_postgresql("pg_dump", "--format=custom", f"--snapshot={snapshot}", output=stream)
    return rows


def count_rows(database: BaseDatabaseWrapper = connection) -> dict[str, int]:
    """Return the number of rows by table."""
    with database.cursor() as cursor:
        tables = database.introspection.get_table_list(cursor)
        counts = {}
        for name in sorted(table.name for table in tables if table.type in ("t", "p")):
            cursor.execute(f"SELECT COUNT(*) FROM {database.ops.quote_name(name)}")  # noqa: S608
            counts[name] = int(cursor.fetchone()[0])
    return counts


def _run_postgresql(program: str, *arguments: str, output: BinaryIO | None = None) -> None:
    """Run a PostgreSQL program on the site's database, writing its output to `output`.

    The command line does not contain the password. Raises CommandError if the program is missing or fails.
    """
    path = shutil.which(program, path=settings.POSTGRESQL_BIN or None)
    if path is None:
        raise CommandError(
            f"{program} is missing. Install PostgreSQL's client programs, at least as new as the server, or set "
            "POSTGRESQL_BIN to their folder."
        )
    parameters = connection.get_connection_params()
    keys = {"PGDATABASE": "dbname", "PGUSER": "user", "PGPASSWORD": "password", "PGHOST": "host", "PGPORT": "port"}
    variables = {name: str(parameters[key]) for name, key in keys.items() if parameters.get(key)}
    command = [path, "--no-owner", "--no-privileges", *arguments]
    environment = {**os.environ, **variables}
    process = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.PIPE, check=False)
    if process.returncode:
        raise CommandError(f"{program} failed: {process.stderr.decode(errors='replace').strip()[-500:]}")


class _HashingReader:
    """A reader that hashes the content; with `fill` it appends zeros to reach the requested size."""

    def __init__(self, file: BinaryIO, *, fill: bool) -> None:
        self._file, self._fill, self.digest = file, fill, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, and add them to the digest; with `fill`, append zeros at the end of the file."""
        content = self._file.read(size)
        if self._fill:  # A tar states a member's size before its content.
            content = content.ljust(size, b"\0")
        self.digest.update(content)
        return content


def write_archive(stream: BinaryIO, root: Path, names: Iterable[str]) -> dict[str, str]:
    """Write files and folders below `root` to a tar and return the SHA-256 of each file.

    Skips unfinished files, files that can be rebuilt, and files that vanish in the meantime, which no row references.
    An upload in pieces that shrinks while it is read is padded with zeros.
    """
    hashes: dict[str, str] = {}
    folders: set[Path] = set()
    pending = [root / name for name in names]
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        while pending:
            path = pending.pop()
            name = path.relative_to(root).as_posix()
            if name in REBUILT_AREAS or path.name.startswith(PARTIAL):
                continue
            with suppress(FileNotFoundError):
                # Folders on a larger disk may be symbolic links; hard links are written as separate files.
                if path.is_file():
                    with path.open("rb") as file:
                        member = archive.gettarinfo(arcname=name, fileobj=file)
                        member.type, member.linkname, member.mode = tarfile.REGTYPE, "", member.mode & 0o700
                        member.size = os.fstat(file.fileno()).st_size
                        reader = _HashingReader(file, fill=name.startswith(PIECES_PREFIX))
                        archive.addfile(member, reader)
                    hashes[name] = reader.digest.hexdigest()
                elif path.is_dir():
                    if (place := path.resolve()) in folders:
                        raise CommandError(f"{path} links to a folder that is already in the backup.")
                    folders.add(place)
                    folder = tarfile.TarInfo(name)
                    folder.type, folder.mode = tarfile.DIRTYPE, 0o700
                    archive.addfile(folder)
                    pending += sorted(path.iterdir(), reverse=True)
                elif os.path.lexists(path):
                    raise CommandError(f"{path} is neither a file nor a folder, but a broken link or a device.")
    return hashes


def restore_backup(
    folder: Path, identity: Path | None, judgements_identity: Path | None
) -> tuple[dict[str, int], list[str]]:
    """Fill the site's empty database and folder, and compare rows and hashes with the backup.

    Without a key for them, judgments are skipped. Raises CommandError before writing anything if the backup is
    damaged, too old or of another kind of database, or if the site is not empty.

    Returns:
        The number of matching files in "store" and, unless skipped, in "private"; and a list of differences.
    """
    manifest = Manifest.read(folder)
    _check_restorable(folder, manifest)
    os.umask(0o077)
    root = Path(settings.VAR)
    keys = _read_identities(identity)
    private_keys = _read_identities(judgements_identity) or keys
    with tempfile.TemporaryDirectory(dir=root, prefix=".restoring-") as scratch:
        parts = {
            name: _decrypt_part(folder, name, Path(scratch), private_keys if name.startswith("private") else keys)
            for name in ("database", "store.tar", "store-hashes.json", "private.tar", "private-hashes.json")
        }
        if parts["database"] is None:
            raise CommandError("The backup is encrypted. Give the file with the key (--identity).")
        _fill_database(parts["database"])
        counts, files = count_rows(), {}
        differences = [
            f"{name}: {manifest.rows.get(name)} rows in the backup, {counts.get(name)} here"
            for name in sorted(manifest.rows.keys() | counts.keys())
            if manifest.rows.get(name) != counts.get(name)
        ]
        for name in ("store", "private"):
            archive, hashes = parts[f"{name}.tar"], parts[f"{name}-hashes.json"]
            if archive is None or hashes is None:
                continue
            if name == "private":
                (root / "secret-key").unlink(missing_ok=True)  # Starting this command has created a key.
            with tarfile.open(archive, mode="r:") as content:
                content.extractall(root, filter="data")
            expected = json.loads(hashes.read_text())
            mismatches = [
                f"{path}: {'different content' if (root / path).is_file() else 'missing'}"
                for path, sha256 in expected.items()
                if not (root / path).is_file() or file_sha256(root / path) != sha256
            ]
            files[name] = len(expected) - len(mismatches)
            differences += mismatches
    return files, differences


def _check_restorable(folder: Path, manifest: Manifest) -> None:
    """Raise CommandError if the backup is damaged or does not match the site, or if the site is not empty."""
    for name, expected in manifest.files.items():
        if not (folder / name).is_file():
            raise CommandError(f"The backup is damaged: {name} is missing.")
        if file_sha256(folder / name) != expected["sha256"]:
            raise CommandError(f"The backup is damaged: {name} does not match its hash.")
    migrations = {(app, name) for app, names in manifest.migrations.items() for name in names}
    problem = describe_earlier_history(migrations, manifest.rows)
    if problem and not migrations >= EARLIER_LAST:
        raise CommandError(f"This version cannot restore the backup. {problem}")
    if manifest.vendor != connection.vendor:
        raise CommandError(
            f"The backup is of {manifest.vendor}, but this site uses {connection.vendor}. Set DATABASE_URL to a "
            f"{manifest.vendor} database."
        )
    if connection.introspection.table_names():
        raise CommandError("The database is not empty. Restore into a new one and let the site use that.")
    root = Path(settings.VAR)
    if occupied_folders := [name for name in ("store", "private", "media") if any((root / name).rglob("*"))]:
        raise CommandError(f"{root} is not empty ({', '.join(occupied_folders)}). Set RUNBOARD_VAR to a new folder.")


def _read_identities(path: Path | None) -> list[Any]:
    """Return the secret keys in a file of `age-keygen`. Raises CommandError without quoting the file."""
    if path is None:
        return []
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
        keys = [pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
        if not keys:
            raise ValueError
    except (OSError, ValueError, pyrage.IdentityError) as error:
        raise CommandError(f"{path} contains no age identity (a line AGE-SECRET-KEY-1…).") from error
    return keys


def _decrypt_part(folder: Path, name: str, scratch: Path, keys: Sequence[Any]) -> Path | None:
    """Return the path of a part of the backup, decrypted into `scratch` if necessary; None if there is no key for it.

    Raises CommandError if it cannot be decrypted.
    """
    if (folder / name).exists():
        return folder / name
    if not keys:
        return None
    try:
        with (folder / f"{name}.age").open("rb") as source, _new_file(scratch / name, ()) as target:
            pyrage.decrypt_io(source, target, keys)
    except (pyrage.DecryptError, OSError) as error:
        raise CommandError(
            f"{name}.age cannot be decrypted: it was encrypted for other keys, or is damaged."
        ) from error
    return scratch / name


def _fill_database(source: Path) -> None:
    """Restore the database from `source`: a dump with pg_restore, or a copy of the SQLite file."""
    if connection.vendor != "sqlite":
        database = f"--dbname={connection.settings_dict['NAME']}"
        _run_postgresql("pg_restore", "--exit-on-error", "--single-transaction", database, str(source))
        return
    target = Path(str(connection.settings_dict["NAME"]))
    connection.close()
    for suffix in ("", "-wal", "-shm"):
        target.with_name(target.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o600)
