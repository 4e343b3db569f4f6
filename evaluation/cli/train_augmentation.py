"""`python -m evaluation train-augmentation`: learned query augmentation for a collection, from its own judgements."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from evaluation.checkpoints import CheckpointKind, open_checkpoint
from evaluation.cli import Subparsers
from evaluation.collections.beir import Query, read_corpus, read_queries
from evaluation.core.errors import InvalidContent, ModelFailure
from evaluation.engines import Resources, describe
from evaluation.engines.base import Engine
from evaluation.engines.query_augmentation import QueryAugmentation
from evaluation.engines.run_writing import run_lines
from evaluation.judgements.qrels import Qrels, read_qrels
from evaluation.runs.score import ScoringTarget, score_run

_MEASURE = "nDCG@10"
#: Where a collection has no judgements for choosing, every tenth query of those for training is kept for that.
_TENTH = 10


def add_parser(subparsers: Subparsers) -> None:
    """Add the command `train-augmentation`, which sets `run`, a function from the arguments to the exit status."""
    parser = subparsers.add_parser(
        "train-augmentation",
        help="train learned query augmentation on a collection",
        description="Learn which terms to add to a collection's queries, and how much their own count. "
        "Trained on qrels/train.tsv; the epoch is chosen on qrels/dev.tsv, or on a tenth of the queries for training; "
        "qrels/test.tsv, where it is there, is scored once, at the end.",
    )
    parser.add_argument("--collection", required=True, type=Path, help="folder in BEIR layout")
    parser.add_argument(
        "--encoder", required=True, type=Path, help="folder of an encoder, as its library saves it"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder to write the checkpoint into")
    for name, kind, default, what in (
        ("epochs", int, 3, "passes over the queries"),
        ("learning-rate", float, 5e-4, "of W and u"),
        ("encoder-learning-rate", float, 1e-4, "of the encoder"),
        ("sparsity", float, 1e-2, "what a unit of added weight costs"),
        ("seed", int, 0, "of the order of queries, the documents of a step and dropout"),
    ):
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{what} (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="cores to use (default: all that this process may)")
    parser.set_defaults(run=run_train_augmentation)


def run_train_augmentation(arguments: argparse.Namespace) -> int:
    """Train and write the checkpoint; 1 where the files or the encoder do not allow that."""
    if arguments.out.exists():
        print(f"error: {arguments.out} exists already", file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="training-") as scratch:
            _train(arguments, Path(scratch))
    except InvalidContent as error:
        for problem in error.report.errors:
            print(f"error: {problem.code}: {problem.message}", file=sys.stderr)
        return 1
    except ModelFailure as failure:
        print(f"error: {failure.code}: {failure.message}", file=sys.stderr)
        return 1
    return 0


def _train(arguments: argparse.Namespace, scratch: Path) -> None:
    from evaluation.engines.neural import augmentation_training as training

    folder = arguments.collection
    queries = {query.id: query for query in read_queries(folder / "queries.jsonl")}
    splits = _splits(folder / "qrels")
    staged, threads = scratch / "staged", arguments.threads or len(os.sched_getaffinity(0))
    training.start_checkpoint(arguments.encoder, staged)
    engine = _engine(staged, scratch, threads)
    (scratch / "index").mkdir()
    engine.build(read_corpus(folder / "corpus.jsonl"), scratch / "index")
    asked = {
        name: [queries[one] for one in qrels.query_ids if one in queries] for name, qrels in splits.items()
    }
    settings = training.Settings(
        arguments.epochs,
        arguments.learning_rate,
        arguments.encoder_learning_rate,
        arguments.sparsity,
        arguments.seed,
    )
    searched = training.Searched(engine.searcher.index, engine.pieces, engine.k1, engine.b)
    best = -1.0
    for epoch in training.train(engine.model, searched, asked["train"], splits["train"], settings):
        score = _score(engine, asked["dev"], splits["dev"])
        print(f"epoch {epoch}: {_MEASURE} {score:.4f} (dev)", file=sys.stderr)
        if score > best:
            best = score
            training.save_model(engine.model, staged)
    shutil.copytree(staged, arguments.out)
    trained = _engine(arguments.out, scratch, threads)
    trained.open(scratch / "index")
    plain = trained.variant("bm25-wordpiece")
    for name in ("dev", "test"):
        if name in splits:
            before, after = (_score(one, asked[name], splits[name]) for one in (plain, trained))
            print(f"{name}: {_MEASURE} {after:.4f}, of BM25 over the same pieces {before:.4f}")
    added = trained.facts()["mean_augmentation_length"]
    print(f"{arguments.out}: {added:,.0f} terms are added to a query in the mean")


def _splits(folder: Path) -> dict[str, Qrels]:
    """Judgements by what they are for; those for choosing are made where the folder has none."""
    paths = {name: folder / f"{name}.tsv" for name in ("train", "dev", "test")}
    found = {name: read_qrels(path) for name, path in paths.items() if name == "train" or path.exists()}
    if "dev" not in found:
        judged = found["train"].as_dict()
        kept = set(list(judged)[::_TENTH])
        found["dev"], found["train"] = (
            Qrels.from_dict({query: grades for query, grades in judged.items() if (query in kept) == wanted})
            for wanted in (True, False)
        )
    return found


def _engine(folder: Path, scratch: Path, threads: int) -> QueryAugmentation:
    """The engine that searches with a checkpoint, which is checked as the site checks it."""
    description = describe("query-augmentation")
    checkpoint = open_checkpoint(folder, [CheckpointKind.QUERY_AUGMENTATION], scratch)
    engine = description.create(description.complete({}), Resources(checkpoint, threads=threads))
    assert isinstance(engine, QueryAugmentation)
    return engine


def _score(engine: Engine, queries: list[Query], qrels: Qrels) -> float:
    lines = "".join(run_lines(ranking, "training") for ranking in engine.search(queries, 10))
    return score_run(lines.encode(), ScoringTarget(qrels, hidden=False), [_MEASURE]).means[_MEASURE]
