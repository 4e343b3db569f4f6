"""One collection shared out between 1, 2 and 4 processes: `python tests/benchmarks/shared_out.py`.

Passages of `large_corpus.py` are encoded with static embeddings and searched exactly, by one process and by 2 and 4 at
once, each with one thread and its part, whose runs are merged. The bytes of the run must be the same, and all processes
together may take a tenth more than one. What a process takes before it does anything, which is the same whatever the
collection, is measured over a thousand passages and shown apart: it says how large a part should be.

CPU seconds are those of the processes, whatever else the machine does. Bytes read are those of read(2), rchar in
/proc/PID/io; vectors are mapped, and each part maps its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from evaluation.collections.beir import write_blocks  # noqa: E402
from tests.benchmarks.large_corpus import DEPTH, DIMENSION, QUERIES, WORDS, make_collection, make_model  # noqa: E402
from tests.figures import Figures, add_option  # noqa: E402

#: All processes together, × one.
MOST = 1.10
PROCESSES = (1, 2, 4)
#: A collection that takes no time.
_SMALL = 1_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What processes took: wall seconds, and CPU seconds and bytes read of all together."""

    wall: float
    cpu: float
    read: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu, self.read + other.read)


def run(commands: Sequence[Sequence[str]], log: Path) -> Cost:
    """Run `python -m evaluation` with each of these words, all at once. Ends the program where one fails."""
    began, cpu, read = time.perf_counter(), 0.0, 0
    with log.open("ab") as output:
        started = [
            Popen([sys.executable, "-m", "evaluation", *words], cwd=ROOT, stdout=output, stderr=output)
            for words in commands
        ]
        for process in started:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            counted = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
            read += int(counted["rchar"])
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            cpu += usage.ru_utime + usage.ru_stime
    if any(process.returncode for process in started):
        sys.exit(log.read_text()[-4_000:])
    return Cost(time.perf_counter() - began, cpu, read)


class Collection:
    """A corpus in blocks, its queries, and where what is made of it lies."""

    def __init__(self, folder: Path, documents: int) -> None:
        self.folder = folder
        make_collection(folder / "raw", documents)
        self._corpus, self._queries = folder / "corpus.jsonl.gz", folder / "raw" / "queries.jsonl"
        with (folder / "raw" / "corpus.jsonl").open("rb") as lines:
            write_blocks(lines, self._corpus)

    def run(self, processes: int, model: Path) -> tuple[Cost, bytes]:
        """Encode, search and merge; what it took, and the run."""
        shards, log = self.folder / f"shards-{processes}", self.folder / "log.txt"
        given = ["--engine", "dense", "--checkpoint", str(model), "--device", "cpu", "--threads", "1"]
        given += ["--corpus", str(self._corpus), "--shards", str(shards)]
        outs = [self.folder / f"{processes}-{number}.txt" for number in range(1, processes + 1)]
        parts = [["--part", f"{number}/{processes}"] for number in range(1, processes + 1)]
        if processes == 1:
            parts = [[]]
        asked = ["--queries", str(self._queries), "--depth", str(DEPTH)]
        cost = run([["encode", *given, *part] for part in parts], log)
        cost += run(
            [["retrieve", *given, *asked, "--out", str(out), *part] for out, part in zip(outs, parts, strict=True)],
            log,
        )
        merged = outs[0]
        if processes > 1:
            merged = self.folder / f"{processes}.txt"
            cost += run([["merge", *map(str, outs), "--queries", str(self._queries), "--out", str(merged)]], log)
        return cost, merged.read_bytes()


def report(folder: Path, documents: int, figures: Figures) -> None:
    """The table: each number of processes, and × one without what starting takes."""
    make_model(folder / "model")
    start, _ = Collection(folder / "small", _SMALL).run(1, folder / "model")
    collection = Collection(folder / "large", documents)
    rows, first = [], None
    for processes in PROCESSES:
        cost, found = collection.run(processes, folder / "model")
        cpu, read = cost.cpu - processes * start.cpu, cost.read - processes * start.read
        first = first or (cpu, read, found)
        rows.append(
            [
                f"{processes}",
                f"{cost.wall:.0f}",
                f"{cost.cpu:.0f}",
                f"{cpu:.0f}",
                f"{cpu / first[0]:.2f}",
                figures.bound(f"CPU seconds of {processes}, × one", cpu / first[0], MOST),
                f"{read / 2**20:,.0f}",
                f"{read / first[1]:.2f}",
                figures.bound(f"bytes read by {processes}, × one", read / first[1], MOST),
            ]
        )
        if found != first[2]:
            sys.exit(f"{processes} processes make another run")
    figures.say(
        f"{documents:,} passages of {WORDS} words, {QUERIES:,} queries, {DIMENSION} dimensions, exact search to depth "
        f"{DEPTH}. To start takes each process {start.cpu:.0f} CPU seconds and {start.read / 2**20:,.0f} MiB, encoding "
        "and searching together; *without starting* and *× one* leave that out. All runs are the same bytes."
    )
    head = ["processes", "wall s", "CPU s", "without starting", "× one", "bound"]
    figures.table([*head, "MiB read without starting", "× one", "bound"], rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=60_000)
    add_option(parser)
    arguments = parser.parse_args()
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory(prefix="runboard-shared-out-") as name:
        report(Path(name), arguments.documents, figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
