"""A real S3 server on loopback, in a process of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import processes


@contextmanager
def running(log: Path) -> Iterator[str]:
    """The server's address; it ends with the block."""
    process = processes.start([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], log)
    try:
        processes.wait_until(lambda: _address(log) != "", process, log, patience=120)
        yield _address(log)
    finally:
        processes.stop(process)


def _address(log: Path) -> str:
    """The address that the server's log names; empty where it does not listen yet."""
    named = re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())
    return named[1] if named else ""
