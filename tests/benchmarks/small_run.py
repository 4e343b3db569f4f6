"""A small run in a warm worker, from claim to published row, beside bare pytrec_eval on the same file.

    .venv/bin/python tests/benchmarks/small_run.py [--repeat 15]

CPU seconds of one process (user and system), medians of interleaved pairs. Ours: claim the job, read, validate and
score the stored run with the default measures, verify the scores with `pytrec_eval`, publish the entry, on SQLite.
Theirs: parse the same file and evaluate it with `pytrec_eval` for the same measures, judgements parsed beforehand on
both sides.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

QUERIES, DEPTH, POOL = 50, 1000, 1300
#: How much longer ours may take: it verifies with pytrec_eval what it publishes.
MOST = 1.3
MEASURES = {
    "ndcg_cut_10",
    "ndcg_cut_100",
    "map",
    "recip_rank",
    "recall_100",
    "recall_1000",
    "P_10",
    "success_5",
    "success_10",
}


def main() -> None:
    """Make the collection, then time both sides in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    add_option(parser)
    arguments = parser.parse_args()
    figures = Figures(__file__)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RUNBOARD_VAR": folder, "DJANGO_SETTINGS_MODULE": "leaderboard.settings"}
        os.environ["LOG_LEVEL"] = "ERROR"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        measure(Path(folder), arguments.repeat, figures)
    sys.exit(figures.finish(arguments.write))


def make_collection(folder: Path) -> None:
    """Topics and judgements of about TREC-COVID's size: 50 queries, 65,000 judgements."""
    chance = random.Random(1)
    folder.mkdir()
    with (folder / "queries.jsonl").open("w") as queries, (folder / "qrels.txt").open("w") as qrels:
        for query in range(1, QUERIES + 1):
            queries.write(f'{{"_id": "{query}", "text": "question {query}"}}\n')
            for document in chance.sample(range(20_000), POOL):
                qrels.write(f"{query} 0 doc{document:06d} {chance.choice([0, 0, 0, 1, 2])}\n")


def make_run(path: Path, seed: int) -> None:
    """A run of 50 × 1,000 lines."""
    chance = random.Random(seed)
    with path.open("w") as run:
        for query in range(1, QUERIES + 1):
            scores = sorted((chance.random() * 20 for _ in range(DEPTH)), reverse=True)
            for rank, (document, score) in enumerate(zip(chance.sample(range(20_000), DEPTH), scores, strict=True), 1):
                run.write(f"{query} Q0 doc{document:06d} {rank} {score:.6f} made\n")


def measure(folder: Path, repeat: int, figures: Figures) -> None:
    """Both sides and their ratio."""
    import pytrec_eval
    from django.core.management import call_command

    from evaluation.engines.warm_up import warm_up
    from leaderboard.models import Dataset
    from submissions.jobs.runner import drain_queue
    from submissions.models import Job

    make_collection(folder / "collection")
    options = ("--slug", "small", "--open", "--runs-only")
    call_command("import_dataset", str(folder / "collection"), *options, verbosity=0)
    dataset = Dataset.objects.get()
    with (folder / "collection" / "qrels.txt").open() as file:
        judged = pytrec_eval.parse_qrel(file)
    warm_up()
    ours, theirs = [], []
    for number in range(repeat + 2):
        path = folder / f"run-{number}.txt"
        make_run(path, number)
        submit(dataset, path, f"system {number}")
        started = time.process_time()
        drain_queue("score", "benchmark")
        ours.append(time.process_time() - started)
        started = time.process_time()
        with path.open() as file:
            pytrec_eval.RelevanceEvaluator(judged, MEASURES).evaluate(pytrec_eval.parse_run(file))
        theirs.append(time.process_time() - started)
    assert Job.objects.filter(state="done").count() == repeat + 2
    ours, theirs = ours[2:], theirs[2:]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    bound = figures.bound("from claim to row", ratio, MOST, " × pytrec_eval")
    figures.say(f"Medians of {repeat} runs, warm worker.")
    figures.table(
        ["", "CPU ms", "× pytrec_eval", "bound"],
        [
            ["pytrec_eval: parse and evaluate", f"{statistics.median(theirs) * 1e3:.1f}", "1", ""],
            [
                "claim, check, score, verify, publish",
                f"{statistics.median(ours) * 1e3:.1f}",
                f"{ratio:.2f}",
                bound,
            ],
        ],
    )


def submit(dataset: Any, path: Path, name: str) -> None:
    """Queue the run as intake does after validation."""
    from leaderboard.core.storage.runs import store_run
    from leaderboard.models import System
    from submissions.models import Job, State

    system = System.objects.create(slug=path.stem, name=name, architecture="other")
    stored = store_run(path)
    Job.objects.create(
        kind=Job.Kind.SCORE,
        queue=Job.Queue.SCORE,
        dataset=dataset,
        state=State.QUEUED,
        validated=True,
        payload={"run_sha256": stored.sha256, "size": stored.size, "system_slug": system.slug},
    )


if __name__ == "__main__":
    main()
