"""From a collection and an engine to a TREC run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Query, read_corpus, read_queries
from evaluation.collections.blocks import fingerprint_of
from evaluation.core.files import sha256_of
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
)
from evaluation.engines.corpus_encoding import EncodedCorpus, claim_shards, encode_corpus
from evaluation.engines.kept_rankings import KeptRankings
from evaluation.engines.parts import DividedEngine, Part, PartOfRun, learned_for, merge_runs, read_parts
from evaluation.engines.precision import computed_in, precision_loss
from evaluation.engines.registry import describe
from evaluation.engines.run_writing import MAIN, RunWriter, open_writers, variant_paths
from evaluation.judgements.excluded import read_excluded

#: Called with the engine, the queries and what was done, while the index is still there: to measure.
Afterwards = Callable[[Engine, Sequence[Query], Retrieval], None]

#: Share of indexing that reading the corpus takes; the rest is merging and writing.
_SHARE_OF_READING = 0.9


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
    excluded: Path | None = None,
) -> Retrieval:
    """Index the corpus, search all queries, and write a TREC run of at most `k` documents each to `out`.

    `out` appears only when it is complete; if its name ends in `.gz` it is compressed. `drop_self_matches` leaves
    out a document with the query's own id, and `excluded` names a file of documents that are left out of the rankings
    of single queries (`evaluation.judgements.excluded`). The index lies in a temporary folder, inside `work_folder`
    if that is given, and is removed at the end. `tag` is the run's last column, by default the engine's name.
    `progress` may raise to stop: nothing is left then.

    An engine that encodes documents finds encoded shards in the folder `shards`, and leaves there what it encodes
    itself; without it they are as temporary as the index. The folder notes what its shards are made from, and is
    refused for anything else. Of an engine with variants the main one is written to `out`, and the others beside it
    (`Retrieval.variants`). `afterwards` is called while the index is still there.

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
    if shards is not None:
        claim_shards(shards, description, complete, resources, corpus, shard_size)
    made, asked = _load(description, complete, resources, queries, report)
    with tempfile.TemporaryDirectory(prefix="index-", dir=work_folder) as name:
        folder = Path(name)
        started = perf_counter()
        encoded = _build(made, description, complete, corpus, folder, shards, shard_size, part, report)
        built = perf_counter() - started
        left_out = read_excluded(excluded).as_dict() if excluded else {}
        work = (description, complete, resources, corpus, queries, excluded, [drop_self_matches, shard_size])
        whole = _made_from(*work) if part or rankings else ""
        kept = _kept_rankings(rankings, whole, k, part if _divides_shards(made) else None)
        with ExitStack() as files:
            new = partial(_new_writer, part, whole, tag, k, drop_self_matches, left_out)
            written = open_writers(files, made, out, new)
            searched = _search(made, asked, written, part, kept, report)
        main = written[made.variants[-1] if made.variants else MAIN]
        done = _what_was_done(made, description, complete, out, encoded, main, len(asked), (built, searched))
        computed = _tell_computed_in(made, done, resources) if part is None else ""
        if afterwards is not None:
            afterwards(made, asked, done)
        if computed not in ("", "float32") and not description.writes_texts:
            _tell_precision(made, description, done, resources, asked, main.first, corpus, folder)
        return done


def _kept_rankings(folder: Path | None, whole: str, depth: int, part: Part | None) -> KeptRankings:
    """Those of this very work in a folder, if there is one; `part` where it is one of the shards."""
    if folder is None:
        return KeptRankings(None)
    divided = f"-{part.number}-of-{part.count}" if part else ""
    return KeptRankings(folder / f"{whole[:16]}-{depth}{divided}")


def _new_writer(
    part: Part | None,
    whole: str,
    tag: str,
    depth: int,
    drop_self_matches: bool,
    excluded: Mapping[str, Collection[str]],
    label: str,
) -> RunWriter:
    """Writes the run of a label, which begins with what it is a part of."""
    own = PartOfRun(part.number, part.count, depth, tag, f"{label} {whole}".strip()) if part else None
    return RunWriter(tag, depth, drop_self_matches, own, excluded)


def _load(
    description: EngineDescription,
    parameters: Mapping[str, ParameterValue],
    resources: Resources,
    queries: Path,
    report: StageProgress,
) -> tuple[Engine, list[Query]]:
    """The engine with its model, and the queries. Raises InvalidParameter, InvalidContent and ModelFailure."""
    report("loading", 0.0)
    engine = description.create(parameters, resources)
    asked = list(read_queries(queries))
    report("loading", 1.0)
    return engine, asked


def _what_was_done(
    engine: Engine,
    description: EngineDescription,
    parameters: Mapping[str, ParameterValue],
    out: Path,
    encoded: EncodedCorpus | None,
    main: RunWriter,
    queries: int,
    seconds: tuple[float, float],
) -> Retrieval:
    """What the retrieval did; `seconds` are those of building and of searching."""
    return Retrieval(
        engine=description.name,
        parameters=dict(parameters),
        analyser=engine.analyser_name,
        documents=engine.documents,
        queries=queries,
        queries_without_results=main.empty_rankings,
        lines=main.lines,
        index_bytes=engine.size(),
        build_seconds=seconds[0],
        search_seconds=seconds[1],
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
    excluded: Path | None,
    options: Sequence[object],
) -> str:
    """A checksum of what has to be the same for all parts of a run, and decides its rankings."""
    model = CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else ""
    device = resources.device.partition(":")[0]
    read = [sha256_of(path) for path in (queries, *resources.runs)]
    read += [fingerprint_of(corpus)] if description.reads_corpus else []
    options = [*options, *([sha256_of(excluded)] if excluded else [])]
    values = [description.name, dict(parameters), model, device, resources.language, read, options]
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _tell_computed_in(engine: Engine, done: Retrieval, resources: Resources) -> str:
    """Add to the facts what the model computed in, of the whole and of variants with a model; returns it."""
    if computed := computed_in(done.parameters, resources.device):
        # A variant that is another engine has no model.
        own = [label for label in engine.variants if isinstance(engine.variant(label), type(engine))]
        for facts in (done.facts, *(done.variant_facts[label] for label in own)):
            facts["compute_dtype"] = computed
    return computed


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
    """Add to the facts, of the whole and of the main variant, what less precision lost. It takes memory of its own."""
    place = folder / "precision"
    place.mkdir()
    lost = precision_loss(engine, description, done.parameters, resources, queries, rankings, corpus, place)
    if lost is not None:
        with_model = [facts for facts in done.variant_facts.values() if "compute_dtype" in facts]
        for facts in (done.facts, *with_model[-1:]):
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
    else:
        encoded = None
        read = read_corpus(corpus, lambda share: report("indexing", share * _SHARE_OF_READING))
        engine.build(read if description.reads_corpus else (), folder)
    report("indexing", 1.0)
    return encoded


def _check_run_options(depth: int, tag: str) -> None:
    """Raise InvalidParameter for a depth or tag that no run can have."""
    if depth < 1:
        raise InvalidParameter(f"A run of depth {depth} holds nothing; ask for at least 1.")
    if not tag or not tag.isprintable() or len(tag.split()) != 1:
        raise InvalidParameter(f"The tag {tag!r} would break the run's lines; use one word.")


def _search(
    engine: Engine,
    queries: list[Query],
    writers: Mapping[str, RunWriter],
    part: Part | None,
    kept: KeptRankings,
    report: StageProgress,
) -> float:
    """Search all queries, or those of a part that is not of shards, and write what is found; return the seconds.

    Queries are searched in the same groups whatever the part, since what a model computes together decides the last
    bits of scores.
    """
    depth = next(iter(writers.values())).depth_to_search
    seconds = 0.0
    report("searching", 0.0)
    groups = -(-len(queries) // engine.queries_at_once)
    wanted = range(groups)
    if part and not _divides_shards(engine):
        wanted = part.of(groups, f"groups of {engine.queries_at_once} queries")
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
    header = read_parts(parts)
    with RunWriter(header.tag, header.depth, drop_self_matches=False).opened(out) as writer:
        merge_runs(parts, [query.id for query in read_queries(queries)], header.depth, writer.write)
    return writer.lines
