"""What every engine is: built from a corpus, searched with queries, and able to say its size.

Engines are described as data (EngineDescription), so that the command line, forms and documentation list them
and their parameters without knowing any of them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.core.order import trec_order
from evaluation.engines.facts import FactValue as FactValue

Stage = Literal["loading", "encoding", "indexing", "searching"]
#: Told the stage and its share done, 0 to 1. It may raise, which stops the work and cleans up.
StageProgress = Callable[[Stage, float], None]
#: Told the share done, 0 to 1. It may raise, as above.
Progress = Callable[[float], None]
#: What a single search consists of, where it has parts worth telling apart.
SearchPart = Literal["query_encoding", "first_stage", "search"]
ParameterValue = str | int | float | bool
#: Arrays of float32, such as scores and vectors; of int64, such as numbers of documents; of places in an order of ids.
Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Ranks = NDArray[np.uint32]

#: How many documents are encoded as one piece of work. Part of what a run is made from: other sizes, other batches.
SHARD_SIZE = 50_000
_TOO_LARGE = 2**63

#: Stands for what the checkpoint says.
AUTO = "auto"


def ignore(share: float) -> None:
    """Take no notice of progress."""


def size_of(*paths: Path) -> int:
    """Return the bytes of files, and of the files in folders."""
    return sum(
        file.stat().st_size
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else (path,))
        if file.is_file()
    )


class InvalidParameter(ValueError):
    """A parameter that the engine does not have, or a value that it does not take; the text says which."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of an engine. `choices` lists all values it takes; else numbers lie from `least` to `most`.

    For a whole number whose default is AUTO, the checkpoint may decide.
    """

    name: str
    default: ParameterValue
    description: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    #: Raises InvalidParameter for a text that does not say what it should.
    check: Callable[[str], object] | None = None
    #: Returns the canonical spelling of a text. Raises ValueError with a message for users.
    canonical: Callable[[str], str] | None = None

    @property
    def is_text(self) -> bool:
        """Whether it takes any text, the empty one too."""
        return isinstance(self.default, str) and not self.choices and self.least is None

    @property
    def keeps_blanks(self) -> bool:
        """Whether blanks at its ends count: it is put before a text, as “query: ” is."""
        return self.is_text and self.name.endswith("prompt")

    def parse(self, value: object) -> ParameterValue:
        """Return the value in the parameter's type, from a value or its text. Raises InvalidParameter."""
        parsed: ParameterValue | None
        if isinstance(self.default, bool):
            parsed = {"true": True, "false": False}.get(str(value).lower())
        elif self.choices or self.is_text or value == self.default == AUTO:
            parsed = str(value)
        else:
            parsed = self._parse_number(value)
        if parsed is None or (self.choices and parsed not in self.choices):
            raise InvalidParameter(f"{self.name} = {value!r} is not possible; it takes {self.values}.")
        if self.check is not None:
            self.check(str(parsed))
        if self.canonical is not None:
            try:
                return self.canonical(str(parsed))
            except ValueError as error:
                raise InvalidParameter(f"{self.name} = {value!r} is not possible. {error}") from error
        return parsed

    def _parse_number(self, value: object) -> int | float | None:
        try:
            number = float(str(value)) if isinstance(self.default, float) else int(str(value))
        except ValueError:
            return None
        if not abs(number) < _TOO_LARGE:  # so is NaN
            return None
        too_small = self.least is not None and number < self.least
        too_great = self.most is not None and number > self.most
        return None if too_small or too_great else number

    @property
    def values(self) -> str:
        """What the parameter takes, in words."""
        if isinstance(self.default, bool):
            return "true or false"
        if self.choices:
            return ", ".join(self.choices)
        if self.is_text:
            return "text"
        kind = "a number" if isinstance(self.default, float) else "a whole number"
        kind = f"{AUTO} or {kind}" if self.default == AUTO else kind
        if self.least is None or self.most is None:
            return kind
        return f"{kind} from {_format_number(self.least)} to {_format_number(self.most)}"


@dataclass(frozen=True, slots=True)
class NamedNumbers:
    """How a text such as "10,50,100" names numbers, for `Parameter.check`: at most `count` of them, beside `main`."""

    parameter: str
    most: int
    count: int
    main: str

    def __call__(self, text: str) -> list[int]:
        """Return the numbers, each once and in order. Raises InvalidParameter."""
        try:
            numbers = sorted({int(part) for part in text.split(",") if part.strip()})
        except ValueError:
            numbers = [0]
        if any(not 1 <= number <= self.most for number in numbers):
            raise InvalidParameter(
                f"{self.parameter} = {text!r} is not possible; it takes numbers from 1 to {self.most}, "
                "such as 10,50,100."
            )
        if len(numbers) > self.count:
            what = self.parameter.rpartition("_")[2]
            raise InvalidParameter(
                f"{self.parameter} names {len(numbers)} {what}; it takes at most {self.count} beside {self.main}."
            )
        return numbers


def _format_number(number: float) -> str:
    """Return the number as people write it: 2,147,483,647, not 2.14748e+09."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The documents found for a query, best first, with their scores (float32, descending).

    Equal scores are in descending byte order of the document ids, the order in which trec_eval reads them. BM25 has no
    equal scores (see `kernels.write_order_into_scores`).
    """

    query_id: str
    document_ids: list[str]
    scores: Floats

    @classmethod
    def ranked(cls, query_id: str, ids: Sequence[str], scores: NDArray[np.floating[Any]], depth: int) -> Self:
        """Return the best `depth` of these documents, in trec_eval's order."""
        best = trec_order(ids, scores)[:depth]
        return cls(query_id, [ids[place] for place in best.tolist()], scores[best].astype(np.float32))


#: The most tokens of a text that a submission may have read.
LONGEST_TEXT = 32_768
#: Tokens of a text that are read of what a checkpoint says itself: attention takes the square of them.
OWN_LENGTH_LIMIT = 8_192
MAXIMUM_LENGTH = Parameter(
    "maximum_length",
    0,
    "tokens read of a text; 0 is what the checkpoint says, at most 8,192; never more than it has positions for",
    least=0,
    most=LONGEST_TEXT,
)
COMPUTE_DTYPE = Parameter(
    "compute_dtype",
    AUTO,
    "what the model computes in; auto is bfloat16 on a GPU and float32 elsewhere; outputs are float32 in any case",
    choices=(AUTO, "float32", "bfloat16", "float16"),
)
BATCH_TOKENS = Parameter(
    "batch_tokens",
    0,
    "tokens that go through the model at a time, padding included; 0 chooses by the machine",
    least=0,
    most=16_777_216,
)


#: Parameters of every engine that encodes texts as vectors, which decide its shards.
ENCODING = ("fields", "document_prompt", "maximum_length", "compute_dtype", "batch_tokens")


@dataclass(frozen=True, slots=True)
class Resources:
    """What an engine is given beside its parameters.

    `checkpoint` is a folder that `evaluation.checkpoints` rebuilt; `runs` are those to re-rank (one) or to fuse
    (several); `device` is "cpu" or "cuda"; `threads` is how many cores it may use; `language` is the corpus's, as
    `language_code` takes it, for engines whose own parameter does not name another; `index` is a folder with the index
    of words that `EngineDescription.word_index` asks for, built before, which is opened and never written to.
    """

    checkpoint: Path | None = None
    runs: tuple[Path, ...] = ()
    device: str = "cpu"
    threads: int = 1
    language: str = "en"
    index: Path | None = None

    @property
    def model(self) -> Path:
        """The checkpoint's folder. Raises ValueError where none was given."""
        if self.checkpoint is None:
            raise ValueError("the engine runs a model, and was given none")
        return self.checkpoint

    @property
    def first_part(self) -> Path:
        """The folder of the checkpoint's first part, for models that have one alone."""
        return self.model / CheckpointDescription.read(self.model).parts[0]


class PartTimer:
    """Adds up the wall seconds of the named parts of a search, such as encoding the query or the first stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: SearchPart) -> Iterator[None]:
        """Count what the block takes under `name`."""
        started = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - started


class Engine(ABC):
    """One engine with its parameters set."""

    #: How many queries `search` is best given at a time.
    queries_at_once = 64

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        self.parameters, self.resources = parameters, resources
        self.clock = PartTimer()

    @abstractmethod
    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index the corpus, read once as a stream, into the empty `folder`, and open the index."""

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Open an index that `build` left in `folder`."""

    @abstractmethod
    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query, in the order of the queries."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes of the index on disk."""

    @property
    @abstractmethod
    def documents(self) -> int:
        """How many documents are indexed."""

    @property
    @abstractmethod
    def analyser_name(self) -> str:
        """How text becomes terms or vectors, as printed beside results."""

    def facts(self) -> Mapping[str, FactValue]:
        """Return what papers report of such a system, by names of FACTS; complete once all queries were searched."""
        return {}

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        """Return what papers report of the variant with this label, as `facts` of the main one."""
        return self.facts()

    @property
    def variants(self) -> tuple[str, ...]:
        """Labels of the rankings that one search gives, the main one last; empty where it gives one."""
        return ()

    def search_variants(self, queries: Sequence[Query], depth: int) -> Iterator[Mapping[str, SearchResult]]:
        """Yield, as `search`, each query's rankings by the labels of `variants`."""
        raise NotImplementedError(f"{type(self).__name__} has no variants")

    def variant(self, label: str) -> Engine:
        """Return an engine over the same index that does only the work of this variant, to be timed."""
        raise NotImplementedError(f"{type(self).__name__} has no variants")


Setting = TypeVar("Setting")


class VariantEngine(Engine, Generic[Setting]):
    """An engine that gives several rankings from the same work, such as documents re-ranked to several depths.

    `settings` has what tells the rankings apart by the labels of their variants, the main one last. An engine without
    variants has that alone.
    """

    settings: Mapping[str, Setting]

    @property
    def main(self) -> Setting:
        """The setting of the main ranking."""
        return list(self.settings.values())[-1]

    @property
    def variants(self) -> tuple[str, ...]:
        """One label for each setting, if there are several."""
        return labels(self.settings)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query, by the main setting."""
        label = list(self.settings)[-1]
        for rankings in self._search(queries, depth, {label: self.main}):
            yield rankings[label]

    def search_variants(self, queries: Sequence[Query], depth: int) -> Iterator[Mapping[str, SearchResult]]:
        """Yield the rankings of each query for all settings, from the same work."""
        return self._search(queries, depth, self.settings)

    @abstractmethod
    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, Setting]
    ) -> Iterator[Mapping[str, SearchResult]]:
        """Yield each query's rankings for these settings, under their labels."""

    def variant(self, label: str) -> Engine:
        """Return an engine over the same index that works for one setting alone."""
        engine = copy(self)
        engine.clock, engine.settings = PartTimer(), {label: self.settings[label]}
        return engine

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        """Return `facts` for the setting of this label."""
        return self.variant(label).facts()


def labels(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the labels of variants with these settings; none where there is one setting alone."""
    return tuple(settings) if len(settings) > 1 else ()


class ShardedEngine(Engine):
    """An engine whose documents can be encoded in parts, anywhere, before one process joins them.

    `build` walks the same shards as separate workers do, so that both give the same bytes.
    """

    @abstractmethod
    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Encode a shard of the corpus into the empty `folder`. Nothing but the documents decides what is written."""

    @abstractmethod
    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index encoded shards, in corpus order, into the empty `folder`, and open the index.

        The shards stay where they are and may be read for as long as the engine is used.
        """

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Encode the corpus shard by shard inside `folder`, and index it there."""
        shards = []
        for number, documents in enumerate(split_corpus(corpus, SHARD_SIZE)):
            shard = folder / shard_name(number)
            shard.mkdir()
            self.encode_shard(documents, shard)
            shards.append(shard)
        index = folder / "index"
        index.mkdir()
        self.build_from_shards(shards, index)


class DividedEngine(ShardedEngine):
    """An engine whose shards can be indexed and searched in parts."""

    @property
    def learns(self) -> bool:
        """Whether there is something that is learned from all shards, and `learn` leaves."""
        return False

    @property
    def divides_shards(self) -> bool:
        """Whether parts are of shards; else they are of queries, as those of other engines."""
        return True

    def learn(self, shards: Sequence[Path], folder: Path) -> None:
        """Write into the empty `folder` what the indexes of all parts share, learned from all shards."""

    @abstractmethod
    def build_part(
        self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore
    ) -> None:
        """As `build_from_shards`, with what `learn` left for a collection that has these shards."""

    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index all encoded shards, in corpus order, into the empty `folder`, and open the index."""
        learned = folder / "learned"
        learned.mkdir()
        self.learn(shards, learned)
        self.build_part(shards, learned, folder, progress)


def split_corpus(corpus: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Yield the corpus in lists of `size` documents, the last one shorter; at least one list, which may be empty."""
    documents = iter(corpus)
    shard = list(islice(documents, size))
    yield shard
    while shard := list(islice(documents, size)):
        yield shard


def shard_name(number: int) -> str:
    """Return the folder of the shard with this number, counted from 0."""
    return f"{number:05d}"


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """An engine as data. `create` makes one from a full set of parameter values."""

    name: str
    label: str
    architecture: str
    description: str
    parameters: tuple[Parameter, ...]
    create: Callable[[Mapping[str, Any], Resources], Engine]
    #: The kinds of checkpoint (`evaluation.checkpoints.CheckpointKind`) that it takes; empty where it needs none.
    checkpoints: tuple[str, ...] = ()
    #: How many runs it takes: none, one to re-rank if wanted (0, 1), or several to fuse (2, 16).
    runs: tuple[int, int] = (0, 0)
    #: Names of the parameters that decide what `encode_shard` writes; None where it does not encode in shards.
    encoding_parameters: tuple[str, ...] | None = None
    #: Whether its model writes texts; what fewer bits lose is not found then, since all would be written again.
    writes_texts: bool = False
    #: Whether it needs the corpus at all.
    reads_corpus: bool = True
    #: The parameters, and their values, with which it gives the same main ranking and no variants beside it.
    main_alone: Mapping[str, ParameterValue] = field(default_factory=dict)
    #: `Engine.variants` from a full set of parameters, without making the engine: what may be expected of a run.
    variants: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda parameters: ()
    #: From a full set of parameters those of "bm25" that decide the index of words which it searches, first or alone,
    #: where they are not that engine's defaults; None where it searches none. That index may be given as a resource.
    word_index: Callable[[Mapping[str, Any]], Mapping[str, ParameterValue] | None] = lambda parameters: None
    #: Raises InvalidParameter where a full set of parameters does not go together, or not with the checkpoint (None:
    #: not known yet).
    check_parameters: Callable[[Mapping[str, Any], CheckpointDescription | None], None] = (
        lambda parameters, checkpoint: None
    )

    @property
    def needs_checkpoint(self) -> bool:
        """Whether it runs a model that the submitter provides."""
        return bool(self.checkpoints)

    @property
    def computes_bm25(self) -> bool:
        """Whether its scores are BM25's, of terms or weights that may come from a model."""
        return any(parameter.name == "k1" for parameter in self.parameters)

    def faults(self) -> Iterator[str]:
        """Yield what the description lacks, or names and does not have."""
        for field_name in ("name", "architecture"):
            if not re.fullmatch("[a-z0-9][a-z0-9-]*", value := getattr(self, field_name)):
                yield f"its {field_name} {value!r} is not made of lower-case words with hyphens between"
        names = {parameter.name for parameter in self.parameters}
        for field_name in ("encoding_parameters", "main_alone"):
            for name in sorted({*(getattr(self, field_name) or ())} - names):
                yield f"its {field_name} names {name!r}, which is not among its parameters"
        for kind in sorted({*self.checkpoints} - {*CheckpointKind}):
            yield f"its checkpoints name {kind!r}, which is not in evaluation.checkpoints.CheckpointKind"

    def check(self, resources: Resources) -> None:
        """Raise InvalidParameter where what it is given is not what it needs."""
        if self.needs_checkpoint and resources.checkpoint is None:
            raise InvalidParameter(
                f"{self.name} runs a model; give a checkpoint ({' or '.join(self.checkpoints)})."
            )
        if not self.needs_checkpoint and resources.checkpoint is not None:
            raise InvalidParameter(f"{self.name} runs no model; give no checkpoint.")
        least, most = self.runs
        if not least <= len(resources.runs) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise InvalidParameter(f"{self.name} takes {wanted} runs, and was given {len(resources.runs)}.")

    def complete(self, values: Mapping[str, object]) -> dict[str, ParameterValue]:
        """Return all parameters with the given values or their defaults. Raises InvalidParameter."""
        known = {parameter.name: parameter for parameter in self.parameters}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise InvalidParameter(
                f"{self.name} has no parameter {', '.join(sorted(unknown))}; it has {', '.join(known)}."
            )
        return {
            name: parameter.parse(values[name]) if name in values else parameter.default
            for name, parameter in known.items()
        }
