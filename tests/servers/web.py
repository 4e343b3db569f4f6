"""The site's own web processes for a test: gunicorn as the supervisor starts it, on the test database."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from leaderboard.management.supervisor import services
from tests.servers import processes

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def serving(
    folder: Path, more: Mapping[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of the site and its process, while the block lasts; the log is kept in `folder`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {
        "RUNBOARD_STATIC_BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage",
        **processes.on_test_database(),
        **(more or {}),
    }
    log = folder / "web.log"
    process = processes.start(services.web(port, environment).arguments, log, environment, cwd=ROOT)
    try:
        deadline = time.monotonic() + 60
        while not _answers(port):
            assert process.poll() is None, processes.last_lines(log)
            assert time.monotonic() < deadline, processes.last_lines(log)
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", process
    finally:
        processes.stop(process, signal.SIGQUIT)  # at once: nobody waits for an answer any more


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
