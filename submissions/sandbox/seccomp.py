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

#: AUDIT_ARCH_* of <linux/audit.h>.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: Calls that are allowed with any arguments: name, number on x86_64, and number on aarch64 (`-` if it does not exist),
#: for files, memory, processes, signals, time, waiting, and sockets.
_ALLOWED = """
read 0 63 write 1 64 readv 19 65 writev 20 66 pread64 17 67 pwrite64 18 68 preadv 295 69 pwritev 296 70
preadv2 327 286 pwritev2 328 287 open 2 - openat 257 56 openat2 437 437 creat 85 - close 3 57
close_range 436 436 lseek 8 62 dup 32 23 dup2 33 - dup3 292 24 fcntl 72 25 flock 73 32 pipe 22 - pipe2 293 59
sendfile 40 71 copy_file_range 326 285 fsync 74 82 fdatasync 75 83 sync_file_range 277 84 fallocate 285 47
fadvise64 221 223 readahead 187 213 truncate 76 45 ftruncate 77 46 stat 4 - fstat 5 80 lstat 6 -
newfstatat 262 79 statx 332 291 statfs 137 43 fstatfs 138 44 access 21 - faccessat 269 48 faccessat2 439 439
getdents 78 - getdents64 217 61 getcwd 79 17 chdir 80 49 fchdir 81 50 mkdir 83 - mkdirat 258 34 rmdir 84 -
rename 82 - renameat 264 38 renameat2 316 276 link 86 - linkat 265 37 symlink 88 - symlinkat 266 36
readlink 89 - readlinkat 267 78 unlink 87 - unlinkat 263 35 mknod 133 - mknodat 259 33 chmod 90 - fchmod 91 52
fchmodat 268 53 umask 95 166 utime 132 - utimes 235 - utimensat 280 88 futimesat 261 - getxattr 191 8
lgetxattr 192 9 fgetxattr 193 10 listxattr 194 11 llistxattr 195 12 flistxattr 196 13
brk 12 214 mmap 9 222 munmap 11 215 mremap 25 216 mprotect 10 226 msync 26 227 mincore 27 232 madvise 28 233
mlock 149 228 mlock2 325 284 munlock 150 229 mlockall 151 230 munlockall 152 231 membarrier 324 283
get_mempolicy 239 236 set_mempolicy 238 237 mbind 237 235
execve 59 221 execveat 322 281 fork 57 - vfork 58 - exit 60 93 exit_group 231 94 wait4 61 260 waitid 247 95
kill 62 129 tkill 200 130 tgkill 234 131 pidfd_open 434 434 pidfd_send_signal 424 424 getpid 39 172
getppid 110 173 gettid 186 178 getpgrp 111 - getpgid 121 155 setpgid 109 154 getsid 124 156 setsid 112 157
getuid 102 174 geteuid 107 175 getgid 104 176 getegid 108 177 getgroups 115 158 getresuid 118 148
getresgid 120 150 capget 125 90 capset 126 91 setgroups 116 159 setresuid 117 147 setresgid 119 149
prctl 157 167 arch_prctl 158 - set_tid_address 218 96 set_robust_list 273 99 get_robust_list 274 100
rseq 334 293 futex 202 98 futex_waitv 449 449 getrlimit 97 163 setrlimit 160 164 prlimit64 302 261
getrusage 98 165 times 100 153 getpriority 140 141 setpriority 141 140 sched_yield 24 124
sched_getaffinity 204 123 sched_setaffinity 203 122 sched_getscheduler 145 120 sched_setscheduler 144 119
sched_getparam 143 121 sched_setparam 142 118 sched_getattr 315 275 sched_setattr 314 274
sched_get_priority_max 146 125 sched_get_priority_min 147 126 sched_rr_get_interval 148 127 getcpu 309 168
uname 63 160 sysinfo 99 179 getrandom 318 278
rt_sigaction 13 134 rt_sigprocmask 14 135 rt_sigreturn 15 139 rt_sigpending 127 136 rt_sigsuspend 130 133
rt_sigtimedwait 128 137 rt_sigqueueinfo 129 138 rt_tgsigqueueinfo 297 240 sigaltstack 131 132 signalfd 282 -
signalfd4 289 74 restart_syscall 219 128 pause 34 - alarm 37 -
time 201 - gettimeofday 96 169 clock_gettime 228 113 clock_getres 229 114 nanosleep 35 101
clock_nanosleep 230 115 getitimer 36 102 setitimer 38 103 timer_create 222 107 timer_settime 223 110
timer_gettime 224 108 timer_getoverrun 225 109 timer_delete 226 111 timerfd_create 283 85 timerfd_settime 286 86
timerfd_gettime 287 87
select 23 - pselect6 270 72 poll 7 - ppoll 271 73 epoll_create 213 - epoll_create1 291 20 epoll_ctl 233 21
epoll_wait 232 - epoll_pwait 281 22 epoll_pwait2 441 441 eventfd 284 - eventfd2 290 19
socketpair 53 199 connect 42 203 accept 43 202 accept4 288 242 bind 49 200 listen 50 201 sendto 44 206
recvfrom 45 207 sendmsg 46 211 recvmsg 47 212 sendmmsg 307 269 recvmmsg 299 243 shutdown 48 210
getsockname 51 204 getpeername 52 205 setsockopt 54 208 getsockopt 55 209
"""
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
    for number in _ALLOWED.split()[1 + column :: 3]:
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
