"""From a collection and an engine to a TREC run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Any

from evaluation.checkpoints.description import CheckpointDescription
from evaluation.collections.beir import Query, corpus_fingerprint, read_corpus, read_queries
from evaluation.core.files import sha256_of
from evaluation.engines.base import (
    DividedEngine,
    Engine,
    FactValue,
    InvalidParameter,
    ParameterValue,
    SearchResult,
    ShardedEngine,
    StageProgress,
)
from evaluation.engines.corpus_encoding import (
    EncodedCorpus,
    EncodingTask,
    claim_shards,
    encode_corpus,
    learned_for,
)
from evaluation.engines.precision import computed_in, precision_loss
from evaluation.engines.registry import describe
from evaluation.engines.run_writing import MAIN, KeptRankings, PartOfRun, RunWriter, variant_paths
from evaluation.judgements.qrels import read_excluded


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What a retrieval did. Times are wall seconds; writing the run is in neither of them.

    `queries` counts all queries, `queries_without_results` those for which nothing matched, and which the
    run therefore does not name; `lines` are those of the run.
    """

    engine: str
    parameters: dict[str, ParameterValue]
    analyser: str
    documents: int
    queries: int
    queries_without_results: int
    lines: int
    index_bytes: int
    build_seconds: float
    search_seconds: float
    facts: dict[str, FactValue] = field(default_factory=dict)
    #: Run files by variant, where the engine has variants; that of the main one, the last, is the run itself.
    variants: dict[str, Path] = field(default_factory=dict)
    #: Facts by variant; `facts` are those of the main one.
    variant_facts: dict[str, dict[str, FactValue]] = field(default_factory=dict)
    #: Bytes of each variant's own index; `index_bytes` are those of the main one.
    variant_index_bytes: dict[str, int] = field(default_factory=dict)
    #: How many documents were encoded here, not found as encoded shards; None where the engine encodes none.
    encoded_documents: int | None = None
    #: Wall seconds of encoding those, which are part of `build_seconds`.
    encoding_seconds: float = 0.0

    def as_data(self) -> dict[str, Any]:
        """Return plain values, with the names of the variants' files."""
        return {**asdict(self), "variants": {label: path.name for label, path in self.variants.items()}}

    def of_variant(self, label: str) -> Retrieval:
        """Return the same with the index of the variant with this label; the empty label is the main one."""
        return replace(self, index_bytes=self.variant_index_bytes.get(label, self.index_bytes))

    @property
    def built_whole(self) -> bool:
        """Whether `build_seconds` is all that it takes from a corpus to an index."""
        return self.encoded_documents is None or self.encoded_documents == self.documents


#: Called with the engine, the queries and what was done, while the index is still there: to measure.
Afterwards = Callable[[Engine, Sequence[Query], Retrieval], None]

#: Share of indexing that reading the corpus takes; the rest is merging and writing.
_SHARE_OF_READING = 0.9


@dataclass(frozen=True, slots=True)
class RetrievalTask(EncodingTask):
    """A run to make: at most `k` documents of the corpus for each query, written to `out`.

    If the name of `out` ends in `.gz` the run is compressed. `drop_self_matches` leaves out a document with the
    query's own id, and `excluded` names a file of documents that are left out of the rankings of single queries
    (`evaluation.judgements.qrels`). `tag` is the run's last column, by default the engine's name. The index is in a
    temporary folder, inside `work_folder` if that is given.

    With a `part`, only some shards are encoded and searched, or some queries with an engine that cannot divide shards;
    `merge` joins the runs of all parts to the bytes of one run. The folder `rankings` belongs to this very task: it
    keeps each group of queries once it is searched, so that an interrupted search goes on.
    """

    queries: Path
    out: Path
    _: KW_ONLY
    k: int = 1000
    drop_self_matches: bool = False
    excluded: Path | None = None
    tag: str | None = None
    rankings: Path | None = None
    work_folder: Path | None = None


def retrieve(
    task: RetrievalTask, progress: StageProgress | None = None, afterwards: Afterwards | None = None
) -> Retrieval:
    """Index the corpus, search all queries, and write the run, which appears only when it is complete.

    `progress` may raise to stop: nothing is left then. The main ranking of an engine with variants is written to the
    task's `out`, and the others beside it (`Retrieval.variants`). `afterwards` is called while the index is still
    there. Raises InvalidParameter, InvalidContent for unusable collections, and ModelFailure for unusable models.
    """
    work = _Work(task, progress or (lambda stage, share: None))
    with tempfile.TemporaryDirectory(prefix="index-", dir=task.work_folder) as name:
        folder = Path(name)
        started = perf_counter()
        encoded = work.build(folder)
        built = perf_counter() - started
        main, searched = work.search()
        done = replace(work.outcome(main, encoded), build_seconds=built, search_seconds=searched)
        computed = work.record_compute_dtype(done) if task.part is None else ""
        if afterwards is not None:
            afterwards(work.engine, work.queries, done)
        if computed not in ("", "float32") and not work.description.writes_texts:
            work.record_precision_loss(done, main.first, folder / "precision")
        return done


class _Work:
    """A task with its engine loaded and its queries read. Raises InvalidParameter, InvalidContent and ModelFailure."""

    def __init__(self, task: RetrievalTask, report: StageProgress) -> None:
        self.task, self._report = task, report
        self.description = describe(task.engine)
        self._parameters = self.description.complete(task.parameters)
        self._tag = task.tag or self.description.name
        if task.k < 1:
            raise InvalidParameter(f"A run of depth {task.k} holds nothing; ask for at least 1.")
        if not self._tag.isprintable() or len(self._tag.split()) != 1:
            raise InvalidParameter(f"The tag {self._tag!r} would break the run's lines; use one word.")
        self.description.check(task.resources)
        if task.shards is not None:
            claim_shards(task, task.shards)
        report("loading", 0.0)
        self.engine = self.description.create(self._parameters, task.resources)
        self.queries = list(read_queries(task.queries))
        report("loading", 1.0)
        divides = isinstance(self.engine, DividedEngine) and self.engine.divides_shards
        self._part_of_shards = task.part if divides else None
        self._part_of_queries = None if divides else task.part

    def build(self, folder: Path) -> EncodedCorpus | None:
        """Build the engine's index in `folder`; return the encoded corpus of an engine that encodes in shards."""
        task, engine, indexing = self.task, self.engine, partial(self._report, "indexing")
        encoded = None
        if isinstance(engine, ShardedEngine):
            shards, index = task.shards or folder / "shards", folder / "index"
            encoded = encode_corpus(engine, replace(task, part=self._part_of_shards), shards, self._report)
            index.mkdir()
            if isinstance(engine, DividedEngine) and self._part_of_shards:
                learned = learned_for(engine, shards, encoded.shards, self._parameters, folder / "learned")
                engine.build_part(encoded.folders, learned, index, indexing)
            else:
                engine.build_from_shards(encoded.folders, index, indexing)
        else:
            documents = read_corpus(task.corpus, lambda share: indexing(share * _SHARE_OF_READING))
            engine.build(documents if self.description.reads_corpus else (), folder)
        indexing(1.0)
        return encoded

    def search(self) -> tuple[RunWriter, float]:
        """Search all queries, or those of a part, and write the runs; return the main one's writer, and the seconds.

        Queries are searched in the same groups whatever the part, since what a model computes together decides the
        last bits of scores.
        """
        engine, kept, seconds = self.engine, self._kept_rankings(), 0.0
        paths = variant_paths(engine.variants, self.task.out) or {MAIN: self.task.out}
        excluded = read_excluded(self.task.excluded).as_dict() if self.task.excluded else {}
        with ExitStack() as files:
            writers = {
                label: files.enter_context(self._writer(label, excluded).opened(path))
                for label, path in paths.items()
            }
            depth = next(iter(writers.values())).depth_to_search
            self._report("searching", 0.0)
            size = engine.queries_at_once
            groups = range(-(-len(self.queries) // size))
            if self._part_of_queries:
                groups = self._part_of_queries.of(len(groups), f"groups of {size} queries")
            for number in groups:
                queries = self.queries[number * size :][:size]
                found, spent = kept.get(number, partial(self._rankings, queries, depth))
                seconds += spent
                for rankings in found:
                    for label, ranking in rankings.items():
                        writers[label].write(ranking)
                self._report("searching", (number + 1 - groups.start) / len(groups))
        return list(writers.values())[-1], seconds

    def _rankings(self, queries: Sequence[Query], depth: int) -> list[Mapping[str, SearchResult]]:
        if self.engine.variants:
            return list(self.engine.search_variants(queries, depth))
        return [{MAIN: ranking} for ranking in self.engine.search(queries, depth)]

    def _writer(self, label: str, excluded: Mapping[str, Collection[str]]) -> RunWriter:
        """Return the writer of a label's run, which begins with what it is a part of."""
        task, part = self.task, self.task.part
        whole = f"{label} {self._checksum}".strip() if part else ""
        own = PartOfRun(part.number, part.count, task.k, self._tag, whole) if part else None
        return RunWriter(self._tag, task.k, task.drop_self_matches, own, excluded)

    def _kept_rankings(self) -> KeptRankings:
        if self.task.rankings is None:
            return KeptRankings(None)
        part = self._part_of_shards
        divided = f"-{part.number}-of-{part.count}" if part else ""
        return KeptRankings(self.task.rankings / f"{self._checksum[:16]}-{self.task.k}{divided}")

    @cached_property
    def _checksum(self) -> str:
        """A checksum of what has to be the same for all parts of a run, and decides its rankings."""
        task, resources = self.task, self.task.resources
        model = CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else ""
        read = [sha256_of(path) for path in (task.queries, *resources.runs)]
        read += [corpus_fingerprint(task.corpus)] if self.description.reads_corpus else []
        options: list[object] = [task.drop_self_matches, task.shard_size]
        options += [sha256_of(task.excluded)] if task.excluded else []
        device = resources.device.partition(":")[0]
        values = [self.description.name, self._parameters, model, device, resources.language, read, options]
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def outcome(self, main: RunWriter, encoded: EncodedCorpus | None) -> Retrieval:
        """Return what the retrieval did, without its times."""
        engine = self.engine
        return Retrieval(
            engine=self.description.name,
            parameters=self._parameters,
            analyser=engine.analyser_name,
            documents=engine.documents,
            queries=len(self.queries),
            queries_without_results=main.empty_rankings,
            lines=main.lines,
            index_bytes=engine.size(),
            build_seconds=0.0,
            search_seconds=0.0,
            facts=dict(engine.facts()),
            variants=variant_paths(engine.variants, self.task.out),
            variant_facts={label: dict(engine.variant_facts(label)) for label in engine.variants},
            variant_index_bytes={label: engine.variant(label).size() for label in engine.variants},
            encoded_documents=encoded.documents if encoded else None,
            encoding_seconds=encoded.seconds if encoded else 0.0,
        )

    def record_compute_dtype(self, done: Retrieval) -> str:
        """Return add what the model computed in to the facts, also those of variants with a model; return it."""
        if computed := computed_in(done.parameters, self.task.resources.device):
            # A variant that is another engine has no model.
            variants, kind = self.engine.variants, type(self.engine)
            own = [label for label in variants if isinstance(self.engine.variant(label), kind)]
            for facts in (done.facts, *(done.variant_facts[label] for label in own)):
                facts["compute_dtype"] = computed
        return computed

    def record_precision_loss(self, done: Retrieval, rankings: Sequence[SearchResult], folder: Path) -> None:
        """Add what less precision lost to the facts, also of the main variant. It takes memory of its own."""
        folder.mkdir()
        lost = precision_loss(self.engine, self.task, self.queries, rankings, folder)
        if lost is not None:
            with_model = [facts for facts in done.variant_facts.values() if "compute_dtype" in facts]
            for facts in (done.facts, *with_model[-1:]):
                facts["precision_loss"] = lost
