"""Server processes of a test session: they end with it, whatever happens to it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from django.db import connections

from leaderboard.management.supervisor.processes import die_with_this_process

Cleanup = Callable[[Callable[[], Any]], Any]


def on_test_database() -> dict[str, str]:
    """What another process's environment says of the test database; SQLite's file lies where RUNBOARD_VAR says."""
    url, name = os.environ.get("DATABASE_URL", ""), str(connections["default"].settings_dict["NAME"])
    return {"DATABASE_URL": re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", url, count=1)} if url else {}


def start(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Start a server in a group of its own, its output going to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            list(arguments),
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=die_with_this_process(),
            **options,
        )


def stop(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM, patience: float = 10.0) -> None:
    """Ask the process to end, and kill its group if it has not within `patience` seconds."""
    process.send_signal(how)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, patience: float = 60.0) -> None:
    """Return when the server is ready. Raises AssertionError with its last lines when it ends, or is too slow."""
    deadline = time.monotonic() + patience
    while not ready():
        assert process.poll() is None, last_lines(log)
        assert time.monotonic() < deadline, last_lines(log)
        time.sleep(0.02)


def free_port() -> int:
    """A port of this machine that no server listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def takes_connections(port: int) -> bool:
    """Whether a server listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def last_lines(log: Path, count: int = 20) -> str:
    """The end of a server's log, for the message of a failure."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])
