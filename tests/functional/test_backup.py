"""The restore drill: a site with results, hidden judgements and people comes back, row by row and byte by byte."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pyrage
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder

from leaderboard.core.schema_version import INITIAL, recorded_migrations
from leaderboard.core.storage import deletion_lock
from leaderboard.management import backup as backups
from leaderboard.management.backup import Manifest, count_rows, write_archive
from leaderboard.models import Dataset, User
from submissions.jobs.cleanup import GRACE, remove_unreferenced
from submissions.models import Job, State, Upload
from submissions.uploads import service
from tests.earlier_history import EARLIER, record_earlier_migrations
from tests.submissions.clients import Api
from tests.submissions.collections import (  # noqa: F401
    demo,
    run_text,
    secret,
)
from tests.submissions.people import alice, api  # noqa: F401
from tests.submissions.workers import work

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


class Keys:
    """A pair of age keys, the secret one in a file."""

    def __init__(self, path: Path) -> None:
        identity = pyrage.x25519.Identity.generate()
        self.public, self.file = str(identity.to_public()), path
        path.write_text(f"# made for a test\n{identity}\n")


class NewSite:
    """An empty folder of state, and an empty database of the same kind."""

    def __init__(self, folder: Path, url: str) -> None:
        self.var = folder
        self._environment = {**os.environ, "RUNBOARD_VAR": str(folder)}
        if url:
            self._environment["DATABASE_URL"] = url

    def manage(self, *arguments: str, check: bool = True) -> str:
        """What a management command of this site says."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def new_site(tmp_path: Path) -> Iterator[NewSite]:
    folder = tmp_path / "new"
    folder.mkdir()
    if connection.vendor == "sqlite":
        yield NewSite(folder, "")
        return
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as server:
        server.execute("CREATE DATABASE restored")
    try:
        yield NewSite(folder, urlunsplit(urlsplit(url)._replace(path="/restored")))
    finally:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute("DROP DATABASE restored WITH (FORCE)")


@pytest.fixture
def full_site(demo: Dataset, secret: Dataset, api: Api, tmp_path: Path, settings: Any) -> Path:  # noqa: F811
    """The folder of a site where a run was scored; a folder of its own, since backups are of all of it."""
    assert api.submit().status == 201
    work()
    programs = Path(os.environ.get("RUNBOARD_TEST_POSTGRESQL_BIN", ""))
    settings.POSTGRESQL_BIN = str(programs) if programs.name else ""
    return Path(settings.VAR)


def backup(destination: Path, *recipients: str) -> Path:
    """One backup; its folder."""
    call_command("backup", str(destination), *recipients)
    [folder] = destination.iterdir()
    return folder


def test_everything_comes_back_and_nothing_can_be_read_without_the_keys(
    full_site: Path, new_site: NewSite, tmp_path: Path
) -> None:
    operator, judge = Keys(tmp_path / "operator"), Keys(tmp_path / "judge")
    marker = b"judgement-that-nobody-may-see"
    (full_site / "private" / "qrels").mkdir(parents=True, exist_ok=True)
    (full_site / "private" / "qrels" / "ab").write_bytes(marker)
    (full_site / "private" / "qrels" / ".partial-x").write_bytes(b"unfinished")
    moved = tmp_path / "larger disk"
    moved.mkdir()
    (moved / "one").write_bytes(b"on another disk")
    (full_site / "media").mkdir(exist_ok=True)
    (full_site / "media" / "linked").symlink_to(moved)
    (full_site / "media" / "two").hardlink_to(moved / "one")
    folder = backup(tmp_path / "backups", f"--recipient={operator.public}", f"--judgements-recipient={judge.public}")
    (full_site / "private" / "qrels" / "ab").unlink()
    shutil.rmtree(full_site / "media")

    assert {path.suffix for path in folder.iterdir()} == {".age", ".json"}
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    assert marker not in written
    assert b"alice" not in written
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir() if path.suffix == ".age")
    rows = Manifest.read(folder).rows
    assert rows == count_rows()
    assert rows["submissions_job"] == 1

    refusal = new_site.manage("restore_backup", str(folder), f"--identity={judge.file}", check=False)
    assert "database.age cannot be decrypted" in refusal
    said = new_site.manage(
        "restore_backup", str(folder), f"--identity={operator.file}", f"--judgements-identity={judge.file}"
    )
    assert "All row counts and hashes match, and all referenced files exist." in said
    assert f"{sum(rows.values()):,} rows in {len(rows)} tables" in said
    assert (new_site.var / "private" / "qrels" / "ab").read_bytes() == marker
    assert not (new_site.var / "private" / "qrels" / ".partial-x").exists()
    assert (new_site.var / "media" / "linked" / "one").read_bytes() == b"on another disk"
    assert (new_site.var / "media" / "two").read_bytes() == b"on another disk"
    for path in (full_site / "store" / "runs").rglob("*"):
        if path.is_file():
            assert (new_site.var / path.relative_to(full_site)).read_bytes() == path.read_bytes()

    with pytest.raises(CommandError, match="not empty"):
        call_command("restore_backup", str(folder), f"--identity={operator.file}")


def test_a_damaged_backup_is_refused_before_anything_is_written(full_site: Path, tmp_path: Path) -> None:
    folder = backup(tmp_path / "backups", "--in-the-clear")
    store = folder / "store.tar"
    content = bytearray(store.read_bytes())
    content[len(content) // 2] ^= 1
    store.write_bytes(content)
    with pytest.raises(CommandError, match=r"damaged: store\.tar does not match its hash"):
        call_command("restore_backup", str(folder))


def test_a_link_that_leads_nowhere_is_said_and_no_backup_made(full_site: Path, tmp_path: Path) -> None:
    link = full_site / "store" / "gone"
    link.symlink_to(tmp_path / "nowhere")
    try:
        with pytest.raises(CommandError, match="a broken link"):
            call_command("backup", str(tmp_path / "backups"), "--in-the-clear")
    finally:
        link.unlink()
    assert list((tmp_path / "backups").iterdir()) == []


def test_nobody_makes_a_backup_in_the_clear_by_accident(full_site: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--recipient"):
        call_command("backup", str(tmp_path / "backups"))
    with pytest.raises(CommandError, match="age public key"):
        call_command("backup", str(tmp_path / "backups"), "--recipient=AGE-SECRET-KEY-1NOT")
    assert not (tmp_path / "backups").exists()


def waiting_job(api: Api, settings: Any) -> Job:  # noqa: F811
    """One whose file is as it was sent: a worker is to check it."""
    settings.VALIDATE_AT_ONCE_BYTES = 1
    answer = api.submit(run_text(tag="another", depth=10), configuration="another")
    assert answer.status == 201, answer.body
    return Job.objects.get(state=State.VALIDATING)


def test_what_is_forgotten_between_database_and_files_is_in_the_backup(
    full_site: Path,
    api: Api,  # noqa: F811
    alice: User,  # noqa: F811
    tmp_path: Path,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copied database has a job that waits for its file, and an upload that nobody has taken yet."""
    job = waiting_job(api, settings)
    upload = service.begin_upload(alice, length=3, kind=Upload.Kind.RUN)
    service.receive_bytes(upload, 0, [b"abc"])
    names = [f"store/uploads/{job.upload_sha256[:2]}/{job.upload_sha256}", f"store/pieces/{upload.pk}"]
    long_ago = time.time() - GRACE - 60
    for name in names:
        os.utime(full_site / name, (long_ago, long_ago))
    copy = backups.copy_database

    def copy_then_work(*arguments: Any) -> dict[str, int]:
        rows = copy(*arguments)
        work()
        with transaction.atomic():  # as by a submission
            service.consume_uploads(upload.owner, [upload.pk])
        remove_unreferenced()
        return rows

    monkeypatch.setattr(backups, "copy_database", copy_then_work)
    folder = backup(tmp_path / "backups", "--in-the-clear")
    job.refresh_from_db()
    assert job.state == State.DONE
    with tarfile.open(folder / "store.tar") as archive:
        assert set(names) <= set(archive.getnames())
        assert not any("backup-" in name for name in archive.getnames())
    assert all((full_site / name).exists() for name in names)
    remove_unreferenced()
    assert not any((full_site / name).exists() for name in names)


def test_a_killed_backup_holds_deletions_up_for_a_day(full_site: Path) -> None:
    mark = full_site / "store" / ".partial-backup-killed"
    for age, paused in ((60, True), (25 * 3600, False), (-25 * 3600, False)):
        mark.touch()
        os.utime(mark, (time.time() - age, time.time() - age))
        assert deletion_lock.deletions_are_paused() is paused
    with deletion_lock.pause_deletions():
        assert not mark.exists()
        assert deletion_lock.deletions_are_paused()
    assert not deletion_lock.deletions_are_paused()


def test_a_row_whose_file_is_missing_is_named(
    full_site: Path,
    api: Api,  # noqa: F811
    new_site: NewSite,
    tmp_path: Path,
    settings: Any,
) -> None:
    job = waiting_job(api, settings)
    name = f"store/uploads/{job.upload_sha256[:2]}/{job.upload_sha256}"
    (full_site / name).unlink()
    folder = backup(tmp_path / "backups", "--in-the-clear")
    said = new_site.manage("restore_backup", str(folder), check=False)
    assert "The restore is incomplete" in said
    assert f"{name}: missing, needed by job {job.pk} of submission {job.submission_id}" in said
    assert said.count("missing") == 1


def test_an_upload_that_is_cut_while_it_is_read_breaks_no_backup(tmp_path: Path) -> None:
    pieces = tmp_path / "store" / "pieces"
    pieces.mkdir(parents=True)
    piece = pieces / ("ab" * 16)
    whole = os.urandom(3 << 20)
    piece.write_bytes(whole)

    class Cutting(io.BytesIO):
        """The file is cut, as by a piece that comes again, as soon as its head has been written."""

        def write(self, block: Any) -> int:
            if piece.name.encode() in bytes(block):
                os.truncate(piece, 1 << 20)
            return super().write(block)

    stream = Cutting()
    hashes = write_archive(stream, tmp_path, ["store"])
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        member = archive.extractfile(f"store/pieces/{piece.name}")
        assert member is not None
        content = member.read()
    kept = content.rstrip(b"\0")
    assert 1 << 20 <= len(kept) < len(whole) == len(content)
    assert whole.startswith(kept)
    assert hashes[f"store/pieces/{piece.name}"] == hashlib.sha256(content).hexdigest()


@pytest.mark.long
def test_migrations_go_back_and_forward_on_a_full_copy(
    full_site: Path, new_site: NewSite, tmp_path: Path, django_db_use_migrations: bool
) -> None:
    if not django_db_use_migrations:
        pytest.skip("the tables of this run were made without migrations")
    folder = backup(tmp_path / "backups", "--in-the-clear")
    new_site.manage("restore_backup", str(folder))
    before, between, after = counts_through(new_site, ["leaderboard", "0001"], None, ["leaderboard"], ["submissions"])
    assert before == between == after  # the audit log was open meanwhile, and nothing else


@pytest.mark.long
def test_a_backup_of_the_earlier_migrations_comes_back_and_is_adopted(
    full_site: Path, new_site: NewSite, tmp_path: Path, django_db_use_migrations: bool
) -> None:
    if not django_db_use_migrations:
        pytest.skip("the tables of this run were made without migrations")
    present = recorded_migrations()
    record_earlier_migrations()
    try:
        folder = backup(tmp_path / "backups", "--in-the-clear")
    finally:
        for app, name in EARLIER - INITIAL:
            MigrationRecorder(connection).record_unapplied(app, name)
        for app, name in present - recorded_migrations():
            MigrationRecorder(connection).record_applied(app, name)
    said = new_site.manage("restore_backup", str(folder))
    assert "All row counts and hashes match" in said
    assert "Run manage.py adopt_history once" in said
    assert "Run manage.py adopt_history once" in new_site.manage("migrate", check=False)
    before, after = counts_through(new_site)
    assert "recorded as applied" in new_site.manage("adopt_history")
    assert "No migrations to apply" in new_site.manage("migrate")
    assert counts_through(new_site) == [before, after]


def test_a_backup_that_is_too_old_is_refused_before_anything_is_written(full_site: Path, tmp_path: Path) -> None:
    folder = backup(tmp_path / "backups", "--in-the-clear")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["migrations"]["leaderboard"] = ["0001_initial", "0002_model_results"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CommandError, match=r"cannot restore the backup\. .* Migrate it with version .* first"):
        call_command("restore_backup", str(folder))


#: What migrating itself writes.
WRITTEN = {"django_migrations", "auth_permission", "django_content_type"}


def counts_through(site: NewSite, *steps: list[str] | None) -> list[dict[str, int]]:
    """Rows by table at first, wherever a step is None, and after all of these migrations."""
    lines = [
        "from django.core.management import call_command",
        "from leaderboard.management.backup import count_rows",
    ]
    show = "print('counted', __import__('json').dumps(count_rows()))"
    lines += [
        show,
        *(show if step is None else f"call_command('migrate', *{step!r}, verbosity=0)" for step in steps),
    ]
    said = site.manage("shell", "--no-imports", "--command", "\n".join([*lines, show]))
    counted = [json.loads(line.removeprefix("counted ")) for line in said.splitlines() if line.startswith("counted")]
    return [{name: rows for name, rows in each.items() if name not in WRITTEN} for each in counted]
