"""The kernel's C compiled on first use, and kept: in a folder of ours, under the hash of all that it was made from.

An image without a compiler brings it compiled: `python -m evaluation.kernel FOLDER` while the image is built, and
`RUNBOARD_KERNEL_PREBUILT=FOLDER` in it; so does a wheel, in the folder `prebuilt` beside this file. Where there is no
compiler at all, that of the package `ziglang` serves (docs/decisions/0002).
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
#: What `layout.h` is told of `layout.py`.
DEFINITION = f"-DNOTED={','.join(NOTED).upper()}"
#: -ffp-contract=off: scores are rounded as the C standard has it, on every machine.
FLAGS = (
    DEFINITION, "-std=c11", "-O2", "-fPIC", "-shared", "-pipe", "-fvisibility=hidden", "-ffp-contract=off",
)  # fmt: skip

_ROOT = 0
_NO_COMPILER = (
    "Reading runs needs a C compiler, and none was found ({tried}). Install gcc, or `pip install ziglang`, or name a "
    "compiler in the environment variable CC."
)


def built_library() -> Path:
    """Return the compiled kernel, made now if it was not. Raises KernelUnavailable, which says what to do."""
    brought = cache_folder() / _name(_digest())
    if _is_trusted(brought, stat.S_ISREG) or _copy_prebuilt(brought):
        return brought
    compiler = _compiler()
    # The compiler is known by its file, because asking for its version takes a process.
    program = Path(compiler[0]).resolve()
    status = program.stat()
    library = cache_folder() / _name(_digest(*compiler, str(program), status.st_size, status.st_mtime_ns))
    if not _is_trusted(library, stat.S_ISREG):
        _write_atomically(library, partial(_compile, compiler))
    return library


def prebuild(folder: Path) -> Path:
    """Compile the kernel into a folder, for everybody to read. Raises KernelUnavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / _name(_digest())
    _write_atomically(library, partial(_compile, _compiler()))
    library.chmod(0o755)
    return library


def _copy_prebuilt(library: Path) -> bool:
    """Copy what the image brings for these very sources, whoever compiled it; whether there is anything.

    A sandbox gets a copy of our cache, in which this one is ours as any other.
    """
    named, beside = os.environ.get("RUNBOARD_KERNEL_PREBUILT"), SOURCES / "prebuilt" / library.name
    if named and _is_trusted(Path(named) / library.name, stat.S_ISREG, owners=(_ROOT,)):
        brought = Path(named) / library.name
    elif _is_as_safe_as_this_file(beside):
        brought = beside
    else:
        return False
    _write_atomically(library, partial(shutil.copyfile, brought))
    return True


def _is_as_safe_as_this_file(path: Path) -> bool:
    """Whether nobody may write to a file beside, or replace it, who could not change the code that runs already.

    A package that was installed under umask 002, or by another user, has both alike.
    """
    try:
        pairs = [(path.lstat(), Path(__file__).stat()), (path.parent.lstat(), SOURCES.stat())]
    except FileNotFoundError:
        return False
    for status, other in pairs:
        more = status.st_mode & ~other.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        another_group = status.st_mode & stat.S_IWGRP and status.st_gid != other.st_gid
        if status.st_uid not in (other.st_uid, _ROOT, os.geteuid()) or more or another_group:
            return False
    return stat.S_ISREG(pairs[0][0].st_mode)


def _name(digest: str) -> str:
    return f"run_reader-{digest}.so"


def cache_folder() -> Path:
    """Where compiled kernels are kept: `RUNBOARD_KERNEL_CACHE`, else `build/kernel` of the project, else a folder
    under the user's cache. Only we may write to it, since what lies there is run."""
    if named := os.environ.get("RUNBOARD_KERNEL_CACHE"):
        return _private(Path(named))
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    project = SOURCES.parents[1]
    choices = [user_cache / "runboard" / "kernel"]
    if (project / "pyproject.toml").is_file():
        choices.insert(0, project / "build" / "kernel")
    for folder in choices[:-1]:
        try:
            return _private(folder)
        except (OSError, KernelUnavailable):
            continue
    return _private(choices[-1])


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_trusted(folder, stat.S_ISDIR) or not os.access(folder, os.W_OK):
        raise KernelUnavailable(
            f"Compiled code cannot be kept in {folder}: the folder must belong to the user who runs this, and nobody "
            "else may write to it (chmod 700). RUNBOARD_KERNEL_CACHE names another."
        )
    return folder


def _is_trusted(path: Path, is_kind: Callable[[int], bool], owners: Collection[int] = ()) -> bool:
    """Whether a file or folder is there, no link, owned by us (or one of `owners`) and writable for nobody else."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    allowed = {os.geteuid(), *owners}
    return is_kind(status.st_mode) and status.st_uid in allowed and not status.st_mode & 0o022


def _candidates() -> Iterator[list[str]]:
    for named in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        if isinstance(named, str) and named.split():
            yield shlex.split(named)
    if find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc"]


def _compiler() -> list[str]:
    """Return the command of the C compiler: `CC`, else the one that Python was made with, else the system's."""
    for command in _candidates():
        if found := shutil.which(command[0]):
            return [found, *command[1:]]
    raise KernelUnavailable(_NO_COMPILER.format(tried=", ".join(command[0] for command in _candidates())))


def _digest(*more: object) -> str:
    """Of the sources, the flags, the machine, and more."""
    digest = hashlib.sha256()
    for part in (*more, *FLAGS, platform.machine()):
        digest.update(f"{part}\0".encode())
    for path in sorted((*SOURCES.glob("*.c"), *SOURCES.glob("*.h"))):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _compile(compiler: list[str], library: str) -> None:
    command = [*compiler, *FLAGS, "-o", library, str(MAIN_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise KernelUnavailable(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")


def _write_atomically(library: Path, write: Callable[[str], object]) -> None:
    """Have it written beside its place and put it there whole: others may be doing the same."""
    descriptor, unfinished = tempfile.mkstemp(dir=library.parent, prefix="unfinished-", suffix=".so")
    os.close(descriptor)
    try:
        write(unfinished)
        Path(unfinished).chmod(0o700)
        Path(unfinished).replace(library)
    finally:
        Path(unfinished).unlink(missing_ok=True)
