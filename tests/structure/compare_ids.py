"""Compare the tests of an earlier revision with those of the working tree, one id each.

`python tests/structure/compare_ids.py REVISION` lets pytest collect both, and follows files that were moved or renamed
since (as git's rename detection sees them). It prints how many tests and test functions each has, and every test that
went or came. The exit status is 1 where a test went. `--keep FOLDER` writes the two lists, `before.txt` and
`after.txt`, the former with the files' present names.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def collected(checkout: Path) -> list[str]:
    """Return the ids that pytest collects in a checkout, in its order."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"pytest collects nothing in {checkout}:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    return [line for line in result.stdout.splitlines() if "::" in line]


def moved(revision: str) -> dict[str, str]:
    """Return the present path of each file of the tests that was moved since a revision."""
    command = ["git", "diff", "--name-status", "-M40%", "-l0", "--diff-filter=R", revision, "--", "tests"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {old: new for _, old, new in (line.split("\t") for line in lines)}


def renamed(ids: Iterable[str], moves: Mapping[str, str]) -> list[str]:
    """Return the ids with the present paths of their files."""
    split = (identifier.partition("::") for identifier in ids)
    return [f"{moves.get(path, path)}::{test}" for path, _, test in split]


def functions(ids: Iterable[str]) -> set[str]:
    """Return the test functions, without parameters."""
    return {identifier.partition("[")[0] for identifier in ids}


def main() -> int:
    """Compare, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("revision")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write the two lists of ids here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = ["git", "clone", "--quiet", "--no-checkout", str(ROOT), folder]
        subprocess.run(clone, check=True)
        subprocess.run(["git", "checkout", "--quiet", options.revision], cwd=folder, check=True)
        before = renamed(collected(Path(folder)), moved(options.revision))
    after = collected(ROOT)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        for name, ids in (("before", before), ("after", after)):
            (options.keep / f"{name}.txt").write_text("".join(f"{each}\n" for each in sorted(ids)))
    went, came = sorted({*before} - {*after}), sorted({*after} - {*before})
    for sign, tests in (("-", went), ("+", came)):
        print("".join(f"{sign} {each}\n" for each in tests), end="")
    for name, ids in ((options.revision, before), ("now", after)):
        print(f"{name}: {len(ids):,} tests, {len(functions(ids)):,} functions")
    print(f"{len(went)} went, {len(came)} came")
    return 1 if went else 0


if __name__ == "__main__":
    sys.exit(main())
