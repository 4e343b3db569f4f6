"""Attacks from inside of a hostile image: each fails, ends in time, and leaves nothing behind.

Tried here: the network of the machine and of the internet; files of the machine, of the site, of other jobs, and of the
outer sandbox, by path, by link, and through /proc; judgments; the environment and the memory of other processes
(ptrace, process_vm_readv, /proc/PID/mem); the relay's socket; mounts, namespaces, chroot, and devices; set-user-ID
programs and capabilities; writing to the image; kernel interfaces (keys, BPF, io_uring, modules); processes without
end, memory, files, and output without end, also in deleted files, in space reserved without writing, and in folders
without permissions; a command that never ends, a server that answers without end, and more processors than allowed;
links, devices, and folders in the output; and messages that imitate the site's own protocol or the sandbox's errors.
"""

from __future__ import annotations

import itertools
import os
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.execution.failures import MODEL_FAILURES
from submissions.sandbox.backends import Backend, SandboxUnavailable, UnprotectedBackend
from submissions.sandbox.bubblewrap import ControlGroup
from submissions.sandbox.containers import ImageSupervision, ServerEnded, run_image, serve_image
from submissions.sandbox.processes import (
    all_processes,
    exceeds_limits,
    process_tree,
    remove,
    remove_unexpected_files,
)
from tests.submissions.sandbox.images import LIMITS, SERVER, HostileImage, unpack_python

QUICK = replace(LIMITS, wall_clock_seconds=3)
#: Program that starts processes without end.
FORK_BOMB = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_python(tmp_path_factory.mktemp("image"))


@pytest.fixture
def image(bubblewrap: Backend, own_lock: None, root: Path, tmp_path: Path) -> Iterator[HostileImage]:
    """A hostile image. Afterwards none of its processes is left, and the sandbox works as before."""
    before = process_tree(os.getpid())
    made = HostileImage(bubblewrap, root, tmp_path)
    yield made
    elsewhere = {process for each in before[1:] for process in process_tree(each)}
    assert set(process_tree(os.getpid())) - elsewhere == {os.getpid()}
    assert not list((root / "tmp").iterdir())
    made.run("tell(alive=True)")
    assert made.found == {"alive": True}


def test_the_image_is_what_it_sees(image: HostileImage) -> None:
    """Its own files, variables, and user; and no others."""
    outcome = image.run("""
        import getpass
        tell(root=sorted(os.listdir("/")), own=open("/data.txt").read(), variables=sorted(os.environ), user=os.getuid(),
             host=os.uname().nodename, temporary=attempt(lambda: open("/tmp/x", "w").close()), home=os.environ["HOME"])
    """)
    assert outcome.kind == "done"
    assert image.found["own"] == "of the image"
    expected = {"data.txt", "dev", "etc", "lib", "proc", "root", "sys", "tira-data", "tmp", "usr"}
    assert set(image.found["root"]) <= expected | {"lib64", "bin", "home", "opt"}
    assert set(image.found["variables"]) <= {
        "PATH", "HOME", "LANG", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS",
        "OWN", "HOSTNAME", "TIRA_OUTPUT_DIR", "PWD", "LC_CTYPE",
    }  # fmt: skip
    assert (image.found["user"], image.found["host"]) == (0, "sandbox")
    assert "did" in image.found["temporary"]


def test_no_network(image: HostileImage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        port = listener.getsockname()[1]
        image.run(f"""
            import socket
            def reach(address, family=socket.AF_INET):
                with socket.socket(family) as client:
                    client.settimeout(1)
                    client.connect(address)
            tell(machine=attempt(lambda: reach(("127.0.0.1", {port}))),
                 internet=attempt(lambda: reach(("1.1.1.1", 53))),
                 six=attempt(lambda: reach(("::1", {port}), socket.AF_INET6)),
                 packets=attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
                 raw=attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
                 netlink=attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
                 abstract=attempt(lambda: reach("\\0runboard", socket.AF_UNIX)),
                 interfaces=[line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line])
        """)
        with pytest.raises(TimeoutError):
            listener.accept()
    assert image.found.pop("interfaces") == ["lo"]
    assert all("refused" in result for result in image.found.values()), image.found


def test_no_files_but_its_own(image: HostileImage, settings: Any, tmp_path: Path) -> None:
    """Neither the machine's, nor the site's and its judgments, nor those of the outer sandbox and other processes."""
    secret = settings.VAR / "private" / "qrels-of-the-site"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("secret")
    paths = [
        secret, settings.VAR / "db.sqlite3", settings.BASE_DIR / "manage.py", tmp_path / "own.lock", "/image/data.txt",
        "/mounts/0", "/relay", "/tira-data/../../etc/shadow", "/oldroot/etc/shadow", "/newroot/etc/shadow",
        "/run/docker.sock", "/var/run/docker.sock", f"/proc/{os.getpid()}/environ",
        *(f"/proc/{process}/{name}" for process in (1, 2, 3)
          for name in ("root/etc/shadow", "root/usr/bin/bwrap", "environ", "mem", "cwd/x", "fd/0", "maps")),
        "/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/cmdline", "/sys/kernel", "/dev/mem", "/dev/kmsg",
        "/dev/sda", "/dev/vda", "/dev/fuse", "/dev/kvm", "/dev/net/tun",
    ]  # fmt: skip
    image.run(f"""
        def read(name):
            with open(name, "rb") as file:
                return file.read(100)
        own = os.getpid()
        found = {{}}
        for name in {list(map(str, paths))!r}:
            if name.startswith(f"/proc/{{own}}/") or name == "/proc/" + os.readlink("/proc/self") + "/environ":
                continue
            found[name] = attempt(lambda: os.listdir(name)[0] if os.path.isdir(name) else read(name))
        os.symlink({str(secret)!r}, "/tmp/link")
        found["link"] = attempt(lambda: read("/tmp/link"))
        tell(found=found, own=own)
    """)
    leaks = {name: result for name, result in image.found["found"].items() if "refused" not in result}
    assert leaks == {}
    secret.unlink()


def test_no_rights(image: HostileImage, root: Path) -> None:
    """No capability, no new namespace, no mount, no device, no other user, and no change of the image."""
    image.run("""
        import ctypes, stat
        libc = ctypes.CDLL(None, use_errno=True)
        def call(number, *arguments):
            if libc.syscall(number, *arguments) < 0:
                raise OSError(ctypes.get_errno(), "refused")
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        tell(capabilities=[int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")],
             privileges=status["NoNewPrivs"].strip(), filter=status["Seccomp"].strip(), tries=dict(
            user_namespace=attempt(lambda: call(272, 0x10000000)), mount_namespace=attempt(lambda: call(272, 0x20000)),
            join=attempt(lambda: call(308, os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)),
            mount=attempt(lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None)),
            unmount=attempt(lambda: call(166, b"/tmp", 2)),
            chroot=attempt(lambda: os.chroot("/tmp")), pivot=attempt(lambda: call(155, b"/tmp", b"/tmp")),
            device=attempt(lambda: os.mknod("/tmp/disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))),
            setuid=attempt(lambda: os.setresuid(12, 12, 12)), ptrace=attempt(lambda: call(101, 16, 1, 0, 0)),
            memory=attempt(lambda: call(310, 1, None, 0, None, 0, 0)), keys=attempt(lambda: call(250, 0, 0)),
            bpf=attempt(lambda: call(321, 0, None, 0)), io_uring=attempt(lambda: call(425, 1, None)),
            module=attempt(lambda: call(175, None, 0, None)), reboot=attempt(lambda: call(169, 0, 0, 0, None)),
            clock=attempt(lambda: call(227, 0, None)), hostname=attempt(lambda: call(170, b"x", 1)),
            personality=attempt(lambda: call(135, 0x40000)), fanotify=attempt(lambda: call(300, 0, 0)),
            image=attempt(lambda: open("/data.txt", "a")),
            remount=attempt(lambda: call(165, None, b"/", None, 32, None)),
            sys=attempt(lambda: open("/proc/sys/kernel/core_pattern", "w")),
            trigger=attempt(lambda: open("/proc/sysrq-trigger", "w"))))
    """)
    assert image.found["capabilities"] == [0, 0, 0, 0, 0]
    assert (image.found["privileges"], image.found["filter"]) == ("1", "2")
    successes = {name: result for name, result in image.found["tries"].items() if "refused" not in result}
    assert successes == {}
    assert (root / "data.txt").read_text() == "of the image"


def test_a_set_user_id_program_gains_nothing(image: HostileImage) -> None:
    image.run("""
        import shutil, subprocess
        shutil.copyfile(os.path.realpath("/usr/bin/python3"), "/tmp/python")
        os.chmod("/tmp/python", 0o6755)
        line = "print([l for l in open('/proc/self/status') if 'CapEff' in l or 'Uid' in l])"
        tell(child=subprocess.run(["/tmp/python", "-c", line], capture_output=True, text=True).stdout)
    """)
    assert "CapEff:\\t0000000000000000" in image.found["child"]


ENDLESS = {
    "processes": ("while True: os.fork()", "too_many_processes"),
    "daemons": ("""
        import time
        for _ in range(200):
            if not os.fork():
                os.setsid()
                time.sleep(60)
    """, "too_many_processes"),
    "memory": ("kept = [bytearray(os.urandom(1 << 20)) for _ in range(10_000)]", "out_of_memory"),
    "output": ("""
        with open(out + "/run.txt", "wb") as file:
            while True: file.write(bytes(1 << 20))
    """, "too_much_output"),
    "temporary files": ("""
        for n in range(10_000):
            with open(f"/tmp/{n}", "wb") as file: file.write(bytes(1 << 20))
    """, "too_much_output"),
    "deleted files": ("""
        kept = [open(f"/tmp/{n}", "wb") for n in range(64)]
        for n, file in enumerate(kept):
            os.unlink(f"/tmp/{n}")
            file.write(bytes(1 << 20))
            file.flush()
        import time
        time.sleep(60)
    """, "too_much_output"),
    "sparse output": ("""
        with open(out + "/run.txt", "wb") as file:
            file.seek(100 << 30)
            file.write(b"x")
    """, "image_failed"),
    "time": ("import time\ntime.sleep(600)", "timed_out"),
    "messages": ("while True: print('x' * 100_000)", "timed_out"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(ENDLESS))
def test_whatever_has_no_end_is_ended(image: HostileImage, case: str) -> None:
    program, code = ENDLESS[case]
    began, before = time.monotonic(), len(all_processes())
    outcome = image.run(program, QUICK if code == "timed_out" else LIMITS)
    # A program may end by itself when the kernel refuses a further process or more memory.
    others = {"image_failed", "image_killed", "out_of_memory"} if case in ("processes", "daemons", "memory") else set()
    assert outcome.failure_code in {code} | others, outcome
    assert time.monotonic() - began < 45
    assert len(all_processes()) < before + 20


def test_a_fork_bomb_leaves_processor_time_without_control_groups(
    image: HostileImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("submissions.sandbox.bubblewrap._parents", list)
    monkeypatch.setattr("submissions.sandbox.containers._MAX_UNGROUPED_PROCESSES", 40)
    monkeypatch.setattr(image.backend, "lacks_memory_groups", True)
    outcome = image.run("tell(niceness=os.nice(0))\n" + FORK_BOMB, replace(LIMITS, memory_bytes=1 << 30, processes=400))
    assert (outcome.kind, outcome.failure_code) == ("processes", "too_many_processes")
    assert outcome.message == MODEL_FAILURES["too_many_processes"].meaning
    assert image.found == {"niceness": 19}


def test_maps_that_the_kernel_delays_do_not_delay_the_end_of_a_fork_bomb(
    image: HostileImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[None] = []
    monkeypatch.setattr("submissions.sandbox.processes._add_segments", lambda *each: delays.append(time.sleep(0.4)))
    outcome = image.run(FORK_BOMB, replace(LIMITS, memory_bytes=1 << 30))
    assert (outcome.kind, outcome.failure_code) == ("processes", "too_many_processes")
    assert len(delays) < 20  # fewer than the number of processes


def test_all_processes_of_an_image_share_the_time_of_its_processors(image: HostileImage) -> None:
    group = ControlGroup(replace(LIMITS, processors=2))
    try:
        files = [folder / name for folder in group.folders for name in ("cpu.weight", "cpu.shares")]
        values = [file.read_text().strip() for file in files if file.is_file()]
        assert values in ([["2048"], ["200"]] if group.shares_processors else [[]])
    finally:
        group.remove()
    image.run("tell(niceness=os.nice(0))")
    assert image.found == {"niceness": 0 if group.shares_processors else 19}


def test_a_full_disk_is_put_down_to_the_image(image: HostileImage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of its use can be measured, such as files in transit between its processes."""
    free = iter([1 << 40])
    monkeypatch.setattr("submissions.sandbox.supervision.free_bytes", lambda folder: next(free, 0))
    limits = replace(LIMITS, reserve_bytes=1 << 20)
    assert image.run("import time; time.sleep(60)", limits).failure_code == "too_much_output"


def test_space_is_reserved_by_writing_and_processors_stay(image: HostileImage) -> None:
    image.run("""
        import ctypes, errno, resource
        file = os.open("/tmp/reserved", os.O_CREAT | os.O_WRONLY)
        failed = ctypes.CDLL(None, use_errno=True).fallocate(file, 0, 0, ctypes.c_long(1 << 20))
        number = ctypes.get_errno()
        os.posix_fallocate(file, 0, 1 << 20)
        before = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, range(os.cpu_count()))
        tell(fallocate=errno.errorcode.get(number), size=os.stat("/tmp/reserved").st_blocks * 512, before=before,
             after=sorted(os.sched_getaffinity(0)), files=resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    """)
    assert image.found.pop("size") >= 1 << 20
    assert len(image.found["before"]) == 1
    assert image.found["after"] == image.found.pop("before")
    assert (image.found["fallocate"], image.found["files"]) == ("ENOTSUP", 1024)


def _as_another_user(action: Callable[[], object]) -> int:
    """Return the exit status of a process that does this without root's rights."""
    if not (process := os.fork()):
        status = 1
        try:
            if os.getuid() == 0:
                os.setresuid(12345, 12345, 12345)
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_folders_without_permissions_stop_no_worker(bubblewrap: Backend) -> None:
    """A worker that is not root is the owner of what its image writes, and cannot read it all the same."""

    def attack() -> None:
        out = Path(tempfile.mkdtemp(dir="/tmp"))
        (out / "folder").mkdir()
        (out / "run.txt").write_text("run")
        for path in (out / "folder", out / "run.txt", out):
            path.chmod(0)
        assert exceeds_limits([out], 1 << 20, 10)
        remove_unexpected_files(out)
        assert (out / "run.txt").read_text() == "run"
        assert not exceeds_limits([out], 1 << 20, 10)
        (out / "folder").chmod(0)
        remove(out)
        assert not out.exists()

    assert _as_another_user(attack) == 0


@pytest.mark.parametrize("line", ["bwrap: Can't mount", "x\nbwrap: execvp x: No such file or directory"])
def test_errors_of_the_sandbox_cannot_be_imitated(image: HostileImage, line: str) -> None:
    program = f"tell(files=os.listdir('/proc/self/fd')); sys.stderr.write({line!r}); sys.exit(1)"
    outcome = image.run(program, shows_output=True)
    assert len(image.found["files"]) == 4  # three streams and the folder itself, but not the status of bwrap
    assert (outcome.failure_code, outcome.message) == ("image_failed", "exit status 1")
    assert image.run("sys.exit(77)").message == MODEL_FAILURES["image_failed"].meaning


@pytest.mark.parametrize("length", [1, 100])
def test_messages_that_are_unread_at_the_end_are_reported(
    image: HostileImage, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(ImageSupervision, "_read_output", lambda self, selector: self._child.process.wait())
    program = f"print('a' * {length}); sys.stderr.write('stopped'); sys.exit(3)"
    outcome = image.run(program, shows_output=True)
    assert sorted(outcome.output.split(" ⏎ ")) == ["a" * length, "stopped"]
    assert outcome.message == "exit status 3"


def test_a_command_that_cannot_run_is_named(image: HostileImage) -> None:
    for name in ("/nowhere/program", "/data.txt", "/usr"):
        outcome = run_image(image.backend, image.task("", command=(name,)), LIMITS, lambda *_: None)
        assert (outcome.kind, outcome.failure_code) == ("model_failed", "image_failed")
        assert f"the command “{name}” was not found, or cannot be executed in “/”" in outcome.message


def test_a_sandbox_that_cannot_be_set_up_is_our_failure(image: HostileImage) -> None:
    task = image.task("", inputs={"/nowhere/input": image.folder})
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        run_image(image.backend, task, LIMITS, lambda *_: None)


def test_the_output_has_regular_files_only(image: HostileImage, tmp_path: Path) -> None:
    """Links to other files, devices, and deep folders are removed before anything is read."""
    task = image.task("""
        import socket
        os.symlink("/etc/shadow", out + "/run.txt")
        os.symlink("../..", out + "/up")
        os.link("/tmp/../tira-data/output/run.txt", out + "/hard") if hasattr(os, "link") else None
        os.mkfifo(out + "/pipe")
        socket.socket(socket.AF_UNIX).bind(out + "/socket")
        open(out + "/kept", "w").close()
        os.chdir(out)
        for _ in range(300):
            os.mkdir("d")
            os.chdir("d")
    """)
    outcome = run_image(image.backend, task, LIMITS, lambda *_: None)
    assert outcome.kind in ("done", "disk")
    assert {path.name for path in task.out.iterdir()} <= {"kept"}


def test_messages_in_the_protocol_of_the_site_have_no_effect(image: HostileImage) -> None:
    told: list[str] = []
    task = image.task("""
        print('{"stage": "measuring", "share": 1.0}')
        print('{"ask": "measure"}')
        print('{"done": "measuring"}', flush=True)
    """)
    run_image(image.backend, task, LIMITS, lambda stage, share, note: told.append(stage))
    assert set(told) <= {"loading", "waiting"}


def test_a_server_that_never_answers_or_ends(image: HostileImage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("submissions.sandbox.containers.START_SECONDS", 2.0)
    silent = "import socket, time\ns = socket.create_server(('127.0.0.1', 8000))\ntime.sleep(600)"
    idle = "import time; time.sleep(600)"
    for program, code in ((silent, "server_silent"), (idle, "server_silent"), ("1/0", "image_failed")):
        task = image.task(program, serves=True)
        with pytest.raises(ServerEnded) as ended, serve_image(image.backend, task, LIMITS, lambda *_: None):
            pass
        assert ended.value.outcome.failure_code == code


@pytest.mark.parametrize(
    "answer",
    [
        "client.sendall(b'HTTP/1.1 100 Continue\\r\\n\\r\\n' * 1000)",
        "client.sendall(next(start, b'a')); time.sleep(0.1)",
    ],
)
def test_a_server_that_answers_without_end(image: HostileImage, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("submissions.sandbox.containers.START_SECONDS", 2.0)
    monkeypatch.setattr("evaluation.engines.serving._READY_TIMEOUT", 1.0)
    task = image.task(
        f"""
        import socket, threading, time
        def serve(client):
            start = iter([b"HTTP/1.1 200 OK\\r\\nX: "])
            client.recv(1000)
            while True:
                {answer}
        listener = socket.create_server(("127.0.0.1", 8000))
        while True:
            threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
        """,
        serves=True,
    )
    calls = [time.monotonic()]
    with (
        pytest.raises(ServerEnded) as ended,
        serve_image(image.backend, task, LIMITS, lambda *_: calls.append(time.monotonic())),
    ):
        pass
    assert ended.value.outcome.failure_code == "server_silent"
    assert max(later - earlier for earlier, later in itertools.pairwise(calls)) < 5  # cancellation is noticed


def test_a_server_sees_neither_the_socket_nor_the_relay(image: HostileImage) -> None:
    attack = """
        import glob, threading
        def look():
            seen = [open(name, "rb").read() for name in glob.glob("/proc/[0-9]*/cmdline")]
            tell(sockets=glob.glob("/relay*") + glob.glob("/proc/*/root/relay/*"), lines=len(seen),
                 names=[name for name in os.listdir("/proc/net") if name == "unix"])
        look()
    """
    task = image.task(attack + SERVER.replace("\n", "\n        "), serves=True)
    task = replace(task, environment={**task.environment, "PORT": "8000"})
    with serve_image(image.backend, task, replace(LIMITS, processes=100), lambda *_: None) as server:
        assert server.socket_path.is_socket()
        server.check()
    assert '"sockets": []' in (task.out / "found.json").read_text()


def test_images_never_run_without_a_sandbox(image: HostileImage) -> None:
    with pytest.raises(SandboxUnavailable, match="sandbox"):
        run_image(UnprotectedBackend(), image.task("tell(ran=True)"), LIMITS, lambda *_: None)


def test_an_image_that_is_killed_has_crashed_and_may_be_retried(image: HostileImage) -> None:
    outcome = image.run("import signal; print('here', flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    assert (outcome.kind, outcome.failure_code) == ("crashed", "image_killed")
    assert outcome.output == ""  # shown only with public texts


def test_cancellation_ends_everything(image: HostileImage) -> None:
    class Cancelled(Exception):
        pass

    def cancel(stage: str, share: float, note: str) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        run_image(image.backend, image.task("import time; time.sleep(600)"), LIMITS, cancel)
