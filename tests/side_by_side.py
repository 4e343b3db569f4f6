"""Parallel run of lint and all tests, on SQLite and, for tests of rows, locks, and queues, on PostgreSQL.

`python tests/side_by_side.py` prints the output of each part when the part ends. It prints the failures last and exits
with 1 if a part failed. Each part has its own servers and folders, so parts share only the processor. Two lanes run the
longest remaining parts, so that both end at about the same time. Two more lanes run the shortest parts at a lower
priority: they use the processor while other tests wait for a browser or a lease. The argument `long` runs the tests
marked `long` instead, on both databases.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Number of lanes at normal priority, which start with the longest parts, and of lanes at low priority.
LANES = 2
LOW_PRIORITY = ("nice", "-n", "10")
#: Options of pytest by database. PostgreSQL and the started site run the migrations. Other tests create tables
#: directly; lint checks that the result is the same.
TABLES = {"sqlite": ["--nomigrations"], "postgresql": []}


@dataclass(frozen=True, slots=True)
class Part:
    """A command and its name."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def suite(name: str, database: str, *arguments: str, marked: str = "not long") -> Part:
    """Return the part that runs the selected tests on one database."""
    command = [sys.executable, "-m", "pytest", *TABLES[database], "-m", marked, *arguments]
    return Part(f"{name} on {database}", command, {"RUNBOARD_TEST_DATABASE": database})


#: Folders of tests by part, the longest part first. The last parts are short, because other lanes may be idle by then.
#: A folder that is not listed is a separate part.
FOLDERS = {
    "submissions": ["tests/submissions"],
    "leaderboard": ["tests/leaderboard"],
    "evaluation": ["tests/evaluation", "--ignore=tests/evaluation/engines"],
    "engines": ["tests/evaluation/engines"],
    "attacks": ["tests/leaks", "tests/attack", "tests/doors"],
    "whole site": ["tests/functional", "tests/client", "tests/packages", "tests/faults", "tests/load"],
}


def all_parts() -> list[Part]:
    """Return lint and all tests except the long ones."""
    longest, second, *others = [suite(name, "sqlite", *folders) for name, folders in _folders().items()]
    on_postgresql = suite(
        "database tests",
        "postgresql",
        *_files_for_postgresql(),
        marked="database and not long and not long_on_postgresql",
    )
    return [longest, second, on_postgresql, *others, Part("lint", ["make", "lint"])]


def long_parts() -> list[Part]:
    """Return the tests marked `long`."""
    return [
        suite("long tests", "sqlite", marked="long"),
        suite(
            "long database tests",
            "postgresql",
            *_files_for_postgresql(),
            marked="database and (long or long_on_postgresql)",
        ),
    ]


def _files_for_postgresql() -> list[str]:
    """Return the files with tests that run on PostgreSQL. Collecting all others would take half a minute."""
    marks = ("mark.database", "mark.sampled_on_postgresql")
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if any(mark in path.read_text("utf-8") for mark in marks)]


def _folders() -> dict[str, list[str]]:
    """Return the folders with tests by name of their part."""
    present = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    others = {f"tests/{folder}" for folder in present}.difference(*FOLDERS.values())
    return {**FOLDERS, **{folder.removeprefix("tests/"): [folder] for folder in sorted(others)}}


def main(parts: Sequence[Part]) -> int:
    """Run all parts and return the exit status."""
    failed: list[str] = []
    waiting = deque(parts)
    lanes = [(waiting.popleft, ()), (waiting.pop, LOW_PRIORITY)] * LANES
    threads = [threading.Thread(target=_run_lane, args=(*lane, failed)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("All parts passed." if not failed else f"Failed: {', '.join(failed)}.", flush=True)
    return 1 if failed else 0


def _run_lane(next_part: Callable[[], Part], prefix: Sequence[str], failed: list[str]) -> None:
    while True:
        try:
            part = next_part()
        except IndexError:  # the deque is empty
            return
        started = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            status = subprocess.run(
                [*prefix, *part.command],
                cwd=ROOT,
                env={**os.environ, **part.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
            output.seek(0)
            seconds = time.monotonic() - started
            print(f"=== {part.name}, {seconds:.0f} s\n{output.read()}", end="", flush=True)
        if status:
            failed.append(part.name)


if __name__ == "__main__":
    sys.exit(main(long_parts() if sys.argv[1:] == ["long"] else all_parts()))
