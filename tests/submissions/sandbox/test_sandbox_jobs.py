"""The sandbox as the worker uses it: whole jobs, other users, other backends, and the worker's own end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from submissions import sandbox
from submissions.sandbox import running, supervision
from submissions.sandbox.backends import Backend
from submissions.sandbox.machine_lock import MachineLock
from tests.submissions.sandboxes import SMALL, Stranger


def test_a_real_job_and_its_measuring(
    bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BM25 through the sandbox: a run, figures, the stages on the way, and compiled code found, not made again."""
    excluded = tmp_path / "excluded.tsv"
    excluded.write_text("q1\td3\n")
    job = Stranger(bubblewrap, tmp_path, monkeypatch).job(checkpoint=None, measure=True, excluded=excluded)
    told: list[str] = []
    limits = replace(SMALL, memory_bytes=2 << 30, processes=512, scratch_bytes=64 << 20)
    outcome = running.run_job(bubblewrap, job, limits, lambda stage, share, note: told.append(stage))
    assert outcome.kind == "done", outcome
    assert outcome.result["figures"]["searches"] == 200
    assert outcome.result["retrieval"]["documents"] == 20
    assert outcome.result["hardware"]["details"]["cores"] == 1
    run = (job.out / "run.txt").read_text()
    assert run.startswith("q1 Q0 d7 1 ")
    assert (" d4 " in run, " d3 " in run) == (True, False)
    assert sorted(path.name for path in job.out.iterdir()) == ["result.json", "run.txt"]
    # Who looks twice a second misses stages that are over sooner.
    assert told[0] == "loading"
    assert set(told) <= {"loading", "indexing", "searching", "waiting", "measuring"}


ASK = """
print('{"ask": "measure"}', flush=True)
tell(answer=sys.stdin.readline())
"""


def test_measuring_waits_until_nobody_else_works(
    bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is answered once the machine is its own, and the wait is not its time."""
    stranger = Stranger(bubblewrap, tmp_path, monkeypatch)
    neighbour = MachineLock()
    assert neighbour.try_acquire("shared")
    began = time.monotonic()

    def listen(stage: str, share: float, note: str) -> None:
        if note and time.monotonic() > began + 4.5:
            neighbour.release()

    outcome = stranger.run(ASK, replace(SMALL, wall_clock_seconds=4), on_progress=listen, measure=True)
    neighbour.close()
    assert outcome.seconds > 4
    assert stranger.found == {"answer": "go\n"}


def test_measuring_has_an_end(
    bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the machine alone and does not come back is ended, and the machine is everybody's again."""
    outcome = Stranger(bubblewrap, tmp_path, monkeypatch).run(
        ASK + "while True: pass", replace(SMALL, measuring_seconds=0.5), measure=True
    )
    assert outcome.kind == "timed_out"
    free = MachineLock()
    assert free.try_acquire("exclusive")
    free.close()


def test_who_measures_longer_than_its_share_of_the_job_is_ended(
    bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as long as it should is the most, whatever the child says."""
    monkeypatch.setattr(supervision, "MIN_SECONDS", 0.2)
    outcome = Stranger(bubblewrap, tmp_path, monkeypatch).run(ASK + "while True: pass", measure=True)
    assert (outcome.kind, outcome.seconds < 10) == ("timed_out", True)


def test_what_follows_measuring_does_not_keep_others_out(
    bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Stranger(bubblewrap, tmp_path, monkeypatch)
    others: list[bool] = []

    def listen(stage: str, share: float, note: str) -> None:
        if (stranger.folder / "out-1" / "found.json").exists():
            other = MachineLock()
            others.append(other.try_acquire("shared"))
            other.close()
            if others[-1]:
                (stranger.folder / "out-1" / "seen").touch()

    outcome = stranger.run(
        ASK
        + """
import time
time.sleep(0.6)
print('{"done": "measuring"}', flush=True)
while not os.path.exists(out + "/seen"):
    time.sleep(0.01)
""",
        on_progress=listen,
        measure=True,
    )
    assert outcome.kind == "crashed"  # it left no result
    assert (others[0], others[-1]) == (False, True)


RESULT = """
retrieval = {"documents": 20, "queries": 1, "queries_without_results": 0, "lines": 1, "index_bytes": 1, "facts": {},
             "analyser": "words", "build_seconds": 0, "search_seconds": 0, "encoding_seconds": 0, "variants": {},
             "variant_facts": {}, "variant_index_bytes": {}}
with open(out + "/run.txt", "w") as file:
    file.write("q1 Q0 d7 1 1.0 x\\n")
with open(out + "/result.json", "w") as file:
    json.dump({"figures": None, "variants": {}, "retrieval": retrieval}, file)
"""


@pytest.mark.parametrize("payload", ["while True: pass", "sys.exit(5)"])
def test_a_disk_that_fills_while_it_is_measured_leaves_the_run(
    bubblewrap: Backend, own_lock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, payload: str
) -> None:
    monkeypatch.setattr(supervision, "_LOOK_AT_FILES", 0.1)
    monkeypatch.setattr(supervision, "free_bytes", lambda folder: 0 if (folder / "found.json").exists() else 2**40)
    stranger, limits = Stranger(bubblewrap, tmp_path, monkeypatch), replace(SMALL, reserve_bytes=1)
    outcome = stranger.run(RESULT + ASK + payload, limits, checkpoint=None, measure=True)
    assert (outcome.kind, outcome.result["figures"]) == ("done", None)
    assert outcome.unmeasured.startswith("the measurement failed")


@pytest.mark.parametrize(
    ("payload", "looks"),
    [
        ("import time; time.sleep(60)", 1),
        ("sys.exit(5)", 2),
        ("import signal; os.kill(os.getpid(), signal.SIGBUS)", 2),
    ],
    ids=["it runs on", "it cannot write", "a page that it maps has no room"],
)
def test_a_disk_that_others_filled_is_no_fault_of_the_model(
    bubblewrap: Backend,
    own_lock: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    payload: str,
    looks: int,
) -> None:
    """It had not written too much itself: its job is ours to try again, whether we or it saw the disk full."""
    monkeypatch.setattr(supervision, "_LOOK_AT_FILES", 0.1 if looks == 1 else 60)
    free = iter([2**40] * looks)
    monkeypatch.setattr(supervision, "free_bytes", lambda folder: next(free, 0))
    with pytest.raises(sandbox.SandboxUnavailable, match="nearly full"):
        Stranger(bubblewrap, tmp_path, monkeypatch).run(payload, replace(SMALL, reserve_bytes=1))


DRIVER = """
import json, logging, os, sys
sys.path[:0] = json.loads(os.environ["SEARCHED"])
os.environ["DJANGO_SETTINGS_MODULE"] = "leaderboard.settings"
import django; django.setup(); logging.disable()
import pytest
from pathlib import Path
from submissions.sandbox import running
from submissions.sandbox.bubblewrap import Bubblewrap
from tests.submissions.sandboxes import Stranger
import evaluation.engines.index.kernels as kernels
kernels.load = lambda: None  # the payload has no use for compiled code
backend = Bubblewrap()
assert backend.available, backend.reason
print("ready", flush=True)
stranger = Stranger(backend, Path(os.environ["HOME"]), pytest.MonkeyPatch())
outcome = stranger.run(sys.argv[1], checkpoint=None, on_progress=lambda *told: print(told[0], flush=True))
print(json.dumps([outcome.kind, stranger.found]), flush=True)
"""


def start_driver(payload: str, folder: Path, *, user: int | None, python: str) -> subprocess.Popen[str]:
    """A worker of its own, perhaps under another user, that runs the payload."""
    folder.mkdir(exist_ok=True)
    if user is not None:
        os.chown(folder, user, user)
    searched = [
        str(Path(running.__file__).parents[2]),
        *(path for path in sys.path if "site-packages" in path),
    ]
    return subprocess.Popen(
        [python, "-B", "-c", DRIVER, payload],
        env={
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "RUNBOARD_VAR": str(folder / "var"),
            "PATH": "/usr/bin:/bin",
            "SEARCHED": json.dumps(searched),
        },
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        start_new_session=True,
    )


def test_a_worker_that_is_not_root_contains_too(bubblewrap: Backend, tmp_path: Path) -> None:
    """The sandbox needs no privileges: through a user namespace it holds the same."""
    if os.geteuid() != 0:
        pytest.skip("the other tests ran without privileges already")
    python = shutil.which("python3.11", path="/usr/bin") or shutil.which("python3", path="/usr/bin")
    if python is None or not os.access(Path(running.__file__), os.R_OK):
        pytest.skip("there is no Python that another user can start")
    version = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    if version.stdout.split() != [str(part) for part in sys.version_info[:2]]:
        pytest.skip("the system's Python is of another version, and cannot read our packages")
    folder = Path(tempfile.mkdtemp(prefix="runboard-nobody-"))  # pytest's own folders are closed to other users
    payload = """
        import socket
        tell(user=os.getuid(), shadow=attempt(lambda: open("/etc/shadow").read()),
             socket=attempt(lambda: socket.socket()), processes=len([n for n in os.listdir("/proc") if n.isdigit()]),
             new=attempt(lambda: open("/new", "w")),
             capabilities=[line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")],
             filter=[line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:")])
    """
    driver = start_driver(payload, folder, user=65534, python=python)
    lines = driver.communicate(timeout=120)[0].splitlines()
    shutil.rmtree(folder)
    _, found = json.loads(lines[-1])
    assert found["user"] == 65534
    assert found["capabilities"] == ["0000000000000000"]
    assert found["filter"] == ["2"]
    assert found["processes"] <= 3
    for name in ("shadow", "socket", "new"):
        assert "refused" in found[name]


def test_killing_the_worker_ends_its_child(bubblewrap: Backend, tmp_path: Path) -> None:
    """Whatever ends the worker ends the program in the same moment: nothing is left behind."""
    marker = f"runboard-canary-{os.getpid()}"
    payload = f"print(json.dumps({{'stage': 'encoding', 'share': 0}}), flush=True)\nwhile True: '{marker}'"
    driver = start_driver(payload, tmp_path / "home", user=None, python=sys.executable)
    assert driver.stdout is not None
    while driver.stdout.readline() != "encoding\n":
        assert driver.poll() is None
    assert len(with_marker(marker)) > 1
    driver.kill()
    driver.wait()
    driver.stdout.close()
    wait_until(lambda: not with_marker(marker))


def with_marker(marker: str) -> list[str]:
    """The processes of this machine that have the marker in their command."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    """Until it holds, half a minute at most."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_chosen(settings: Any, bubblewrap: Backend) -> None:
    """What works and isolates, unless something else is named; a name that is none is refused."""
    try:
        for name, chosen, isolates in (
            ("auto", "bwrap", True),
            ("bwrap", "bwrap", True),
            ("none", "none", False),
        ):
            settings.SANDBOX = name
            sandbox.backend.cache_clear()
            assert (sandbox.backend().name, sandbox.backend().isolates) == (chosen, isolates)
        settings.SANDBOX = "nsjail"
        sandbox.backend.cache_clear()
        with pytest.raises(ImproperlyConfigured, match="auto, bwrap, none"):
            sandbox.backend()
    finally:
        sandbox.backend.cache_clear()


def test_without_a_sandbox_nothing_runs(
    settings: Any, monkeypatch: pytest.MonkeyPatch, own_lock: None, tmp_path: Path
) -> None:
    """Where bwrap does not work, the reason and the remedy are said, and a job is refused."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    settings.SANDBOX = "auto"
    sandbox.backend.cache_clear()
    try:
        backend = sandbox.backend()
        assert (backend.available, backend.reason) == (False, "bwrap is not installed")
        assert "apt-get install bubblewrap" in backend.remedy
        job = Stranger(backend, tmp_path, monkeypatch).job()
        with pytest.raises(sandbox.SandboxUnavailable, match="bwrap is not installed"):
            running.run_job(backend, job, SMALL, lambda *told: None)
    finally:
        sandbox.backend.cache_clear()
