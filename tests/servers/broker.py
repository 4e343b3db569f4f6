"""The broker and cache of the tests: a real Valkey of their own, or a server named by REDIS_URL."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from leaderboard.management.supervisor import valkey
from tests.servers import processes

#: The database on a named server that the tests use, and empty.
DATABASE_NUMBER = 15


class Broker:
    """A Valkey of the tests, which can be killed and started again on the same socket and the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = valkey.url(folder)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Serve; returns once it answers."""
        log = self.folder / "log"
        self._process = processes.start(valkey.command(self.folder, self.folder / "data").arguments, log)
        deadline = time.monotonic() + 60
        while not valkey.answers(self.folder):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise pytest.UsageError(f"Valkey does not start:\n{processes.last_lines(log)}")
            time.sleep(0.01)

    def stop(self) -> None:
        """End it; what it holds is on disk."""
        if self._process is not None and self._process.poll() is None:
            processes.stop(self._process)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def start_broker(cleanup: processes.Cleanup) -> Broker:
    """A server of the tests' own, running."""
    folder = valkey.make_socket_folder()
    cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    broker = Broker(folder)
    cleanup(broker.stop)
    broker.start()
    return broker


def lent_database(named: str, cleanup: processes.Cleanup) -> str:
    """The URL of a named server's database 15, which must be empty: the tests empty it often."""
    parts = urlsplit(named)
    url = urlunsplit(parts._replace(path=f"/{DATABASE_NUMBER}"))
    with redis.Redis.from_url(url, socket_connect_timeout=5) as client:
        if client.dbsize():
            raise pytest.UsageError(
                f"Database {DATABASE_NUMBER} of the server that REDIS_URL names is not empty. The tests empty it; "
                "if nobody needs it, do so yourself first: redis-cli -n 15 FLUSHDB"
            )
    cleanup(lambda: redis.Redis.from_url(url).flushdb())
    return url
