"""Engines with models that weight or generate terms for BM25, for documents before indexing or for queries.

Term weighting (DeepCT): Z. Dai, J. Callan, "Context-Aware Sentence/Passage Term Importance Estimation For First Stage
Retrieval", 2019: tf(t, d) = round(scale × weight(t, d)), with scale 100 and a minimum of 0; words with frequency 0 are
omitted. A word has the weight of its first piece, and the maximum weight of its occurrences. Words are then analyzed as
for BM25, and frequencies of words with the same stem are added, as in the pseudo-documents that DeepCT writes for an
indexer. Words beyond the model's maximum length are not indexed.

Document expansion: R. Nogueira, J. Lin, "From doc2query to docTTTTTquery", 2019: a T5 reads the document (512 word
pieces, as in the BEIR paper, which uses 40 queries), and each token of a query is sampled from the 10 most likely ones.
Samples depend only on the seed and the document's text, so that shards and batches make no difference. The index
contains title, text, and all queries as one field. Documents without words have no queries.

Query rewriting (GAR): Y. Mao et al., "Generation-Augmented Retrieval for Open-Domain Question Answering", ACL 2021: a
sequence-to-sequence model reads the query and generates a context (an answer, a sentence, a title), greedily or by beam
search. BM25 searches for the concatenation of query and context. Documents are not changed.

Learned query augmentation: X. Chen, S. Wiseman, "BM25 Query Augmentation Learned End-to-End", 2023
(arXiv:2305.14087). With the vectors enc(q) of an encoder and the learned W ∈ R^{|V|×E} and u ∈ R^E:

    a(q) = ReLU(W · enc(q)[CLS])        added weights, one for each word piece of the vocabulary V
    w(q)_i = ReLU(uᵀ enc(q)_i)          weight of the query's token i
    score(q, d) = (w ⊙ idf ⊙ (bow + a))ᵀ f(d)

bow is binary. Repeated pieces of the query have the maximum of their weights, added pieces have weight 1, and special
tokens are excluded. idf and f(d) are the same as in `bm25-wordpiece`, over the same index: idf = ln((N − df + 0.5) /
(df + 0.5) + 1), f(d)_t = tf / (tf + k1 × (1 − b + b × length / mean length)). The factor k1 + 1 in some definitions of
f(d) scales all scores equally, and is omitted as in Lucene.

One search also produces the BM25 ranking over the same word pieces, to show what the model adds. "ablations" adds the
rankings without w and without a.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.engines.base import (
    COMPUTE_DTYPE,
    LONGEST_TEXT,
    Engine,
    EngineDescription,
    FactValue,
    Numbers,
    Parameter,
    Progress,
    Resources,
    SearchResult,
    ShardedEngine,
    VariantEngine,
    ignore,
    labels,
)
from evaluation.engines.bm25 import BM25, WordPieceBM25, WordPieceEngine, word_index
from evaluation.engines.bm25 import PARAMETERS as BM25_PARAMETERS
from evaluation.engines.index.inverted_index import IndexBuilder
from evaluation.engines.index.term_search import K1, LANGUAGE, STEMMING, B, WordEngine

if TYPE_CHECKING:
    from evaluation.engines.neural.text_models import QueryWeights

#: Maximum frequency of a word. A model must not be able to fill the disk with a single document.
_MAX_FREQUENCY = 10_000
_BASELINE = "bm25-wordpiece"
#: Labels of rankings, keyed by whether terms are added and whether query terms are weighted.
_LABELS = {
    (True, True): "augmented and weighted",
    (True, False): "augmented",
    (False, True): "weighted",
    (False, False): "binary",
}
Switches = tuple[bool, bool]


class DocumentModelEngine(WordEngine, ShardedEngine):
    """A WordEngine with a model that reads documents before indexing. Shards contain one line of JSON per document."""

    #: Name of the file in each shard.
    shard_file: str

    @abstractmethod
    def rows(self, ids: Sequence[str], texts: Sequence[str], progress: Progress) -> Iterable[Mapping[str, Any]]:
        """Yield the model's output for each document as JSON-compatible values. Raises ModelFailure."""

    @abstractmethod
    def add_row(self, builder: IndexBuilder, row: Mapping[str, Any]) -> None:
        """Index a document from a row of its shard."""

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the rows of the documents into the empty `folder`."""
        texts = [document.title_and_text for document in documents]
        with (folder / self.shard_file).open("wb") as file:
            for row in self.rows([document.id for document in documents], texts, progress):
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))

    def build_from_shards(self, shards: Sequence[Path], folder: Path, progress: Progress = ignore) -> None:
        """Index the rows of all shards into the empty `folder`, and open the index."""
        builder = IndexBuilder(folder, self.analyser)
        for number, shard in enumerate(shards, 1):
            with (shard / self.shard_file).open("rb") as file:
                for line in file:
                    self.add_row(builder, orjson.loads(line))
            progress(number / len(shards))
        builder.finish()
        self.open(folder)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query. Retrieved documents contain a query term."""
        for query in queries:
            with self.clock.part("search"):
                ranking = self.searcher.rank(query.id, Counter(self.analyser(query.text)), depth)
            yield ranking


class TermWeighting(DocumentModelEngine):
    """BM25 over term frequencies that a model predicts."""

    shard_file = "weights.jsonl"

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import TermWeigher

        super().__init__(parameters, resources)
        self.weigher = TermWeigher(parameters, resources)
        self._word_count = 0

    def rows(self, ids: Sequence[str], texts: Sequence[str], progress: Progress) -> Iterable[Mapping[str, Any]]:
        """Return the weighted words of each document."""
        return (
            {"_id": identifier, "words": list(weights), "weights": list(weights.values())}
            for identifier, weights in zip(ids, self.weigher.weigh(texts, progress), strict=True)
        )

    def add_row(self, builder: IndexBuilder, row: Mapping[str, Any]) -> None:
        """Index a document's words, using their scaled and rounded weights as frequencies, added for equal terms."""
        weights = np.maximum(np.array(row["weights"], np.float64), 0.0)
        counts = np.minimum(np.round(weights * self.parameters["scale"]), _MAX_FREQUENCY).astype(int).tolist()
        frequencies: Counter[str] = Counter()
        for word, count in zip(row["words"], counts, strict=True):
            if count:
                self._word_count += 1
                for term in self.analyser(word):
                    frequencies[term] += count
        builder.add_counts(row["_id"], frequencies)

    def facts(self) -> Mapping[str, FactValue]:
        """Return the mean number of indexed words per document, and the maximum length."""
        return {
            "nonzeros_per_document": self._word_count / max(self.documents, 1),
            "maximum_length": self.weigher.maximum_length,
        }


class DocumentExpansion(DocumentModelEngine):
    """BM25 over documents and the queries that a model generates for them."""

    shard_file = "documents.jsonl"

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import TextWriter

        super().__init__(parameters, resources)
        self.writer = TextWriter(parameters, resources)
        self._query_count = self._word_count = 0

    def rows(self, ids: Sequence[str], texts: Sequence[str], progress: Progress) -> Iterable[Mapping[str, Any]]:
        """Return the documents with their generated queries."""
        generated_queries = iter(self.writer.sample([text for text in texts if text], progress))
        return (
            {"_id": identifier, "text": text, "queries": next(generated_queries) if text else []}
            for identifier, text in zip(ids, texts, strict=True)
        )

    def add_row(self, builder: IndexBuilder, row: Mapping[str, Any]) -> None:
        """Index a document with its queries."""
        expansion = " ".join(row["queries"])
        self._query_count += len(row["queries"])
        self._word_count += len(expansion.split())
        builder.add(row["_id"], (f"{row['text']} {expansion}",))

    def facts(self) -> Mapping[str, FactValue]:
        """Return the mean numbers of generated queries and words per document, and the maximum length."""
        documents = max(self.documents, 1)
        return {
            "queries_per_document": self._query_count / documents,
            "generated_length": self._word_count / documents,
            "maximum_length": self.parameters["maximum_length"],
        }


class QueryRewriting(BM25):
    """BM25 for queries that a model expands with generated text."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import TextWriter

        super().__init__(parameters, resources)
        self.writer = TextWriter(parameters, resources)
        self._query_total = self._word_count = 0

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query. They contain a term of the query or its expansion."""
        with self.clock.part("query_encoding"):
            expansions = self.expansions([query.text for query in queries])
        for query, expansion in zip(queries, expansions, strict=True):
            with self.clock.part("search"):
                ranking = self.searcher.rank(query.id, Counter(self.analyser(f"{query.text} {expansion}")), depth)
            yield ranking

    def expansions(self, texts: Sequence[str]) -> list[str]:
        """Return the generated text for each query; "" for queries without words."""
        prompt = self.parameters["prompt"]
        generated = self.writer.expand([prompt + text for text in texts if text.strip()])
        self._query_total += len(texts)
        self._word_count += sum(len(text.split()) for text in generated)
        expansions = iter(generated)
        return [next(expansions) if text.strip() else "" for text in texts]

    def facts(self) -> Mapping[str, FactValue]:
        """Return the mean number of words added to a query, and the maximum length."""
        return {
            "generated_length": self._word_count / max(self._query_total, 1),
            "maximum_length": self.parameters["maximum_length"],
        }


class QueryAugmentation(WordPieceEngine, VariantEngine[Switches | None]):
    """BM25 over word pieces with query weights from a model, and the baselines and ablations over the same index."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import AugmentationModel

        super().__init__(parameters, resources)
        self.settings = _variant_switches(parameters)
        self.model = AugmentationModel(parameters, resources, self.pieces.id_bound)
        self._special_ids = np.array(sorted(self.pieces.special_ids), np.int64)
        self._query_total = self._added_total = 0

    def open(self, folder: Path) -> None:
        """Open an index and map word pieces to its terms."""
        super().open(folder)
        #: Term number in the index for each word piece, -1 if no document contains it.
        self._term_numbers = np.full(self.pieces.id_bound, -1, np.int64)
        for term_number, term_text in enumerate(self.searcher.index.terms()):
            self._term_numbers[int(term_text)] = term_number

    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, Switches | None]
    ) -> Iterator[Mapping[str, SearchResult]]:
        """Yield each query's ranking for each setting, which is a pair of switches, or None for BM25."""
        baseline = self.baseline() if None in settings.values() else None
        for query, numbers, weights in self._encode_queries(queries):
            rankings = {}
            for label, switches in settings.items():
                if switches is not None:
                    rankings[label] = self._rank(query, numbers, weights, switches, depth)
                elif baseline is not None:
                    (rankings[label],) = baseline.search([query], depth)
            yield rankings

    def variant(self, label: str) -> Engine:
        """Return an engine over the same index that only does the work of one variant."""
        return self.baseline() if self.settings[label] is None else super().variant(label)

    def baseline(self) -> WordPieceBM25:
        """Return BM25 over the same index."""
        engine = WordPieceBM25(self.parameters, self.resources, self.pieces)
        engine.open(self.searcher.index.folder)
        return engine

    def _encode_queries(self, queries: Sequence[Query]) -> Iterator[tuple[Query, Numbers, QueryWeights]]:
        """Yield the queries with their token ids and the weights from the model."""
        for start in range(0, len(queries), self.queries_at_once):
            batch = queries[start : start + self.queries_at_once]
            with self.clock.part("query_encoding"):
                inputs = self.pieces.inputs([query.text for query in batch], self.model.maximum_length)
                encoded_queries = self.model.encode(inputs)
            for query, numbers, weights in zip(batch, inputs, encoded_queries, strict=True):
                self._query_total += 1
                self._added_total += len(np.setdiff1d(weights.added, [*numbers, *self._special_ids]))
                yield query, np.array(numbers, np.int64), weights

    def _rank(
        self, query: Query, numbers: Numbers, weights: QueryWeights, switches: Switches, depth: int
    ) -> SearchResult:
        """Return a query's best `depth` documents by the model's weights, as far as the switches enable them."""
        with self.clock.part("search"):
            pieces, values = self._query_vector(numbers, weights, switches)
            terms = self._term_numbers[pieces]
            is_indexed = terms >= 0
            return self.searcher.result(query.id, terms[is_indexed], values[is_indexed].astype(np.float32), depth)

    def _query_vector(
        self, numbers: Numbers, weights: QueryWeights, switches: Switches
    ) -> tuple[Numbers, NDArray[np.float64]]:
        """Return the pieces with a nonzero value in the query vector w ⊙ (bow + a), and these values.

        The switches enable the added terms a and the weights w. Special tokens are excluded.
        """
        augmentation, weighting = switches
        vector = np.zeros(self.pieces.id_bound)
        if augmentation:
            vector[weights.added] = weights.values
            vector[self._special_ids] = 0.0
        is_regular = ~np.isin(numbers, self._special_ids)
        pieces, token_weights = numbers[is_regular], weights.token_weights[is_regular]
        vector[pieces] += 1.0  # once even for repeated pieces
        if weighting:
            maximum = np.zeros(len(vector))
            np.maximum.at(maximum, pieces, token_weights)
            vector[pieces] *= maximum[pieces]
        nonzero = np.flatnonzero(vector)
        return nonzero, vector[nonzero]

    def facts(self) -> Mapping[str, FactValue]:
        """Return the mean number of terms added to a query, and the maximum length."""
        added_terms = self._added_total if self.main and self.main[0] else 0
        return {
            "mean_augmentation_length": added_terms / max(self._query_total, 1),
            "maximum_length": self.model.maximum_length,
        }

    def variant_facts(self, label: str) -> Mapping[str, FactValue]:
        """Return the `facts` of a variant. BM25 adds no terms and does not truncate queries."""
        return {"mean_augmentation_length": 0.0} if self.settings[label] is None else super().variant_facts(label)


def _variant_switches(parameters: Mapping[str, Any]) -> dict[str, Switches | None]:
    """Return the switches of each variant, keyed by label, with the main one last. None stands for BM25."""
    main, other_variants = (parameters["augmentation"], parameters["weighting"]), parameters["beside"]
    ablations = [(True, False), (False, True)] if other_variants == "ablations" else []
    switches: dict[str, Switches | None] = {
        _LABELS[switch]: switch for switch in (*(ablation for ablation in ablations if ablation != main), main)
    }
    return switches if other_variants == "none" else {_BASELINE: None, **switches}


_MAX_LENGTH = Parameter("maximum_length", 512, "maximum number of tokens per document", minimum=8, maximum=LONGEST_TEXT)

_SAMPLING_PARAMETERS = (
    Parameter("queries_per_document", 40, "number of queries to generate per document", minimum=1, maximum=200),
    Parameter("top_k", 10, "number of most likely tokens to sample from", minimum=1, maximum=1000),
    Parameter("maximum_length", 512, "maximum number of tokens per text", minimum=8, maximum=LONGEST_TEXT),
    Parameter("generated_tokens", 64, "maximum number of tokens per generated text", minimum=1, maximum=512),
    Parameter("seed", 0, "seed of the random generator", minimum=0, maximum=2**31 - 1),
    COMPUTE_DTYPE,
)

_WRITING_PARAMETERS = (
    Parameter("prompt", "", "prefix of each query in the model's input, such as “expand: ”"),
    Parameter("beams", 1, "number of beams; 1 is greedy search", minimum=1, maximum=16),
    Parameter("maximum_length", 512, "maximum number of tokens per query", minimum=8, maximum=LONGEST_TEXT),
    Parameter("generated_tokens", 64, "maximum number of tokens per expansion", minimum=1, maximum=512),
    COMPUTE_DTYPE,
)

DESCRIPTIONS = (
    EngineDescription(
        name="doc2query",
        label="Document expansion",
        architecture="document-expansion",
        description="BM25 over documents and queries that a T5 generates for them (docT5query).",
        parameters=(*_SAMPLING_PARAMETERS, K1, B, STEMMING, LANGUAGE),
        create=DocumentExpansion,
        checkpoints=(CheckpointKind.SEQ2SEQ,),
        encoding_parameters=tuple(parameter.name for parameter in _SAMPLING_PARAMETERS),
        writes_texts=True,
    ),
    EngineDescription(
        name="deepct",
        label="Term weighting",
        architecture="learned-sparse",
        description="BM25 over term frequencies that a model predicts for the words of each document (DeepCT).",
        parameters=(
            _MAX_LENGTH,
            COMPUTE_DTYPE,
            Parameter("scale", 100.0, "factor that converts weights to frequencies", minimum=0.01, maximum=1000.0),
            K1,
            B,
            STEMMING,
            LANGUAGE,
        ),
        create=TermWeighting,
        checkpoints=(CheckpointKind.TERM_WEIGHTING,),
        encoding_parameters=(_MAX_LENGTH.name, COMPUTE_DTYPE.name),
    ),
    EngineDescription(
        name="query-augmentation",
        label="Learned query augmentation",
        architecture="query-augmentation",
        description="BM25 over word pieces, with query terms added and weighted by a model.",
        parameters=(
            K1,
            B,
            Parameter("augmentation", True, "whether to add terms to the query"),
            Parameter("weighting", True, "whether to weight the query's own terms"),
            Parameter(
                "beside",
                _BASELINE,
                "further rankings over the same index: BM25, or also each part of the model alone (ablations)",
                choices=(_BASELINE, "ablations", "none"),
            ),
            Parameter("maximum_length", 512, "maximum number of tokens per query", minimum=8, maximum=LONGEST_TEXT),
            COMPUTE_DTYPE,
        ),
        create=QueryAugmentation,
        checkpoints=(CheckpointKind.QUERY_AUGMENTATION,),
        main_alone={"beside": "none"},
        variants=lambda parameters: labels(_variant_switches(parameters)),
    ),
    EngineDescription(
        name="query-rewriting",
        label="Generative query rewriting",
        architecture="generative",
        description="BM25 for queries expanded with a context from a sequence-to-sequence model (GAR).",
        parameters=(*_WRITING_PARAMETERS, *BM25_PARAMETERS),
        create=QueryRewriting,
        word_index=word_index,
        checkpoints=(CheckpointKind.SEQ2SEQ,),
        writes_texts=True,
    ),
)
