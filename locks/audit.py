"""Ask for known vulnerabilities of what is locked, and look for secrets in files and history. `make audit` runs this.

pip-audit asks for the advisories about every package, by name and version. Kingfisher reads what git
has, without asking anybody whether what it finds is valid. Ends with 1 where either found something.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
#: These have every package of the others.
LOCKS = ("test", "tools", "build", "torch-cuda")


def vulnerable() -> bool:
    """Whether a locked package has a known vulnerability, or nobody could be asked."""
    asked = [word for lock in LOCKS for word in ("--requirement", str(FOLDER / f"{lock}.txt"))]
    # --strict: a package that nobody knows of is not one without vulnerabilities.
    options = ["--disable-pip", "--require-hashes", "--strict", "--progress-spinner=off"]
    command = [BIN / "pip-audit", *options, *asked]
    return subprocess.run(command, check=False).returncode != 0


def leaking(folder: Path) -> bool:
    """Whether a secret lies in what git has of a folder, now or in an older commit."""
    command = [BIN / "kingfisher", "scan", folder, "--no-validate", "--no-update-check", "--quiet"]
    return subprocess.run(command, check=False).returncode != 0


def main() -> int:
    """1 where something was found; both are looked for."""
    return 1 if [vulnerable(), leaking(FOLDER.parent)] != [False, False] else 0


if __name__ == "__main__":
    sys.exit(main())
