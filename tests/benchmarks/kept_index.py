"""What a kept index of BM25 saves: the first stage of a re-ranker, and BM25 measured beside a model.

    python tests/benchmarks/kept_index.py [--documents 300000] [--rounds 3]

On Vaswani, and on passages of `large_corpus.py`. *First stage* is what a re-ranker does before its model reads a text:
it stores the texts of all documents, and indexes them or opens the index. *BM25 beside a model* is the child that a job
starts for it, from its start to its end, the timed searches included. *Building* is the child that leaves the index.
Seconds are of the wall, medians of the rounds; with and without take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from evaluation.collections.beir import read_corpus
from evaluation.engines import Resources, describe
from evaluation.engines.first_stage import first_stage as make_first_stage
from evaluation.engines.first_stage import store_texts
from evaluation.execution.job import ANSWER_GO, ExecutionJob, Task
from tests.benchmarks.large_corpus import make_collection
from tests.figures import ROOT, SKIPPED, Figures, add_option

SHARED = Path(os.environ.get("RUNBOARD_SHARED", ROOT.parent / "shared"))


def child(collection: Path, out: Path, task: Task, index: Path | None = None) -> float:
    """Seconds of a child of this task."""
    out.mkdir()
    work = ExecutionJob(
        task,
        "bm25",
        out,
        collection / "corpus.jsonl",
        collection / "queries.jsonl",
        describe("bm25").complete({}),
        index=index,
    )
    described = out.with_suffix(".json")
    described.write_text(work.to_json())
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "evaluation.execution", str(described)],
        input=f"{ANSWER_GO}\n",
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return time.perf_counter() - started


def first_stage(collection: Path, out: Path, index: Path | None) -> float:
    """Seconds until a re-ranker could ask for candidates."""
    out.mkdir()
    stage = make_first_stage(Resources(index=index))
    (out / "first_stage").mkdir()
    started = time.perf_counter()
    stored = store_texts(read_corpus(collection / "corpus.jsonl"), out / "texts")
    stage.build(stored, out / "first_stage")
    deque(stored, maxlen=0)
    return time.perf_counter() - started


def measure(name: str, collection: Path, folder: Path, rounds: int) -> list[list[str]]:
    """The rows of a collection."""
    found: dict[tuple[str, bool], list[float]] = {}
    building = []
    for number in range(rounds):
        place = folder / f"{name}-{number}"
        place.mkdir()
        building.append(child(collection, place / "built", "index"))
        for kept in (False, True):
            index = place / "built" / "index" if kept else None
            for what, taken in {
                "first stage": first_stage(collection, place / f"first-{kept}", index),
                "BM25 beside a model": child(collection, place / f"measured-{kept}", "measure", index),
            }.items():
                found.setdefault((what, kept), []).append(taken)
    rows = [[f"{name}: building", f"{statistics.median(building):.2f}", "", ""]]
    for what in ("first stage", "BM25 beside a model"):
        without, over_kept = (statistics.median(found[what, kept]) for kept in (False, True))
        rows.append([f"{name}: {what}", f"{without:.2f}", f"{over_kept:.2f}", f"{over_kept / without:.2f}"])
    return rows


def main() -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    add_option(parser)
    arguments = parser.parse_args()
    vaswani = SHARED / "data" / "vaswani"
    if not vaswani.is_dir():
        print(f"{SKIPPED}Vaswani is not at {vaswani} (RUNBOARD_SHARED names its folder)")
        return
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_collection(folder / "made", arguments.documents)
        rows = measure("Vaswani", vaswani, folder, arguments.rounds)
        rows += measure(f"{arguments.documents:,} passages", folder / "made", folder, arguments.rounds)
    figures.table(["", "anew, s", "over the kept index, s", "ratio"], rows)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
