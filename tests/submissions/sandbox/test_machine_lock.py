"""The machine's lock: many work side by side, one measures alone, and nobody waits for ever."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from submissions.sandbox import machine_lock as machine_locks
from submissions.sandbox.machine_lock import MachineLock, Mode


class ImpatientError(Exception):
    """The caller gave up waiting."""


def give_up() -> NoReturn:
    raise ImpatientError


@contextmanager
def machine_lock(mode: Mode, waiting: Callable[[], None], path: Path) -> Iterator[None]:
    """Hold the lock while the block runs."""
    with closing(MachineLock(path)) as lock:
        lock.acquire(mode, waiting)
        yield


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[list[MachineLock]]:
    """Three holders of one lock."""
    with ExitStack() as stack:
        made = [MachineLock(tmp_path / "lock") for _ in range(3)]
        for lock in made:
            stack.callback(lock.close)
        yield made


def test_sharers_work_side_by_side_and_one_measures_alone(locks: list[MachineLock]) -> None:
    first, second, third = locks
    assert first.try_acquire("shared")
    assert second.try_acquire("shared")
    assert not third.try_acquire("exclusive")
    first.release()
    second.release()
    assert third.try_acquire("exclusive")
    assert not first.try_acquire("shared")
    assert not first.try_acquire("exclusive")


def test_whoever_has_measured_shares_the_machine_again_before_the_next_one_measures(
    locks: list[MachineLock],
) -> None:
    first, second, third = locks
    assert first.try_acquire("exclusive")
    assert not second.try_acquire("exclusive")
    first.share()
    assert first.held_mode == "shared"
    assert not second.try_acquire("exclusive")
    second.release()
    assert third.try_acquire("shared")


def test_two_that_work_may_both_measure_in_turn(locks: list[MachineLock]) -> None:
    """Each gives up its share before it waits, so they do not wait for each other."""
    first, second, _ = locks
    assert first.try_acquire("shared")
    assert second.try_acquire("shared")
    assert not first.try_acquire("exclusive")
    assert not second.try_acquire("exclusive")
    assert first.try_acquire("exclusive")
    first.release()
    assert second.try_acquire("exclusive")


def test_whoever_wants_to_measure_is_not_overtaken(locks: list[MachineLock]) -> None:
    working, measuring, late = locks
    assert working.try_acquire("shared")
    assert not measuring.try_acquire("exclusive")
    assert not late.try_acquire("shared")
    working.release()
    assert measuring.try_acquire("exclusive")
    measuring.release()
    assert late.try_acquire("shared")


def test_newcomers_are_not_kept_out_for_longer_than_it_must(
    locks: list[MachineLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where those at work do not end soon, whoever waits beside them lets others work, and takes a free moment."""
    monkeypatch.setattr(machine_locks, "GATE_SECONDS", 0.1)
    working, measuring, late = locks
    assert working.try_acquire("shared")
    assert not measuring.try_acquire("exclusive")
    assert not late.try_acquire("shared")
    time.sleep(0.1)
    assert not measuring.try_acquire("exclusive")
    assert late.try_acquire("shared")
    assert not measuring.try_acquire("exclusive")
    late.release()
    assert late.try_acquire("shared")
    working.release()
    late.release()
    assert measuring.try_acquire("exclusive")


def test_waiting_can_be_given_up(tmp_path: Path) -> None:
    """What the caller raises while it waits goes on, and it stands in nobody's way."""
    path = tmp_path / "lock"
    with machine_lock("shared", give_up, path):
        with pytest.raises(ImpatientError), machine_lock("exclusive", give_up, path):
            pass
        with machine_lock("shared", give_up, path):
            pass
    with machine_lock("exclusive", give_up, path):
        pass


def test_a_holder_that_dies_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); "
        "print(1, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(ImpatientError), machine_lock("shared", give_up, path):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with machine_lock("exclusive", give_up, path):
        pass


def test_a_link_in_the_lock_s_place_is_not_followed(tmp_path: Path) -> None:
    """The folder is everybody's: whoever lays a link there gets an error from us, not a file of ours changed."""
    (tmp_path / "precious").write_text("ours")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="lock"):
        MachineLock(tmp_path / "lock")
