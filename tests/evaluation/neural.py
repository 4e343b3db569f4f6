"""Helpers for tests of engines with models: a rebuilt checkpoint, and awkward texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import open_checkpoint
from evaluation.collections.beir import Document, Query
from evaluation.core.writing import make_folder
from evaluation.engines import ENGINES, Engine, Resources, RetrievalTask, retrieve
from evaluation.engines.base import SearchResult, shard_name

#: Documents of every awkward kind: empty, endless, in scripts that no vocabulary here has, of one word.
AWKWARD = [
    Document("empty", "", ""),
    Document("endless", "", "query document model " * 34_000),
    Document("thai", "ภาษาไทย", "ระบบสืบค้นข้อมูล"),
    Document("arabic", "", "استرجاع المعلومات"),
    Document("control", "", "\x00\u200b\ufeff \n\t"),
    Document("word", "cat", ""),
    Document("marks", "", "!?.,;:"),
]
DOCUMENTS = [
    Document("d1", "quick fox", "the quick brown fox jumps over the lazy dog"),
    Document("d2", "", "cat and dog sat on the mat"),
    Document("d3", "stock market", "stock price fell and the market rose"),
    Document("d4", "", "heart disease and cancer drug trial in patient"),
    Document("d5", "wing", "boundary layer flow over a wing at high mach number"),
    Document("d6", "", "information retrieval system with query and document model"),
    Document("d7", "heat", "heat transfer in the boundary layer by theory"),
    Document("d8", "", "vitamin and protein in health diet food"),
    Document("d9", "program", "computer program in python language with function and class"),
    Document("d10", "", "bank money trade in the stock market"),
]
QUERIES = [
    Query("q1", "quick fox"),
    Query("q2", "how does heat flow in a boundary layer"),
    Query("q3", "stock market price"),
]
AWKWARD_QUERIES = [
    Query("empty", ""),
    Query("thai", "ระบบ"),
    Query("blank", " \n "),
    Query("endless", "query " * 100_000),
]


def rebuilt(folder: Path, make: Callable[..., Path], kind: CheckpointKind, **options: Any) -> Path:
    """The checkpoint that `make` writes, validated and rebuilt; what it wrote stays beside it, in `raw`."""
    return open_checkpoint(make(folder / "raw", **options), {kind}, folder)


def by_hand(folder: Path, make: Callable[..., Path], kind: CheckpointKind, **more: Any) -> Path:
    """A folder that no validator saw, laid out as rebuilt ones are; `more` are values of its description."""
    make(folder / "model")
    CheckpointDescription(kind, ("model",), "bert", 1, 1, "0" * 64, **more).write(folder)
    return folder


def created(
    name: str,
    checkpoint: Path,
    runs: tuple[Path, ...] = (),
    index: Path | None = None,
    **parameters: Any,
) -> Any:
    """The engine of this name with a checkpoint."""
    description, given = ENGINES[name], Resources(checkpoint=checkpoint, runs=runs, index=index)
    return description.create(description.complete(parameters), given)


def run_bytes(name: str, checkpoint: Path, folder: Path, shards: Path | None = None, **parameters: Any) -> bytes:
    """The run that `retrieve` makes in shards of four documents, some of which may lie in `shards` already."""
    folder.mkdir()
    texts = [{"_id": one.id, "title": one.title, "text": one.text} for one in DOCUMENTS]
    queries = [{"_id": query.id, "text": query.text} for query in QUERIES]
    for file, records in (("corpus", texts), ("queries", queries)):
        (folder / f"{file}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records), "utf-8")
    paths = (folder / "corpus.jsonl", folder / "queries.jsonl", folder / "run.txt")
    given = Resources(checkpoint=checkpoint)
    retrieve(RetrievalTask(name, *paths, parameters=parameters, resources=given, shards=shards, shard_size=4))
    return paths[2].read_bytes()


def encoded_elsewhere(name: str, checkpoint: Path, folder: Path, **parameters: Any) -> Path:
    """Shards of four documents, the last one first, each by an engine of its own."""
    folder.mkdir()
    for number in (2, 1, 0):
        encode = partial(created(name, checkpoint, **parameters).encode_shard, DOCUMENTS[number * 4 :][:4])
        make_folder(folder / shard_name(number), encode)
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    """All files of the shards in a folder."""
    files = (path for path in sorted(folder.glob("0*/**/*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def searched(engine: Engine, queries: list[Query], depth: int = 100) -> dict[str, dict[str, float]]:
    """Scores of documents by query."""
    return {ranking.query_id: scores_of(ranking) for ranking in engine.search(queries, depth)}


def scores_of(ranking: SearchResult) -> dict[str, float]:
    """Scores by document, in order."""
    return dict(zip(ranking.document_ids, ranking.scores.tolist(), strict=True))
