"""Term weighting: a model says how much each word of a document counts, and BM25 takes that for how often it is there.

Z. Dai, J. Callan, "Context-Aware Sentence/Passage Term Importance Estimation For First Stage Retrieval" (DeepCT),
2019: tf(t, d) = round(scale × weight(t, d)), scale 100, at least 0; words that count 0 times are left out. A word has
the weight of its first piece, and the greatest of the weights of its occurrences. Words are then analysed as BM25's
are, and those that come to the same stem add up, as in the pseudo-documents that DeepCT writes for an indexer. What
lies beyond the pieces that the model reads is not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    EngineDescription,
    FactValue,
    Parameter,
    Progress,
    Resources,
    ShardedEngine,
    ignore,
)
from evaluation.engines.index.inverted_index import IndexBuilder
from evaluation.engines.index.rows import read_rows, write_rows
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, WordEngine, resolve_language

if TYPE_CHECKING:
    from evaluation.engines.neural.term_weights import TermWeigher

#: A line for each document of a shard: its id, its words, and their weights.
_SHARD_FILE = "weights.jsonl"
#: No word counts more often, whatever a model says: an index of one document must not fill a disk.
_MOST_OFTEN = 10_000


class TermWeighting(WordEngine, ShardedEngine):
    """BM25 over term frequencies that a model gives."""

    def __init__(
        self, k1: float, b: float, stemming: bool, language: str, scale: float, weigher: TermWeigher
    ) -> None:
        super().__init__(k1, b, stemming, language)
        self.scale, self.weigher = scale, weigher
        self._words = 0

    @classmethod
    def create(cls, parameters: Mapping[str, Any], resources: Resources) -> TermWeighting:
        """An engine with the model of the checkpoint given. Raises ModelFailure."""
        from evaluation.engines.neural.loading import prepare
        from evaluation.engines.neural.term_weights import TermWeigher

        prepare(resources.threads)
        settings = resolve_language(parameters, resources)
        dtype, longest = settings.pop("compute_dtype"), settings.pop("maximum_length")
        weigher = TermWeigher(resources.first_part, resources.device, dtype, longest)
        return cls(**settings, weigher=weigher)

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the weights of the documents' words into the empty `folder`. Raises ModelFailure."""
        texts = [f"{document.title} {document.text}".strip() for document in documents]
        weighed = self.weigher.weigh(texts, progress)
        rows = (
            {"_id": document.id, "words": list(weights), "weights": list(weights.values())}
            for document, weights in zip(documents, weighed, strict=True)
        )
        write_rows(folder / _SHARD_FILE, rows)

    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index the weighted words of all shards into the empty `folder`, and open the index."""
        builder = IndexBuilder(folder)
        for row in read_rows([shard / _SHARD_FILE for shard in shards], progress):
            builder.add_counts(row["_id"], self._frequencies(row["words"], row["weights"]))
        builder.finish()
        self.open(folder)

    def _frequencies(self, words: list[str], weights: list[float]) -> Counter[str]:
        """How often each term counts in a document."""
        scaled = np.round(np.maximum(np.array(weights, np.float64), 0.0) * self.scale)
        frequencies: Counter[str] = Counter()
        for word, frequency in zip(words, np.minimum(scaled, _MOST_OFTEN).astype(int).tolist(), strict=True):
            if frequency:
                self._words += 1
                for term in self.analyser(word):
                    frequencies[term] += frequency
        return frequencies

    def facts(self) -> Mapping[str, FactValue]:
        """How many words of a document count, in the mean."""
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
        create=TermWeighting.create,
        checkpoints=(CheckpointKind.TERM_WEIGHTING,),
        encoding_parameters=(_LENGTH.name, COMPUTE_DTYPE.name),
    ),
)
