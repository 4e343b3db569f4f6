"""A worker that is killed while it starts a sandbox: what is left of it is found and ended, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings

from submissions.checkpoints import hub
from submissions.sandbox import processes
from submissions.sandbox.backends import Backend, Program, interpreter
from tests.submissions.sandboxes import SMALL

#: Starts sandboxes in processes of its own and kills each of them some way into it; then tells who they were.
KILLER = """
import json, os, signal, sys, time
sys.path[:0] = json.loads(os.environ["SEARCHED"])
os.environ["DJANGO_SETTINGS_MODULE"] = "leaderboard.settings"
import django; django.setup()
from submissions.sandbox import bubblewrap
from submissions.sandbox.backends import SandboxLimits, Program, interpreter
backend = bubblewrap.Bubblewrap()
assert backend.available, backend.reason
limits = SandboxLimits(memory_bytes=1 << 30, wall_clock_seconds=60, output_bytes=1 << 20)
program = Program(command=(*interpreter(), "-S", "-c", "import time; time.sleep(600)"), limits=limits)
workers = []
while len(workers) < int(sys.argv[1]):
    worker = os.fork()
    if not worker:
        told = bubblewrap._read_init
        def die(*arguments):
            # As soon as bwrap has been started, and before it can tell us anything.
            time.sleep(len(workers) % 12 / 4000)
            os.kill(os.getpid(), signal.SIGKILL)
        if len(workers) % 2:
            bubblewrap._read_init = die
        backend.start(program)
        time.sleep(600)
    workers.append(worker)
    if len(workers) % 2:
        time.sleep((len(workers) * 7 % 50) / 1000)
        os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
print(json.dumps(workers))
"""


def marked_by(owners: set[str]) -> list[int]:
    """The processes of this machine that carry the mark of one of these."""
    prefix = f"{processes._MARK}={processes._namespace()}/".encode()
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            for variable in (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else ():
                if variable.startswith(prefix):
                    owner = variable.removeprefix(prefix).decode().partition("/")[0]
                    found += [int(entry.name)] if owner in owners else []
    return found


@pytest.mark.parametrize("number", [12, pytest.param(100, marks=pytest.mark.long)])
def test_workers_killed_while_they_start_a_sandbox_leave_nothing(
    bubblewrap: Backend, tmp_path: Path, number: int
) -> None:
    """Some of them, at every moment of the start; the next worker's start ends what is left."""
    searched = [str(settings.BASE_DIR), *(path for path in sys.path if "site-packages" in path)]
    killed = subprocess.run(
        [sys.executable, "-B", "-c", KILLER, str(number)],
        env={"RUNBOARD_VAR": str(tmp_path), "PATH": "/usr/bin:/bin", "SEARCHED": json.dumps(searched)},
        capture_output=True,
        text=True,
        check=True,
    )
    workers = {str(worker) for worker in json.loads(killed.stdout)}
    assert len(workers) == number
    left = len(marked_by(workers))
    print(f"{len(workers)} workers were killed, and left {left} processes")
    processes.kill_leftovers()
    deadline = time.monotonic() + 120
    while marked_by(workers):  # what has been killed takes a moment to be gone
        assert time.monotonic() < deadline


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to be ended at the end."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        process.kill()
        process.wait()


def test_only_what_the_dead_left_is_ended(sleepers: list[subprocess.Popen[bytes]], bubblewrap: Backend) -> None:
    """Not what somebody alive is starting, nor what another numbering's process of the same number is."""
    owner = subprocess.Popen(["sleep", "600"])
    numbering, moment = processes._namespace(), processes._start_time(owner.pid)
    mine = processes.process_mark()
    marks = {
        "left": f"{numbering}/{owner.pid}/{moment}",
        "elsewhere": f"another start/pid:[1]/{owner.pid}/{moment}",
        "reused": f"{numbering}/{os.getpid()}/1",
        "strange": f"{numbering}/x/{moment}",
    }
    for environment in (mine, {}, *({processes._MARK: text} for text in marks.values())):
        sleepers.append(subprocess.Popen(["sleep", "600"], env=environment))
    ours, plain, left, elsewhere, reused, strange = sleepers
    owner.kill()  # not waited for: what is left of it has its number still
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
    assert processes.kill_leftovers() >= 2
    assert left.wait(timeout=120) == reused.wait(timeout=120) == -signal.SIGKILL
    assert [process.poll() for process in (ours, plain, elsewhere, strange)] == [None] * 4
    owner.wait()


def test_the_download_of_a_killed_worker_is_ended() -> None:
    worker = os.fork()
    if not worker:
        hub._run_process("http.server", ["0", "--bind", "127.0.0.1"], lambda: None)
        os._exit(1)
    deadline = time.monotonic() + 60
    while not marked_by({str(worker)}):
        assert time.monotonic() < deadline
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    assert processes.kill_leftovers() == 1
    while marked_by({str(worker)}):
        assert time.monotonic() < deadline


def test_a_download_ends_with_its_job() -> None:
    def stop() -> None:
        if any(b"http.server" in Path(f"/proc/{process}/cmdline").read_bytes() for process in own()):
            raise InterruptedError

    def own() -> list[int]:
        return marked_by({str(os.getpid())})

    with pytest.raises(InterruptedError):
        hub._run_process("http.server", ["0", "--bind", "127.0.0.1"], stop)
    assert not own()


def test_a_sandbox_at_work_is_left_alone(bubblewrap: Backend) -> None:
    """Its worker is alive."""
    contained = bubblewrap.start(Program(command=(*interpreter(), "-c", "input()"), limits=SMALL))
    processes.kill_leftovers()
    assert contained.process.communicate(b"\n", timeout=60)[1] == b""
    assert contained.process.returncode == 0
    contained.kill()
    contained.close()
