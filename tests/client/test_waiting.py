"""A site that asks to wait: what is sent again is sent whole, and nobody sleeps for a day."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from runboard import Client, Refused
from runboard.cli import main
from tests.client.loopback import Answer, Request, playing

READ = {
    "lines": 1,
    "queries": 1,
    "known_queries": 1,
    "depth": 1,
    "expanded_bytes": 19,
    "tags": ["tag"],
    "metadata": {},
}
REPORT = {"valid": True, "problems": [], "statistics": READ, "checkpoint": None, "pending": []}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.txt"
    path.write_text("q1 Q0 d1 1 2.0 tag\n")
    return path


def busy(times: int, wait: str = "0", status: int = 429) -> Callable[[Request], Answer]:
    """Answers so many times that it has no time."""
    left = iter([status] * times)

    def answer(asked: Request) -> Answer:
        return Answer(REPORT, next(left, 200), {"Retry-After": wait})

    return answer


def test_a_file_is_sent_whole_each_time(run: Path) -> None:
    with playing(busy(2)) as site:
        assert Client(site.address, "token").check("small", run)["valid"]
    assert len(site.asked) == 3
    assert all(b"q1 Q0 d1 1 2.0 tag" in asked.body for asked in site.asked)


def test_it_is_not_asked_for_ever(run: Path) -> None:
    with playing(busy(99)) as site, pytest.raises(Refused):
        Client(site.address, "token").check("small", run)
    assert len(site.asked) == 6


@pytest.mark.parametrize(("status", "ended"), [(429, 1), (503, 3)])
@pytest.mark.parametrize("verb", ["datasets", "check small"])
def test_nobody_sleeps_for_a_day(
    verb: str, status: int, ended: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*verb.split(), str(run)] if "check" in verb else [verb]
    with playing(busy(99, "86400", status)) as site:
        assert main(["--url", site.address, *words]) == ended
    assert len(site.asked) == 1
    assert "Try again in 24 h." in capsys.readouterr().err


def test_no_wait_is_longer_than_a_week(capsys: pytest.CaptureFixture[str]) -> None:
    with playing(busy(99, "9" * 400)) as site:
        assert main(["--url", site.address, "datasets"]) == 1
    assert "Try again in 168 h." in capsys.readouterr().err


def test_a_large_run_is_not_sent_to_be_checked(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("runboard.client.MAX_BYTES_AT_ONCE", 10)
    with playing(busy(0)) as site:
        assert main(["--url", site.address, "check", "small", str(run)]) == 1
    assert not site.asked
    assert "runboard-eval check" in capsys.readouterr().err
