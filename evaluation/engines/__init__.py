"""The engines, registered as data: adding one is a file, a line here, and a test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluation.engines import (
    bm25,
    bm25_wordpiece,
    cross_encoder,
    dense,
    document_expansion,
    fusion,
    late_interaction,
    learned_sparse,
    query_augmentation,
    query_rewriting,
    rm3,
    term_weighting,
)
from evaluation.engines.base import (
    SHARD_SIZE,
    Engine,
    EngineDescription,
    InvalidParameter,
    Parameter,
    Resources,
    Retrieval,
    SearchResult,
    ShardedEngine,
    Stage,
    StageProgress,
)
from evaluation.engines.facts import FACTS, Fact
from evaluation.engines.parts import Part
from evaluation.engines.retrieval import (
    Afterwards,
    EncodedCorpus,
    encode_corpus,
    merge,
    run_engine,
)
from evaluation.engines.run_writing import run_lines

__all__ = [
    "ENGINES",
    "FACTS",
    "SHARD_SIZE",
    "Engine",
    "EngineDescription",
    "Fact",
    "InvalidParameter",
    "Parameter",
    "Part",
    "Resources",
    "Retrieval",
    "SearchResult",
    "ShardedEngine",
    "Stage",
    "StageProgress",
    "describe",
    "encode",
    "merge",
    "retrieve",
    "run_lines",
]

#: Every engine by its name.
ENGINES: dict[str, EngineDescription] = {
    description.name: description
    for module in (
        bm25,
        rm3,
        bm25_wordpiece,
        dense,
        learned_sparse,
        late_interaction,
        cross_encoder,
        document_expansion,
        term_weighting,
        query_augmentation,
        query_rewriting,
        fusion,
    )
    for description in module.DESCRIPTIONS
}

#: Other names that are understood: what papers and Anserini call an engine.
ALIASES = {"bm25-flat": "bm25"}


def describe(engine: str) -> EngineDescription:
    """The engine's description. Raises InvalidParameter for an unknown name."""
    description = ENGINES.get(ALIASES.get(engine, engine))
    if description is None:
        raise InvalidParameter(f"There is no engine {engine!r}; there are {', '.join(ENGINES)}.")
    return description


def encode(
    engine: str,
    corpus: Path,
    shards: Path,
    parameters: Mapping[str, object],
    resources: Resources,
    part: Part | None = None,
    progress: StageProgress | None = None,
    shard_size: int = SHARD_SIZE,
) -> EncodedCorpus:
    """Encode the corpus, or a part of its shards, into the folder `shards`, where `retrieve` finds them.

    Shards that are there already stay. Raises what `retrieve` does.
    """
    description = describe(engine)
    description.check(resources)
    if description.encoding_parameters is None:
        raise InvalidParameter(f"{description.name} encodes no shards.")
    made = description.create(description.complete(parameters), resources)
    assert isinstance(made, ShardedEngine)
    return encode_corpus(made, corpus, shards, shard_size, progress or (lambda stage, share: None), part)


def retrieve(
    engine: str,
    corpus: Path,
    queries: Path,
    out: Path,
    parameters: Mapping[str, object] | None = None,
    k: int = 1000,
    drop_self_matches: bool = False,
    progress: StageProgress | None = None,
    work_folder: Path | None = None,
    tag: str | None = None,
    resources: Resources | None = None,
    shards: Path | None = None,
    shard_size: int = SHARD_SIZE,
    afterwards: Afterwards | None = None,
    part: Part | None = None,
    rankings: Path | None = None,
) -> Retrieval:
    """Index the corpus, search all queries, and write a TREC run of at most `k` documents each to `out`.

    `out` appears only when it is complete; if its name ends in `.gz` it is compressed. `drop_self_matches` leaves
    out a document with the query's own id. The index lies in a temporary folder, inside `work_folder` if that is
    given, and is removed at the end. `tag` is the run's last column, by default the engine's name. `progress` may
    raise to stop: nothing is left then.

    An engine that encodes documents finds encoded shards in the folder `shards`, and leaves there what it encodes
    itself; without it they are as temporary as the index. Of an engine with variants the main one is written to `out`,
    and the others beside it (`Retrieval.variants`). `afterwards` is called while the index is still there.

    Of a `part` alone the shards are encoded and searched, or for engines that cannot divide them the queries; `merge`
    makes of all parts the bytes of one run. In the folder `rankings`, which belongs to this very work, each group of
    queries is kept once it is searched, so that an interrupted search goes on.
    Raises InvalidParameter, InvalidContent for unusable collections, and ModelFailure for unusable models.
    """
    description = describe(engine)
    return run_engine(
        description,
        description.complete(parameters or {}),
        corpus,
        queries,
        out,
        depth=k,
        drop_self_matches=drop_self_matches,
        report=progress or (lambda stage, share: None),
        work_folder=work_folder,
        tag=tag or description.name,
        resources=resources or Resources(),
        shards=shards,
        shard_size=shard_size,
        afterwards=afterwards,
        part=part,
        rankings=rankings,
    )
