"""A real S3 server on loopback, in a process of its own."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import processes


@contextmanager
def running(log: Path) -> Iterator[str]:
    """The server's address; it ends with the block."""
    process = processes.start([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], log)
    try:
        deadline = time.monotonic() + 120
        while (said := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the S3 server does not start:\n{processes.last_lines(log)}")
            time.sleep(0.02)
        yield said.group(1)
    finally:
        processes.stop(process)
