"""From a collection and an engine to a TREC run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Document, Query, count_documents, read_corpus, read_queries
from evaluation.engines.base import (
    SHARD_SIZE,
    Engine,
    EngineDescription,
    InvalidParameter,
    ParameterValue,
    Resources,
    Retrieval,
    SearchResult,
    ShardedEngine,
    StageProgress,
    shard_name,
)
from evaluation.engines.kept_rankings import KeptRankings
from evaluation.engines.parts import DividedEngine, Part, PartOfRun, learned_for, merge_runs
from evaluation.engines.precision import computed_in, precision_loss
from evaluation.engines.registry import describe
from evaluation.engines.run_writing import MAIN, RunWriter, complete_or_absent, open_writers, variant_paths

#: Called with the engine, the queries and what was done, while the index is still there: to measure.
Afterwards = Callable[[Engine, Sequence[Query], Retrieval], None]

#: Share of indexing that reading the corpus takes; the rest is merging and writing.
_SHARE_OF_READING = 0.9


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
    description, resources = describe(engine), resources or Resources()
    complete, tag = description.complete(parameters or {}), tag or description.name
    report = progress or (lambda stage, share: None)
    _check_run_options(k, tag)
    description.check(resources)
    report("loading", 0.0)
    made = description.create(complete, resources)
    asked = list(read_queries(queries))
    report("loading", 1.0)
    with tempfile.TemporaryDirectory(prefix="index-", dir=work_folder) as name:
        folder = Path(name)
        started = perf_counter()
        encoded = _build(made, description, complete, corpus, folder, shards, shard_size, part, report)
        build_seconds = perf_counter() - started
        report("indexing", 1.0)
        whole = ""
        if part or rankings:
            whole = _made_from(description, complete, resources, corpus, queries, drop_self_matches)
        with ExitStack() as files:
            written = open_writers(files, made, out, tag, k, drop_self_matches)
            if part is not None:
                for label, writer in written.items():
                    writer.begin_part(PartOfRun(part.number, part.count, k, tag, f"{label} {whole}".strip()))
            some = None if _divides_shards(made) else part
            kept = KeptRankings(rankings and rankings / f"{whole[:16]}-{k}")
            search_seconds = _search(made, asked, written, some, kept, report)
        main = written[MAIN if not made.variants else made.variants[-1]]
        done = _what_was_done(made, description, complete, out, encoded, main)
        done = replace(done, queries=len(asked), build_seconds=build_seconds, search_seconds=search_seconds)
        if afterwards is not None:
            afterwards(made, asked, done)
        if part is None:
            _tell_precision(made, description, done, resources, asked, main.first, corpus, folder)
        return done


def _what_was_done(
    engine: Engine,
    description: EngineDescription,
    parameters: Mapping[str, ParameterValue],
    out: Path,
    encoded: EncodedCorpus | None,
    main: RunWriter,
) -> Retrieval:
    """All but the queries and the times."""
    return Retrieval(
        engine=description.name,
        parameters=dict(parameters),
        analyser=engine.analyser_name,
        documents=engine.documents,
        queries=0,
        queries_without_results=main.empty_rankings,
        lines=main.lines,
        index_bytes=engine.size(),
        build_seconds=0.0,
        search_seconds=0.0,
        facts=dict(engine.facts()),
        variants=variant_paths(engine.variants, out),
        variant_facts={label: dict(engine.variant_facts(label)) for label in engine.variants},
        variant_index_bytes={label: engine.variant(label).size() for label in engine.variants},
        encoded_documents=encoded.documents if encoded else None,
        encoding_seconds=encoded.seconds if encoded else 0.0,
    )


def _divides_shards(engine: Engine) -> bool:
    return isinstance(engine, DividedEngine) and engine.divides_shards


def _made_from(
    description: EngineDescription,
    parameters: Mapping[str, ParameterValue],
    resources: Resources,
    corpus: Path,
    queries: Path,
    drop_self_matches: bool,
) -> str:
    """A checksum of what has to be the same for all parts of a run; of the corpus it is the size alone."""
    model = CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else ""
    size = corpus.stat().st_size if description.reads_corpus else 0
    files = [sha256(path.read_bytes()).hexdigest() for path in (queries, *resources.runs)]
    device = resources.device.partition(":")[0]
    values = [description.name, dict(parameters), model, device, size, files, drop_self_matches]
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _tell_precision(
    engine: Engine,
    description: EngineDescription,
    done: Retrieval,
    resources: Resources,
    queries: Sequence[Query],
    rankings: Sequence[SearchResult],
    corpus: Path,
    folder: Path,
) -> None:
    """Add to the facts what the model computed in, and what that lost. Last of all: it takes memory of its own."""
    if not (computed := computed_in(done.parameters, resources.device)):
        return
    own = [label for label in engine.variants if isinstance(engine.variant(label), type(engine))]
    everything = [done.facts, *(done.variant_facts[label] for label in own)]  # another engine's has no model
    for facts in everything:
        facts["compute_dtype"] = computed
    if computed != "float32" and not description.writes_texts:
        place = folder / "precision"
        place.mkdir()
        lost = precision_loss(
            engine, description, done.parameters, resources, queries, rankings, corpus, place
        )
        if lost is not None:
            for facts in (done.facts, everything[-1]):  # the main one's
                facts["precision_loss"] = lost


def _build(
    engine: Engine,
    description: EngineDescription,
    parameters: Mapping[str, ParameterValue],
    corpus: Path,
    folder: Path,
    shards: Path | None,
    shard_size: int,
    part: Part | None,
    report: StageProgress,
) -> EncodedCorpus | None:
    """Build the engine's index in `folder`; the encoded corpus of an engine that encodes in shards."""
    if isinstance(engine, ShardedEngine):
        place = shards or folder / "shards"
        divided = part if _divides_shards(engine) else None
        encoded = encode_corpus(engine, corpus, place, shard_size, report, divided)
        index = folder / "index"
        index.mkdir()
        if isinstance(engine, DividedEngine) and divided is not None:
            own = folder / "learned"
            own.mkdir()
            learned = learned_for(engine, place, encoded.shards, dict(parameters), own)
            engine.build_part(encoded.folders, learned, index, lambda share: report("indexing", share))
        else:
            engine.build_from_shards(encoded.folders, index, lambda share: report("indexing", share))
        return encoded
    read = read_corpus(corpus, lambda share: report("indexing", share * _SHARE_OF_READING))
    engine.build(read if description.reads_corpus else (), folder)
    return None


def _check_run_options(depth: int, tag: str) -> None:
    """Raise InvalidParameter for a depth or tag that no run can have."""
    if depth < 1:
        raise InvalidParameter(f"A run of depth {depth} holds nothing; ask for at least 1.")
    if not tag or not tag.isprintable() or len(tag.split()) != 1:
        raise InvalidParameter(f"The tag {tag!r} would break the run's lines; use one word.")


class EncodedCorpus(NamedTuple):
    """All encoded shards in corpus order; how many documents were encoded just now, and in how many wall seconds.

    Of a part they are those of its shards; `shards` is how many the corpus has.
    """

    folders: list[Path]
    documents: int
    seconds: float
    shards: int


def encode_corpus(
    engine: ShardedEngine,
    corpus: Path,
    folder: Path,
    shard_size: int,
    report: StageProgress,
    part: Part | None = None,
) -> EncodedCorpus:
    """All encoded shards of the corpus, or of a part: those that `folder` has already, and the others made there.

    A shard takes its name only once it is whole.
    """
    folder.mkdir(exist_ok=True)
    report("encoding", 0.0)
    total = max(count_documents(corpus), 1)
    shards = -(-total // shard_size)
    wanted = part.of(shards, "shards") if part else range(shards)
    folders = [folder / shard_name(number) for number in wanted]
    encoded, seconds = 0, 0.0
    reading: Iterator[Document] = iter(())
    at = -1  # the number of the document that is read next
    for number, shard in zip(wanted, folders, strict=True):
        first = number * shard_size
        if not shard.exists():
            if at != first:
                reading = read_corpus(corpus, first=first)
            documents = list(islice(reading, shard_size))
            at = first + len(documents)
            started = perf_counter()
            _encode_shard(engine, documents, shard, first, total, report)
            seconds += perf_counter() - started
            encoded += len(documents)
        report("encoding", min((first + shard_size) / total, 1.0))
    return EncodedCorpus(folders, encoded, seconds, shards)


def _encode_shard(
    engine: ShardedEngine,
    documents: Sequence[Document],
    shard: Path,
    before: int,
    total: int,
    report: StageProgress,
) -> None:
    partial = shard.with_name(f"{shard.name}.part-{os.getpid()}")
    partial.mkdir()
    engine.encode_shard(
        documents, partial, lambda share: report("encoding", (before + share * len(documents)) / total)
    )
    partial.rename(shard)


def _search(
    engine: Engine,
    queries: list[Query],
    writers: Mapping[str, RunWriter],
    part: Part | None,
    kept: KeptRankings,
    report: StageProgress,
) -> float:
    """Search all queries, or those of a part, and write what is found; return the seconds that searching took.

    Queries are searched in the same groups whatever the part, since what a model computes together decides the last
    bits of scores.
    """
    depth = next(iter(writers.values())).depth_to_search
    seconds = 0.0
    report("searching", 0.0)
    groups = -(-len(queries) // engine.queries_at_once)
    wanted = part.of(groups, f"groups of {engine.queries_at_once} queries") if part else range(groups)
    for number in wanted:
        some = queries[number * engine.queries_at_once :][: engine.queries_at_once]

        def search(some: Sequence[Query] = some) -> list[Mapping[str, SearchResult]]:
            if engine.variants:
                return list(engine.search_variants(some, depth))
            return [{MAIN: ranking} for ranking in engine.search(some, depth)]

        found, spent = kept.get(number, search)
        seconds += spent
        for rankings in found:
            for label, ranking in rankings.items():
                writers[label].write(ranking)
        report("searching", (number + 1 - wanted.start) / len(wanted))
    return seconds


def merge(parts: Sequence[Path], queries: Path, out: Path) -> int:
    """Merge the runs of all parts to the run of one search, whose bytes these are; return how many lines it has.

    Raises InvalidContent where they are not the parts of one run over these queries.
    """
    header = PartOfRun.read(parts[0])
    with complete_or_absent(out) as file:
        writer = RunWriter(file, header.tag, header.depth, drop_self_matches=False)
        merge_runs(parts, [query.id for query in read_queries(queries)], writer.write)
    return writer.lines
