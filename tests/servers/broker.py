"""The broker and cache of the tests: a real Valkey of their own, or a server named by REDIS_URL."""

from __future__ import annotations

import shutil
import time
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from leaderboard.supervisor import valkey
from tests.servers import processes

#: The database on a named server that the tests use, and empty.
DATABASE_NUMBER = 15


def start_broker(named: str, cleanup: processes.Cleanup) -> str:
    """The URL to use. A named server lends its database 15, which must be empty: the tests empty it often."""
    if named:
        return _lent_database(named, cleanup)
    folder = valkey.make_socket_folder()
    cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    log = folder / "log"
    server = processes.start(valkey.command(folder, folder / "data").arguments, log)
    cleanup(lambda: processes.stop(server))
    deadline = time.monotonic() + 60
    while not valkey.answers(folder):
        if server.poll() is not None or time.monotonic() > deadline:
            raise pytest.UsageError(f"Valkey does not start:\n{processes.last_lines(log)}")
        time.sleep(0.01)
    return valkey.url(folder)


def _lent_database(named: str, cleanup: processes.Cleanup) -> str:
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
