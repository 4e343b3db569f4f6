"""Hostile programs in the place of a model: what they try fails, ends in time, and leaves the worker as it was."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from submissions.sandbox.backends import Backend, UnprotectedBackend
from submissions.sandbox.processes import process_tree
from tests.submissions.sandboxes import SMALL, Stranger

QUICK = replace(SMALL, wall_clock_seconds=1)


@pytest.fixture
def stranger(
    bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stranger]:
    """Somebody with a program instead of a model. Afterwards the worker is as good as before."""
    before = process_tree(os.getpid())
    made = Stranger(bubblewrap, tmp_path, monkeypatch)
    yield made
    # What was there goes on, and a browser or a server has children of its own, which come and go.
    elsewhere = {process for each in before[1:] for process in process_tree(each)}
    assert set(process_tree(os.getpid())) - elsewhere == {os.getpid()}
    made.run("tell(alive=True)")
    assert made.found == {"alive": True}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A service of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


CONNECT = """
import socket
def connect(address):
    with socket.create_connection(address, timeout=1) as connection:
        return connection.getpeername()
tell(
    loopback=attempt(lambda: connect(("127.0.0.1", {port}))),
    internet=attempt(lambda: connect(("1.1.1.1", 53))),
    interfaces=[line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
)
"""


def was_called(listener: socket.socket) -> bool:
    """Whether somebody connected."""
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


def test_no_network(stranger: Stranger, listener: socket.socket) -> None:
    """Neither this machine's services nor the internet are there; nor any interface to reach them by."""
    stranger.run(CONNECT.format(port=listener.getsockname()[1]))
    assert "refused" in stranger.found["loopback"]
    assert "refused" in stranger.found["internet"]
    assert stranger.found["interfaces"] == ["lo"]
    assert not was_called(listener)


def test_programs_on_a_gpu_can_look_for_other_devices(stranger: Stranger) -> None:
    """CUDA and the energy meters look for folders in /sys, of which the sandbox mounts a part."""
    stranger.run(
        """
        tell(mounted=attempt(lambda: os.listdir("/sys/devices")), other=attempt(lambda: os.listdir("/sys/nothing")))
        """,
        device="cuda",
    )
    assert "did" in stranger.found["mounted"]
    assert stranger.found["other"] == {"refused": "FileNotFoundError"}


def test_the_network_canary_sings_without_a_sandbox(
    own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    """The same program gets through where nothing holds it: the test above can fail."""
    outside = Stranger(UnprotectedBackend(), tmp_path, monkeypatch)
    outside.run(CONNECT.format(port=listener.getsockname()[1]))
    assert "did" in outside.found["loopback"]
    assert was_called(listener)


def test_no_files_but_its_own(stranger: Stranger, settings: Any, tmp_path: Path) -> None:
    """Passwords, the site's secrets and judgements, its code, and other teams' models are not there."""
    other = tmp_path / "other-model"
    other.mkdir()
    (other / "model.safetensors").write_text("theirs")
    secret = settings.VAR / "secret-of-the-site"
    secret.write_text("secret")
    forbidden = [
        "/etc/shadow",
        "/etc/passwd",
        "/etc/hostname",
        "/root/.bashrc",
        secret,
        settings.VAR / "db.sqlite3",
        settings.BASE_DIR / "manage.py",
        settings.BASE_DIR / ".git" / "config",
        settings.BASE_DIR / "leaderboard" / "settings" / "__init__.py",
        other / "model.safetensors",
        tmp_path / "model" / "config.json",
        f"/proc/{os.getpid()}/environ",
        "/proc/1/root/etc/shadow",
    ]
    stranger.run(f"""
        tell(read={{name: attempt(lambda: open(name).read()) for name in {list(map(str, forbidden))!r}}},
             listed={{name: attempt(lambda: os.listdir(name)) for name in ("/home", "/root/.ssh", "/var", "/srv")}})
    """)
    assert {name for name, did in stranger.found["read"].items() if "refused" not in did} == set()
    assert {name for name, did in stranger.found["listed"].items() if "refused" not in did} == set()
    secret.unlink()


def test_no_environment_and_no_processes_of_ours(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the worker is seen in any process; there are no processes but the sandbox's; it is not root."""
    monkeypatch.setenv("DATABASE_PASSWORD", "canary-in-the-environment")
    stranger.run("""
        seen = b""
        processes = [name for name in os.listdir("/proc") if name.isdigit()]
        for name in processes:
            try:
                seen += open(f"/proc/{name}/environ", "rb").read()
            except OSError:
                pass
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        tell(environment=(str(dict(os.environ)) + seen.decode()), processes=len(processes), user=os.getuid(),
             privileges=status["NoNewPrivs"].strip(), capabilities=int(status["CapEff"], 16),
             more_capabilities=[int(status[name], 16) for name in ("CapPrm", "CapInh", "CapBnd", "CapAmb")],
             filter=status["Seccomp"].strip(), groups=os.getgroups())
    """)
    assert "canary" not in stranger.found["environment"]
    assert "RUNBOARD_VAR" not in stranger.found["environment"]
    assert stranger.found["processes"] <= 3
    assert stranger.found["user"] != 0
    assert stranger.found["privileges"] == "1"
    assert stranger.found["capabilities"] == 0
    assert stranger.found["more_capabilities"] == [0, 0, 0, 0]
    assert stranger.found["filter"] == "2"
    assert 0 not in stranger.found["groups"]


def test_what_it_is_given_cannot_be_changed(stranger: Stranger) -> None:
    """Model, corpus, queries, our code and Python can be read, not written; nor can a file be made beside them."""
    stranger.run("""
        def write(name):
            return open(name, "a").write("x")
        places = [job["corpus"], job["queries"], job["checkpoint"] + "/config.json", job["checkpoint"] + "/new",
                  sys.argv[1] + "/evaluation/new.py", sys.argv[1] + "/evaluation/__init__.py", sys.executable,
                  sys.prefix + "/new", os.__file__, "/in/new", "/new", "/dev/new", "/usr/new", "/etc/new"]
        tell(written={name: attempt(lambda: write(name)) for name in places},
             removed=attempt(lambda: os.unlink(job["corpus"])), mode=attempt(lambda: os.chmod(job["corpus"], 0o777)),
             read=attempt(lambda: open(job["corpus"]).readline()))
    """)
    assert {name for name, did in stranger.found["written"].items() if "refused" not in did} == set()
    assert "refused" in stranger.found["removed"]
    assert "refused" in stranger.found["mode"]
    assert "did" in stranger.found["read"]


def test_a_kept_index_can_be_opened_and_not_changed(stranger: Stranger, tmp_path: Path) -> None:
    """Others' baselines and first stages read it afterwards."""
    index = tmp_path / "kept" / "index"
    index.mkdir(parents=True)
    (index / "documents.npy").write_bytes(b"postings")
    index.chmod(0o777)
    (index / "documents.npy").chmod(0o666)
    stranger.run(
        """
        name = job["index"] + "/documents.npy"
        tell(read=attempt(lambda: open(name).read()), written=attempt(lambda: open(name, "r+").write("x")),
             beside=attempt(lambda: open(job["index"] + "/new", "w")), removed=attempt(lambda: os.unlink(name)),
             moved=attempt(lambda: os.rename(name, name + "2")), mode=attempt(lambda: os.chmod(name, 0o777)),
             noted=attempt(lambda: os.listdir(job["index"] + "/..")))
    """,
        index=index,
    )
    assert stranger.found.pop("read") == {"did": "postings"}
    assert "kept" not in str(stranger.found.pop("noted"))
    assert [name for name, did in stranger.found.items() if "refused" not in did] == []
    assert [path.name for path in index.iterdir()] == ["documents.npy"]
    assert (index / "documents.npy").read_bytes() == b"postings"


def test_a_fork_bomb_is_ended(stranger: Stranger) -> None:
    """It is not the machine that runs out of processes."""
    outcome = stranger.run(
        """
        while True:
            try:
                os.fork()
            except OSError:
                pass
    """,
        replace(SMALL, memory_bytes=1 << 30),
    )
    assert (outcome.kind, outcome.failure_code) == ("processes", "too_many_processes")


ALLOCATE = """
held = []
try:
    held.append(bytearray(20 << 30))
except MemoryError:
    pass
while True:
    held.append(bytearray(b"x") * (16 << 20))
"""


@pytest.mark.parametrize("group", ["the worker's control group", "no control group"])
def test_twenty_gigabytes_of_memory_are_not_had(stranger: Stranger, settings: Any, group: str) -> None:
    """The kernel ends it, or refuses and the parent ends it; the outcome is the same."""
    if group == "no control group":
        settings.SANDBOX_CGROUP = "/nowhere"
    outcome = stranger.run(ALLOCATE)
    assert (outcome.kind, outcome.failure_code) == ("memory", "out_of_memory")


def test_memory_of_no_process_is_not_had(stranger: Stranger) -> None:
    """Segments and files in memory, which outlive the process that fills them and are in nobody's account."""
    stranger.run("""
        import ctypes, platform
        numbers = {"x86_64": {"shmget": 29, "msgget": 68, "memfd_create": 319},
                   "aarch64": {"shmget": 194, "msgget": 186, "memfd_create": 279}}[platform.machine()]
        libc = ctypes.CDLL(None, use_errno=True)
        def call(name, *arguments):
            answer = libc.syscall(numbers[name], *arguments)
            return ctypes.get_errno() if answer < 0 else 0
        tell(calls=[call("shmget", 0, 1 << 24, 0o1600), call("msgget", 0, 0o1600), call("memfd_create", b"x", 0)])
    """)
    assert stranger.found["calls"] == [1, 1, 1]


def test_shared_memory_that_was_let_go_of_counts(stranger: Stranger, settings: Any) -> None:
    """Without a control group too: its pages stay, though the kernel counts them as nobody's."""
    settings.SANDBOX_CGROUP = "/nowhere"
    outcome = stranger.run("""
        import mmap, time
        held = []
        for _ in range(24):  # 384 MiB
            held.append(mmap.mmap(-1, 16 << 20))
            held[-1].write(bytes(16 << 20))
            held[-1].madvise(mmap.MADV_DONTNEED)
        time.sleep(2)
    """)
    assert (outcome.kind, outcome.failure_code) == ("memory", "out_of_memory")


def test_compiled_code_runs(stranger: Stranger) -> None:
    """What is allowed is enough for numba, in several threads too."""
    stranger.run(
        """
        import numba, numpy
        @numba.njit(parallel=True)
        def squares(numbers):
            total = 0
            for place in numba.prange(len(numbers)):
                total += numbers[place] ** 2
            return total
        tell(total=int(squares(numpy.arange(1000))))
        """,
        replace(SMALL, memory_bytes=1 << 30, processes=512, scratch_bytes=64 << 20),
    )
    assert stranger.found == {"total": 332833500}


def test_memory_that_is_a_file_counts(stranger: Stranger) -> None:
    """What lies in /tmp and /dev/shm is memory too: there is only so much."""
    stranger.run("""
        def fill(name):
            with open(name, "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
        tell(tmp=attempt(lambda: fill("/tmp/big")), shared=attempt(lambda: fill("/dev/shm/big")),
             size=os.path.getsize("/tmp/big"))
    """)
    assert stranger.found["tmp"] == stranger.found["shared"] == {"refused": "OSError"}
    assert stranger.found["size"] <= SMALL.scratch_bytes


DEAF = "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"


@pytest.mark.parametrize("first", ["pass", "os.close(1); os.close(2)", DEAF], ids=["plain", "silent", "deaf"])
def test_an_endless_loop_is_ended(stranger: Stranger, first: str) -> None:
    """By the clock, whatever it closes or ignores."""
    outcome = stranger.run(first + "\nwhile True: pass", replace(SMALL, wall_clock_seconds=1))
    assert (outcome.kind, outcome.failure_code) == ("timed_out", "timed_out")


@pytest.mark.parametrize(
    "write",
    [
        "file = open(out + '/big', 'wb')\nwhile True:\n    attempt(lambda: file.write(bytes(1 << 20)))",
        "import itertools\nfor n in itertools.count():\n    open(f'{out}/{n % 100}', 'ab').write(bytes(1 << 20))",
        "import itertools\nfor n in itertools.count():\n    open(f'{out}/{n}', 'wb')",
        "os.chdir(out)\nwhile True:\n    os.mkdir('d'); os.chdir('d')",
    ],
    ids=["one file", "large files", "many files", "deep folders"],
)
def test_fifty_gigabytes_are_not_written(stranger: Stranger, write: str) -> None:
    """One file stops growing at the limit; more of them end the program, which leaves nothing that is in the way."""
    outcome = stranger.run(write, QUICK)
    assert outcome.kind in {"disk", "timed_out"}
    left = stranger.folder / f"out-{stranger.count}"
    assert sum(path.stat().st_blocks * 512 for path in left.rglob("*")) < 500 << 20
    assert max(len(path.relative_to(left).parts) for path in left.rglob("*")) <= 15 if list(left.rglob("*")) else True


def test_nothing_outlives_the_program(stranger: Stranger) -> None:
    """A grandchild in a session of its own ends when the program does."""
    stranger.run("""
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                import time
                time.sleep(0.7)
                open(out + "/late", "w")
                time.sleep(60)
            os._exit(0)
        os.wait()
        tell(done=True)
    """)
    assert stranger.found == {"done": True}
    time.sleep(1)
    assert not (stranger.folder / "out-1" / "late").exists()


def test_what_it_leaves_is_plain_files(stranger: Stranger) -> None:
    """Links to files of this machine, pipes and names of others' files are gone before anybody reads."""
    outcome = stranger.run("""
        os.symlink("/etc/shadow", out + "/run.txt")
        os.mkfifo(out + "/result.json")
        os.symlink("/etc", out + "/shard")
        open(out + "/twice", "w").write("x")
        os.link(out + "/twice", out + "/again")
        os.mkdir(out + "/work")
        os.symlink("/", out + "/work/root")
        open(out + "/plain", "w").write("x")
    """)
    assert (outcome.kind, outcome.failure_code) == ("crashed", "no_usable_result")
    assert [path.name for path in (stranger.folder / "out-1").iterdir()] == ["plain"]


def test_a_flood_of_words_is_not_kept(stranger: Stranger) -> None:
    """Lines of any length and number cost the parent nothing, and none of them is shown to anybody."""
    told: list[tuple[str, float, str]] = []
    outcome = stranger.run(
        r"""
        os.write(1, b'{"stage": "root", "share": 1}\n{"stage": "encoding", "share": 1e999}\n[[[[\n')
        os.write(1, b'{"stage": "encoding", "share": 0.5, "note": "a\\u0007b"}\n')
        for _ in range(300):
            os.write(1, b"x" * 100_000)
            os.write(2, b"secret path of the machine\n" * 1000)
        os.write(1, b"\n" * 100_000)
        sys.exit(1)
        """,
        on_progress=lambda stage, share, note: told.append((stage, share, note)),
    )
    assert (outcome.kind, outcome.failure_code) == ("crashed", "crashed")
    assert "secret path" not in outcome.message
    assert {stage for stage, _, _ in told} <= {"loading", "encoding"}


@pytest.mark.parametrize("failure", ['{"code": "made_up", "message": "x"}', "[" * 100_000, '{"code": 3}', "\xff"])
def test_a_failure_in_strange_words_is_a_crash(stranger: Stranger, failure: str) -> None:
    """Only codes that exist are believed."""
    outcome = stranger.run(f"open(out + '/failure.json', 'w', encoding='latin-1').write({failure!r}); sys.exit(3)")
    assert (outcome.kind, outcome.failure_code) == ("crashed", "crashed")


def test_cancelling_ends_everything(stranger: Stranger) -> None:
    """What the caller raises on hearing of progress goes on, after the end of the program and its children."""

    class CancelledError(Exception):
        pass

    def cancel(stage: str, share: float, note: str) -> None:
        if stage == "encoding":
            raise CancelledError

    with pytest.raises(CancelledError):
        stranger.run(
            """
            os.fork()
            print(json.dumps({"stage": "encoding", "share": 0}), flush=True)
            while True: pass
            """,
            on_progress=cancel,
        )


def test_encoded_shards_of_others_are_only_read(stranger: Stranger) -> None:
    """A job adds shards, and cannot change those that were there."""
    shards = stranger.folder / "shards"
    (shards / "00000").mkdir(parents=True)
    (shards / "00000" / "vectors").write_text("theirs")
    stranger.run(
        """
        first = job["shards"] + "/00000"
        tell(read=attempt(lambda: open(first + "/vectors").read()),
             changed=attempt(lambda: open(first + "/vectors", "w")),
             moved=attempt(lambda: os.rename(first, job["shards"] + "/x")),
             added=attempt(lambda: os.mkdir(job["shards"] + "/00001")))
        """,
        shards=shards,
    )
    assert stranger.found["read"] == {"did": "theirs"}
    assert "refused" in stranger.found["changed"]
    assert "refused" in stranger.found["moved"]
    assert "did" in stranger.found["added"]
    assert (shards / "00000" / "vectors").read_text() == "theirs"
