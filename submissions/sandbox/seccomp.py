"""A filter of system calls for the sandbox, as the kernel's classic BPF program.

Everything is allowed but what has no use for a model and a history of holes: looking into or at other processes, other
namespaces, mounts, kernel keys, BPF, modules, clocks, io_uring, and sockets other than between processes of one
machine. A call that is newer than this list is answered as by a kernel that does not have it. Memory that belongs to no
process is refused too (System V's segments and messages, memfd): where no control group counts, the parent could not
see it. It is one layer more: the namespaces hold without it.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping

#: AUDIT_ARCH_* of <linux/audit.h>.
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Numbers of system calls: (x86_64, aarch64); None where the architecture has none.
_DENIED: Mapping[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "personality": (135, 92),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262),
    "vhangup": (153, 58),
    "memfd_secret": (447, 447),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    "shmctl": (31, 195),
    "shmat": (30, 196),
    "shmdt": (67, 197),
    "msgget": (68, 186),
    "semget": (64, 190),
}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_IOCTL = (16, 29)
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET of <linux/sched.h>.
_NEW_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
#: The newest call that was looked at for this list, on both architectures: set_mempolicy_home_node, of Linux 5.17.
_NEWEST = 450
#: Calls of the x32 ABI, by numbers that an x86_64 filter would not know.
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
#: Offsets in struct seccomp_data: the call's number, the architecture, the low halves of the first two arguments.
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24


def is_supported() -> bool:
    """Whether the filter knows this machine's architecture."""
    return platform.machine() in _ARCHITECTURES


def program() -> bytes:
    """The filter for this machine, as an array of struct sock_filter. Raises KeyError for an unknown architecture."""
    machine = platform.machine()
    column = list(_ARCHITECTURES).index(machine)
    refused = _ERRNO | errno.EPERM
    lines = [
        *_unless(_ARCHITECTURE, _EQUAL, _ARCHITECTURES[machine], _KILL),
        _line(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        lines += [_line(_AT_LEAST, _X32, 0, 1), _line(_RETURN, refused)]
    lines += [_line(_AT_LEAST, _NEWEST + 1, 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, refused)]
    # glibc takes clone3's absence for an old kernel, and uses clone, whose flags can be seen here.
    lines += [_line(_EQUAL, _CLONE3[column], 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    lines += [
        _line(_EQUAL, _CLONE[column], 0, 4),
        _line(_LOAD, _FIRST),
        _line(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _line(_RETURN, refused),
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, _SOCKET[column], 0, 4),
        _line(_LOAD, _FIRST),
        _line(_EQUAL, _AF_UNIX, 1, 0),
        _line(_RETURN, _ERRNO | errno.EAFNOSUPPORT),
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, _IOCTL[column], 0, 4),
        _line(_LOAD, _SECOND),
        _line(_EQUAL, _TIOCSTI, 1, 0),
        _line(_EQUAL, _TIOCLINUX, 0, 1),
        _line(_RETURN, refused),
        _line(_RETURN, _ALLOW),
    ]
    return b"".join(lines)


def _unless(offset: int, test: int, value: int, verdict: int) -> list[bytes]:
    return [_line(_LOAD, offset), _line(test, value, 1, 0), _line(_RETURN, verdict)]


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
