"""The supervisor keeps its children alive, and leaves none behind however it ends.

With small real commands here; `test_whole_site.py` does the same once with the site itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leaderboard.management.supervisor.logs import FILE_LIMIT_BYTES, ConsoleFilter, ProcessLog
from tests.functional.starting import Supervisor, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

SLEEP = "import time; time.sleep(600)"
#: A process with a child of its own that ignores every polite request, as a busy pool worker may.
STUBBORN = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.fork(); time.sleep(600)"

Start = Callable[..., Supervisor]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts small families on one folder; ends what a failed test leaves."""
    started: list[Supervisor] = []

    def start_family(*words: str, **code: str) -> Supervisor:
        commands = json.dumps([{"name": name, "code": text} for name, text in code.items()])
        arguments = ["-m", "tests.functional.small_family", str(tmp_path / "var"), commands, *words]
        started.append(Supervisor(arguments, tmp_path / "mark"))
        return started[-1]

    yield start_family
    for supervisor in started:
        supervisor.end()


def test_sigterm_ends_everything_with_exit_status_zero(start: Start) -> None:
    supervisor = start(one=SLEEP, two=SLEEP)
    supervisor.wait_for("started")
    assert len(supervisor.descendants()) == 3  # and the watchdog
    supervisor.stop()
    assert supervisor.process.returncode == 0
    assert supervisor.descendants() == {}


def test_ctrl_c_ends_children_that_ignore_requests(start: Start) -> None:
    supervisor = start(stubborn=STUBBORN)
    supervisor.wait_for("started")
    eventually(lambda: len(supervisor.descendants()) == 3)
    supervisor.stop(signal.SIGINT)
    assert supervisor.process.returncode == 0
    assert supervisor.descendants() == {}


def test_sigkill_of_the_supervisor_leaves_no_orphan(start: Start, tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "remove-me").touch()
    supervisor = start(stubborn=STUBBORN, sleep=SLEEP)
    supervisor.wait_for("started")
    eventually(lambda: len(supervisor.descendants()) == 4)
    supervisor.stop(signal.SIGKILL)
    eventually(lambda: not supervisor.descendants(), explain=lambda: str(supervisor.descendants()))
    assert not (tmp_path / "var" / "remove-me").exists()


def test_a_start_right_after_a_sigkill_waits_for_the_old_family_to_be_gone(start: Start) -> None:
    killed = start(stubborn=STUBBORN)
    killed.wait_for("started")
    stubborn = killed.find("os.fork")
    killed.stop(signal.SIGKILL)
    following = start(sleep=SLEEP)
    following.wait_for("started")
    assert stubborn not in following.descendants()


def test_a_killed_watchdog_is_replaced(start: Start) -> None:
    supervisor = start(sleep=SLEEP)
    supervisor.wait_for("started")
    watchdog = supervisor.find("watchdog.py")
    os.kill(watchdog, signal.SIGKILL)
    eventually(lambda: supervisor.find("watchdog.py") not in (0, watchdog))
    supervisor.stop(signal.SIGKILL)
    eventually(lambda: not supervisor.descendants())


def test_a_second_supervisor_on_one_folder_is_refused_by_name(start: Start) -> None:
    first = start(sleep=SLEEP)
    first.wait_for("started")
    second = start(sleep=SLEEP)
    assert second.process.wait(120) == 1
    assert f"process {first.process.pid}" in second.printed
    assert "already running" in second.printed
    assert "RUNBOARD_VAR" in second.printed
    assert first.process.poll() is None


def test_a_dead_child_is_started_again_and_its_own_children_are_ended(start: Start) -> None:
    supervisor = start(stubborn=STUBBORN, sleep=SLEEP)
    supervisor.wait_for("started")
    eventually(lambda: len(supervisor.descendants()) == 4)
    before = supervisor.find("os.fork")
    os.kill(before, signal.SIGKILL)
    supervisor.wait_for("ended with signal SIGKILL; restarting")
    eventually(lambda: len(supervisor.descendants()) == 4)
    assert supervisor.find("os.fork") != before


def test_a_child_that_keeps_dying_ends_everything_with_its_reason(start: Start) -> None:
    supervisor = start(broken="raise SystemExit('no such table: wakeup')", sleep=SLEEP)
    assert supervisor.process.wait(120) == 1
    assert "'broken' ended 3 times in a row, the last time with exit status 1" in supervisor.printed
    assert "no such table: wakeup" in supervisor.printed
    assert "broken.log" in supervisor.printed
    assert supervisor.descendants() == {}


def test_once_the_site_is_ready_a_child_that_keeps_dying_ends_nothing_else(start: Start) -> None:
    supervisor = start("ready", broken="raise SystemExit('WRONGTYPE')", sleep=SLEEP)
    eventually(lambda: supervisor.printed.count("broken") >= 6, explain=lambda: supervisor.printed)
    assert "restarting in 0.2 s" in supervisor.printed
    assert "has ended" not in supervisor.printed
    assert supervisor.find("time.sleep(600)")
    supervisor.stop()
    assert supervisor.process.returncode == 0


def test_the_console_shows_warnings_tracebacks_and_mail_alone(start: Start, tmp_path: Path) -> None:
    lines = [
        "2026-01-01 INFO site: all is well",
        "2026-01-01 ERROR site: something broke",
        "Traceback (most recent call last):",
        "ValueError: this",
        "2026-01-01 INFO site: and calm again",
        "an ordinary line",
        'Content-Type: text/plain; charset="utf-8"',
        "Please confirm your address",
        "-" * 79,
        "another ordinary line",
    ]
    supervisor = start(talker=f"print({chr(10).join(lines)!r}, flush=True); {SLEEP}")
    supervisor.wait_for("-" * 79)
    supervisor.stop()
    shown = [line.split("| ", 1)[1] for line in supervisor.printed.splitlines() if line.startswith("talker")]
    assert shown == [*lines[1:4], *lines[6:9]]
    written = (tmp_path / "var" / "logs" / "talker.log").read_text()
    assert all(line in written for line in lines)


def test_a_childs_log_is_capped(tmp_path: Path) -> None:
    log = ProcessLog("chatty", tmp_path, "nothing")
    for _ in range(3 * FILE_LIMIT_BYTES // 50_000):
        log.feed(b"x" * 49_999 + b"\n")
    log.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= FILE_LIMIT_BYTES


def test_a_line_that_never_ends_is_broken(tmp_path: Path) -> None:
    log = ProcessLog("endless", tmp_path, "nothing")
    for _ in range(40):
        log.feed(b"x" * 10_000)
    log.close()
    assert len(log.path.read_bytes().splitlines()) > 4


def test_a_step_that_shows_everything_shows_everything() -> None:
    console = ConsoleFilter("everything")
    assert console.admits("2026-01-01 INFO site: making the demo collection")
