"""System call filter for the sandbox, as a classic BPF program.

It allows what Python, torch, and faiss need to compute on their own files. It denies access to other processes,
namespaces, mounts, kernel keys, BPF, modules, clocks, io_uring, and sockets other than local ones, as well as memory
that belongs to no process (System V segments and messages, memfd), which the parent could not count without a control
group. Calls newer than this list fail as on a kernel without them. The filter is an additional layer; the namespaces
do not depend on it. libseccomp could generate the same program from the same list, but is a system library.
"""

import errno
import platform
import struct
from pathlib import Path

#: AUDIT_ARCH_* of <linux/audit.h>.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Calls that are allowed with any arguments: name, number on x86_64, and number on aarch64 (`-` if it does not exist),
#: for files, memory, processes, signals, time, waiting, and sockets.
_ALLOWED = Path(__file__).with_name("system_calls.txt").read_text(encoding="ascii").split()
#: Allowed calls that container images do not reach, with their results: fallocate, for which glibc then writes blocks,
#: and sched_setaffinity, which succeeds without effect because libraries that bind their threads may not expect errors.
_ANSWERED_FOR_IMAGES = {(285, 47): errno.EOPNOTSUPP, (203, 122): 0}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_IOCTL = (16, 29)
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET of <linux/sched.h>.
_NEW_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_AF_INTERNET = (2, 10)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
#: Newest call considered for this list, on both architectures: set_mempolicy_home_node of Linux 5.17.
_NEWEST_CALL = 450
#: First call number of the x32 ABI, which an x86_64 filter must deny.
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
#: Offsets in struct seccomp_data: call number, architecture, and low halves of the first two arguments.
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24


def filter_program(*, image: bool = False) -> bytes:
    """Return this machine's filter as an array of struct sock_filter. Raises KeyError for unknown architectures.

    For container images, it also allows internet sockets, since servers have a network namespace with only a loopback
    interface. It keeps them on their processors and from reserving disk space faster than the parent can measure it.
    """
    machine = platform.machine()
    column = list(ARCHITECTURES).index(machine)
    denial = _ERRNO | errno.EPERM
    families = (_AF_UNIX, *(_AF_INTERNET if image else ()))
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, ARCHITECTURES[machine], 1, 0),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [_line(_AT_LEAST, _X32, 0, 1), _line(_RETURN, denial)]
    lines += [_line(_AT_LEAST, _NEWEST_CALL + 1, 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    for numbers, error in _ANSWERED_FOR_IMAGES.items() if image else ():
        lines += [_line(_EQUAL, numbers[column], 0, 1), _line(_RETURN, _ERRNO | error)]
    for number in _ALLOWED[1 + column :: 3]:
        if number != "-":
            lines += [_line(_EQUAL, int(number), 0, 1), _line(_RETURN, _ALLOW)]
    # Without clone3, glibc falls back to clone, whose flags the filter can inspect.
    lines += [_line(_EQUAL, _CLONE3[column], 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    lines += [
        _line(_EQUAL, _CLONE[column], 0, 4),
        _line(_LOAD, _FIRST_ARGUMENT),
        _line(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _line(_RETURN, denial),
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, _SOCKET[column], 0, 3 + len(families)),
        _line(_LOAD, _FIRST_ARGUMENT),
        *(_line(_EQUAL, family, left, 0) for left, family in zip(range(len(families), 0, -1), families, strict=True)),
        _line(_RETURN, _ERRNO | errno.EAFNOSUPPORT),
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, _IOCTL[column], 0, 5),
        _line(_LOAD, _SECOND_ARGUMENT),
        _line(_EQUAL, _TIOCSTI, 1, 0),
        _line(_EQUAL, _TIOCLINUX, 0, 1),
        _line(_RETURN, denial),
        _line(_RETURN, _ALLOW),
        _line(_RETURN, denial),
    ]
    return b"".join(lines)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
