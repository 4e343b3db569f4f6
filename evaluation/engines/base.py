"""Base classes of retrieval engines, and their descriptions.

Engines are described as data (`EngineDescription`), so that the command line, forms, and documentation can list them
and their parameters without knowing each engine.
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
#: Progress callback: stage and fraction done, 0 to 1. May raise to abort, after which temporary files are removed.
StageProgress = Callable[[Stage, float], None]
#: Progress callback: fraction done, 0 to 1. May raise to abort.
Progress = Callable[[float], None]
#: Parts of a search that are timed separately.
SearchPart = Literal["query_encoding", "first_stage", "search"]
ParameterValue = str | int | float | bool
#: Arrays of scores or vectors, of document numbers, and of positions in the order of document ids.
Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Ranks = NDArray[np.uint32]
#: Field of each row of a query, encoded lengths (fields × documents), and inverse norms of lengths (fields × 256).
Norms = tuple[NDArray[np.uint64], NDArray[np.uint8], Floats]

#: Documents per shard. Affects results slightly, because other shards mean other batches.
SHARD_SIZE = 50_000
_TOO_LARGE = 2**63

#: Parameter value that selects the checkpoint's own setting.
AUTO = "auto"


def ignore(share: float) -> None:
    """Ignore the reported progress."""


def total_size(*paths: Path) -> int:
    """Return the total size in bytes of files and of the files in folders."""
    return sum(
        file.stat().st_size
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else (path,))
        if file.is_file()
    )


#: Message for container images outside of the site's workers.
IMAGE_ON_SITE_ONLY = "Container images run on the site only; docs/containers.md shows how to run one."


class InvalidParameter(ValueError):
    """Error for an unknown engine parameter or an invalid value, which the message names."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of an engine.

    `choices` lists all accepted values. Without it, numbers range from `minimum` to `maximum`. The checkpoint may
    decide an integer whose default is AUTO.
    """

    name: str
    default: ParameterValue
    description: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    #: Validates a text value. Raises InvalidParameter.
    check: Callable[[str], object] | None = None
    #: Returns the canonical spelling of a text value. Raises ValueError with a message for users.
    canonical: Callable[[str], str] | None = None

    @property
    def is_text(self) -> bool:
        """Whether the parameter accepts any text, including ""."""
        return isinstance(self.default, str) and not self.choices and self.minimum is None

    @property
    def keeps_blanks(self) -> bool:
        """Whether leading and trailing spaces are significant, as in the prompt “query: ”."""
        return self.is_text and self.name.endswith("prompt")

    def parse(self, value: object) -> ParameterValue:
        """Return a value, given as itself or as text, in the parameter's type and canonical spelling.

        Raises InvalidParameter if the parameter does not accept it.
        """
        parsed: ParameterValue | None
        if isinstance(self.default, bool):
            parsed = {"true": True, "false": False}.get(str(value).lower())
        elif self.choices or self.is_text or value == self.default == AUTO:
            parsed = str(value)
        else:
            parsed = self._parse_number(value)
        if parsed is None or (self.choices and parsed not in self.choices):
            raise InvalidParameter(f"{self.name} = {value!r} is not valid; expected {self.values}.")
        if self.check is not None:
            self.check(str(parsed))
        if self.canonical is not None:
            try:
                return self.canonical(str(parsed))
            except ValueError as error:
                raise InvalidParameter(f"{self.name} = {value!r} is not valid. {error}") from error
        return parsed

    def _parse_number(self, value: object) -> int | float | None:
        """Return the value as a number, or None if it is not a number or out of range.

        The number is a float if the default is one, otherwise an integer.
        """
        try:
            number = float(str(value)) if isinstance(self.default, float) else int(str(value))
        except ValueError:
            return None
        if not abs(number) < _TOO_LARGE:  # also true for NaN
            return None
        too_small = self.minimum is not None and number < self.minimum
        too_great = self.maximum is not None and number > self.maximum
        return None if too_small or too_great else number

    @property
    def values(self) -> str:
        """Description of the accepted values."""
        if isinstance(self.default, bool):
            return "true or false"
        if self.choices:
            return ", ".join(self.choices)
        if self.is_text:
            return "text"
        kind = "a number" if isinstance(self.default, float) else "a whole number"
        kind = f"{AUTO} or {kind}" if self.default == AUTO else kind
        if self.minimum is None or self.maximum is None:
            return kind
        return f"{kind} from {_format_number(self.minimum)} to {_format_number(self.maximum)}"


@dataclass(frozen=True, slots=True)
class NumberList:
    """Parser of number lists such as "10,50,100", for `Parameter.check`.

    Accepts at most `count` numbers up to `limit`, in addition to the value of the parameter `main`.
    """

    parameter: str
    limit: int
    count: int
    main: str

    def __call__(self, text: str) -> list[int]:
        """Return the distinct numbers of a comma-separated text in ascending order.

        Raises InvalidParameter if a number is not from 1 to `limit`, or if there are more than `count`.
        """
        try:
            numbers = sorted({int(part) for part in text.split(",") if part.strip()})
        except ValueError:
            numbers = [0]
        if any(not 1 <= number <= self.limit for number in numbers):
            raise InvalidParameter(
                f"{self.parameter} = {text!r} is not valid; expected numbers from 1 to {self.limit}, such as 10,50,100."
            )
        if len(numbers) > self.count:
            noun = self.parameter.rpartition("_")[2]
            raise InvalidParameter(
                f"{self.parameter} lists {len(numbers)} {noun}; it accepts at most {self.count} besides {self.main}."
            )
        return numbers


def _format_number(number: float) -> str:
    """Format a number with thousands separators instead of exponents: 2,147,483,647, not 2.14748e+09."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The documents retrieved for a query, best first, with their scores (float32, descending).

    Documents with equal scores are sorted by id in descending byte order, as in trec_eval. BM25 has no equal scores
    (see `kernels.write_order_into_scores`).
    """

    query_id: str
    document_ids: list[str]
    scores: Floats

    @classmethod
    def from_scores(cls, query_id: str, ids: Sequence[str], scores: NDArray[np.floating[Any]], depth: int) -> Self:
        """Return a query's result with the best `depth` of the documents, in trec_eval's order."""
        top_indices = trec_order(ids, scores)[:depth]
        return cls(query_id, [ids[index] for index in top_indices.tolist()], scores[top_indices].astype(np.float32))


#: Largest `maximum_length` that a submission may set, in tokens.
LONGEST_TEXT = 32_768
#: Upper limit for a checkpoint's own maximum length, in tokens. The cost of attention grows with its square.
OWN_LENGTH_LIMIT = 8_192
MAXIMUM_LENGTH = Parameter(
    "maximum_length",
    0,
    "maximum number of tokens per text; 0 uses the checkpoint's limit, at most 8,192; capped at the model's positions",
    minimum=0,
    maximum=LONGEST_TEXT,
)
COMPUTE_DTYPE = Parameter(
    "compute_dtype",
    AUTO,
    "data type of the model's computations; auto is bfloat16 on a GPU, otherwise float32; outputs are always float32",
    choices=(AUTO, "float32", "bfloat16", "float16"),
)
BATCH_TOKENS = Parameter(
    "batch_tokens",
    0,
    "tokens per batch, including padding; 0 chooses a size for the machine",
    minimum=0,
    maximum=16_777_216,
)


#: Parameters that affect the shards of every engine that encodes texts as vectors.
ENCODING = ("fields", "document_prompt", "maximum_length", "compute_dtype", "batch_tokens")


@dataclass(frozen=True, slots=True)
class Resources:
    """Inputs of an engine besides its parameters.

    Attributes:
        checkpoint: Folder of a checkpoint rebuilt by `evaluation.checkpoints`.
        runs: One run to re-rank, or several to fuse.
        device: "cpu" or "cuda".
        threads: Number of cores that the engine may use.
        language: Language code of the corpus, for engines without an explicit language parameter.
        index: Folder with the prebuilt word index that `EngineDescription.word_index` describes; read-only.
        socket: Unix socket of the server in a container image.
    """

    checkpoint: Path | None = None
    runs: tuple[Path, ...] = ()
    device: str = "cpu"
    threads: int = 1
    language: str = "en"
    index: Path | None = None
    socket: Path | None = None

    @property
    def server(self) -> Path:
        """The socket of a container image's server. Raises InvalidParameter if there is none."""
        if self.socket is None:
            raise InvalidParameter(IMAGE_ON_SITE_ONLY)
        return self.socket

    @property
    def model(self) -> Path:
        """The checkpoint's folder. Raises ValueError without a checkpoint."""
        if self.checkpoint is None:
            raise ValueError("the engine needs a checkpoint, but none was given")
        return self.checkpoint

    @property
    def first_part(self) -> Path:
        return self.model / CheckpointDescription.read(self.model).parts[0]


class PartTimer:
    """Sums the wall-clock seconds of the named parts of a search."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: SearchPart) -> Iterator[None]:
        """Add the duration of the block to a part."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start


class Engine(ABC):
    """A retrieval engine with its parameters."""

    #: Preferred number of queries for a call of `search`.
    queries_at_once = 64

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        self.parameters, self.resources = parameters, resources
        self.clock = PartTimer()

    @abstractmethod
    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Index the corpus into the empty `folder` and open the index.

        The corpus is a stream that can be read only once.
        """

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Open an index that `build` wrote to `folder`."""

    @abstractmethod
    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query, in the order of the queries."""

    @abstractmethod
    def size(self) -> int:
        """Return the size of the index on disk in bytes."""

    @property
    @abstractmethod
    def documents(self) -> int:
        """Number of indexed documents."""

    @property
    @abstractmethod
    def analyser_name(self) -> str:
        """Description of how texts become terms or vectors, shown with results."""

    def facts(self) -> Mapping[str, FactValue]:
        """Return the properties of the system that papers report, keyed as FACTS.

        They are complete after all queries have been searched.
        """
        return {}

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        return self.facts()

    @property
    def variants(self) -> tuple[str, ...]:
        """Labels of the rankings that one search produces, the main one last; empty if there is only one."""
        return ()

    def search_variants(self, queries: Sequence[Query], depth: int) -> Iterator[Mapping[str, SearchResult]]:
        """Yield each query's rankings, keyed by the labels of `variants`."""
        raise NotImplementedError(f"{type(self).__name__} has no variants")

    def variant(self, label: str) -> Engine:
        """Return an engine over the same index that only does the work of one variant, for timing."""
        raise NotImplementedError(f"{type(self).__name__} has no variants")


Setting = TypeVar("Setting")


class VariantEngine(Engine, Generic[Setting]):
    """An engine that produces several rankings from the same work, such as re-ranking to several depths.

    `settings` maps the label of each variant to its setting, with the main one last. An engine without variants has a
    single setting.
    """

    settings: Mapping[str, Setting]

    @property
    def main(self) -> Setting:
        return list(self.settings.values())[-1]

    @property
    def variants(self) -> tuple[str, ...]:
        return labels(self.settings)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query under the main setting."""
        label = list(self.settings)[-1]
        for rankings in self._search(queries, depth, {label: self.main}):
            yield rankings[label]

    def search_variants(self, queries: Sequence[Query], depth: int) -> Iterator[Mapping[str, SearchResult]]:
        return self._search(queries, depth, self.settings)

    @abstractmethod
    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, Setting]
    ) -> Iterator[Mapping[str, SearchResult]]:
        """Yield each query's rankings under the given settings, keyed by label."""

    def variant(self, label: str) -> Engine:
        """Return an engine over the same index with a single setting."""
        engine = copy(self)
        engine.clock, engine.settings = PartTimer(), {label: self.settings[label]}
        return engine

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        return self.variant(label).facts()


def labels(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the labels of several settings, or none for a single setting."""
    return tuple(settings) if len(settings) > 1 else ()


class ShardedEngine(Engine):
    """An engine that can encode documents in shards, by separate processes, before one process indexes them.

    `build` uses the same shards as separate workers, so that both produce identical bytes.
    """

    @abstractmethod
    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Encode a shard of the corpus into the empty `folder`. The output must depend only on the documents."""

    @abstractmethod
    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index encoded shards, in corpus order, into the empty `folder`, and open the index.

        The shards are not copied, and must exist as long as the engine is used.
        """

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Encode the corpus shard by shard inside `folder`, index the shards there, and open the index."""
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
    """An engine that can index and search its shards in separate parts."""

    @property
    def learns(self) -> bool:
        """Whether `learn` writes anything, such as centroids."""
        return False

    @property
    def divides_shards(self) -> bool:
        """Whether parts consist of shards. Otherwise they consist of queries, as for other engines."""
        return True

    def learn(self, shards: Sequence[Path], folder: Path) -> None:
        """Learn the data that all parts share, from all shards, and write it to the empty `folder`.

        By default, nothing is learned.
        """

    @abstractmethod
    def build_part(self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore) -> None:
        """Index some of the shards, as `build_from_shards` does, with data that `learn` wrote."""

    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index all encoded shards, in corpus order, into the empty `folder`, and open the index."""
        learned = folder / "learned"
        learned.mkdir()
        self.learn(shards, learned)
        self.build_part(shards, learned, folder, progress)


def split_corpus(corpus: Iterable[Document], size: int) -> Iterator[list[Document]]:
    """Yield the corpus in lists of `size` documents. An empty corpus yields one empty list."""
    documents = iter(corpus)
    shard = list(islice(documents, size))
    yield shard
    while shard := list(islice(documents, size)):
        yield shard


def shard_name(number: int) -> str:
    return f"{number:05d}"


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """Description of an engine. `create` builds it from a full set of parameter values."""

    name: str
    label: str
    architecture: str
    description: str
    parameters: tuple[Parameter, ...]
    create: Callable[[Mapping[str, Any], Resources], Engine]
    #: Supported kinds of checkpoints (`evaluation.checkpoints.CheckpointKind`); empty if the engine needs none.
    checkpoints: tuple[str, ...] = ()
    #: Minimum and maximum number of runs: none, an optional one to re-rank (0, 1), or several to fuse (2, 16).
    runs: tuple[int, int] = (0, 0)
    #: Names of the parameters that affect the output of `encode_shard`; None if the engine has no shards.
    encoding_parameters: tuple[str, ...] | None = None
    #: Whether the model generates texts. The loss of lower precision is then not measured, because all texts would
    #: have to be generated again.
    writes_texts: bool = False
    #: Whether systems of all architectures may use the engine. `architecture` is then the default.
    any_architecture: bool = False
    #: Whether the engine needs the corpus.
    reads_corpus: bool = True
    #: Parameter values that yield the same main ranking without variants.
    main_alone: Mapping[str, ParameterValue] = field(default_factory=dict)
    #: Returns the value of `Engine.variants` for a full set of parameters, without creating the engine.
    variants: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda parameters: ()
    #: Returns the non-default "bm25" parameters of the word index that the engine searches, given a full set of its own
    #: parameters; None if it searches no word index. A prebuilt index can be passed in `Resources.index`.
    word_index: Callable[[Mapping[str, Any]], Mapping[str, ParameterValue] | None] = lambda parameters: None
    #: Raises InvalidParameter if the parameters are incompatible with each other or with the checkpoint, which is None
    #: if it is not known yet.
    check_parameters: Callable[[Mapping[str, Any], CheckpointDescription | None], None] = (
        lambda parameters, checkpoint: None
    )

    @property
    def needs_checkpoint(self) -> bool:
        return bool(self.checkpoints)

    @property
    def runs_image(self) -> bool:
        return CheckpointKind.CONTAINER in self.checkpoints

    @property
    def computes_bm25(self) -> bool:
        """Whether scores are computed by BM25, from terms or from weights that a model may have assigned."""
        return any(parameter.name == "k1" for parameter in self.parameters)

    def faults(self) -> Iterator[str]:
        """Yield the errors in this description: malformed names, unknown parameters, and unknown checkpoint kinds."""
        for field_name in ("name", "architecture"):
            if not re.fullmatch("[a-z0-9][a-z0-9-]*", value := getattr(self, field_name)):
                yield f"its {field_name} {value!r} must consist of lower-case words joined by hyphens"
        names = {parameter.name for parameter in self.parameters}
        for field_name in ("encoding_parameters", "main_alone"):
            for name in sorted({*(getattr(self, field_name) or ())} - names):
                yield f"its {field_name} contains {name!r}, which is not one of its parameters"
        for kind in sorted({*self.checkpoints} - {*CheckpointKind}):
            yield f"its checkpoints contain {kind!r}, which is not in evaluation.checkpoints.CheckpointKind"

    def check(self, resources: Resources) -> None:
        """Raise InvalidParameter if a checkpoint is missing or not needed, or if the number of runs is wrong."""
        if self.needs_checkpoint and resources.checkpoint is None:
            raise InvalidParameter(f"{self.name} runs a model; specify a checkpoint ({' or '.join(self.checkpoints)}).")
        if not self.needs_checkpoint and resources.checkpoint is not None:
            raise InvalidParameter(f"{self.name} runs no model; omit the checkpoint.")
        minimum, maximum = self.runs
        if not minimum <= len(resources.runs) <= maximum:
            expected_count = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
            raise InvalidParameter(f"{self.name} accepts {expected_count} runs, but {len(resources.runs)} were given.")

    def complete(self, values: Mapping[str, object]) -> dict[str, ParameterValue]:
        """Return the given values in their parameters' types, and the defaults of all other parameters.

        Raises InvalidParameter for an unknown name or an invalid value.
        """
        parameters = {parameter.name: parameter for parameter in self.parameters}
        if unknown_names := [name for name in values if name not in parameters]:
            raise InvalidParameter(
                f"{self.name} has no parameter {', '.join(sorted(unknown_names))}. Available: {', '.join(parameters)}."
            )
        return {
            name: parameter.parse(values[name]) if name in values else parameter.default
            for name, parameter in parameters.items()
        }
