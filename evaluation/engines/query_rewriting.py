"""Generative query rewriting: what a model writes for a query is added to it, and both are found by BM25.

Y. Mao and others, "Generation-Augmented Retrieval for Open-Domain Question Answering" (GAR), ACL 2021: a
sequence-to-sequence model reads the query and writes a context (an answer, a sentence, a title), greedily or by beam
search; the query and the context, one behind the other, are searched with BM25. The documents are not touched.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Query
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    EngineDescription,
    FactValue,
    Parameter,
    Resources,
    SearchResult,
)
from evaluation.engines.bm25 import BM25, word_index
from evaluation.engines.bm25 import PARAMETERS as SEARCH_PARAMETERS
from evaluation.engines.document_expansion import load_writer

#: Queries are rewritten so many at a time.
_QUERIES_AT_ONCE = 64


class QueryRewriting(BM25):
    """BM25 for queries with what a model writes for them."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self.writer = load_writer(parameters, resources)
        self._queries = self._words = 0

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """The best `depth` documents of each query; only documents that have a term of it, or of its expansion."""
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            with self.clock.part("query_encoding"):
                expansions = self.expansions([query.text for query in some])
            for query, expansion in zip(some, expansions, strict=True):
                with self.clock.part("search"):
                    terms = Counter(self.analyser(f"{query.text} {expansion}"))
                    ranking = self.searcher.ranking(query.id, terms, depth)
                yield ranking

    def expansions(self, texts: Sequence[str]) -> list[str]:
        """Return what the model writes for each query; nothing for a query without a word."""
        worded = [number for number, text in enumerate(texts) if text.strip()]
        prompt = self.parameters["prompt"]
        written = self.writer.expand([prompt + texts[number] for number in worded])
        found = dict(zip(worded, written, strict=True))
        self._queries += len(texts)
        self._words += sum(len(text.split()) for text in written)
        return [found.get(number, "") for number in range(len(texts))]

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many words a query gains, in the mean."""
        return {
            "generated_length": self._words / max(self._queries, 1),
            "maximum_length": self.parameters["maximum_length"],
        }


_WRITING = (
    Parameter("prompt", "", "what stands before a query for the model"),
    Parameter("beams", 1, "how many beams the search for a text has; 1 is greedy", least=1, most=16),
    Parameter("maximum_length", 512, "how many tokens of a query are read", least=8, most=LONGEST_TEXT),
    Parameter("generated_tokens", 64, "how many tokens an expansion has at most", least=1, most=512),
    COMPUTE_DTYPE,
)

DESCRIPTIONS = (
    EngineDescription(
        name="query-rewriting",
        label="Generative query rewriting",
        architecture="generative",
        description="BM25 for queries with a context that a sequence-to-sequence model writes for them (GAR).",
        parameters=(*_WRITING, *SEARCH_PARAMETERS),
        create=QueryRewriting,
        word_index=word_index,
        checkpoints=(CheckpointKind.SEQ2SEQ,),
        writes_texts=True,
    ),
)
