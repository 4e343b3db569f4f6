"""Cleanup removes the files that a crash left, and keeps recent files and files that rows reference."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import connection
from django.utils import timezone

from leaderboard.core.storage import deletion_lock
from leaderboard.core.storage.store import Area, path_of, put
from leaderboard.models import User
from submissions.jobs import cleanup, runner
from submissions.jobs.checkpoints.running import job_folder, sweep_work
from submissions.jobs.cleanup import GRACE, remove_unreferenced
from submissions.jobs.kinds.score import delete_upload
from submissions.jobs.runner import drain_queue
from submissions.models import State
from submissions.sandbox import processes
from submissions.sandbox.processes import owner_prefix, remove
from submissions.tasks import sweep_files
from submissions.uploads import storage
from tests.factories import make_dataset, make_job, make_user
from tests.submissions.sandboxes import make_deep

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def stored(area: Area, tmp_path: Path, text: str, *, old: bool) -> Path:
    source = tmp_path / "file"
    source.write_text(text)
    path = path_of(area, put(area, source))
    if old:
        long_ago = time.time() - GRACE - 60
        os.utime(path, (long_ago, long_ago))
    return path


def test_old_files_without_a_row_are_swept(tmp_path: Path) -> None:
    orphan = stored(Area.RUNS, tmp_path, "an orphan", old=True)
    fresh = stored(Area.RUNS, tmp_path, "just written", old=False)
    waiting = stored(Area.RUNS, tmp_path, "named by a job", old=True)
    upload = stored(Area.UPLOADS, tmp_path, "to be validated", old=True)
    make_job(make_dataset(), payload={"run_sha256": waiting.name})
    make_job(make_dataset(), state=State.VALIDATING, upload_sha256=upload.name)
    assert remove_unreferenced() >= 1  # other tests may have left something old, too
    assert [path.exists() for path in (orphan, fresh, waiting, upload)] == [False, True, True, True]


def deep(area: str, name: str) -> Path:
    """A folder of the store that no row names, old, and deeper than Python's own functions go."""
    folder = Path(settings.VAR) / area / name
    folder.mkdir(parents=True)
    make_deep(folder)
    long_ago = time.time() - 2 * GRACE - settings.JOB_WALL_CLOCK_SECONDS
    os.utime(folder, (long_ago, long_ago))
    return folder


def test_no_depth_stops_the_sweep() -> None:
    folders = [deep("work", "tmp1"), deep(Area.CHECKPOINTS.value, "7/" + "5" * 64)]
    assert remove_unreferenced() >= 2
    assert not any(folder.exists() for folder in folders)


def test_a_host_of_workers_alone_keeps_its_disk_clean(tmp_path: Path, settings: Any) -> None:
    """No scorer sweeps there. What another of its workers removes meanwhile, as a link to nowhere shows, is skipped."""
    settings.VAR = tmp_path / "var"
    settings.EMBEDDINGS_CACHE_BYTES = 1
    names = ("work/tmp1", "store/checkpoints/7/.partial-x", f"store/word-indexes/ab/{'ab' * 32}")
    killed, partial, index = (tmp_path / "var" / name for name in names)
    for folder in (killed, partial, index):
        (folder / "index").mkdir(parents=True)
        os.utime(folder, (0, 0))
        folder.with_name(f"{folder.name}-gone").symlink_to("nowhere")
    assert drain_queue("score", "scorer") == 0
    assert all(path.exists() for path in (killed, partial, index))
    assert drain_queue("cpu", "worker") == 0
    assert not any(path.exists() for path in (killed, partial, index))


def test_folders_of_killed_processes_and_ended_jobs_are_swept_at_once(tmp_path: Path, settings: Any) -> None:
    settings.VAR = tmp_path / "var"
    work = settings.VAR / "work"
    work.mkdir(parents=True)
    killed = subprocess.Popen(["sleep", "600"])
    machine, _, rest = owner_prefix().partition("-")
    start_time = processes._start_time(killed.pid)
    killed.kill()
    killed.wait()
    jobs = {state: make_job(make_dataset(), state=state) for state in (State.QUEUED, State.CANCELLED)}
    names = {
        f"{machine}-{killed.pid}-{start_time}-x": False,
        f"{machine}-{os.getpid()}-1-x": False,  # a process with this number has ended
        f"{machine}-{rest}x": True,
        f"elsewhere-{killed.pid}-{start_time}-x": True,
        f"rankings-{jobs[State.QUEUED].pk}": True,
        f"rankings-{jobs[State.CANCELLED].pk}": False,
        "image-1": True,
    }
    for name, stays in names.items():
        (work / name).mkdir()
        if not stays:
            make_deep(work / name)
    with job_folder() as own:
        assert sweep_work() == 3
        assert own.exists()
    assert {path.name for path in work.iterdir()} == {name for name, stays in names.items() if stays}


def test_the_disk_is_not_looked_at_after_each_of_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(runner, "_trim_disk", looks.append)
    monkeypatch.setattr(runner, "run_job", lambda job: None)
    dataset = make_dataset()
    for _ in range(3):
        make_job(dataset, queue="cpu")
    assert drain_queue("cpu", "worker") == 3
    assert looks == ["cpu"]


def test_what_cannot_be_swept_does_not_keep_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise RecursionError

    monkeypatch.setattr("submissions.jobs.cleanup.referenced_runs", fail)
    monkeypatch.setattr("submissions.jobs.cleanup.sweep_embeddings", fail)
    upload = stored(Area.UPLOADS, tmp_path, "of nobody", old=True)
    folder = deep(Area.CHECKPOINTS.value, "7/" + "5" * 64)
    assert remove_unreferenced() >= 2
    assert not upload.exists()
    assert not folder.exists()


def test_a_backup_that_begins_during_a_sweep_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    # A folder without any referenced file is not swept, and other tests leave files.
    settings.VAR = tmp_path / "var"
    areas = (Area.RUNS, Area.TOP_DOCUMENTS, Area.PROFILES, Area.UPLOADS, Area.FILES, Area.QRELS)
    orphans = [stored(area, tmp_path, f"an orphan of {area}", old=True) for area in areas]
    piece = storage.path_of("ab" * 16)
    piece.parent.mkdir(parents=True, exist_ok=True)
    piece.touch()
    os.utime(piece, (0, 0))
    orphans += [piece, deep(Area.CHECKPOINTS.value, "7/" + "6" * 64)]
    named_runs = cleanup.referenced_runs
    with ExitStack() as backup:

        def asked_as_a_backup_begins() -> set[str]:
            backup.enter_context(deletion_lock.pause_deletions())
            return named_runs()

        monkeypatch.setattr(cleanup, "referenced_runs", asked_as_a_backup_begins)
        remove_unreferenced()
        assert [path for path in orphans if not path.exists()] == []
    monkeypatch.setattr(cleanup, "referenced_runs", named_runs)
    remove_unreferenced()
    assert [path for path in orphans if path.exists()] == []


def test_a_backup_that_begins_while_others_are_asked_for_keeps_an_upload(tmp_path: Path) -> None:
    upload = stored(Area.UPLOADS, tmp_path, "judged just now", old=True)
    job = make_job(make_dataset(), state=State.DONE, upload_sha256=upload.name)
    with ExitStack() as backup:

        def asked_as_a_backup_begins(execute: Callable[..., Any], *asked: Any) -> Any:
            if not deletion_lock.deletions_are_paused():
                backup.enter_context(deletion_lock.pause_deletions())
            return execute(*asked)

        with connection.execute_wrapper(asked_as_a_backup_begins):
            delete_upload(job)
        assert upload.exists()
    delete_upload(job)
    assert not upload.exists()


def test_folders_that_their_owner_closed_are_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "open" / "folder"
    (folder / "closed").mkdir(parents=True)
    (folder / "closed" / "file").touch()
    (folder / "closed").chmod(0)
    if os.geteuid() != 0:
        remove(folder)
    else:
        for path in (tmp_path / "open", folder, folder / "closed", folder / "closed" / "file"):
            os.chown(path, 65534, 65534)
        as_nobody(lambda: remove(Path("folder")), folder.parent)
    assert not folder.exists()


def as_nobody(action: Callable[[], None], place: Path) -> None:
    """Do it in a process of a user without privileges, who has the folder for its own."""
    here = os.open(place, os.O_RDONLY)
    child = os.fork()
    if child == 0:
        try:
            os.fchdir(here)
            os.setuid(65534)
            action()
        finally:
            os._exit(0)
    os.close(here)
    os.waitpid(child, 0)


def listed(person: User, key: str, *, days: float) -> None:
    """A row in the person's list of sessions that was seen so many days ago."""
    seen = timezone.now() - timedelta(days=days)
    UserSession.objects.create(user=person, session_key=key, ip="127.0.0.1", user_agent="", last_seen_at=seen)


def test_sessions_that_have_expired_are_forgotten_every_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    person, now = make_user(), timezone.now()
    for key, days in (("expired", -1), ("good", 1)):
        Session.objects.create(session_key=key, session_data="", expire_date=now + timedelta(days=days))
    for key, days in (("expired", 15), ("good", 15), ("gone", 2), ("just begun", 0)):
        listed(person, key, days=days)

    def full() -> int:
        raise OSError("no disk")

    monkeypatch.setattr("submissions.tasks.remove_unreferenced", full)  # which keeps no session from being forgotten
    sweep_files()
    assert set(Session.objects.values_list("session_key", flat=True)) == {"good"}
    assert set(UserSession.objects.values_list("session_key", flat=True)) == {"good", "just begun"}
