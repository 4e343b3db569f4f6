"""Lint and the whole suite, two parts at a time: on SQLite, then what touches rows, locks or queues on PostgreSQL.

`python tests/side_by_side.py` prints what each part said once it has ended, the failures last, and exits with 1 where a
part failed. Every part has servers and folders of its own, so nothing is shared but the processor. Whoever of the two
is free takes the longest part that is left, so both end at about the same time. Two more take parts from the other end
and give way to these two: tests wait now and then, for a browser or a lease, and the processor would too. `long` as an
argument runs the tests that are marked so instead, on both databases.
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
#: So many parts run at a time; as many more begin at the other end of the list, and give way to them.
LANES = 2
GIVES_WAY = ("nice", "-n", "10")
#: Migrations are run, step by step, on PostgreSQL and by the site that is started; elsewhere tables are made at once,
#: which lint has shown to be the same.
TABLES = {"sqlite": ["--nomigrations"], "postgresql": []}


@dataclass(frozen=True, slots=True)
class Part:
    """A command, and what it is called."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def suite(name: str, database: str, *arguments: str, marked: str = "not long") -> Part:
    """Some of the tests on one database."""
    command = [sys.executable, "-m", "pytest", *TABLES[database], "-m", marked, *arguments]
    return Part(f"{name} on {database}", command, {"RUNBOARD_TEST_DATABASE": database})


#: Which folders with tests go together, the longest first: what is begun last is short, since other lanes may be empty
#: by then. A folder that no line names is a part of its own.
FOLDERS = {
    "from upload to verdict": ["tests/submissions"],
    "boards and pages": ["tests/leaderboard"],
    "evaluation": ["tests/evaluation", "--ignore=tests/evaluation/engines"],
    "engines": ["tests/evaluation/engines"],
    "who attacks it": ["tests/leaks", "tests/attack", "tests/doors"],
    "the whole site": ["tests/functional", "tests/client", "tests/packages", "tests/faults", "tests/load"],
}


def every_part() -> list[Part]:
    """Lint, and all tests but the long ones."""
    first, second, *others = [suite(name, "sqlite", *folders) for name, folders in _folders().items()]
    on_postgresql = suite(
        "what touches the database",
        "postgresql",
        *_files_for_postgresql(),
        marked="database and not long and not long_on_postgresql",
    )
    return [first, second, on_postgresql, *others, Part("lint", ["make", "lint"])]


def long_parts() -> list[Part]:
    """The long tests."""
    return [
        suite("long tests", "sqlite", marked="long"),
        suite(
            "long tests of the database",
            "postgresql",
            *_files_for_postgresql(),
            marked="database and (long or long_on_postgresql)",
        ),
    ]


def _files_for_postgresql() -> list[str]:
    """The files with tests that run there: to read all others, only to leave them out, takes half a minute."""
    marks = ("mark.database", "mark.sampled_on_postgresql")
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if any(mark in path.read_text("utf-8") for mark in marks)]


def _folders() -> dict[str, list[str]]:
    """The folders that have tests, by the name of their part."""
    present = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    others = {f"tests/{folder}" for folder in present}.difference(*FOLDERS.values())
    return {**FOLDERS, **{folder.removeprefix("tests/"): [folder] for folder in sorted(others)}}


def main(parts: Sequence[Part]) -> int:
    """Run all parts; the exit status."""
    failed: list[str] = []
    waiting = deque(parts)
    lanes = [(waiting.popleft, ()), (waiting.pop, GIVES_WAY)] * LANES
    threads = [threading.Thread(target=_run_lane, args=(*lane, failed)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("All parts passed." if not failed else f"Failed: {', '.join(failed)}.", flush=True)
    return 1 if failed else 0


def _run_lane(take: Callable[[], Part], before: Sequence[str], failed: list[str]) -> None:
    while True:
        try:
            part = take()
        except IndexError:  # of an empty deque
            return
        started = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            status = subprocess.run(
                [*before, *part.command],
                cwd=ROOT,
                env={**_environment(), **part.environment},
                stdout=said,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
            said.seek(0)
            seconds = time.monotonic() - started
            print(f"=== {part.name}, {seconds:.0f} s\n{said.read()}", end="", flush=True)
        if status:
            failed.append(part.name)


def _environment() -> dict[str, str]:
    """Ours, but modules are kept compiled: tests start hundreds of processes, and each would compile all again."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    sys.exit(main(long_parts() if sys.argv[1:] == ["long"] else every_part()))
