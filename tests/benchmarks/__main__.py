"""Every benchmark, one after the other, each writing its tables into docs/measurements/speed.md: `make benchmark`.

All scripts run even if one fails. Missed bounds and failed scripts are listed, and the exit status is 1. Finally, the
table of docs/benchmarks.md is generated.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests import result_table  # noqa: E402
from tests.figures import MISSED, SKIPPED  # noqa: E402

FOLDER = Path(__file__).parent
PAGE = ROOT / "docs" / "measurements" / "speed.md"


def scripts() -> list[Path]:
    """The scripts of this folder; what they import has no main."""
    return [path for path in sorted(FOLDER.glob("[a-z]*.py")) if '__name__ == "__main__"' in path.read_text()]


def run(script: Path, skipped: list[str]) -> list[str]:
    """Run a script, show what it prints, and return what is wrong; why it measured nothing is put into `skipped`."""
    command = [sys.executable, str(script), "--write", str(PAGE)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    wrong = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if line.startswith(MISSED):
                wrong.append(line.removeprefix(MISSED).strip())
            elif line.startswith(SKIPPED):
                skipped.append(f"not measured: {script.name}, {line.removeprefix(SKIPPED).strip()}")
    if process.returncode and not wrong:
        wrong.append(f"{script.name} ended with {process.returncode}")
    return wrong


def main(chosen: list[Path]) -> int:
    """Run these scripts; 1 where something is wrong."""
    wrong: list[str] = []
    skipped: list[str] = []
    began = time.monotonic()
    for script in chosen:
        print(f"== {script.name}", flush=True)
        wrong += run(script, skipped)
    said = f"{len(wrong)} bounds missed, or scripts failed:" if wrong else "all bounds hold"
    print("\n".join([f"== {(time.monotonic() - began) / 60:.0f} minutes, {said}", *wrong, *skipped]))
    return bool(wrong)


if __name__ == "__main__":
    status = main(scripts())
    result_table.main([])
    sys.exit(status)
