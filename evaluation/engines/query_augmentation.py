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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.collection import Query
from evaluation.engines import kernels
from evaluation.engines.base import EngineDescription, FactValue, Parameter, Ranking, Resources
from evaluation.engines.bm25_wordpiece import WordPieceEngine
from evaluation.engines.term_search import K1, B
from evaluation.engines.word_pieces import WordPieces

if TYPE_CHECKING:
    from evaluation.neural.augmentation import AugmentationModel, QueryWeights

#: Queries are encoded so many at a time: each has a value for every word piece.
_QUERIES_AT_ONCE = 64


class QueryAugmentation(WordPieceEngine):
    """BM25 over word pieces, for queries as a model sees them."""

    def __init__(
        self,
        k1: float,
        b: float,
        augmentation: bool,
        weighting: bool,
        pieces: WordPieces,
        model: AugmentationModel,
    ) -> None:
        super().__init__(k1, b, pieces)
        self.augmentation, self.weighting, self.model = augmentation, weighting, model
        self._special = np.array(sorted(pieces.special), np.int64)
        self._queries = self._added = 0

    @classmethod
    def create(cls, parameters: Mapping[str, Any], resources: Resources) -> QueryAugmentation:
        """An engine with the model of the checkpoint given. Raises ModelFailure."""
        if resources.checkpoint is None:
            raise ValueError("queries are augmented by a checkpoint, and none was given")
        from evaluation.neural.augmentation import AugmentationModel
        from evaluation.neural.batching import use_cores
        from evaluation.neural.loading import prepare

        kernels.load()
        prepare(resources.threads)
        use_cores(resources.threads)
        pieces = WordPieces(resources.checkpoint, resources.threads)
        part = resources.checkpoint / CheckpointDescription.read(resources.checkpoint).parts[0]
        settings = dict(parameters)
        longest = settings.pop("maximum_length")
        model = AugmentationModel(part, resources.device, longest, pieces.behind_last)
        return cls(**settings, pieces=pieces, model=model)

    def open(self, folder: Path) -> None:
        """Open an index that `build` left."""
        super().open(folder)
        #: By piece: its place among the index's terms, -1 where no document has it.
        self._places = np.full(self.pieces.behind_last, -1, np.int64)
        for place, term in enumerate(self.searcher.index.terms()):
            self._places[int(term)] = place

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[Ranking]:
        """The best `depth` documents of each query; only documents that have a piece of it, or one that is added."""
        index = self.searcher.index
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            with self.clock.part("query_encoding"):
                inputs = self.pieces.inputs([query.text for query in some], self.model.maximum_length)
                encoded = self.model.encode(inputs)
            for query, numbers, weights in zip(some, inputs, encoded, strict=True):
                with self.clock.part("search"):
                    pieces, values = self.query_vector(np.array(numbers, np.int64), weights)
                    places = self._places[pieces]
                    known = places >= 0
                    ranks, scores = self.searcher.search(
                        places[known], values[known].astype(np.float32), depth
                    )
                    identifiers = index.identifiers(ranks)
                yield Ranking(query.id, identifiers, scores)

    def query_vector(
        self, numbers: NDArray[np.int64], weights: QueryWeights
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(pieces, values above 0) of w ⊙ (bow + a), for a query's token numbers and what the model says of it."""
        vector = np.zeros(self.pieces.behind_last)
        if self.augmentation:
            within = weights.added < len(vector)
            vector[weights.added[within]] = weights.values[within]
            vector[self._special] = 0.0
        own = ~np.isin(numbers, self._special)
        pieces, token_weights = numbers[own], weights.token_weights[own]
        self._queries += 1
        self._added += int(np.count_nonzero(vector) - np.count_nonzero(vector[np.unique(pieces)]))
        vector[pieces] += 1.0  # once, however often a piece is there
        if self.weighting:
            greatest = np.zeros(len(vector))
            np.maximum.at(greatest, pieces, token_weights)
            vector[pieces] *= greatest[pieces]
        found = np.flatnonzero(vector)
        return found, vector[found]

    def facts(self) -> Mapping[str, FactValue]:
        """How many terms that a query does not have are added to it, in the mean."""
        return {
            "mean_augmentation_length": self._added / max(self._queries, 1),
            "maximum_length": self.model.maximum_length,
        }


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
            Parameter("maximum_length", 512, "how many tokens of a query are read", least=8, most=512),
        ),
        create=QueryAugmentation.create,
        checkpoints=(CheckpointKind.QUERY_AUGMENTATION,),
    ),
)
