"""Disks that are full: whoever sends is told so, what waits is tried again, and nothing is left lying about.

A process is given a limit for the size of files (RLIMIT_FSIZE), and the limit is lifted again; where this user may
mount, a file system of 300 kB is full in earnest.
"""

from __future__ import annotations

import bz2
import contextlib
import gc
import io
import os
import random
import resource
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from leaderboard.core.storage.store import Area
from leaderboard.models import Run
from submissions.accounts.access import make_token
from submissions.intake import files as intake_files
from submissions.jobs.cleanup import remove_unreferenced
from submissions.models import Job, QuotaUse, State, Submission
from tests.faults.clients import Answer, ask, serve, submit
from tests.faults.repetitions import slower
from tests.faults.site import Service, Site
from tests.faults.work import Work, ended
from tests.submissions.collections import DOCUMENTS, QUERIES, run_text

pytestmark = pytest.mark.database

#: Where content arrives, and where it is kept.
PLACES = ("uploads", "work", Area.RUNS.value, Area.UPLOADS.value, Area.TOP_DOCUMENTS.value)


@contextlib.contextmanager
def full_beyond(service: Service, size: int) -> Iterator[None]:
    """No file that the processes of the service write can have more than so many bytes."""
    usual = resource.prlimit(service.pid, resource.RLIMIT_FSIZE)
    _limit(service, (size, usual[1]))
    try:
        yield
    finally:
        _limit(service, usual)


def _limit(service: Service, limits: tuple[int, int]) -> None:
    """The main process first: what it starts from then on inherits its limits.

    A child that is being forked at that moment still has the old ones, and is seen a little later.
    """
    resource.prlimit(service.pid, resource.RLIMIT_FSIZE, limits)
    deadline = time.monotonic() + 10
    while not service.children() and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in service.children():
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system of its own at the folder, if we may mount one; else the test is skipped."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def long_run(depth: int = 1000, seed: int = 1) -> bytes:
    """A run of about half a megabyte whose text shrinks badly."""
    chance = random.Random(seed)
    lines = []
    for query in QUERIES:
        for rank, document in enumerate(chance.sample(DOCUMENTS, depth), 1):
            lines.append(f"{query} Q0 {document} {rank} {2000 - rank}.{chance.randrange(10**6)} long{seed}\n")
    return "".join(lines).encode()


def files() -> set[Path]:
    """All that lies in the places where content comes and stays."""
    return {
        path for place in PLACES for path in Path(settings.VAR, place).rglob("*") if path.is_file() or path.is_symlink()
    }


def is_told(answer: Answer) -> None:
    """The disk is full: a fault of ours, with an id, and when to come again."""
    assert (answer.status, answer.json["code"]) == (503, "disk_full"), answer
    assert "disk is full" in answer.json["detail"]
    assert "Your request was not stored" in answer.json["detail"]
    assert len(answer.json["fault"]) == 8
    assert int(answer.headers["Retry-After"]) >= 60


def stop_serving(site: Site) -> None:
    """Stop the web server of an earlier test."""
    if "web" in site.services:
        site.stop_service("web")


def zipped(dataset: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{dataset}.txt", content)
    return packed.getvalue()


def test_while_an_upload_arrives_is_unpacked_and_is_stored(site: Site, work: Work) -> None:
    """Each time 503 and nothing is left; the same file is taken once there is room."""
    serve(site)
    token, before, content = make_token(work.person, "test"), files(), long_run()
    small, packed = bz2.compress(content), zipped(work.open.slug, content)
    # As it arrives; when a small zip is unpacked; when the run is stored, which zstd makes larger than bz2 does.
    sent = {
        "run.txt": (content, 100_000),
        "run.zip": (packed, (len(packed) + len(content)) // 2),
        "run.bz2": (small, len(small) + 1000),
    }
    for name, (body, room) in sent.items():
        with full_beyond(site.services["web"], room):
            slug = "" if name.endswith("zip") else work.open.slug
            is_told(submit(site.address, token, "Too long", slug, body, name))
    site.wait_for(lambda: files() == before, "what arrived to be removed, which follows the answer")
    assert not Submission.objects.exists()
    log = site.services["web"].log.read_text()
    for folder in ("uploads", "uploads/zip-", "store/runs"):
        assert f"The disk is full: '{settings.VAR}/{folder}" in log
    assert submit(site.address, token, "Too long", work.open.slug, content).status == 201
    Job.objects.update(state=State.CANCELLED)


@slower(0.1)  # the third attempt, the last, comes after six seconds
def test_what_a_worker_cannot_write_is_done_once_there_is_room(
    queue_site: Site, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads and keeps what is longer than the site looks at at once: the first attempt has no room for it."""
    monkeypatch.setattr(intake_files.settings, "VALIDATE_AT_ONCE_BYTES", 1000)
    with contextlib.ExitStack() as limits:
        for name in ("scorer-1", "scorer-2"):
            limits.enter_context(full_beyond(queue_site.services[name], 300))
        kept = work.submit([work.hidden])
        queue_site.wait_for(lambda: "disk is full" in kept.jobs.get().log, "an attempt")
        assert not ended([kept])
    queue_site.wait_for(lambda: ended([kept]), "the job to end")
    job = kept.jobs.get()
    assert (job.state, job.attempts > 1, Run.objects.count()) == (State.DONE, True, 1), job.log
    leave_nothing_behind()


@pytest.mark.long  # Celery's workers are slow to start
def test_what_a_worker_cannot_write_is_tried_again(
    scoring_site: Site, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Done once there is room; failed after three attempts where there is none, and given back to the quota."""
    monkeypatch.setattr(
        intake_files.settings, "VALIDATE_AT_ONCE_BYTES", 1000
    )  # a worker reads and keeps what is longer
    site = scoring_site
    scorers = [site.services["scorer-1"], site.services["scorer-2"]]
    with contextlib.ExitStack() as limits:
        for scorer in scorers:
            limits.enter_context(full_beyond(scorer, 300))
        lost = work.submit([work.hidden])
        site.wait_for(lambda: ended([lost]), "three attempts")
        job = lost.jobs.get()
        assert (job.state, job.error_code, job.attempts) == (State.FAILED, "disk_full", 3)
        assert job.log.count("The site's disk is full, which is a fault on our side") == 3
        assert QuotaUse.objects.get(submission=lost).refunded_at is not None
        kept = work.submit([work.hidden])
        site.wait_for(lambda: kept.jobs.get().attempts >= 1 and "disk is full" in kept.jobs.get().log, "an attempt")
    site.wait_for(lambda: ended([kept]), "the job to end")
    assert kept.jobs.get().state == State.DONE, kept.jobs.get().log
    assert Run.objects.count() == 1
    leave_nothing_behind()


def leave_nothing_behind() -> None:
    """After the sweep there is only what rows name."""
    settings.JOB_WALL_CLOCK_SECONDS, usual = 0, settings.JOB_WALL_CLOCK_SECONDS
    try:
        gc.collect()  # otherwise finalizers of earlier tests' uploads would fail later, because the sweep removes them
        time.sleep(0.01)
        remove_unreferenced(0)
    finally:
        settings.JOB_WALL_CLOCK_SECONDS = usual
    # Uploads of jobs that failed by our fault are kept, because curators can retry these jobs.
    uploads = Job.objects.needing_files().values_list("upload_sha256", flat=True)
    named = {*Run.objects.values_list("sha256", flat=True), *uploads}
    assert {path.name for path in files()} <= named


def test_what_nobody_names_stays_where_nothing_is_swept(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of cleaning up: in every place an orphan, which the sweep removes, and without the sweep is seen."""
    leave_nothing_behind()
    for number, place in enumerate(PLACES):
        folder = Path(settings.VAR, place, "killed" if place == "work" else "")  # a worker's scratch folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}{'a' * 63}").write_text("of a process that was killed")
    with monkeypatch.context() as without:
        without.setattr(sys.modules[__name__], "remove_unreferenced", lambda grace: None)
        with pytest.raises(AssertionError):
            leave_nothing_behind()
    assert len(files()) >= len(PLACES)
    leave_nothing_behind()
    assert not any(path.name.endswith("a" * 63) for path in files())


@pytest.mark.long
def test_what_a_killed_server_left_is_swept(site: Site, work: Work) -> None:
    """Killed in the middle of an upload it leaves a part of a file (the control), which the sweep removes."""
    serve(site)
    leave_nothing_behind()
    token = make_token(work.person, "test")
    with socket.create_connection(("127.0.0.1", site.port)) as connection:
        connection.sendall(
            f"POST /api/v1/submissions/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
            "Content-Length: 900000\r\nContent-Type: multipart/form-data; boundary=xx\r\n\r\n"
            '--xx\r\nContent-Disposition: form-data; name="file"; filename="run.txt"\r\n\r\n'.encode()
            + run_text(depth=1000).encode()
        )
        arriving = Path(settings.FILE_UPLOAD_TEMP_DIR)
        site.wait_for(lambda: any(arriving.glob("*")), "the file to arrive")
        site.services["web"].kill()
    assert any(arriving.glob("*"))
    leave_nothing_behind()
    assert not any(arriving.glob("*"))
    site.services.pop("web")


@pytest.mark.long
def test_a_disk_that_is_really_full(site: Site, work: Work) -> None:
    """A file system of 300 kB: pages go on, uploads are refused until there is room again."""
    with small_disk(Path(settings.FILE_UPLOAD_TEMP_DIR), "300k"):
        stop_serving(site)
        site.start_web(DISK_RESERVE_BYTES="0")
        token = make_token(work.person, "test")
        for _ in range(3):
            is_told(submit(site.address, token, "Long", work.open.slug, long_run()))
        assert not list(Path(settings.FILE_UPLOAD_TEMP_DIR).iterdir())
        assert ask(site.address, f"/datasets/{work.open.slug}/").status == 200
        assert submit(site.address, token, "Short", work.open.slug, run_text().encode()).status == 201
        site.stop_service("web")
    Job.objects.update(state=State.CANCELLED)


@pytest.mark.long
def test_uploads_stop_before_the_disk_is_full(site: Site, work: Work) -> None:
    """A reserve remains for the database; without one (the control) the same upload is taken."""
    stop_serving(site)
    token = make_token(work.person, "test")
    for reserve, status in ((2**60, 503), (0, 201)):
        site.start_web(DISK_RESERVE_BYTES=str(reserve))
        answer = submit(site.address, token, "A run", work.open.slug, run_text().encode())
        assert answer.status == status
        if status == 503:
            is_told(answer)
        assert ask(site.address, f"/datasets/{work.open.slug}/").status == 200
        site.stop_service("web")
    Job.objects.update(state=State.CANCELLED)
