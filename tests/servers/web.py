"""The site's own web processes for a test: gunicorn as the supervisor starts it, on the test database."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from leaderboard.management.supervisor import services
from tests.servers import processes

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def serving(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of the site and its process, while the block lasts; the log is kept in `folder`."""
    port = processes.free_port()
    environment = {**processes.on_test_database(), **(more or {})}
    log = folder / "web.log"
    process = processes.start(services.web(port, environment).arguments, log, environment, cwd=ROOT)
    try:
        processes.wait_until(lambda: processes.takes_connections(port), process, log)
        yield f"http://127.0.0.1:{port}", process
    finally:
        processes.stop(process, signal.SIGQUIT)  # at once: nobody waits for an answer any more
