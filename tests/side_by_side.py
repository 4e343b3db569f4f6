"""Run the suite in two lanes side by side: on SQLite, then what touches rows, locks or queues again on PostgreSQL.

`python tests/side_by_side.py` prints what each part said once it has ended, the failures last, and exits with 1 where a
part failed. Every part has servers and folders of its own, so nothing is shared but the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the tests on one database."""

    name: str
    database: str
    arguments: Sequence[str]


#: Migrations are run, step by step, on PostgreSQL and by the site that is started; elsewhere tables are made at once,
#: which lint has shown to be the same.
_TABLES = {"sqlite": ["--nomigrations"], "postgresql": []}
#: Parts of a lane follow each other; the lanes take about as long as each other.
LANES = (
    (
        Part("evaluation", "sqlite", ["tests/evaluation"]),
        Part("from upload to verdict", "sqlite", ["tests/submissions", "tests/functional"]),
    ),
    (
        Part("boards and pages", "sqlite", ["tests/leaderboard", "tests/leaks", "tests/attack"]),
        Part("what touches the database", "postgresql", ["-m", "database"]),
    ),
)
#: Folders all of whose tests are marked `database`, and run on PostgreSQL alone.
POSTGRESQL_ALONE = {"tests/faults"}


def main() -> int:
    """Run all lanes; the exit status."""
    failed: list[str] = []
    if forgotten := _forgotten():
        print(f"No part runs {', '.join(forgotten)}: name it in {Path(__file__).name}.")
        return 1
    threads = [threading.Thread(target=_run_lane, args=(lane, failed)) for lane in LANES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("All parts passed." if not failed else f"Failed: {', '.join(failed)}.", flush=True)
    return 1 if failed else 0


def _forgotten() -> list[str]:
    """Folders with tests that no part names."""
    named = POSTGRESQL_ALONE.union(*(part.arguments for lane in LANES for part in lane))
    present = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("test_*.py")}
    return sorted(f"tests/{folder}" for folder in present if f"tests/{folder}" not in named)


def _run_lane(lane: Sequence[Part], failed: list[str]) -> None:
    for part in lane:
        started = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            status = subprocess.run(
                [sys.executable, "-m", "pytest", *_TABLES[part.database], *part.arguments],
                cwd=ROOT,
                env={**os.environ, "RUNBOARD_TEST_DATABASE": part.database},
                stdout=said,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
            said.seek(0)
            seconds = time.monotonic() - started
            print(f"=== {part.name} on {part.database}, {seconds:.0f} s\n{said.read()}", end="", flush=True)
        if status:
            failed.append(f"{part.name} on {part.database}")


if __name__ == "__main__":
    sys.exit(main())
