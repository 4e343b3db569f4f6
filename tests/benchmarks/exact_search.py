"""Exact search from mapped files beside faiss IndexFlatIP, and beside the bare matrix product.

    python tests/benchmarks/exact_search.py [--documents 1000000] [--queries 1000] [--rounds 3] [--float16]

Vectors of 384 dimensions, of length one, lie in shards of 50,000 as a dense job leaves them. Each contender is a
process of its own, and they take turns. Time is that of searching alone, top 100: ours includes the order of equal
scores and exact scores in float64, faiss has its copy in memory already, and the product is torch's over the same
mapped files, its results thrown away. Memory is what the search adds in anonymous pages (VmRSS would count the files'
own), at its peak, above the process with its libraries loaded. The bounds are ratios of medians of wall and of CPU
seconds: at most 1.05 × faiss and 2 × the product; and at most 512 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

CONTENDERS = ("ours", "faiss", "product", "ours, float16")
DIMENSION, DEPTH, SHARD = 384, 100, 50_000
#: Maximum ratio of our wall and CPU time to that of each peer.
PEERS = {"faiss": 1.05, "product": 2.0}
MAX_MIB = 512
#: Documents in one product: as many as are best for it here.
PRODUCT_BLOCK = 8_192


def write_vectors(folder: Path, documents: int, queries: int, half: bool) -> None:
    """Random directions around 1,000 centres, so that there is something to find; float32, and float16 beside it."""
    random = np.random.default_rng(11)
    centres = random.standard_normal((1_000, DIMENSION), np.float32)

    def some(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        vectors = centres[random.integers(0, len(centres), count)]
        vectors = vectors + 1.5 * random.standard_normal((count, DIMENSION), np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    for number, start in enumerate(range(0, documents, SHARD)):
        vectors = some(min(SHARD, documents - start))
        np.save(folder / f"{number:05d}.npy", vectors)
        if half:
            np.save(folder / f"half-{number:05d}.npy", vectors.astype(np.float16))
    np.save(folder / "queries.npy", some(queries))


class AnonymousMemory:
    """Watches the anonymous memory of this process."""

    def __init__(self) -> None:
        self.before = self.peak = self._now()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self._now())
            time.sleep(0.005)

    @staticmethod
    def _now() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0])

    @property
    def added(self) -> float:
        """MiB above what there was at the start, at the peak."""
        return (self.peak - self.before) / 1024


def run_contender(name: str, folder: Path, threads: int) -> None:
    """Search once for each line of standard input; answer with wall and CPU seconds and MiB."""
    import faiss
    import torch

    from evaluation.engines.index.exact_search import ExactSearch

    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    queries = np.load(folder / "queries.npy")
    pattern = "half-*.npy" if name.endswith("float16") else "[0-9]*.npy"
    shards = [np.load(path, mmap_mode="r") for path in sorted(folder.glob(pattern))]
    if name.startswith("ours"):
        ranks = np.arange(sum(map(len, shards)), dtype=np.uint32)
        searcher = ExactSearch(shards, 1.001, ranks, threads=threads)

        def search() -> int:
            return sum(len(documents) for documents, _ in searcher.search(queries, DEPTH))

    elif name == "faiss":
        index: Any = faiss.IndexFlatIP(DIMENSION)
        for shard in shards:
            index.add(shard)

        def search() -> int:
            return int((index.search(queries, DEPTH)[1] >= 0).sum())

    else:
        warnings.simplefilter("ignore")  # of tensors over files that are only read

        def search() -> int:
            asked = torch.from_numpy(queries)
            for shard in shards:
                vectors = torch.from_numpy(shard)
                for start in range(0, len(vectors), PRODUCT_BLOCK):
                    torch.mm(asked, vectors[start : start + PRODUCT_BLOCK].T)
            return 0

    for shard in shards:  # from the disk, once, as every contender but a first one finds them
        shard[:: 4096 // DIMENSION].sum()
    memory = AnonymousMemory()
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        search()
        taken = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(json.dumps({**taken, "memory": memory.added}), flush=True)


def compare(folder: Path, rounds: int, threads: int, half: bool, figures: Figures) -> None:
    """Let the contenders take turns, and say what they needed."""
    names = CONTENDERS if half else CONTENDERS[:-1]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with ExitStack() as stack:
        processes = {}
        for name in names:
            words = [sys.executable, __file__, "--contender", name, "--folder", str(folder)]
            process = subprocess.Popen(
                [*words, "--threads", str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            processes[name] = stack.enter_context(process)
        for _ in range(rounds):
            for name, process in processes.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("search\n")
                process.stdin.flush()
                found[name].append(json.loads(process.stdout.readline()))
    medians = {
        name: {key: statistics.median(one[key] for one in runs) for key in ("wall", "cpu", "memory")}
        for name, runs in found.items()
    }
    rows = []
    for name, values in medians.items():
        ratios = {(peer, key): values[key] / medians[peer][key] for peer in PEERS for key in ("wall", "cpu")}
        told = [f"{ratios[peer, 'wall']:.2f} / {ratios[peer, 'cpu']:.2f}" for peer in PEERS]
        bounds = []
        if name == "ours":
            bounds = [
                figures.bound("time", max(ratios[peer, "wall"], ratios[peer, "cpu"]), most, f" × {peer}")
                for peer, most in PEERS.items()
            ]
            bounds.append(figures.bound("anonymous memory", values["memory"], MAX_MIB, " MiB"))
        times = [f"{values[key]:.2f}" for key in ("wall", "cpu")]
        rows.append([name, *times, *told, f"{values['memory']:.0f}", ", ".join(bounds)])
    head = ["", "wall s", "CPU s", "× faiss, wall / CPU", "× product, wall / CPU", "MiB", "bound"]
    figures.table(head, rows)


def main() -> None:
    """Run the benchmark, or one contender of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--float16", action="store_true", help="also search vectors stored in float16")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    add_option(parser)
    arguments = parser.parse_args()
    if arguments.contender:
        run_contender(arguments.contender, arguments.folder, arguments.threads)
        return
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_vectors(folder, arguments.documents, arguments.queries, arguments.float16)
        size = f"{arguments.documents:,} × {DIMENSION}, {arguments.queries:,} queries"
        figures.say(f"{size}, top {DEPTH}, {arguments.threads} threads; medians of {arguments.rounds} rounds.")
        compare(folder, arguments.rounds, arguments.threads, arguments.float16, figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
