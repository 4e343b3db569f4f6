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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Query
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    Engine,
    EngineDescription,
    FactValue,
    Numbers,
    Parameter,
    Resources,
    SearchResult,
    VariantEngine,
    labels,
)
from evaluation.engines.bm25_wordpiece import WordPieceBM25, WordPieceEngine
from evaluation.engines.index.term_search import K1, B

if TYPE_CHECKING:
    from evaluation.engines.neural.augmentation import QueryWeights

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


class QueryAugmentation(WordPieceEngine, VariantEngine[Switches | None]):
    """BM25 over word pieces, for queries as a model sees them; beside it, over the same index, what it improves on."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.augmentation import AugmentationModel

        super().__init__(parameters, resources)
        self.settings = _variant_switches(parameters)
        self.model = AugmentationModel(parameters, resources, self.pieces.behind_last)
        self._special = np.array(sorted(self.pieces.special), np.int64)
        self._queries = self._added = 0

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        super().open(folder)
        #: By piece: its place among the index's terms, -1 where no document has it.
        self._places = np.full(self.pieces.behind_last, -1, np.int64)
        for place, term in enumerate(self.searcher.index.terms()):
            self._places[int(term)] = place

    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, Switches | None]
    ) -> Iterator[Mapping[str, SearchResult]]:
        plain = self.baseline() if None in settings.values() else None
        for query, numbers, weights in self._encoded(queries):
            rankings = {}
            for label, switches in settings.items():
                if switches is not None:
                    rankings[label] = self._ranking(query, numbers, weights, switches, depth)
                elif plain is not None:
                    (rankings[label],) = plain.search([query], depth)
            yield rankings

    def variant(self, label: str) -> Engine:
        """Return an engine over the same index that does only the work of this variant."""
        return self.baseline() if self.settings[label] is None else super().variant(label)

    def baseline(self) -> WordPieceBM25:
        """Return BM25 over the same index."""
        engine = WordPieceBM25(self.parameters, self.resources, self.pieces)
        engine.open(self.searcher.index.folder)
        return engine

    def _encoded(self, queries: Sequence[Query]) -> Iterator[tuple[Query, Numbers, QueryWeights]]:
        """Yield the queries with the numbers of their tokens, and what the model says of them."""
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
        self, query: Query, numbers: Numbers, weights: QueryWeights, switches: Switches, depth: int
    ) -> SearchResult:
        with self.clock.part("search"):
            pieces, values = self._query_vector(numbers, weights, switches)
            places = self._places[pieces]
            known = places >= 0
            ranks, scores = self.searcher.search(places[known], values[known].astype(np.float32), depth)
            return self.searcher.result(query.id, ranks, scores)

    def _query_vector(
        self, numbers: Numbers, weights: QueryWeights, switches: Switches
    ) -> tuple[Numbers, NDArray[np.float64]]:
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
        """Return how many terms that a query does not have are added to it, in the mean."""
        added = self._added if self.main and self.main[0] else 0
        return {
            "mean_augmentation_length": added / max(self._queries, 1),
            "maximum_length": self.model.maximum_length,
        }

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        """Return `facts` of a variant; BM25 adds nothing, and reads queries in full."""
        return (
            {"mean_augmentation_length": 0.0}
            if self.settings[label] is None
            else super().variant_facts(label)
        )


def _variant_switches(parameters: Mapping[str, Any]) -> dict[str, Switches | None]:
    """Return the switches of each variant, by label, the main one last; None is BM25."""
    main, beside = (parameters["augmentation"], parameters["weighting"]), parameters["beside"]
    ablations = [(True, False), (False, True)] if beside == "ablations" else []
    switches: dict[str, Switches | None] = {
        _LABELS[each]: each for each in (*(one for one in ablations if one != main), main)
    }
    return switches if beside == "none" else {_BASELINE: None, **switches}


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
        create=QueryAugmentation,
        checkpoints=(CheckpointKind.QUERY_AUGMENTATION,),
        main_alone={"beside": "none"},
        variants=lambda parameters: labels(_variant_switches(parameters)),
    ),
)
