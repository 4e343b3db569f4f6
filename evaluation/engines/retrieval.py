"""Retrieval of a TREC run for a collection with an engine."""

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
from evaluation.core.files import file_sha256
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
    get_learned_folder,
)
from evaluation.engines.precision import get_compute_dtype, precision_loss
from evaluation.engines.registry import describe
from evaluation.engines.run_writing import MAIN, PartOfRun, RankingStore, RunWriter, variant_paths
from evaluation.judgements.qrels import read_excluded


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Statistics of a retrieval. Times are wall-clock seconds and do not include writing the run.

    `queries` counts all queries, and `queries_without_results` the ones without a matching document, which are not in
    the run. `lines` is the number of lines of the run.
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
    #: Run files keyed by variant, if the engine has variants. The last one is the main run.
    variants: dict[str, Path] = field(default_factory=dict)
    #: Facts keyed by variant; `facts` belongs to the main variant.
    variant_facts: dict[str, dict[str, FactValue]] = field(default_factory=dict)
    #: Index sizes keyed by variant; `index_bytes` is the size for the main variant.
    variant_index_bytes: dict[str, int] = field(default_factory=dict)
    #: Number of documents encoded by this retrieval, not read from existing shards; None if the engine has no shards.
    encoded_documents: int | None = None
    #: Seconds for encoding these documents, included in `build_seconds`.
    encoding_seconds: float = 0.0

    def as_data(self) -> dict[str, Any]:
        """Return JSON-compatible values, with the names of the variants' files."""
        return {**asdict(self), "variants": {label: path.name for label, path in self.variants.items()}}

    def for_variant(self, label: str) -> Retrieval:
        """Return a copy with the index size of the variant with this label, or of the main variant for ""."""
        return replace(self, index_bytes=self.variant_index_bytes.get(label, self.index_bytes))

    @property
    def built_whole(self) -> bool:
        """Whether `build_seconds` covers all work from the corpus to the index."""
        return self.encoded_documents is None or self.encoded_documents == self.documents


#: Callback for measurements, which receives the engine, the queries, and the statistics before the index is deleted.
BeforeCleanup = Callable[[Engine, Sequence[Query], Retrieval], None]

#: Fraction of the indexing progress for reading the corpus; the rest is merging and writing.
_SHARE_OF_READING = 0.9


@dataclass(frozen=True, slots=True)
class RetrievalTask(EncodingTask):
    """A run to produce.

    With a `part`, only some shards are encoded and searched, or only some queries if the engine cannot divide shards.
    `merge` joins the runs of all parts to a file that is identical to that of a single run.

    Attributes:
        queries: File of the queries.
        out: File of the run, compressed if its name ends in `.gz`.
        k: Maximum number of documents per query.
        drop_self_matches: Whether to omit a document with the query's own id.
        excluded: File of documents to omit from the rankings of single queries (`evaluation.judgements.qrels`).
        tag: Last column of the run, by default the engine's name.
        rankings: Folder for this task alone, which stores each finished group of queries, so that an interrupted
            search can continue.
        work_folder: Parent of the temporary folder with the index.
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
    task: RetrievalTask, progress: StageProgress | None = None, before_cleanup: BeforeCleanup | None = None
) -> Retrieval:
    """Index the corpus, search all queries, and write the run, which appears only when it is complete.

    The main ranking of an engine with variants is written to the task's `out`, and the others to files next to it
    (`Retrieval.variants`).

    Args:
        task: The run to produce.
        progress: Progress callback. It may raise to abort, after which no files remain.
        before_cleanup: Callback that is called before the index is deleted.

    Raises:
        InvalidParameter: A parameter is invalid.
        InvalidContent: The collection is unusable.
        ModelFailure: The model is unusable.
    """
    work = _RetrievalJob(task, progress or (lambda stage, share: None))
    with tempfile.TemporaryDirectory(prefix="index-", dir=task.work_folder) as name:
        folder = Path(name)
        start = perf_counter()
        corpus = work.build(folder)
        build_seconds = perf_counter() - start
        main, search_seconds = work.search()
        retrieval = replace(work.outcome(main, corpus), build_seconds=build_seconds, search_seconds=search_seconds)
        compute_dtype = work.record_compute_dtype(retrieval) if task.part is None else ""
        if before_cleanup is not None:
            before_cleanup(work.engine, work.queries, retrieval)
        if compute_dtype not in ("", "float32") and not work.description.writes_texts:
            work.record_precision_loss(retrieval, main.first_rankings, folder / "precision")
        return retrieval


class _RetrievalJob:
    """A task with its engine and queries. Raises InvalidParameter, InvalidContent, and ModelFailure."""

    def __init__(self, task: RetrievalTask, report: StageProgress) -> None:
        self.task, self._report = task, report
        self.description = describe(task.engine)
        self._parameters = self.description.complete(task.parameters)
        self._tag = task.tag or self.description.name
        if task.k < 1:
            raise InvalidParameter(f"A run of depth {task.k} would be empty; use a depth of at least 1.")
        if not self._tag.isprintable() or len(self._tag.split()) != 1:
            raise InvalidParameter(f"The tag {self._tag!r} would break the format of the run; use a single word.")
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
        """Build the engine's index in `folder`, and return the encoded corpus if the engine has shards."""
        task, engine, indexing = self.task, self.engine, partial(self._report, "indexing")
        corpus = None
        if isinstance(engine, ShardedEngine):
            shards, index = task.shards or folder / "shards", folder / "index"
            corpus = encode_corpus(engine, replace(task, part=self._part_of_shards), shards, self._report)
            index.mkdir()
            if isinstance(engine, DividedEngine) and self._part_of_shards:
                learned = get_learned_folder(engine, shards, corpus.shards, self._parameters, folder / "learned")
                engine.build_part(corpus.folders, learned, index, indexing)
            else:
                engine.build_from_shards(corpus.folders, index, indexing)
        else:
            documents = read_corpus(task.corpus, lambda share: indexing(share * _SHARE_OF_READING))
            engine.build(documents if self.description.reads_corpus else (), folder)
        indexing(1.0)
        return corpus

    def search(self) -> tuple[RunWriter, float]:
        """Search the queries, write the runs, and return the writer of the main run and the seconds of searching.

        Queries are searched in the same groups for every part, because the composition of a batch affects the
        last bits of scores.
        """
        engine, stored_rankings, seconds = self.engine, self._get_stored_rankings(), 0.0
        paths = variant_paths(engine.variants, self.task.out) or {MAIN: self.task.out}
        excluded = read_excluded(self.task.excluded).as_dict() if self.task.excluded else {}
        with ExitStack() as files:
            writers = {
                label: files.enter_context(self._create_writer(label, excluded).open_file(path))
                for label, path in paths.items()
            }
            depth = next(iter(writers.values())).depth_to_search
            self._report("searching", 0.0)
            size = engine.queries_at_once
            groups = range(-(-len(self.queries) // size))
            if self._part_of_queries:
                groups = self._part_of_queries.select_range(len(groups), f"groups of {size} queries")
            for number in groups:
                queries = self.queries[number * size :][:size]
                group_rankings, group_seconds = stored_rankings.get(number, partial(self._search_group, queries, depth))
                seconds += group_seconds
                for rankings in group_rankings:
                    for label, ranking in rankings.items():
                        writers[label].write(ranking)
                self._report("searching", (number + 1 - groups.start) / len(groups))
        return list(writers.values())[-1], seconds

    def _search_group(self, queries: Sequence[Query], depth: int) -> list[Mapping[str, SearchResult]]:
        if self.engine.variants:
            return list(self.engine.search_variants(queries, depth))
        return [{MAIN: ranking} for ranking in self.engine.search(queries, depth)]

    def _create_writer(self, label: str, excluded: Mapping[str, Collection[str]]) -> RunWriter:
        """Return the writer for a variant's run, which starts with a header if it is a part."""
        task, part = self.task, self.task.part
        run_id = f"{label} {self._checksum}".strip() if part else ""
        header = PartOfRun(part.number, part.count, task.k, self._tag, run_id) if part else None
        return RunWriter(self._tag, task.k, task.drop_self_matches, header, excluded)

    def _get_stored_rankings(self) -> RankingStore:
        """Return the store of this task's rankings, which stores nothing if the task has no folder for it."""
        if self.task.rankings is None:
            return RankingStore(None)
        part = self._part_of_shards
        divided = f"-{part.number}-of-{part.count}" if part else ""
        return RankingStore(self.task.rankings / f"{self._checksum[:16]}-{self.task.k}{divided}")

    @cached_property
    def _checksum(self) -> str:
        """Checksum of the inputs that affect rankings and must be the same for all parts of a run."""
        task, resources = self.task, self.task.resources
        model = CheckpointDescription.read(resources.model).sha256 if resources.checkpoint else ""
        checksums = [file_sha256(path) for path in (task.queries, *resources.runs)]
        checksums += [corpus_fingerprint(task.corpus)] if self.description.reads_corpus else []
        options: list[object] = [task.drop_self_matches, task.shard_size]
        options += [file_sha256(task.excluded)] if task.excluded else []
        device = resources.device.partition(":")[0]
        values = [
            self.description.name,
            self._parameters,
            model,
            device,
            resources.language,
            checksums,
            options,
        ]
        return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def outcome(self, main: RunWriter, corpus: EncodedCorpus | None) -> Retrieval:
        """Return the statistics of the retrieval without its times."""
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
            encoded_documents=corpus.documents if corpus else None,
            encoding_seconds=corpus.seconds if corpus else 0.0,
        )

    def record_compute_dtype(self, retrieval: Retrieval) -> str:
        """Add the data type of the computations to the facts, also of variants with a model, and return it."""
        if compute_dtype := get_compute_dtype(retrieval.parameters, self.task.resources.device):
            # Variants of another engine class have no model.
            variants, kind = self.engine.variants, type(self.engine)
            model_variants = [label for label in variants if isinstance(self.engine.variant(label), kind)]
            for facts in (retrieval.facts, *(retrieval.variant_facts[label] for label in model_variants)):
                facts["compute_dtype"] = compute_dtype
        return compute_dtype

    def record_precision_loss(self, retrieval: Retrieval, rankings: Sequence[SearchResult], folder: Path) -> None:
        """Measure the loss from lower precision; if known, add it to the facts of retrieval and main variant."""
        folder.mkdir()
        loss = precision_loss(self.engine, self.task, self.queries, rankings, folder)
        if loss is not None:
            facts_with_model = [facts for facts in retrieval.variant_facts.values() if "compute_dtype" in facts]
            for facts in (retrieval.facts, *facts_with_model[-1:]):
                facts["precision_loss"] = loss
