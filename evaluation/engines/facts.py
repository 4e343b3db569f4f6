"""Properties of systems that papers report alongside effectiveness."""

from collections.abc import Mapping
from dataclasses import dataclass

FactValue = str | int | float
_MAX_COUNT = 1_000_000
#: Names of the compression of token vectors, keyed by bits per dimension.
RESIDUALS = {bits: f"{bits}-bit residuals" for bits in (1, 2, 4, 8)}


@dataclass(frozen=True, slots=True)
class Fact:
    """A property of a system: its label, decimals, and possible values.

    The value is one of `words` or a number from 0 to `maximum`. Facts with neither are not reported by engines.
    """

    label: str
    decimals: int = 0
    unit: str = ""
    words: tuple[str, ...] = ()
    maximum: int | None = None

    def validate(self, value: object) -> FactValue:
        """Return an allowed word, or a number in range rounded to the displayed decimals.

        Raises ValueError for other values.
        """
        if isinstance(value, str) and value in self.words:
            return value
        if self.maximum is None or isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.label} has an invalid value")
        if not 0 <= value <= self.maximum:
            raise ValueError(f"{self.label} must be a number from 0 to {self.maximum}")
        return round(value, self.decimals)


FACTS: Mapping[str, Fact] = {
    "dimension": Fact("Dimension", maximum=_MAX_COUNT),
    "similarity": Fact("Similarity", words=("cosine", "dot", "MaxSim", "mean MaxSim")),
    "maximum_length": Fact("Maximum length", unit="tokens", maximum=_MAX_COUNT),
    "stored_dtype": Fact("Stored as", words=("float32", "float16", "int8", "binary", *RESIDUALS.values())),
    "compute_dtype": Fact("Computed in", words=("float32", "bfloat16", "float16")),
    "precision_loss": Fact("Share of the float32 top 10 lost", 4, maximum=1),
    "bytes_per_document": Fact("Vectors of a document", unit="bytes", maximum=2**40),
    "passages_per_document": Fact("Passages per document", 1, maximum=_MAX_COUNT),
    "index_kind": Fact(
        "Search", words=("exact", "hnsw", "ivf", "pq", "candidates", "end-to-end", "compressed", "exhaustive")
    ),
    "recall_against_exact": Fact("Recall of the exact top 100", 4, maximum=1),
    "overlap_with_float32": Fact("Overlap with float32 at 100", 4, maximum=1),
    "nonzeros_per_document": Fact("Non-zeros per document", 1, maximum=_MAX_COUNT),
    "nonzeros_per_query": Fact("Non-zeros per query", 1, maximum=_MAX_COUNT),
    "vectors_per_document": Fact("Vectors per document", 1, maximum=_MAX_COUNT),
    "mean_augmentation_length": Fact("Terms added per query", 1, maximum=_MAX_COUNT),
    "queries_per_document": Fact("Generated queries per document", maximum=_MAX_COUNT),
    "expansion_terms": Fact("Expansion terms", 1, maximum=_MAX_COUNT),
    "generated_length": Fact("Generated words per text", 1, maximum=_MAX_COUNT),
    "depth": Fact("Re-ranked depth", maximum=_MAX_COUNT),
    "runs_fused": Fact("Runs fused", maximum=_MAX_COUNT),
    "command_seconds": Fact("Time of the image's command", 1, "seconds", maximum=10**7),
    "command_documents_per_second": Fact("Documents per second of the image's command", 1, maximum=10**9),
    "command_memory": Fact("Memory of the image's command", unit="MiB", maximum=10**8),
    "hardware_mixture": Fact("Encoded on"),
    "query_prompt": Fact("Before each query"),
    "document_prompt": Fact("Before each document"),
}
