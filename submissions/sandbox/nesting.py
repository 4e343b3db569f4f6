"""Container images in two nested bwraps, of which the inner one has the image's root.

The outer bwrap is the sandbox of models. It has this machine's libraries, so that the launcher can set limits and drop
privileges. The inner one replaces the root, maps the image's user to the sandbox's, and applies the system call filter.
It has its own user namespace, in which the image has no capabilities. Processes of the image cannot inspect the
relay or the launcher, which are in the outer user namespace.
"""

import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

from submissions.sandbox.backends import Mount, Program, interpreter

RELAY = (Path(__file__).parent / "relay.py").read_text(encoding="utf-8")
#: Path of the relay's socket in the outer sandbox, and its name in the mounted folder.
SOCKET_FOLDER, SOCKET_NAME = "/relay", "server.sock"
_IMAGE = "/image"
#: Folder in which CUDA images expect the driver's libraries.
_DRIVER_FOLDER = "/usr/local/nvidia/lib64"
_DRIVER_LIBRARIES = re.compile(r"\s(lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-nvvm)\.so\.[0-9]+) .*=> (/\S+)")


def nest(program: Program, binary: str, filter_file: int, status_file: int) -> Program:
    """Return the program of the outer bwrap, which starts the inner one with the program's command.

    Args:
        program: Program whose root is an image.
        binary: Path of bwrap in the outer sandbox.
        filter_file: Inherited descriptor of the system call filter.
        status_file: Inherited descriptor to which the inner bwrap writes its status. The command does not inherit it.
    """
    image = program.image
    assert image is not None
    words = [binary, "--unshare-user", "--uid", str(image.user), "--gid", str(image.group), "--cap-drop", "ALL"]
    words += ["--json-status-fd", str(status_file), "--clearenv"]
    for name, value in program.environment.items():
        words += ["--setenv", name, value]
    # The kernel forbids a new /proc or /dev, because the outer ones hide files. Both expose nothing of this machine.
    words += ["--ro-bind", _IMAGE, "/", "--bind", "/proc", "/proc", "--dev-bind", "/dev", "/dev"]
    mounts = [Mount(image.folder, _IMAGE)]
    for number, mount in enumerate(program.mounts):
        outer = f"/mounts/{number}"
        mounts.append(replace(mount, target=outer))
        words += ["--bind" if mount.writable else "--ro-bind", outer, mount.target]
    words += _driver() if program.cuda else ()
    if image.work_folder.startswith("/tmp/"):  # noqa: S108  (a mount hides the folder of the image)
        words += ["--dir", image.work_folder]
    words += ["--chdir", image.work_folder, "--seccomp", str(filter_file), "--", *program.command]
    if image.relay is not None:
        mounts.append(Mount(image.relay.folder, SOCKET_FOLDER, writable=True))
        relay = ("-S", "-c", RELAY, f"{SOCKET_FOLDER}/{SOCKET_NAME}", str(image.relay.port))
        words = [*interpreter(), *relay, *words]
    return replace(program, command=tuple(words), mounts=tuple(mounts), environment={})


@cache
def _driver() -> list[str]:
    """Return arguments that mount this machine's GPU driver libraries, which images do not contain."""
    words = ["--ro-bind-try", "/sys", "/sys", "--tmpfs", _DRIVER_FOLDER]
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    libraries = {match[1]: match[2] for match in _DRIVER_LIBRARIES.finditer(listing) if "x86-64" in match[0]}
    for name, path in libraries.items():
        words += ["--ro-bind", path, f"{_DRIVER_FOLDER}/{name}"]
    return words
