"""Late interaction: texts have one vector per token, and documents are scored by MaxSim.

For each vector of the query, MaxSim takes the maximum inner product with the document's vectors, and adds these up:
O. Khattab and M. Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over
BERT", 2020. Documents are truncated to 300 tokens as in the BEIR paper (N. Thakur et al., 2021, §4), and queries to the
checkpoint's length. Scores are exact over the stored vectors, except in mode "compressed". The modes differ in the
documents that are scored:

- candidates: the top documents of BM25 or of a given run;
- end-to-end: the documents of the vectors nearest to each query vector, found by faiss (inverted lists with eight bits
  per dimension), without a first stage;
- compressed: the documents of the centroids nearest to each query vector, with scores from centroids and residuals of a
  few bits (see `token_store`); the index is a tenth as large as the vectors;
- exhaustive: all documents, in one pass over the vectors for several queries at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evaluation.checkpoints.description import CheckpointKind
from evaluation.collections.beir import Document, Query
from evaluation.engines.base import (
    BATCH_TOKENS,
    COMPUTE_DTYPE,
    ENCODING,
    MAXIMUM_LENGTH,
    DividedEngine,
    EngineDescription,
    FactValue,
    Floats,
    InvalidParameter,
    Numbers,
    Parameter,
    Progress,
    Resources,
    SearchResult,
    ignore,
)
from evaluation.engines.bm25 import BM25
from evaluation.engines.facts import RESIDUALS
from evaluation.engines.first_stage import StoredRun, Texts, document_numbers, first_stage, store_texts
from evaluation.engines.index.exact_search import Ranking, max_norm
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids
from evaluation.engines.index.token_store import CompressedTokens, NearestTokens, TokenStore, TokenWriter
from evaluation.engines.passages import FIELDS, FIELDS_PARAMETER
from evaluation.engines.prompts import PROMPT_PARAMETERS, check_prompts

if TYPE_CHECKING:
    import torch

#: Maximum number of inner products in memory (128 MiB).
_PRODUCTS = 2**25
#: Maximum number of document scores in memory (256 MiB).
_SCORES = 2**26
_SHARD_LIST_FILE, _FINDER_FOLDER = "shards.json", "finder"
#: Number of queries for the comparison with exhaustive search, and its depth.
_SAMPLE, _COMPARED_DEPTH = 20, 100

Vectors = Sequence["torch.Tensor"]


class LateInteraction(DividedEngine):
    """Engine that compares token vectors: of all documents, of an approximate search's, or of a first stage's."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.sided_encoders import TokenEncoder

        super().__init__(parameters, resources)
        self.mode: str = parameters["mode"]
        if resources.runs and self.mode != "candidates":
            raise InvalidParameter("Runs are re-ranked only with mode = candidates. Omit the run or the mode.")
        self.encoder = TokenEncoder(resources, parameters)
        self.read_text = FIELDS[parameters["fields"]]
        self.finder: BM25 | StoredRun | NearestTokens | CompressedTokens | None = None
        if self.mode == "candidates":
            self.finder = first_stage(resources)
        elif self.mode == "end-to-end":
            self.finder = NearestTokens(parameters["nearest_vectors"], parameters["probes"], resources.threads)
        elif self.mode == "compressed":
            self.finder = CompressedTokens(int(parameters["residual_bits"]), parameters["probes"], resources.threads)
        self._sample: list[torch.Tensor] = []

    @property
    def analyser_name(self) -> str:
        scope = self.mode
        if isinstance(self.finder, BM25 | StoredRun):
            scope = f"top {self.parameters['candidates']} of {self.finder.label}"
        return f"MaxSim, {scope}, {self.encoder.maximum_length} tokens at most"

    @property
    def documents(self) -> int:
        return len(self.ids)

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the vectors of the documents' tokens, and the texts for BM25."""
        for _ in store_texts(documents, folder / "texts"):
            pass
        with TokenWriter(folder, self.encoder.dimension, self.parameters["stored_dtype"]) as writer:
            self.encoder.encode(list(map(self.read_text, documents)), "document", writer.write, progress)

    @property
    def learns(self) -> bool:
        """Whether the index has centroids and codes of residuals."""
        return isinstance(self.finder, CompressedTokens)

    @property
    def divides_shards(self) -> bool:
        """Whether parts consist of shards, which is impossible if the first stage needs the whole collection."""
        return self.mode != "candidates"

    def learn(self, shards: Sequence[Path], folder: Path) -> None:
        if isinstance(self.finder, CompressedTokens):
            self.finder.learn(TokenStore(shards), folder)

    def build_part(self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore) -> None:
        """Index the texts for the first stage, or the vectors for approximate search, and open the index.

        Exhaustive search needs no index. The shards are not copied.
        """
        texts = [Texts(shard / "texts") for shard in shards]
        write_ordered_ids(folder, (name for part in texts for name in part.ids.get_ids(np.arange(len(part)))))
        (folder / _SHARD_LIST_FILE).write_text(json.dumps([str(shard.resolve()) for shard in shards]), "utf-8")
        (folder / _FINDER_FOLDER).mkdir()
        if isinstance(self.finder, BM25 | StoredRun):
            self.finder.build(chain.from_iterable(texts), folder / _FINDER_FOLDER)
        elif isinstance(self.finder, NearestTokens):
            self.finder.build(TokenStore(shards), folder / _FINDER_FOLDER)
        elif self.finder is not None:
            self.finder.build(TokenStore(shards), learned, folder / _FINDER_FOLDER)
        self.open(folder)
        progress(1.0)

    def open(self, folder: Path) -> None:
        """Open an index, including the shards that it refers to."""
        self.ids = OrderedIds(folder)
        self.store = TokenStore([Path(name) for name in json.loads((folder / _SHARD_LIST_FILE).read_text("utf-8"))])
        if self.finder is not None:
            self.finder.open(folder / _FINDER_FOLDER)

    def size(self) -> int:
        vectors = 0 if isinstance(self.finder, CompressedTokens) else self.store.size()
        return vectors + (self.finder.size() if self.finder else 0)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield each query's best `depth` documents by MaxSim, among the documents that the mode selects."""
        with self.clock.part("query_encoding"):
            vectors = self.encoder.encode_queries([query.text for query in queries])
        self._sample += vectors[: _SAMPLE - len(self._sample)]
        if self.mode == "exhaustive":
            with self.clock.part("search"):
                rankings = self._rank_all(vectors, depth)
        elif isinstance(self.finder, CompressedTokens):
            with self.clock.part("search"):
                rankings = [self._rank_compressed(self.finder, query, depth) for query in vectors]
        else:
            with self.clock.part("first_stage"):
                candidates = self._get_candidates(queries, vectors)
            with self.clock.part("search"):
                pairs = zip(vectors, candidates, strict=True)
                rankings = [self._rank_candidates(query, documents, depth) for query, documents in pairs]
        for query, (documents, scores) in zip(queries, rankings, strict=True):
            yield SearchResult(query.id, self.ids.get_ids(documents), scores)

    def facts(self) -> Mapping[str, FactValue]:
        """Return dimension, lengths, storage, and mode, and the recall of the approximate modes.

        The recall of the exhaustive top 100 is measured over up to 20 queries.
        """
        facts: dict[str, FactValue] = {
            "dimension": self.encoder.dimension,
            "similarity": "mean MaxSim" if self.encoder.mean else "MaxSim",
            "maximum_length": self.encoder.maximum_length,
            "stored_dtype": self.parameters["stored_dtype"],
            "index_kind": self.mode,
            "vectors_per_document": self.store.vectors / max(self.documents, 1),
        }
        if self.mode == "candidates":
            facts["depth"] = min(self.parameters["candidates"], self.documents)
        if self.mode == "compressed":
            facts["stored_dtype"] = RESIDUALS[int(self.parameters["residual_bits"])]
            facts["bytes_per_document"] = self.size() / max(self.documents, 1)
        if self.mode in ("end-to-end", "compressed") and self._sample and self.documents:
            facts["recall_against_exact"] = self._measure_recall()
        return facts

    def _get_candidates(self, queries: Sequence[Query], vectors: Vectors) -> list[Numbers]:
        """Return the documents to score for each query, from the first stage or by the nearest vectors."""
        if isinstance(self.finder, BM25 | StoredRun):
            rankings = self.finder.search(queries, self.parameters["candidates"])
            return [document_numbers(ranking, self.ids) for ranking in rankings]
        assert isinstance(self.finder, NearestTokens)
        return [self.finder.documents(query.cpu().numpy()) for query in vectors]

    def _rank_candidates(self, query: torch.Tensor, documents: Numbers, depth: int) -> Ranking:
        """Return the best `depth` of the given documents for a query by MaxSim."""
        from evaluation.engines.neural.sided_encoders import late_interaction_scores

        scores = [
            late_interaction_scores(query, block, self.encoder.mean)
            for block in self.store.read(documents, _PRODUCTS // max(len(query), self.encoder.dimension))
        ]
        return self._select_best(documents, np.concatenate([np.empty(0, np.float32), *scores]), depth)

    def _rank_compressed(self, codes: CompressedTokens, query: torch.Tensor, depth: int) -> Ranking:
        """Return the best `depth` documents for a query by their compressed vectors."""
        documents, scores = codes.search(query.cpu().numpy(), depth)
        return self._select_best(documents, scores / np.float32(len(query) if self.encoder.mean else 1), depth)

    def _rank_all(self, queries: Vectors, depth: int) -> list[Ranking]:
        """Return the best of all documents for each query, in batches with scores that fit into memory.

        Batched scores are approximate. Documents that may be among the best are scored again one by one.
        """
        from evaluation.engines.neural.sided_encoders import late_interaction

        results = []
        batch_size = max(_SCORES // max(self.documents, 1), 1)
        for start in range(0, len(queries), batch_size):
            batch = queries[start : start + batch_size]
            scores = np.full((len(batch), self.documents), -np.inf, np.float32)
            largest_norm = 0.0
            width = max(sum(map(len, batch)), self.encoder.dimension)
            for block in self.store.blocks(max(_PRODUCTS // width, 1)):
                scores[:, block.documents] = late_interaction(batch, block, self.encoder.mean)
                largest_norm = max(largest_norm, max_norm(block.vectors))
            for query, row in zip(batch, scores, strict=True):
                # The error of an inner product of `dimension` terms is bounded as in `exact_search`, for each of the
                # query's vectors. Sums are computed in float64, so rounding them adds at most the same error again. The
                # factor covers the errors of both scores in both computations.
                norms = query.double().norm(dim=1).sum().item() * largest_norm
                candidates = _find_contenders(row, depth, 5 * query.shape[1] * 2.0**-24 * norms)
                results.append(self._rank_candidates(query, candidates, depth))
        return results

    def _select_best(self, documents: Numbers, scores: Floats, depth: int) -> Ranking:
        """Return the `depth` best documents in trec_eval's order, excluding documents without vectors."""
        candidates = _find_contenders(scores, depth, 0.0)
        documents, scores = documents[candidates], scores[candidates]
        order = np.lexsort((self.ids.ranks[documents], -scores))[:depth]
        return documents[order], scores[order]

    def _measure_recall(self) -> float:
        """Return the mean share of the exhaustive top 100 that is retrieved, over the sampled queries."""
        depth = min(_COMPARED_DEPTH, self.documents)
        shares = []
        for query, (exact, _) in zip(self._sample, self._rank_all(self._sample, depth), strict=True):
            if isinstance(self.finder, CompressedTokens):
                retrieved_documents, _ = self._rank_compressed(self.finder, query, depth)
            else:
                (retrieved_documents,) = self._get_candidates((), [query])
            shares.append(np.isin(exact, retrieved_documents).mean())
        return float(np.mean(shares))


def _find_contenders(scores: Floats, depth: int, margin: float) -> Numbers:
    """Return the indices of the scores that are at most `margin` below the `depth`-th best.

    Documents without vectors have the score -inf and are excluded.
    """
    threshold = np.partition(scores, -depth)[-depth] - margin if depth < len(scores) else -np.inf
    return np.flatnonzero((scores >= threshold) & np.isfinite(scores))


PARAMETERS = (
    Parameter(
        "mode",
        "candidates",
        "documents to score: candidates of a first stage, documents of the nearest vectors (end-to-end, or compressed "
        "to a few bits), or all documents",
        choices=("candidates", "end-to-end", "compressed", "exhaustive"),
    ),
    Parameter("candidates", 1000, "candidates: number of first-stage documents", minimum=1, maximum=10_000),
    Parameter("nearest_vectors", 500, "end-to-end: nearest vectors per query vector", minimum=1, maximum=16_384),
    Parameter(
        "probes",
        32,
        "end-to-end, compressed: number of lists to read per query vector",
        minimum=1,
        maximum=65_536,
    ),
    Parameter(
        "residual_bits",
        "2",
        "compressed: bits per dimension of a residual",
        choices=tuple(map(str, RESIDUALS)),
    ),
    FIELDS_PARAMETER,
    *PROMPT_PARAMETERS,
    replace(
        MAXIMUM_LENGTH,
        default=300,
        description="maximum number of tokens per document; 0 uses the checkpoint's limit, at most 8,192; queries "
        "always use the checkpoint's limit",
    ),
    Parameter("stored_dtype", "float32", "data type of stored vectors", choices=("float32", "float16")),
    COMPUTE_DTYPE,
    BATCH_TOKENS,
)

DESCRIPTIONS = (
    EngineDescription(
        name="late-interaction",
        label="Late interaction",
        architecture="late-interaction",
        description="One vector per token (ColBERT), compared by MaxSim, over candidates or the whole collection.",
        parameters=PARAMETERS,
        create=LateInteraction,
        checkpoints=(CheckpointKind.MULTI_VECTOR,),
        runs=(0, 1),
        word_index=lambda parameters: {} if parameters["mode"] == "candidates" else None,
        encoding_parameters=(*ENCODING, "stored_dtype"),
        check_parameters=check_prompts,
    ),
)
