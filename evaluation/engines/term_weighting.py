"""Term weighting: a model says how much each word of a document counts, and BM25 takes that for how often it is there.

Z. Dai, J. Callan, "Context-Aware Sentence/Passage Term Importance Estimation For First Stage Retrieval" (DeepCT),
2019: tf(t, d) = round(scale × weight(t, d)), scale 100, at least 0; words that count 0 times are left out. A word has
the weight of its first piece, and the greatest of the weights of its occurrences. Words are then analysed as BM25's
are, and those that come to the same stem add up, as in the pseudo-documents that DeepCT writes for an indexer. What
lies beyond the pieces that the model reads is not found.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.checkpoints.description import CheckpointKind
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    EngineDescription,
    FactValue,
    Parameter,
    Progress,
    Resources,
)
from evaluation.engines.index.inverted_index import IndexBuilder
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, ReadWordsEngine

#: No word counts more often, whatever a model says: an index of one document must not fill a disk.
_MOST_OFTEN = 10_000


class TermWeighting(ReadWordsEngine):
    """BM25 over term frequencies that a model gives."""

    shard_file = "weights.jsonl"

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import TermWeigher

        super().__init__(parameters, resources)
        self.weigher = TermWeigher(parameters, resources)
        self._words = 0

    def rows(
        self, ids: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> Iterable[Mapping[str, Any]]:
        """Return the weights of the documents' words."""
        return (
            {"_id": identifier, "words": list(weights), "weights": list(weights.values())}
            for identifier, weights in zip(ids, self.weigher.weigh(texts, progress), strict=True)
        )

    def add_row(self, builder: IndexBuilder, row: Mapping[str, Any]) -> None:
        """Index the weighted words of a document."""
        builder.add_counts(row["_id"], self._frequencies(row["words"], row["weights"]))

    def _frequencies(self, words: list[str], weights: list[float]) -> Counter[str]:
        """Return how often each term counts in a document."""
        scaled = np.round(np.maximum(np.array(weights, np.float64), 0.0) * self.parameters["scale"])
        frequencies: Counter[str] = Counter()
        for word, frequency in zip(words, np.minimum(scaled, _MOST_OFTEN).astype(int).tolist(), strict=True):
            if frequency:
                self._words += 1
                for term in self.analyser(word):
                    frequencies[term] += frequency
        return frequencies

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many words of a document count, in the mean."""
        return {
            "nonzeros_per_document": self._words / max(self.documents, 1),
            "maximum_length": self.weigher.maximum_length,
        }


_LENGTH = Parameter(
    "maximum_length", 512, "how many tokens of a document are read", least=8, most=LONGEST_TEXT
)

DESCRIPTIONS = (
    EngineDescription(
        name="deepct",
        label="Term weighting",
        architecture="learned-sparse",
        description="BM25 over term frequencies that a model gives to the words of each document (DeepCT).",
        parameters=(
            _LENGTH,
            COMPUTE_DTYPE,
            Parameter("scale", 100.0, "what weights are multiplied by", least=0.01, most=1000.0),
            K1,
            B,
            STEMMING,
            LANGUAGE,
        ),
        create=TermWeighting,
        checkpoints=(CheckpointKind.TERM_WEIGHTING,),
        encoding_parameters=(_LENGTH.name, COMPUTE_DTYPE.name),
    ),
)
