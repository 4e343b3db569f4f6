"""First program inside a sandbox, which applies limits, drops privileges, and executes the requested command.

Its source is passed to an interpreter as text (`python -I -S -c`), so it only uses the standard library. The
argument is JSON: `limits` (name of resource.RLIMIT_* → number), `processors` (empty for all), `niceness`, `uid` (or
null to keep the user), and `caches` (folder → path of its copy, which is read before and written after the change of
user, so that the new user owns it). The command follows.
"""

import ctypes
import json
import os
import resource
import signal
import sys

#: <linux/prctl.h>, <linux/capability.h>
_PR_SET_PDEATHSIG, _PR_CAPBSET_READ, _PR_CAPBSET_DROP = 1, 23, 24
_CAPABILITY_VERSION_3 = 0x20080522


def read_files(folder: str) -> dict[str, bytes]:
    """Return the contents of the files in the folder, by relative path."""
    contents = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)  # noqa: PTH118  (pathlib costs a third of this program's time)
            with open(path, "rb") as file:  # noqa: PTH123
                contents[os.path.relpath(path, folder)] = file.read()
    return contents


def write_files(folder: str, files: dict[str, bytes]) -> None:
    """Write the files, accessible only to this user."""
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    for name, content in files.items():
        path = os.path.join(folder, name)  # noqa: PTH118
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o700), "wb") as file:  # noqa: PTH123
            file.write(content)


def drop_capabilities() -> None:
    """Clear the bounding and inheritable sets, so that programs executed later cannot gain capabilities.

    Call it as root with CAP_SETPCAP, before the change of user, which clears the other sets. Raises OSError.
    """
    library = ctypes.CDLL(None, use_errno=True)
    capability = 0
    while library.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
        if library.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "PR_CAPBSET_DROP")
        capability += 1
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice
    if library.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    sets[2] = sets[5] = 0
    if library.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def main() -> None:
    """Apply the limits, copy the caches, change the user if requested, and execute the command.

    Exits if the parent does not answer.
    """
    # End with the parent, even while stopped. If the parent died before this call, the check below gets no
    # answer, and this process exits.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.write(1, b"?")
    if os.read(0, 1) != b"!":
        sys.exit("the parent is gone")
    plan = json.loads(sys.argv[1])
    copies = {target: read_files(source) for source, target in plan["caches"].items()}
    for name, limit in plan["limits"].items():
        kind = getattr(resource, "RLIMIT_" + name)
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))
    if plan["processors"]:
        os.sched_setaffinity(0, plan["processors"])
    os.nice(plan["niceness"])
    if plan["uid"] is not None:
        drop_capabilities()
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    os.umask(0o022)
    for target, files in copies.items():
        write_files(target, files)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606


if __name__ == "__main__":
    main()
