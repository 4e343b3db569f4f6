"""What every engine is: built from a corpus, searched with queries, and able to say its size.

Engines are described as data (EngineDescription), so that the command line, forms and documentation list them
and their parameters without knowing any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from evaluation.collection import Document, Query

Stage = Literal["loading", "encoding", "indexing", "searching"]
#: Told the stage and its share done, 0 to 1. It may raise, which stops the work and cleans up.
StageProgress = Callable[[Stage, float], None]
ParameterValue = str | int | float | bool


class InvalidParameter(ValueError):
    """A parameter that the engine does not have, or a value that it does not take; the text says which."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of an engine. `choices` lists all values it takes; else numbers lie from `least` to `most`."""

    name: str
    default: ParameterValue
    description: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    def parse(self, value: object) -> ParameterValue:
        """The value in the parameter's type, from a value or its text. Raises InvalidParameter."""
        parsed: ParameterValue | None
        if isinstance(self.default, bool):
            parsed = {"true": True, "false": False}.get(str(value).lower())
        elif isinstance(self.default, str):
            parsed = str(value)
        else:
            parsed = self._parse_number(value)
        if parsed is None or (self.choices and parsed not in self.choices):
            raise InvalidParameter(f"{self.name} = {value!r} is not possible; it takes {self.values}.")
        return parsed

    def _parse_number(self, value: object) -> int | float | None:
        try:
            number = type(self.default)(str(value))
        except ValueError:
            return None
        if not isinstance(number, int | float) or not np.isfinite(number):
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
        if isinstance(self.default, str):
            return "text"
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        return f"{kind} from {self.least:g} to {self.most:g}" if self.least is not None else kind


@dataclass(frozen=True, slots=True)
class Ranking:
    """The documents found for a query, best first, with their scores (float32, descending).

    Equal scores stand in descending byte order of the document ids: the order in which trec_eval reads them.
    """

    query_id: str
    document_ids: list[str]
    scores: NDArray[np.float32]


class Engine(Protocol):
    """One engine with its parameters set."""

    def build(
        self, corpus: Iterable[Document], folder: Path, progress: Callable[[float], None] | None = None
    ) -> None:
        """Index the corpus, read once as a stream, into the empty `folder`, and open the index."""

    def open(self, folder: Path) -> None:
        """Open an index that `build` left in `folder`."""

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[Ranking]:
        """The best `depth` documents of each query, in the order of the queries."""

    def size(self) -> int:
        """Bytes of the index on disk."""

    @property
    def documents(self) -> int:
        """How many documents are indexed."""

    @property
    def analyser_name(self) -> str:
        """How text becomes terms or vectors, as printed beside results."""


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """An engine as data. `create` makes one from a full set of parameter values."""

    name: str
    label: str
    architecture: str
    description: str
    needs_checkpoint: bool
    parameters: tuple[Parameter, ...]
    create: Callable[[Mapping[str, Any]], Engine]

    def complete(self, values: Mapping[str, object]) -> dict[str, ParameterValue]:
        """All parameters with the given values or their defaults. Raises InvalidParameter."""
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
