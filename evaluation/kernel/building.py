"""Compilation of the kernel on first use, cached in a private folder under the hash of its inputs.

Images without a compiler contain a compiled kernel: `python -m evaluation.kernel FOLDER` creates it when the image is
built, and `RUNBOARD_KERNEL_PREBUILT=FOLDER` names it. Wheels contain it in the folder `prebuilt` next to this file.
If there is no compiler at all, the package `ziglang` provides one (docs/decisions/0002).
"""

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from evaluation.core.problems import KernelUnavailable
from evaluation.kernel.layout import NOTED

SOURCES = Path(__file__).parent
MAIN_SOURCE = SOURCES / "run_reader.c"
#: Definition that passes the list of `layout.py` to `layout.h`.
DEFINITION = f"-DNOTED={','.join(NOTED).upper()}"
#: With -ffp-contract=off, scores are rounded as specified by the C standard on every machine.
FLAGS = (
    DEFINITION, "-std=c11", "-O2", "-fPIC", "-shared", "-pipe", "-fvisibility=hidden", "-ffp-contract=off",
)  # fmt: skip

_ROOT = 0
_NO_COMPILER = (
    "Reading runs requires a C compiler, but none was found ({tried}). Install gcc, run `pip install ziglang`, or set "
    "the environment variable CC to a compiler."
)


def get_library_path() -> Path:
    """Return the path of the compiled kernel, compiling it if it is neither prebuilt nor cached.

    Raises KernelUnavailable.
    """
    prebuilt = cache_folder() / _library_name(_hash_inputs())
    if _is_trusted(prebuilt, stat.S_ISREG) or _copy_prebuilt(prebuilt):
        return prebuilt
    compiler = _find_compiler()
    # The compiler is identified by its file, because querying its version requires a process.
    program = Path(compiler[0]).resolve()
    status = program.stat()
    library = cache_folder() / _library_name(_hash_inputs(*compiler, str(program), status.st_size, status.st_mtime_ns))
    if not _is_trusted(library, stat.S_ISREG):
        _write_atomically(library, partial(_compile, compiler))
    return library


def prebuild(folder: Path) -> Path:
    """Compile the kernel into a folder, readable by everyone. Raises KernelUnavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / _library_name(_hash_inputs())
    _write_atomically(library, partial(_compile, _find_compiler()))
    library.chmod(0o755)
    return library


def _copy_prebuilt(library: Path) -> bool:
    """Copy the prebuilt kernel for these sources into the cache, and return whether there is one.

    The cache, unlike the prebuilt folder, can be copied into a sandbox like any other cache.
    """
    folder, bundled = os.environ.get("RUNBOARD_KERNEL_PREBUILT"), SOURCES / "prebuilt" / library.name
    if folder and _is_trusted(Path(folder) / library.name, stat.S_ISREG, owners=(_ROOT,)):
        source = Path(folder) / library.name
    elif _is_as_safe_as_this_file(bundled):
        source = bundled
    else:
        return False
    _write_atomically(library, partial(shutil.copyfile, source))
    return True


def _is_as_safe_as_this_file(path: Path) -> bool:
    """Return whether only users who can already change this module can change or replace a prebuilt file.

    Packages that were installed under umask 002 or by another user have the same owner and permissions for both.
    """
    try:
        pairs = [(path.lstat(), Path(__file__).stat()), (path.parent.lstat(), SOURCES.stat())]
    except FileNotFoundError:
        return False
    for status, reference in pairs:
        extra_write_bits = status.st_mode & ~reference.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        has_other_group = status.st_mode & stat.S_IWGRP and status.st_gid != reference.st_gid
        if status.st_uid not in (reference.st_uid, _ROOT, os.geteuid()) or extra_write_bits or has_other_group:
            return False
    return stat.S_ISREG(pairs[0][0].st_mode)


def _library_name(digest: str) -> str:
    return f"run_reader-{digest}.so"


def cache_folder() -> Path:
    """Return the private folder of compiled kernels.

    It is `RUNBOARD_KERNEL_CACHE`, otherwise `build/kernel` in the project, otherwise a folder in the user's cache.
    Only this user may write to it, because its files are executed.
    """
    if configured := os.environ.get("RUNBOARD_KERNEL_CACHE"):
        return _make_private(Path(configured))
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    project = SOURCES.parents[1]
    choices = [user_cache / "runboard" / "kernel"]
    if (project / "pyproject.toml").is_file():
        choices.insert(0, project / "build" / "kernel")
    for folder in choices[:-1]:
        try:
            return _make_private(folder)
        except (OSError, KernelUnavailable):
            continue
    return _make_private(choices[-1])


def _make_private(folder: Path) -> Path:
    """Create a folder that only this user may write to, unless it exists, and return it.

    Raises KernelUnavailable if another user may write to it, or this one may not.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_trusted(folder, stat.S_ISDIR) or not os.access(folder, os.W_OK):
        raise KernelUnavailable(
            f"Compiled code cannot be stored in {folder}: the folder must belong to the current user, and no other "
            "user may write to it (chmod 700). Set RUNBOARD_KERNEL_CACHE to use another folder."
        )
    return folder


def _is_trusted(path: Path, is_kind: Callable[[int], bool], owners: Collection[int] = ()) -> bool:
    """Check that a path is of this kind, owned by the user or `owners`, and neither a link nor writable by others."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    allowed_owners = {os.geteuid(), *owners}
    return is_kind(status.st_mode) and status.st_uid in allowed_owners and not status.st_mode & 0o022


def _iterate_compilers() -> Iterator[list[str]]:
    """Yield the commands of possible C compilers: `CC`, Python's own, the system's, and the package ziglang's."""
    for command in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        if isinstance(command, str) and command.split():
            yield shlex.split(command)
    if find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc"]


def _find_compiler() -> list[str]:
    """Return the command of the first C compiler that is installed, with its full path. Raises KernelUnavailable."""
    for command in _iterate_compilers():
        if program := shutil.which(command[0]):
            return [program, *command[1:]]
    raise KernelUnavailable(_NO_COMPILER.format(tried=", ".join(command[0] for command in _iterate_compilers())))


def _hash_inputs(*values: object) -> str:
    """Return a hash of the sources, the flags, the machine, and additional values, which names a compiled kernel."""
    digest = hashlib.sha256()
    for part in (*values, *FLAGS, platform.machine()):
        digest.update(f"{part}\0".encode())
    for path in sorted((*SOURCES.glob("*.c"), *SOURCES.glob("*.h"))):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _compile(compiler: list[str], library: str) -> None:
    """Compile the kernel into the file `library`. Raises KernelUnavailable with the compiler's message."""
    command = [*compiler, *FLAGS, "-o", library, str(MAIN_SOURCE)]
    process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if process.returncode:
        raise KernelUnavailable(f"{shlex.join(command)} failed:\n{process.stderr[-2000:]}")


def _write_atomically(library: Path, write: Callable[[str], object]) -> None:
    """Write to a temporary file next to the library and rename it, because other processes may do the same."""
    descriptor, unfinished = tempfile.mkstemp(dir=library.parent, prefix="unfinished-", suffix=".so")
    os.close(descriptor)
    try:
        write(unfinished)
        Path(unfinished).chmod(0o700)
        Path(unfinished).replace(library)
    finally:
        Path(unfinished).unlink(missing_ok=True)
