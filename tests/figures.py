"""Figures that a program measured, as Markdown, with what made them and the bounds that they must keep.

A page in docs/ has the place of each program between two comments, and the program writes it anew with `--write PAGE`:

    <!-- figures: tests/benchmarks/scoring.py -->
    ...
    <!-- end -->

The prose around these places is written by hand.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What a line of output begins with that names a missed bound.
MISSED = "MISSED: "
#: What a line begins with that says why nothing could be measured by Runboard.
SKIPPED = "skipped: "
#: The place of one program on a page: its path, and what it wrote there.
PLACE = re.compile(r"<!-- figures: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


class Figures:
    """What one program measured. It is made before anything is measured, since it notes the time and the load."""

    def __init__(self, program: str, command: str = "") -> None:
        """`program`: its `__file__`. `command`: what a reader would type, where it is not `python` and its options."""
        self.program = Path(program).resolve().relative_to(ROOT).as_posix()
        self._command = command or " ".join([f"python {self.program}", *_options(sys.argv[1:])])
        self._began = time.monotonic()
        self._load = os.getloadavg()[0]
        self._parts: list[str] = []
        self.missed: list[str] = []

    def bound(self, what: str, found: float, most: float, unit: str = "") -> str:
        """The bound of a figure, for the cell beside it; it says so where the figure misses it, as NaN does."""
        said = f"≤ {most:g}{unit}"
        if found <= most:
            return said
        self.missed.append(f"{what}: {found:.3g}{unit}, bound {said}")
        return f"**{said}, missed**"

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table, its first column to the left, the others to the right."""
        self.say(table(head, rows))

    def say(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(text)

    def markdown(self) -> str:
        """All of it: what made it, tables and paragraphs, and the bounds that were missed."""
        seconds = time.monotonic() - self._began
        made = (
            f"`{self._command}` · commit {_commit()} · {time.strftime('%Y-%m-%d')} · {_processor()}, "
            f"{os.cpu_count()} cores · load {self._load:.1f} before, {os.getloadavg()[0]:.1f} after · "
            f"{seconds:,.0f} s"
        )
        missed = "\n".join(["Missed bounds:", "", *(f"- {each}" for each in self.missed)])
        return "\n\n".join([made, *self._parts, *([missed] if self.missed else [])]) + "\n"

    def write(self, page: Path) -> None:
        """Put all of it into this program's place on the page."""
        page.write_text(replaced(page.read_text(), self.program, self.markdown()))

    def finish(self, page: Path | None) -> int:
        """Print all, and write it into the page if there is one; 1 where a bound was missed, each of which is named."""
        print(self.markdown())
        if page:
            self.write(page)
        for each in self.missed:
            print(f"{MISSED}{self.program}: {each}", flush=True)
        return bool(self.missed)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its first column to the left, the others to the right."""
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|---|{'--:|' * (len(head) - 1)}", *lines[1:]])


def replaced(page: str, program: str, text: str) -> str:
    """The page with this text in the place of a program. Raises ValueError where it has not exactly one place."""
    places = [found for found in PLACE.finditer(page) if found[1] == program]
    if len(places) != 1:
        raise ValueError(f"the page has {len(places)} places for {program}, not one")
    (place,) = places
    return page[: place.start(2)] + f"\n{text}\n" + page[place.end(2) :]


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--write PAGE`."""
    parser.add_argument("--write", type=Path, metavar="PAGE", help="a page that gets the tables in their place")


def _options(words: Sequence[str]) -> list[str]:
    """The words of a command line without `--write PAGE`."""
    kept = list(words)
    if "--write" in kept:
        place = kept.index("--write")
        del kept[place : place + 2]
    return kept


def _commit() -> str:
    """The commit that is checked out, and whether files differ from it; pages do while they are written."""
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit} with changes" if changed else commit


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _processor() -> str:
    """The processor's model, as Linux names it; elsewhere its kind."""
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()
