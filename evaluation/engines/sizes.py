"""Engines that give several rankings from the same work, cut to several sizes; and how a parameter names sizes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

from evaluation.collections.beir import Query
from evaluation.engines.base import Engine, FactValue, InvalidParameter, PartTimer, SearchResult


@dataclass(frozen=True, slots=True)
class NamedNumbers:
    """How a text such as "10,50,100" names numbers, for `Parameter.check`: at most `count` of them, beside `main`."""

    parameter: str
    most: int
    count: int
    main: str

    def __call__(self, text: str) -> list[int]:
        """The numbers, each once and in order. Raises InvalidParameter."""
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


class EngineOfSizes(Engine):
    """An engine that ranks by the same work cut to several sizes: documents re-ranked, dimensions of vectors.

    `sizes` has them by the labels of their variants, the main one last; an engine without variants has that alone.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.sizes = sizes

    @property
    def main_size(self) -> int:
        """The size of the main ranking."""
        return list(self.sizes.values())[-1]

    @property
    def variants(self) -> tuple[str, ...]:
        """One label for each size, if there are several."""
        return labels_of(self.sizes)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """The best `depth` documents of each query, by the main size."""
        main = list(self.sizes)[-1]
        for rankings in self._search(queries, depth, {main: self.main_size}):
            yield rankings[main]

    def search_variants(self, queries: Sequence[Query], depth: int) -> Iterator[Mapping[str, SearchResult]]:
        """The rankings for all sizes, from the same work."""
        return self._search(queries, depth, self.sizes)

    @abstractmethod
    def _search(
        self, queries: Sequence[Query], depth: int, sizes: Mapping[str, int]
    ) -> Iterator[Mapping[str, SearchResult]]:
        """Each query's rankings by these sizes, under their labels."""

    def variant(self, label: str) -> Self:
        """An engine over the same index that works for one size alone."""
        engine = copy(self)
        engine.clock, engine.sizes = PartTimer(), {label: self.sizes[label]}
        return engine

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        """As `facts`, for the size of this label."""
        return self.variant(label).facts()


def labels_of(sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The labels of variants of these sizes; none where there is one size alone."""
    return tuple(sizes) if len(sizes) > 1 else ()
