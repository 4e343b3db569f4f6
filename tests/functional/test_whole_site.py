"""`manage.py runboard` itself, with all its processes."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.starting import Supervisor, eventually, free_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


class Site:
    """One folder of state, started again and again."""

    def __init__(self, folder: Path) -> None:
        self.var = folder / "var"
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.started: list[Supervisor] = []

    def start(self) -> Supervisor:
        """What `make run` runs."""
        supervisor = Supervisor(
            ["manage.py", "runboard"],
            self.var.with_name("mark"),
            RUNBOARD_VAR=str(self.var),
            PORT=str(self.port),
            REDIS_URL=None,
            DATABASE_URL=None,
            # As the site has it, without compressing: Brotli takes half a minute over the admin's files.
            TEST_STATIC_STORAGE="django.contrib.staticfiles.storage.ManifestStaticFilesStorage",
        )
        self.started.append(supervisor)
        return supervisor

    def end(self) -> None:
        """End all that was started and still runs, and wait until nothing of it is left."""
        for supervisor in self.started:
            supervisor.end()
        self.started.clear()

    def made(self) -> dict[str, int]:
        """When what a first start makes was made last, by path: tables, static files, secrets."""
        logs = [self.var / "logs" / f"{name}.log" for name in ("migrate", "static")]
        made = [*logs, self.var / "static" / "staticfiles.json", self.var / "secret-key"]
        return {str(path): path.stat().st_mtime_ns for path in [*made, self.var / "demo-curator-password"]}

    def get(self, path: str) -> str:
        """The body of a page."""
        with urllib.request.urlopen(self.address + path, timeout=120) as response:
            return str(response.read().decode())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site, prepared by its first start, in a folder that others may enter."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.var.mkdir(mode=0o755)  # by an operator who thought nothing of it
    yield site
    site.end()


@pytest.fixture(autouse=True)
def nothing_left(site: Site) -> Iterator[None]:
    """End what a failed test leaves running, so that the next one finds the folder free."""
    yield
    site.end()


def test_first_start_serves_restarts_the_dead_refuses_a_second_and_stops(site: Site) -> None:
    supervisor = site.start()
    supervisor.wait_for("Ready in", 600)
    assert "Preparing the database" in supervisor.printed
    assert json.loads(site.get("/healthz")) == {"status": "ok", "database": "ok", "broker": "ok"}
    assert site.address in supervisor.printed
    password = site.var / "demo-curator-password"
    assert f"sign in as curator@runboard.localhost; the password is in {password}" in supervisor.printed
    for secret in (password, site.var / "secret-key", site.var / "run" / "redis-url"):
        assert secret.stat().st_mode & 0o777 == 0o600
    assert f"Other users of this machine may enter {site.var} (mode 755)" in supervisor.printed
    readable = {path.name: oct(path.stat().st_mode) for path in site.var.iterdir() if path.stat().st_mode & 0o077}
    assert readable == {}
    assert {"private", "db.sqlite3", "store", "logs", "valkey"} <= {path.name for path in site.var.iterdir()}
    assert 'src="http' not in site.get("/")  # nothing is fetched from elsewhere

    second = site.start()
    assert second.process.wait(120) == 1
    assert f"process {supervisor.process.pid}, {site.address}" in second.printed

    eventually(lambda: supervisor.find("--queues notices") > 0)
    notifier = Path(f"/proc/{supervisor.find('--queues notices')}/environ")
    assert b"PRIVATE_STORAGE=off" in notifier.read_bytes().split(b"\0")
    scorer = Path(f"/proc/{supervisor.find('--queues score,dispatch')}/environ")
    assert b"PRIVATE_STORAGE=off" not in scorer.read_bytes().split(b"\0")

    worker = supervisor.find("celery --app leaderboard.celery --quiet worker")
    os.kill(worker, signal.SIGKILL)
    supervisor.wait_for("| ended with signal SIGKILL; restarting")
    eventually(lambda: any(" worker " in line for line in supervisor.descendants().values()))

    supervisor.stop()
    assert supervisor.process.returncode == 0
    assert supervisor.descendants() == {}
    assert not (site.var / "run" / "redis-url").exists()


def test_a_later_start_makes_nothing_again_and_sigkill_leaves_no_orphan(site: Site) -> None:
    made = site.made()
    supervisor = site.start()
    supervisor.wait_for("Ready in")
    assert "Preparing the database" not in supervisor.printed
    assert site.made() == made
    eventually(lambda: sum(" worker " in line for line in supervisor.descendants().values()) >= 3)
    supervisor.stop(signal.SIGKILL)
    eventually(lambda: not supervisor.descendants(), explain=lambda: str(supervisor.descendants()))


def test_a_taken_port_is_named_with_a_way_out(site: Site) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        site.port = taken.getsockname()[1]
        supervisor = site.start()
        assert supervisor.process.wait(120) == 1
    assert f"Port {site.port} cannot be used" in supervisor.printed
    assert "PORT=" in supervisor.printed
