"""What the parent sees from outside: how many processes a child has, the memory they hold, and what they write."""

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
#: Folders deeper than this are nothing that a child of ours makes.
_DEEPEST = 12
_BLOCK = 512
#: What the kernel calls memory that processes share and no folder names: MAP_SHARED with MAP_ANONYMOUS or /dev/zero.
_SHARED_ZERO = b"/dev/zero (deleted)"
#: States of threads that compute nothing: stopped, traced, ended.
_STILL = frozenset((b"T", b"t", b"Z", b"X", b"x"))
#: The environment variable that marks the processes of a sandbox's start. bwrap binds its end to its parent's only some
#: way into its start, and its first process inside waits for bwrap without end. Programs inside get no environment.
_MARK = "RUNBOARD_SANDBOX_OF"
#: Where in /proc/PID/stat, after the name, the moment of the start is (field 22 of proc(5)).
_STARTED = 19


def processes_under(root: int) -> list[int]:
    """Return the process and all its descendants, by the numbers they have here."""
    children: dict[int | None, list[int]] = {}
    for process in all_processes():
        children.setdefault(_parent(process), []).append(process)
    tree = [root]
    for process in tree:
        tree += children.get(process, [])
    return tree


def all_processes() -> list[int]:
    """All processes of this machine that we see; none where there is no /proc."""
    with suppress(FileNotFoundError):
        return [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]
    return []


def _stat(folder: Path) -> list[bytes]:
    """Return the fields of a process or thread behind its name: its state, its parent, … (proc(5)). Raises OSError."""
    text = (folder / "stat").read_bytes()
    return text[text.rindex(b")") + 2 :].split()  # "pid (name) state ppid …", where the name may be anything


def _parent(process: int) -> int | None:
    try:
        return int(_stat(_PROC / str(process))[1])
    except OSError:
        return None


def has_no_running_thread(process: int) -> bool:
    """Return whether no thread of it runs; that of a process which is gone does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in (_PROC / str(process) / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                if _stat(thread)[0] not in _STILL:
                    return False
    return True


def send_signal(process: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is there and ours."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def usage_of(root: int) -> tuple[int, int]:
    """Return the threads of the process and its descendants, and the bytes of memory that hold no file's content.

    The bytes are in store or swapped. Pages of mapped files are the system's cache, not theirs. Memory that processes
    share counts with its whole size where nobody else has it: its pages stay when a process lets go of them (madvise),
    and are then in no number of the kernel's.
    """
    threads = private = shared = 0
    segments: dict[bytes, int] = {}
    for process in processes_under(root):
        fields = _status(process)
        threads += fields.get("Threads", 0)
        private += 1024 * (fields.get("RssAnon", 0) + fields.get("VmSwap", 0))
        shared += 1024 * fields.get("RssShmem", 0)
        _add_segments(process, segments)
    return threads, private + max(shared, sum(segments.values()))


def _add_segments(process: int, segments: dict[bytes, int]) -> None:
    """Note the memory without a name in any folder that the process could share: bytes mapped, by inode."""
    try:
        content = (_PROC / str(process) / "maps").read_bytes()
    except OSError:
        return
    if _SHARED_ZERO not in content:  # seldom is it there, and there may be thousands of lines
        return
    sizes: dict[bytes, int] = {}
    for line in content.splitlines():
        # "start-end permissions offset device inode   name"
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(_SHARED_ZERO):
            start, end = (int(place, 16) for place in fields[0].split(b"-"))
            sizes[fields[4]] = sizes.get(fields[4], 0) + end - start
    for inode, size in sizes.items():
        segments[inode] = max(segments.get(inode, 0), size)


def threads_of_user(user: int) -> int:
    """Return how many threads a user has on this machine: what RLIMIT_NPROC is counted against."""
    statuses = map(_status, all_processes())
    return sum(fields.get("Threads", 0) for fields in statuses if fields.get("Uid") == user)


def _status(process: int) -> dict[str, int]:
    """Return the numbers of /proc/PID/status that are looked at here; empty when the process is gone."""
    try:
        lines = (_PROC / str(process) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    wanted = ("Threads", "RssAnon", "RssShmem", "VmSwap", "Uid")
    pairs = (line.partition(":") for line in lines)
    return {name: int(rest.split()[0]) for name, _, rest in pairs if name in wanted}


def exceeds_limits(folders: Sequence[Path], most_bytes: int, most_files: int) -> bool:
    """Whether what lies in the folders is more than this, or deeper than anything of ours. Links are not followed."""
    size = files = 0
    waiting = [(folder, 0) for folder in folders]
    while waiting:
        folder, depth = waiting.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                files += 1
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    size += status.st_blocks * _BLOCK
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append((Path(entry.path), depth + 1))
                if size > most_bytes or files > most_files or depth > _DEEPEST:
                    return True
    return False


def size_of(folders: Sequence[Path]) -> int:
    """Bytes on disk of what lies in the folders, before anybody untrusted wrote there."""
    paths = [path for folder in folders for path in folder.rglob("*")]
    return sum(path.lstat().st_blocks * _BLOCK for path in paths)


def free_bytes(folder: Path) -> int:
    """Free space of the disk that the folder is on."""
    return shutil.disk_usage(folder).free


def remove_old(paths: Iterable[Path], grace: float) -> int:
    """Remove the files and folders that nobody touched for `grace` seconds; return how many.

    Each is checked again right before it goes: a row may be about to name it.
    """
    count = 0
    for path in list(paths):
        with suppress(FileNotFoundError):  # its owner, or another worker of this host, was quicker
            if path.stat().st_mtime < time.time() - grace:
                remove(path)
                count += 1
    return count


def remove_unexpected_files(folder: Path) -> None:
    """Remove everything but plain files in plain folders, once nobody writes there any more."""
    for path in [path for path in folder.iterdir() if not _is_plain(path, 1)]:
        remove(path)


def _is_plain(path: Path, depth: int) -> bool:
    """Return whether it is a file under one name, or a folder of such things, not too deep."""
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        return status.st_nlink == 1
    if not stat.S_ISDIR(status.st_mode) or depth > _DEEPEST:
        return False
    return all(_is_plain(entry, depth + 1) for entry in list(path.iterdir()))


def remove(path: Path) -> None:
    """Remove a file or a folder of any depth and mode: Python's own rmtree gives up a thousand folders down."""
    if path.is_dir() and not path.is_symlink():
        if subprocess.run(["rm", "-rf", "--", str(path)], check=False, capture_output=True).returncode:
            # Folders that their owner closed; links are not followed.
            subprocess.run(["chmod", "-R", "u+rwX", "--", str(path)], check=False)
            subprocess.run(["rm", "-rf", "--", str(path)], check=False)
    else:
        path.unlink(missing_ok=True)


def process_mark() -> dict[str, str]:
    """Return the variable for a process that starts a sandbox for us."""
    return {_MARK: f"{_namespace()}/{os.getpid()}/{_start_time(os.getpid())}"}


def kill_leftovers() -> int:
    """End what processes that are no more have left, of what we may end. Returns how many there were.

    A mark names the system's start, the numbering of processes, the process and when it began: those of another
    container, or of whoever has the number now, are not meant.
    """
    return sum(map(_kill_if_orphaned, all_processes()))


def _kill_if_orphaned(process: int) -> bool:
    try:
        handle = os.pidfd_open(process)  # first: the process that is read is then the one that is ended
    except OSError:
        return False
    try:
        if not _is_orphaned(process):
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def _is_orphaned(process: int) -> bool:
    """Return whether it carries the mark of a process of ours that is no more."""
    prefix = f"{_MARK}={_namespace()}/".encode()
    variables = (_PROC / str(process) / "environ").read_bytes().split(b"\0")
    marks = [variable.removeprefix(prefix) for variable in variables if variable.startswith(prefix)]
    if len(marks) != 1:
        return False
    owner, _, started = marks[0].decode(errors="replace").partition("/")
    return owner.isdecimal() and _start_time(int(owner)) != started


def _namespace() -> str:
    """Return the start of the system, and the numbering of processes that we are in."""
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"


def _start_time(process: int) -> str:
    """When the process began, in ticks since the system's start; empty when there is none, or only its remains."""
    try:
        fields = _stat(_PROC / str(process))
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[_STARTED].decode()
