"""Learned BM25 query augmentation: a model adds terms to the query, and weighs those that it has.

X. Chen, S. Wiseman, "BM25 Query Augmentation Learned End-to-End", 2023 (arXiv:2305.14087). With enc(q) the vectors of
an encoder, W ∈ R^{|V|×E} and u ∈ R^E learned beside it:

    a(q) = ReLU(W · enc(q)[CLS])        what is added, one value for each word piece of the vocabulary V
    w(q)_i = ReLU(uᵀ enc(q)_i)          how much the query's own token i counts
    score(q, d) = (w ⊙ idf ⊙ (bow + a))ᵀ f(d)

bow is binary; a piece that the query repeats takes the greatest of its weights; pieces that are only added have
weight 1; special tokens are in none of them. idf and f(d) are those of `bm25-wordpiece`, over the same index: idf =
ln((N − df + 0.5) / (df + 0.5) + 1), f(d)_t = tf / (tf + k1 × (1 − b + b × length / mean length)). The factor k1 + 1 in
some forms of f(d) multiplies all scores alike, and is left out as in Lucene.

One search gives BM25 over the same word pieces, too, so that what the model adds can be seen; "ablations" gives also
what is left without w, and without a.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Query
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    EngineDescription,
    FactValue,
    Parameter,
    PartTimer,
    Resources,
    SearchResult,
)
from evaluation.engines.bm25_wordpiece import WordPieceBM25, WordPieceEngine
from evaluation.engines.index.term_search import K1, B
from evaluation.engines.index.word_pieces import WordPieces

if TYPE_CHECKING:
    from evaluation.engines.neural.augmentation import AugmentationModel, QueryWeights

#: Queries are encoded so many at a time: each has a value for every word piece.
_QUERIES_AT_ONCE = 64
_BASELINE = "bm25-wordpiece"
#: What a ranking is called, by whether terms are added and whether the query's own are weighed.
_LABELS = {
    (True, True): "augmented and weighted",
    (True, False): "augmented",
    (False, True): "weighted",
    (False, False): "binary",
}
Switches = tuple[bool, bool]


class QueryAugmentation(WordPieceEngine):
    """BM25 over word pieces, for queries as a model sees them; beside it, over the same index, what it improves on."""

    def __init__(
        self,
        k1: float,
        b: float,
        augmentation: bool,
        weighting: bool,
        beside: str,
        pieces: WordPieces,
        model: AugmentationModel,
    ) -> None:
        super().__init__(k1, b, pieces)
        self.switches: Switches = (augmentation, weighting)
        self.beside, self.model = beside, model
        self._special = np.array(sorted(pieces.special), np.int64)
        self._queries = self._added = 0

    @classmethod
    def create(cls, parameters: Mapping[str, Any], resources: Resources) -> QueryAugmentation:
        """An engine with the model of the checkpoint given. Raises ModelFailure."""
        from evaluation.engines.neural.augmentation import AugmentationModel
        from evaluation.engines.neural.loading import prepare

        prepare(resources.threads)
        pieces = WordPieces(resources.model, resources.threads)
        settings = dict(parameters)
        dtype, longest = settings.pop("compute_dtype"), settings.pop("maximum_length")
        model = AugmentationModel(resources.first_part, resources.device, dtype, longest, pieces.behind_last)
        return cls(**settings, pieces=pieces, model=model)

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        super().open(folder)
        #: By piece: its place among the index's terms, -1 where no document has it.
        self._places = np.full(self.pieces.behind_last, -1, np.int64)
        for place, term in enumerate(self.searcher.index.terms()):
            self._places[int(term)] = place

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """The best `depth` documents of each query; only documents that have a piece of it, or one that is added."""
        for query, numbers, weights in self._encoded(queries):
            yield self._ranking(query, numbers, weights, self.switches, depth)

    @property
    def variants(self) -> tuple[str, ...]:
        """The rankings that are to be had beside the main one, which is the last."""
        return tuple(self._variants())

    def _variants(self) -> dict[str, Switches | None]:
        return _variant_switches(self.beside, self.switches)

    def search_variants(self, queries: Sequence[Query], depth: int) -> Iterator[Mapping[str, SearchResult]]:
        """The rankings of all variants; the model reads a query once."""
        plain = self._baseline()
        for query, numbers, weights in self._encoded(queries):
            rankings = {}
            for label, switches in self._variants().items():
                if switches is None:
                    (rankings[label],) = plain.search([query], depth)
                else:
                    rankings[label] = self._ranking(query, numbers, weights, switches, depth)
            yield rankings

    def variant(self, label: str) -> WordPieceEngine:
        """An engine over the same index that does only the work of this variant."""
        switches = self._variants()[label]
        if switches is None:
            return self._baseline()
        engine = copy(self)
        engine.clock, engine.switches, engine.beside = PartTimer(), switches, "none"
        return engine

    def _baseline(self) -> WordPieceBM25:
        engine = WordPieceBM25(self.k1, self.b, self.pieces)
        engine.open(self.searcher.index.folder)
        return engine

    def _encoded(self, queries: Sequence[Query]) -> Iterator[tuple[Query, NDArray[np.int64], QueryWeights]]:
        """The queries with the numbers of their tokens, and what the model says of them."""
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            with self.clock.part("query_encoding"):
                inputs = self.pieces.inputs([query.text for query in some], self.model.maximum_length)
                encoded = self.model.encode(inputs)
            for query, numbers, weights in zip(some, inputs, encoded, strict=True):
                self._queries += 1
                self._added += len(np.setdiff1d(weights.added, [*numbers, *self._special]))
                yield query, np.array(numbers, np.int64), weights

    def _ranking(
        self,
        query: Query,
        numbers: NDArray[np.int64],
        weights: QueryWeights,
        switches: Switches,
        depth: int,
    ) -> SearchResult:
        with self.clock.part("search"):
            pieces, values = self._query_vector(numbers, weights, switches)
            places = self._places[pieces]
            known = places >= 0
            ranks, scores = self.searcher.search(places[known], values[known].astype(np.float32), depth)
            return self.searcher.result(query.id, ranks, scores)

    def _query_vector(
        self, numbers: NDArray[np.int64], weights: QueryWeights, switches: Switches
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(pieces, values above 0) of w ⊙ (bow + a), for a query's token numbers and what the model says of it."""
        augmentation, weighting = switches
        vector = np.zeros(self.pieces.behind_last)
        if augmentation:
            vector[weights.added] = weights.values
            vector[self._special] = 0.0
        own = ~np.isin(numbers, self._special)
        pieces, token_weights = numbers[own], weights.token_weights[own]
        vector[pieces] += 1.0  # once, however often a piece is there
        if weighting:
            greatest = np.zeros(len(vector))
            np.maximum.at(greatest, pieces, token_weights)
            vector[pieces] *= greatest[pieces]
        found = np.flatnonzero(vector)
        return found, vector[found]

    def facts(self) -> Mapping[str, FactValue]:
        """How many terms that a query does not have are added to it, in the mean."""
        return self._facts(self.switches)

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        """As `facts`; BM25 adds nothing, and reads queries in full."""
        switches = self._variants()[label]
        return {"mean_augmentation_length": 0.0} if switches is None else self._facts(switches)

    def _facts(self, switches: Switches) -> dict[str, FactValue]:
        augmentation, _ = switches
        added = self._added if augmentation else 0
        return {
            "mean_augmentation_length": added / max(self._queries, 1),
            "maximum_length": self.model.maximum_length,
        }


def _variant_switches(beside: str, main: Switches) -> dict[str, Switches | None]:
    """What each variant does, by label, the main one last; BM25 does nothing of it. Empty where there is one alone."""
    if beside == "none":
        return {}
    ablations = [(True, False), (False, True)] if beside == "ablations" else []
    switches = [one for one in ablations if one != main]
    return {_BASELINE: None, **{_LABELS[one]: one for one in (*switches, main)}}


def _variants(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        _variant_switches(parameters["beside"], (parameters["augmentation"], parameters["weighting"]))
    )


DESCRIPTIONS = (
    EngineDescription(
        name="query-augmentation",
        label="Learned query augmentation",
        architecture="query-augmentation",
        description="BM25 over word pieces, with terms added to the query and its own ones weighed by a model.",
        parameters=(
            K1,
            B,
            Parameter("augmentation", True, "whether terms are added to the query"),
            Parameter("weighting", True, "whether the query's own terms are weighed"),
            Parameter(
                "beside",
                _BASELINE,
                "what is shown beside it, over the same index: BM25, and also each part of the model alone",
                choices=(_BASELINE, "ablations", "none"),
            ),
            Parameter(
                "maximum_length", 512, "how many tokens of a query are read", least=8, most=LONGEST_TEXT
            ),
            COMPUTE_DTYPE,
        ),
        create=QueryAugmentation.create,
        checkpoints=(CheckpointKind.QUERY_AUGMENTATION,),
        main_alone={"beside": "none"},
        variants=_variants,
    ),
)
