"""Resource use of child processes as seen by the parent: processes, memory, and files."""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
#: Maximum folder depth; children never create deeper folders.
_MAX_DEPTH = 12
_BLOCK = 512
#: Device of the kernel's own file system for shared memory.
with os.fdopen(os.memfd_create("device")) as _file:
    _SHARED_MEMORY = os.fstat(_file.fileno()).st_dev
#: Kernel name of shared anonymous memory: MAP_SHARED with MAP_ANONYMOUS or /dev/zero.
_SHARED_ZERO = b"/dev/zero (deleted)"
#: States of threads that do not run: stopped, traced, ended.
_IDLE_STATES = frozenset((b"T", b"t", b"Z", b"X", b"x"))
#: Environment variable that marks the processes that start a sandbox. bwrap ends with its parent only after part of its
#: setup, and its first process inside waits for bwrap forever. Programs inside do not inherit the variable.
_MARK = "RUNBOARD_SANDBOX_OF"
#: Time in seconds between two counts of threads while the maps of processes are read.
_COUNT_SECONDS = 1.0
#: Index of the start time in /proc/PID/stat, counted after the name (field 22 of proc(5)).
_START_TIME = 19


def process_tree(root: int) -> list[int]:
    """Return the process ids of the process and all of its descendants."""
    children: dict[int, list[int]] = {}
    for process in all_processes():
        with suppress(OSError):  # the process has ended
            children.setdefault(int(_stat(_PROC / str(process))[1]), []).append(process)
    tree = [root]
    for process in tree:
        tree += children.get(process, [])
    return tree


def all_processes() -> list[int]:
    """Return the ids of all visible processes; none on systems without /proc."""
    with suppress(FileNotFoundError):
        return [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]
    return []


def _stat(folder: Path) -> list[bytes]:
    """Return the fields after the name in a process's or thread's stat file (proc(5)). Raises OSError."""
    text = (folder / "stat").read_bytes()
    return text[text.rindex(b")") + 2 :].split()  # "pid (name) state ppid …", where the name may be anything


def has_no_running_thread(process: int) -> bool:
    """Return whether the process has no running thread or has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in (_PROC / str(process) / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                if _stat(thread)[0] not in _IDLE_STATES:
                    return False
    return True


def send_signal(process: int, number: signal.Signals) -> None:
    """Send a signal to a process. Ignore processes that have ended or belong to others."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def measure_usage(root: int, max_threads: int) -> tuple[int, int]:
    """Return the number of threads and the anonymous memory in bytes of the process and its descendants.

    The memory is resident or swapped; pages of mapped files belong to the system's cache. Anonymous
    shared memory counts with its whole size, because released pages (madvise) remain but appear in no counter of the
    kernel. With more than `max_threads` threads, the memory is incomplete.
    """
    tree = list(map(_status, process_tree(root)))
    threads = sum(fields.get("Threads", 0) for fields in tree)
    private_bytes = 1024 * sum(fields.get("RssAnon", 0) + fields.get("VmSwap", 0) for fields in tree)
    shared_bytes = 1024 * sum(fields.get("RssShmem", 0) for fields in tree)
    segments: dict[bytes, int] = {}
    for process in _processes_below_limit(root, max_threads):
        _add_segments(process, segments)
    return threads, private_bytes + max(shared_bytes, sum(segments.values()))


def _processes_below_limit(root: int, max_threads: int) -> Iterator[int]:
    """Yield the process and its descendants until they have more than `max_threads` threads, counted every second.

    The kernel delays reading the maps of a process while it forks: with a thousand processes that fork without end,
    reading all maps took minutes. The number of threads is read without delay.
    """
    count_at = 0.0
    for process in process_tree(root):
        if time.monotonic() >= count_at:
            if sum(_status(each).get("Threads", 0) for each in process_tree(root)) > max_threads:
                return
            count_at = time.monotonic() + _COUNT_SECONDS
        yield process


def _add_segments(process: int, segments: dict[bytes, int]) -> None:
    """Add the process's shared anonymous memory to `segments`: mapped bytes by inode."""
    try:
        content = (_PROC / str(process) / "maps").read_bytes()
    except OSError:
        return
    if _SHARED_ZERO not in content:  # such memory is rare, and the file may have thousands of lines
        return
    sizes: dict[bytes, int] = {}
    for line in content.splitlines():
        # "start-end permissions offset device inode   name"
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(_SHARED_ZERO):
            start, end = (int(address, 16) for address in fields[0].split(b"-"))
            sizes[fields[4]] = sizes.get(fields[4], 0) + end - start
    for inode, size in sizes.items():
        segments[inode] = max(segments.get(inode, 0), size)


def count_user_threads(user: int) -> int:
    """Return the number of a user's threads on this machine, which RLIMIT_NPROC limits."""
    statuses = map(_status, all_processes())
    return sum(fields.get("Threads", 0) for fields in statuses if fields.get("Uid") == user)


def _status(process: int) -> dict[str, int]:
    """Return the numbers in /proc/PID/status that are used here; empty if the process has ended."""
    try:
        lines = (_PROC / str(process) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    names = ("Threads", "RssAnon", "RssShmem", "VmSwap", "Uid")
    pairs = (line.partition(":") for line in lines)
    return {name: int(value.split()[0]) for name, _, value in pairs if name in names}


def measure_deleted_files(root: int, max_threads: int) -> int:
    """Return the disk use in bytes of deleted files that the process or its descendants have open or mapped.

    Shared memory is not counted, although the kernel shows it as deleted files. With more than
    `max_threads` threads, the result is incomplete.
    """
    sizes: dict[tuple[int, int], int] = {}
    for process in _processes_below_limit(root, max_threads):
        for folder in ("fd", "map_files"):
            with suppress(OSError), os.scandir(_PROC / str(process) / folder) as entries:
                for entry in entries:
                    with suppress(OSError):
                        status = entry.stat()
                        is_file = stat.S_ISREG(status.st_mode) and status.st_dev != _SHARED_MEMORY
                        if is_file and not status.st_nlink:
                            sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return sum(sizes.values())


def exceeds_limits(folders: Sequence[Path], most_bytes: int, most_files: int) -> bool:
    """Return whether the folders exceed the limits or the maximum depth. Links are not followed.

    A folder without permissions exceeds them, because its content cannot be measured.
    """
    size = files = 0
    folders_to_check = [(folder, 0) for folder in folders]
    try:
        while folders_to_check:
            folder, depth = folders_to_check.pop()
            with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
                for entry in entries:
                    files += 1
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        size += status.st_blocks * _BLOCK
                        if stat.S_ISDIR(status.st_mode):
                            folders_to_check.append((Path(entry.path), depth + 1))
                    if size > most_bytes or files > most_files or depth > _MAX_DEPTH:
                        return True
    except PermissionError:
        return True
    return size > most_bytes


def disk_usage(folders: Sequence[Path]) -> int:
    """Return the disk use of trusted folders in bytes."""
    paths = [path for folder in folders for path in folder.rglob("*")]
    return sum(path.lstat().st_blocks * _BLOCK for path in paths)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def remove_old(paths: Iterable[Path], grace: float, remove_path: Callable[[Path], object] | None = None) -> int:
    """Remove files and folders untouched for `grace` seconds with `remove_path` or `remove`. Return their number.

    Each one is checked again right before removal, because a new row may refer to it.
    """
    count = 0
    for path in list(paths):
        with suppress(FileNotFoundError):  # its owner or another worker on this host has removed it
            if path.stat().st_mtime < time.time() - grace:
                (remove_path or remove)(path)
                count += 1
    return count


def remove_unexpected_files(folder: Path) -> None:
    """Remove everything except regular files in regular folders, after all writers have ended.

    The owner can read the remaining files, even if the writers removed permissions.
    """
    _restore_permissions(folder)
    for path in [path for path in folder.iterdir() if not _is_plain(path, 1)]:
        remove(path)


def _is_plain(path: Path, depth: int) -> bool:
    """Return whether the path is a file without other hard links, or a folder of such files within the depth limit."""
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        return status.st_nlink == 1
    if not stat.S_ISDIR(status.st_mode) or depth > _MAX_DEPTH:
        return False
    return all(_is_plain(entry, depth + 1) for entry in list(path.iterdir()))


def remove(path: Path) -> None:
    """Remove a file or folder of any depth and mode. Python's rmtree fails at a depth of a thousand folders."""
    if path.is_dir() and not path.is_symlink():
        if subprocess.run(["rm", "-rf", "--", str(path)], check=False, capture_output=True).returncode:
            _restore_permissions(path)
            subprocess.run(["rm", "-rf", "--", str(path)], check=False)
    else:
        path.unlink(missing_ok=True)


def _restore_permissions(folder: Path) -> None:
    """Let the owner read and write the folder's content. Links are not followed."""
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], check=False, capture_output=True)


def process_mark() -> dict[str, str]:
    """Return the environment variable for a process that starts a sandbox."""
    return {_MARK: f"{_namespace()}/{os.getpid()}/{_start_time(os.getpid())}"}


def owner_prefix() -> str:
    """Return a file name prefix that identifies this process to `is_left_over`, or "" on systems without /proc."""
    with suppress(OSError):
        return f"{_machine()}-{os.getpid()}-{_start_time(os.getpid())}-"
    return ""


def is_left_over(name: str) -> bool:
    """Return whether the name has the `owner_prefix` of an ended process of this machine."""
    machine, process, start_time, *_ = (*name.split("-"), "", "")
    with suppress(OSError):
        return process.isdecimal() and machine == _machine() and _start_time(int(process)) != start_time
    return False


def _machine() -> str:
    """Return a hash of the boot id and the PID namespace. Raises OSError without /proc."""
    return hashlib.sha256(_namespace().encode()).hexdigest()[:12]


def kill_leftovers() -> int:
    """Kill processes left by ended workers, as far as permitted. Return their number.

    A mark contains the boot id, the PID namespace, the process id, and its start time, so that processes of other
    containers and reused process ids do not match.
    """
    return sum(map(_kill_if_orphaned, all_processes()))


def _kill_if_orphaned(process: int) -> bool:
    """Kill the process if it was left by an ended worker. Return whether it was killed."""
    try:
        handle = os.pidfd_open(process)  # before reading, so that a reused process id is not killed
    except OSError:
        return False
    try:
        prefix = f"{_MARK}={_namespace()}/".encode()
        variables = (_PROC / str(process) / "environ").read_bytes().split(b"\0")
        marks = [variable.removeprefix(prefix) for variable in variables if variable.startswith(prefix)]
        owner, _, start_time = b"".join(marks).decode(errors="replace").partition("/")
        is_orphan = len(marks) == 1 and owner.isdecimal() and _start_time(int(owner)) != start_time
        if is_orphan:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return is_orphan
    except OSError:
        return False
    finally:
        os.close(handle)


def _namespace() -> str:
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"


def _start_time(process: int) -> str:
    """Return the start of the process in clock ticks after boot; empty if it has ended."""
    try:
        fields = _stat(_PROC / str(process))
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[_START_TIME].decode()
