"""Late interaction: a text has a vector for each token, and a document's score is MaxSim over them.

MaxSim sums, over the query's vectors, the greatest inner product with any of the document's: O. Khattab and M. Zaharia,
"ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction over BERT", 2020. Documents are cut
at 300 tokens as in the BEIR paper (N. Thakur et al., 2021, §4), queries as the checkpoint says. Scores are exact over
the stored vectors, but for compressed ones; what differs is which documents get one:

- candidates: the first documents of BM25, or of a run that is given;
- end-to-end: those that own one of the vectors nearest to any of the query's, found by faiss (inverted lists of vectors
  in eight bits a dimension), without any first stage;
- compressed: those of the centroids nearest to any of the query's vectors, their scores from centroids and residuals of
  a few bits (see `token_store`); the index is a tenth of the vectors;
- exhaustive: all of them, in one pass over the vectors for several queries at a time.
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
from evaluation.engines.index.exact_search import Found, greatest_norm
from evaluation.engines.index.ordered_ids import OrderedIds, write_ordered_ids
from evaluation.engines.index.token_store import CompressedTokens, NearestTokens, TokenStore, TokenWriter
from evaluation.engines.passages import FIELDS, FIELDS_PARAMETER
from evaluation.engines.prompts import PROMPT_PARAMETERS, check_prompts

if TYPE_CHECKING:
    import torch

#: Inner products that are held at once: 128 MiB of them.
_PRODUCTS = 2**25
#: Scores of all documents that are held at once: 256 MiB.
_SCORES = 2**26
_STATE, _FINDER = "shards.json", "finder"
#: Queries whose end-to-end results are compared with the exhaustive ones, and the depth at which they are.
_SAMPLE, _COMPARED_DEPTH = 20, 100

Vectors = Sequence["torch.Tensor"]


class LateInteraction(DividedEngine):
    """A late-interaction engine; see `engines.base` for its methods."""

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.sided_encoders import TokenEncoder

        super().__init__(parameters, resources)
        self.mode: str = parameters["mode"]
        if resources.runs and self.mode != "candidates":
            raise InvalidParameter(
                "A run is re-ranked with mode = candidates only; leave it out, or the mode."
            )
        self.encoder = TokenEncoder(resources, parameters)
        self.text_of = FIELDS[parameters["fields"]]
        self.finder: BM25 | StoredRun | NearestTokens | CompressedTokens | None = None
        if self.mode == "candidates":
            self.finder = first_stage(resources)
        elif self.mode == "end-to-end":
            self.finder = NearestTokens(
                parameters["nearest_vectors"], parameters["probes"], resources.threads
            )
        elif self.mode == "compressed":
            bits = int(parameters["residual_bits"])
            self.finder = CompressedTokens(bits, parameters["probes"], resources.threads)
        self._sample: list[torch.Tensor] = []

    @property
    def analyser_name(self) -> str:
        """What gets a score, and how much of documents is read, as printed beside results."""
        found = self.mode
        if isinstance(self.finder, BM25 | StoredRun):
            found = f"top {self.parameters['candidates']} of {self.finder.label}"
        return f"MaxSim, {found}, {self.encoder.maximum_length} tokens at most"

    @property
    def documents(self) -> int:
        """How many documents are indexed."""
        return len(self.ids)

    def encode_shard(self, documents: Sequence[Document], folder: Path, progress: Progress = ignore) -> None:
        """Write the vectors of the documents' tokens, and their texts, which BM25 indexes."""
        for _ in store_texts(documents, folder / "texts"):
            pass
        with TokenWriter(folder, self.encoder.dimension, self.parameters["stored_dtype"]) as writer:
            self.encoder.encode(list(map(self.text_of, documents)), "document", writer.write, progress)

    @property
    def learns(self) -> bool:
        """Whether there are centroids, and codes of residuals."""
        return isinstance(self.finder, CompressedTokens)

    @property
    def divides_shards(self) -> bool:
        """Whether parts are of shards: not where a first stage looks at the whole collection."""
        return self.mode != "candidates"

    def learn(self, shards: Sequence[Path], folder: Path) -> None:
        """Learn what compresses vectors."""
        if isinstance(self.finder, CompressedTokens):
            self.finder.learn(TokenStore(shards), folder)

    def build_part(
        self, shards: Sequence[Path], learned: Path, folder: Path, progress: Progress = ignore
    ) -> None:
        """Index the texts for the first stage, or the vectors for finding the nearest ones."""
        texts = [Texts(shard / "texts") for shard in shards]
        write_ordered_ids(folder, (name for part in texts for name in part.ids.of(np.arange(len(part)))))
        (folder / _STATE).write_text(json.dumps([str(shard.resolve()) for shard in shards]), "utf-8")
        (folder / _FINDER).mkdir()
        if isinstance(self.finder, BM25 | StoredRun):
            self.finder.build(chain.from_iterable(texts), folder / _FINDER)
        elif isinstance(self.finder, NearestTokens):
            self.finder.build(TokenStore(shards), folder / _FINDER)
        elif self.finder is not None:
            self.finder.build(TokenStore(shards), learned, folder / _FINDER)
        self.open(folder)
        progress(1.0)

    def open(self, folder: Path) -> None:
        """Open an index that `build_from_shards` left, and the shards that it names."""
        self.ids = OrderedIds(folder)
        self.store = TokenStore([Path(name) for name in json.loads((folder / _STATE).read_text("utf-8"))])
        if self.finder is not None:
            self.finder.open(folder / _FINDER)

    def size(self) -> int:
        """Return the bytes of the vectors, or of their codes, and of what finds documents."""
        vectors = 0 if isinstance(self.finder, CompressedTokens) else self.store.size()
        return vectors + (self.finder.size() if self.finder else 0)

    def search(self, queries: Sequence[Query], depth: int) -> Iterator[SearchResult]:
        """Yield the best `depth` documents of each query, of those that get a score."""
        with self.clock.part("query_encoding"):
            vectors = self.encoder.encode_queries([query.text for query in queries])
        self._sample += vectors[: _SAMPLE - len(self._sample)]
        if self.mode == "exhaustive":
            with self.clock.part("search"):
                found = self._rank_all(vectors, depth)
        elif isinstance(self.finder, CompressedTokens):
            with self.clock.part("search"):
                found = [self._rank_compressed(self.finder, query, depth) for query in vectors]
        else:
            with self.clock.part("first_stage"):
                candidates = self._candidates(queries, vectors)
            with self.clock.part("search"):
                pairs = zip(vectors, candidates, strict=True)
                found = [self._rank_candidates(query, documents, depth) for query, documents in pairs]
        for query, (documents, scores) in zip(queries, found, strict=True):
            yield SearchResult(query.id, self.ids.of(documents), scores)

    def facts(self) -> Mapping[str, FactValue]:
        """Sizes of the vectors; what is found of the exhaustive ranking otherwise, over up to 20 queries."""
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
            facts["recall_against_exact"] = self._recall()
        return facts

    def _candidates(self, queries: Sequence[Query], vectors: Vectors) -> list[Numbers]:
        """Return the documents that get a score, for each query."""
        if isinstance(self.finder, BM25 | StoredRun):
            rankings = self.finder.search(queries, self.parameters["candidates"])
            return [document_numbers(ranking, self.ids) for ranking in rankings]
        assert isinstance(self.finder, NearestTokens)
        return [self.finder.documents(query.cpu().numpy()) for query in vectors]

    def _rank_candidates(self, query: torch.Tensor, documents: Numbers, depth: int) -> Found:
        """Return the best of these documents for a query."""
        from evaluation.engines.neural.sided_encoders import late_interaction_of_each

        scores = [
            late_interaction_of_each(query, block, self.encoder.mean)
            for block in self.store.read(documents, _PRODUCTS // max(len(query), self.encoder.dimension))
        ]
        return self._best(documents, np.concatenate([np.empty(0, np.float32), *scores]), depth)

    def _rank_compressed(self, codes: CompressedTokens, query: torch.Tensor, depth: int) -> Found:
        """Return the best documents for a query by their codes."""
        documents, scores = codes.search(query.cpu().numpy(), depth)
        return self._best(documents, scores / np.float32(len(query) if self.encoder.mean else 1), depth)

    def _rank_all(self, queries: Vectors, depth: int) -> list[Found]:
        """Return the best of all documents for each query, for as many queries at a time as there is room for scores.

        All documents are scored together, and those that may belong to the best again, each alone.
        """
        from evaluation.engines.neural.sided_encoders import late_interaction

        found = []
        at_once = max(_SCORES // max(self.documents, 1), 1)
        for start in range(0, len(queries), at_once):
            some = queries[start : start + at_once]
            scores = np.full((len(some), self.documents), -np.inf, np.float32)
            greatest = 0.0
            width = max(sum(map(len, some)), self.encoder.dimension)
            for block in self.store.blocks(max(_PRODUCTS // width, 1)):
                scores[:, block.documents] = late_interaction(some, block, self.encoder.mean)
                greatest = max(greatest, greatest_norm(block.vectors))
            for query, row in zip(some, scores, strict=True):
                candidates = _may_be_best(row, depth, _margin(query, greatest))
                found.append(self._rank_candidates(query, candidates, depth))
        return found

    def _best(self, documents: Numbers, scores: Floats, depth: int) -> Found:
        """Return the `depth` documents of greatest score in trec_eval's order; those without vectors have none."""
        kept = _may_be_best(scores, depth, 0.0)
        documents, scores = documents[kept], scores[kept]
        order = np.lexsort((self.ids.ranks[documents], -scores))[:depth]
        return documents[order], scores[order]

    def _recall(self) -> float:
        """Mean share of the exhaustive top 100 that is found, for the first queries."""
        depth = min(_COMPARED_DEPTH, self.documents)
        shares = []
        for query, (exact, _) in zip(self._sample, self._rank_all(self._sample, depth), strict=True):
            if isinstance(self.finder, CompressedTokens):
                found, _ = self._rank_compressed(self.finder, query, depth)
            else:
                (found,) = self._candidates((), [query])
            shares.append(np.isin(exact, found).mean())
        return float(np.mean(shares))


def _margin(query: torch.Tensor, greatest: float) -> float:
    """Return how far a document's score may lie below the k-th best of another product, and belong to the best k.

    Both products of `dimension` terms err by `exact_search`'s bound for each of the query's vectors; float64 adds them
    up, and rounding the sum errs by as little again. The factor is for two scores, twice, and for that.
    """
    norms = query.double().norm(dim=1).sum().item() * greatest
    return float(5 * query.shape[1] * 2.0**-24 * norms)


def _may_be_best(scores: Floats, depth: int, margin: float) -> Numbers:
    """The documents that score at most `margin` below the `depth`-th best; those without vectors have no score."""
    least = np.partition(scores, -depth)[-depth] - margin if depth < len(scores) else -np.inf
    return np.flatnonzero((scores >= least) & np.isfinite(scores))


PARAMETERS = (
    Parameter(
        "mode",
        "candidates",
        "what gets a score: candidates of a first stage, documents owning the nearest vectors (by the vectors, or by "
        "codes of a few bits), or every document",
        choices=("candidates", "end-to-end", "compressed", "exhaustive"),
    ),
    Parameter("candidates", 1000, "candidates: how many of the first stage", least=1, most=10_000),
    Parameter(
        "nearest_vectors", 500, "end-to-end: vectors sought for each of the query's", least=1, most=16_384
    ),
    Parameter(
        "probes",
        32,
        "end-to-end, compressed: lists that are read for each of the query's vectors",
        least=1,
        most=65_536,
    ),
    Parameter(
        "residual_bits",
        "2",
        "compressed: bits that a dimension takes beside the centroid",
        choices=tuple(map(str, RESIDUALS)),
    ),
    FIELDS_PARAMETER,
    *PROMPT_PARAMETERS,
    replace(
        MAXIMUM_LENGTH,
        default=300,
        description="tokens read of a document; 0 is what the checkpoint says, at most 8,192; queries have the "
        "checkpoint's length",
    ),
    Parameter("stored_dtype", "float32", "what vectors are stored in", choices=("float32", "float16")),
    COMPUTE_DTYPE,
    BATCH_TOKENS,
)

DESCRIPTIONS = (
    EngineDescription(
        name="late-interaction",
        label="Late interaction",
        architecture="late-interaction",
        description="A vector for each token (ColBERT), compared by MaxSim: over candidates or the whole collection.",
        parameters=PARAMETERS,
        create=LateInteraction,
        checkpoints=(CheckpointKind.MULTI_VECTOR,),
        runs=(0, 1),
        word_index=lambda parameters: {} if parameters["mode"] == "candidates" else None,
        encoding_parameters=(*ENCODING, "stored_dtype"),
        check_parameters=check_prompts,
    ),
)
