"""Models that weigh or write words for BM25: of documents before they are indexed, or of queries.

Term weighting (DeepCT): Z. Dai, J. Callan, "Context-Aware Sentence/Passage Term Importance Estimation For First Stage
Retrieval", 2019: tf(t, d) = round(scale × weight(t, d)), scale 100, at least 0; words that count 0 times are left out.
A word has the weight of its first piece, and the greatest of the weights of its occurrences. Words are then analysed as
BM25's are, and those that come to the same stem add up, as in the pseudo-documents that DeepCT writes for an indexer.
Words beyond the pieces that the model reads are not indexed.

Document expansion: R. Nogueira, J. Lin, "From doc2query to docTTTTTquery", 2019: a T5 reads the document (512 word
pieces, as in the BEIR paper, which uses 40 queries) and queries are drawn token by token from the 10 likeliest. The
draws here follow from the seed and the document's text alone, so that shards and batches make no difference. The index
has title, text and all queries, as one field; a document without a word has no queries.

Query rewriting (GAR): Y. Mao and others, "Generation-Augmented Retrieval for Open-Domain Question Answering", ACL 2021:
a sequence-to-sequence model reads the query and writes a context (an answer, a sentence, a title), greedily or by beam
search; the query and the context, one behind the other, are searched with BM25. The documents are not touched.

Learned query augmentation: X. Chen, S. Wiseman, "BM25 Query Augmentation Learned End-to-End", 2023
(arXiv:2305.14087). With enc(q) the vectors of an encoder, W ∈ R^{|V|×E} and u ∈ R^E learned beside it:

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

#: No word counts more often, whatever a model says: an index of one document must not fill a disk.
_MOST_OFTEN = 10_000
_BASELINE = "bm25-wordpiece"
#: What a ranking is called, by whether terms are added and whether the query's own are weighed.
_LABELS = {
    (True, True): "augmented and weighted",
    (True, False): "augmented",
    (False, True): "weighted",
    (False, False): "binary",
}
Switches = tuple[bool, bool]


class ReadWordsEngine(WordEngine, ShardedEngine):
    """A WordEngine over documents that a model reads first; shards have a line of JSON for each document."""

    #: The file of a shard.
    shard_file: str

    @abstractmethod
    def rows(
        self, ids: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> Iterable[Mapping[str, Any]]:
        """Return what the model makes of each document. Raises ModelFailure."""

    @abstractmethod
    def add_row(self, builder: IndexBuilder, row: Mapping[str, Any]) -> None:
        """Index a document of `rows`."""

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the rows of the documents into the empty `folder`."""
        texts = [f"{document.title} {document.text}".strip() for document in documents]
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
        """Yield the best `depth` documents of each query; only documents with one of its terms."""
        for query in queries:
            with self.clock.part("search"):
                ranking = self.searcher.ranking(query.id, Counter(self.analyser(query.text)), depth)
            yield ranking


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
        weights = np.maximum(np.array(row["weights"], np.float64), 0.0)
        counts = np.minimum(np.round(weights * self.parameters["scale"]), _MOST_OFTEN).astype(int).tolist()
        frequencies: Counter[str] = Counter()
        for word, count in zip(row["words"], counts, strict=True):
            if count:
                self._words += 1
                for term in self.analyser(word):
                    frequencies[term] += count
        builder.add_counts(row["_id"], frequencies)

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many words of a document count, in the mean."""
        return {
            "nonzeros_per_document": self._words / max(self.documents, 1),
            "maximum_length": self.weigher.maximum_length,
        }


class DocumentExpansion(ReadWordsEngine):
    """BM25 over documents and the queries written for them."""

    shard_file = "documents.jsonl"

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import TextWriter

        super().__init__(parameters, resources)
        self.writer = TextWriter(parameters, resources)
        self._written = self._words = 0

    def rows(
        self, ids: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> Iterable[Mapping[str, Any]]:
        """Return the documents with the queries that the model writes for them."""
        written = iter(self.writer.sample([text for text in texts if text], progress))
        return (
            {"_id": identifier, "text": text, "queries": next(written) if text else []}
            for identifier, text in zip(ids, texts, strict=True)
        )

    def add_row(self, builder: IndexBuilder, row: Mapping[str, Any]) -> None:
        """Index a document with its queries."""
        expansion = " ".join(row["queries"])
        self._written += len(row["queries"])
        self._words += len(expansion.split())
        builder.add(row["_id"], (f"{row['text']} {expansion}",))

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many queries a document has, and how many words they have together, in the mean."""
        documents = max(self.documents, 1)
        return {
            "queries_per_document": self._written / documents,
            "generated_length": self._words / documents,
            "maximum_length": self.parameters["maximum_length"],
        }


class QueryRewriting(BM25):
    """BM25 for queries with what a model writes for them."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import TextWriter

        super().__init__(parameters, resources)
        self.writer = TextWriter(parameters, resources)
        self._queries = self._words = 0

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """The best `depth` documents of each query; only documents that have a term of it, or of its expansion."""
        with self.clock.part("query_encoding"):
            expansions = self.expansions([query.text for query in queries])
        for query, expansion in zip(queries, expansions, strict=True):
            with self.clock.part("search"):
                terms = Counter(self.analyser(f"{query.text} {expansion}"))
                ranking = self.searcher.ranking(query.id, terms, depth)
            yield ranking

    def expansions(self, texts: Sequence[str]) -> list[str]:
        """Return what the model writes for each query; nothing for a query without a word."""
        prompt = self.parameters["prompt"]
        written = self.writer.expand([prompt + text for text in texts if text.strip()])
        self._queries += len(texts)
        self._words += sum(len(text.split()) for text in written)
        expansions = iter(written)
        return [next(expansions) if text.strip() else "" for text in texts]

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many words a query gains, in the mean."""
        return {
            "generated_length": self._words / max(self._queries, 1),
            "maximum_length": self.parameters["maximum_length"],
        }


class QueryAugmentation(WordPieceEngine, VariantEngine[Switches | None]):
    """BM25 over word pieces, for queries as a model sees them; beside it, over the same index, what it improves on."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.text_models import AugmentationModel

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
        for start in range(0, len(queries), self.queries_at_once):
            some = queries[start : start + self.queries_at_once]
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
            return self.searcher.result(query.id, places[known], values[known].astype(np.float32), depth)

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


_LENGTH = Parameter(
    "maximum_length", 512, "how many tokens of a document are read", least=8, most=LONGEST_TEXT
)

_SAMPLING = (
    Parameter("queries_per_document", 40, "how many queries are written for a document", least=1, most=200),
    Parameter("top_k", 10, "how many of the likeliest tokens each is drawn from", least=1, most=1000),
    Parameter("maximum_length", 512, "how many tokens of a text are read", least=8, most=LONGEST_TEXT),
    Parameter("generated_tokens", 64, "how many tokens a generated text has at most", least=1, most=512),
    Parameter("seed", 0, "which draws are made", least=0, most=2**31 - 1),
    COMPUTE_DTYPE,
)

_WRITING = (
    Parameter("prompt", "", "what stands before a query for the model"),
    Parameter("beams", 1, "how many beams the search for a text has; 1 is greedy", least=1, most=16),
    Parameter("maximum_length", 512, "how many tokens of a query are read", least=8, most=LONGEST_TEXT),
    Parameter("generated_tokens", 64, "how many tokens an expansion has at most", least=1, most=512),
    COMPUTE_DTYPE,
)

DESCRIPTIONS = (
    EngineDescription(
        name="doc2query",
        label="Document expansion",
        architecture="document-expansion",
        description="BM25 over documents and queries that a T5 writes for them (docT5query).",
        parameters=(*_SAMPLING, K1, B, STEMMING, LANGUAGE),
        create=DocumentExpansion,
        checkpoints=(CheckpointKind.SEQ2SEQ,),
        encoding_parameters=tuple(parameter.name for parameter in _SAMPLING),
        writes_texts=True,
    ),
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
    EngineDescription(
        name="query-rewriting",
        label="Generative query rewriting",
        architecture="generative",
        description="BM25 for queries with a context that a sequence-to-sequence model writes for them (GAR).",
        parameters=(*_WRITING, *BM25_PARAMETERS),
        create=QueryRewriting,
        word_index=word_index,
        checkpoints=(CheckpointKind.SEQ2SEQ,),
        writes_texts=True,
    ),
)
