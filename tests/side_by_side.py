"""Lint and the whole suite, two parts at a time: on SQLite, then what touches rows, locks or queues on PostgreSQL.

`python tests/side_by_side.py` prints what each part said once it has ended, the failures last, and exits with 1 where a
part failed. Every part has servers and folders of its own, so nothing is shared but the processor. Whoever of the two
is free takes the longest part that is left, so both end at about the same time. `long` as an argument runs the tests
that are marked so instead, on both databases.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: So many parts run at a time.
LANES = 2
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


#: Which folders with tests go together, the longest first, and two short ones at the end, so that both lanes end at
#: about the same time. A folder that no line names is a part of its own.
FOLDERS = {
    "from upload to verdict": ["tests/submissions"],
    "boards and pages": ["tests/leaderboard"],
    "evaluation": ["tests/evaluation"],
    "the whole site": ["tests/functional", "tests/faults", "tests/load"],
    "who attacks it": ["tests/leaks", "tests/attack", "tests/doors"],
}


def every_part() -> list[Part]:
    """Lint, and all tests but the long ones."""
    first, *others = [suite(name, "sqlite", *folders) for name, folders in _folders().items()]
    on_postgresql = suite(
        "what touches the database", "postgresql", marked="database and not long and not long_on_postgresql"
    )
    *long_ones, last, least = others
    return [first, on_postgresql, *long_ones, Part("lint", ["make", "lint"]), last, least]


def long_parts() -> list[Part]:
    """The long tests."""
    return [
        suite("long tests", "sqlite", marked="long"),
        suite("long tests of the database", "postgresql", marked="database and (long or long_on_postgresql)"),
    ]


def _folders() -> dict[str, list[str]]:
    """The folders that have tests, by the name of their part."""
    present = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    named = {
        name: [each for each in folders if each.removeprefix("tests/") in present]
        for name, folders in FOLDERS.items()
    }
    others = {f"tests/{folder}" for folder in present}.difference(*named.values())
    return {**named, **{folder.removeprefix("tests/"): [folder] for folder in sorted(others)}}


def main(parts: Sequence[Part]) -> int:
    """Run all parts; the exit status."""
    failed: list[str] = []
    waiting: queue.SimpleQueue[Part] = queue.SimpleQueue()
    for part in parts:
        waiting.put(part)
    threads = [threading.Thread(target=_run_lane, args=(waiting, failed)) for _ in range(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("All parts passed." if not failed else f"Failed: {', '.join(failed)}.", flush=True)
    return 1 if failed else 0


def _run_lane(waiting: queue.SimpleQueue[Part], failed: list[str]) -> None:
    while True:
        try:
            part = waiting.get_nowait()
        except queue.Empty:
            return
        started = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            status = subprocess.run(
                part.command,
                cwd=ROOT,
                env={**os.environ, **part.environment},
                stdout=said,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
            said.seek(0)
            seconds = time.monotonic() - started
            print(f"=== {part.name}, {seconds:.0f} s\n{said.read()}", end="", flush=True)
        if status:
            failed.append(part.name)


if __name__ == "__main__":
    sys.exit(main(long_parts() if sys.argv[1:] == ["long"] else every_part()))
