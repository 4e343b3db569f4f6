"""An hour, or as long as is said, of coverage-guided fuzzing: `PYTHONPATH=. python tests/fuzz/session.py [MINUTES]`.

The targets share the time, one after the other. What is found of a target is kept in build/fuzz/<target>, so that the
next hour goes on from there; inputs that no verdict came of lie in build/fuzz/crashes. The table is printed and written
to build/fuzz/table.txt after each target.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.figures import Figures, add_option, table
from tests.fuzz.seeds import write_seeds, write_words
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "fuzz"
#: A target may take so many MB of memory in all, and so many seconds for one input.
MAX_MB, MAX_SECONDS = 512, 10
_LONGEST_INPUT = 24 * 1024
#: A target that fails at once is not begun for ever.
_MAX_CRASHES = 20


@dataclass
class Result:
    """What became of a target."""

    target: str
    seeds: int
    minutes: float = 0.0
    executions: int = 0
    branches: int = 0
    corpus: str = ""
    peak_mb: int = 0
    crashes: int = 0


def fuzz(target: str, seconds: float) -> Result:
    """Fuzz one target so long; after a crash it is begun again, with what it has learnt."""
    corpus, seeds = BUILD / target, BUILD / "seeds" / target
    corpus.mkdir(parents=True, exist_ok=True)
    (BUILD / "crashes").mkdir(exist_ok=True)
    result = Result(target, write_seeds(target, seeds))
    write_words(BUILD / "words.txt")
    started = time.monotonic()
    while (left := seconds - (time.monotonic() - started)) >= 1 and result.crashes < _MAX_CRASHES:
        log = BUILD / f"{target}-{result.crashes}.log"
        with log.open("wb") as out:
            command = [*_command(target, corpus, seeds), f"-max_total_time={int(left)}"]
            ended = subprocess.run(
                command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, timeout=left + 300, check=False
            )
        _read(log.read_text(errors="replace"), result)
        result.crashes += ended.returncode != 0
    result.minutes = (time.monotonic() - started) / 60
    return result


def _command(target: str, corpus: Path, seeds: Path) -> list[str]:
    return [
        sys.executable, str(ROOT / "tests/fuzz/guided.py"), target, str(corpus), str(seeds), "-print_final_stats=1",
        f"-max_len={_LONGEST_INPUT}", f"-rss_limit_mb={MAX_MB}", f"-timeout={MAX_SECONDS}", "-keep_seed=1",
        "-len_control=0", "-use_value_profile=1", f"-dict={BUILD / 'words.txt'}",
        f"-artifact_prefix={BUILD / 'crashes' / target}-",
    ]  # fmt: skip


def _read(log: str, result: Result) -> None:
    """What libFuzzer says at its end, and in its last line of progress."""
    for pattern, name in (("number_of_executed_units", "executions"), ("peak_rss_mb", "peak_mb")):
        if found := re.search(rf"stat::{pattern}:\s*(\d+)", log):
            value = int(found[1])
            before = getattr(result, name)
            setattr(result, name, before + value if name == "executions" else max(before, value))
    progress = re.findall(r"cov: (\d+) ft: \d+ corp: (\S+)", log)
    if progress:
        result.branches, result.corpus = max(result.branches, int(progress[-1][0])), progress[-1][1]


def as_table(results: list[Result]) -> str:
    """The results as a table in Markdown."""
    rows = [
        [
            each.target,
            f"{each.minutes:.1f}",
            f"{each.executions:,}",
            f"{each.branches:,}",
            str(each.seeds),
            each.corpus,
            f"{each.peak_mb:,}",
            str(each.crashes),
        ]
        for each in results
    ]
    minutes, executions, crashes = (
        sum(getattr(each, name) for each in results) for name in ("minutes", "executions", "crashes")
    )
    rows.append(["all", f"{minutes:.1f}", f"{executions:,}", "", "", "", "", str(crashes)])
    head = ["target", "minutes", "executions", "branches", "seeds", "corpus", "peak MB", "crashes"]
    return table(head, rows)


def main() -> int:
    """Fuzz all targets; 1 where there was a crash."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=60.0)
    add_option(parser)
    options = parser.parse_args()
    figures = Figures(__file__)
    BUILD.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for target in TARGETS:
        results.append(fuzz(target, options.minutes * 60 / len(TARGETS)))
        (BUILD / "table.txt").write_text(as_table(results) + "\n")
    figures.say(as_table(results))
    bound = figures.bound("inputs without a verdict", sum(each.crashes for each in results), 0)
    figures.say(f"Inputs without a verdict: {bound}.")
    if figures.missed:
        print(f"Inputs without a verdict lie in {BUILD / 'crashes'}, and why in {BUILD}/*.log")
    return figures.finish(options.write)


if __name__ == "__main__":
    sys.exit(main())
