"""Re-ranking with a cross-encoder, which reads the query together with each top document of BM25 or of a run.

The run contains only the k re-ranked documents, as in the BEIR paper (N. Thakur et al., 2021, §4: BM25 + CE over the
top 100) and in MTEB, so that every score comes from the model. Recall at k and beyond equals that of the first stage
at k. One search scores the documents of the largest k. Rankings of smaller depths reuse these scores.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.settings import TEMPLATES
from evaluation.collections.beir import Document, Query
from evaluation.engines.base import (
    AUTO,
    BATCH_TOKENS,
    COMPUTE_DTYPE,
    MAXIMUM_LENGTH,
    EngineDescription,
    FactValue,
    Floats,
    NumberList,
    Parameter,
    Resources,
    SearchResult,
    VariantEngine,
    labels,
    total_size,
)
from evaluation.engines.first_stage import Texts, document_numbers, first_stage, store_texts
from evaluation.engines.passages import FIELDS_PARAMETER, PASSAGE_PARAMETERS, PassageReader, check_passages
from evaluation.engines.prompts import PROMPT_PARAMETERS, check_prompts

_MAX_DEPTH = 1000
#: Maximum number of depths for which one job produces rankings, including the main one.
MAX_DEPTHS = 5
_NAMED_DEPTHS = NumberList("reranking_depths", _MAX_DEPTH, MAX_DEPTHS - 1, "reranking_depth")


class CrossEncoderReRanking(VariantEngine[int]):
    """A re-ranking engine. Its variants are depths."""

    #: Enough pairs to batch texts of similar length, and few enough for regular progress.
    queries_at_once = 8

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        super().__init__(parameters, resources)
        self.settings = _depths(parameters)
        self.first_stage = first_stage(resources)
        self.scorer = self.load_scorer()
        self.read_passages = PassageReader(parameters)
        self._pair_count = self._passages = 0

    def load_scorer(self) -> Any:
        """Return the scorer of pairs."""
        from evaluation.engines.neural.pair_scoring import PairScorer

        return PairScorer(self.resources, self.parameters)

    @property
    def analyser_name(self) -> str:
        return f"top {self.main} of {self.first_stage.label}, {self.scorer.maximum_length} tokens at most"

    @property
    def documents(self) -> int:
        return len(self.texts)

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Store the texts and build the first stage's index in one pass over the corpus."""
        stored_documents = store_texts(corpus, folder / "texts")
        (folder / "first_stage").mkdir()
        self.first_stage.build(stored_documents, folder / "first_stage")
        deque(stored_documents, maxlen=0)  # consume documents that the first stage did not read
        self.open(folder)

    def open(self, folder: Path) -> None:
        self.first_stage.open(folder / "first_stage")
        self.texts = Texts(folder / "texts")

    def size(self) -> int:
        return total_size(self.texts.folder) + self.first_stage.size()

    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, int]
    ) -> Iterator[Mapping[str, SearchResult]]:
        """Yield each query's best `depth` re-ranked documents for each setting, which is a number of candidates."""
        for result in self._score_candidates(queries):
            query, ids, scores = result.query_id, result.document_ids, result.scores
            yield {
                label: SearchResult.from_scores(query, ids[:size], scores[:size], depth)
                for label, size in settings.items()
            }

    def facts(self) -> Mapping[str, FactValue]:
        """Return re-ranking depth, maximum length, if known, and the mean number of passages of divided documents."""
        facts = {"depth": min(self.main, self.documents)}
        if self.scorer.maximum_length is not None:
            facts["maximum_length"] = self.scorer.maximum_length
        passages = {"passages_per_document": self._passages / max(self._pair_count, 1)}
        return {**facts, **(passages if self.read_passages.words else {})}

    def _score_candidates(self, queries: Sequence[Query]) -> list[SearchResult]:
        """Return the first stage's documents for each query, in its order but with the model's scores.

        The pairs of all queries are scored together, so that batches contain texts of similar length.
        """
        texts = self.texts
        with self.clock.part("first_stage"):
            candidates = list(self.first_stage.search(queries, self.main))
        with self.clock.part("search"):
            pairs = [
                (query.text, self.read_passages(texts[number]))
                for query, ranking in zip(queries, candidates, strict=True)
                for number in document_numbers(ranking, texts.ids).tolist()
            ]
            scores = self._score_passages(pairs)
        lengths = [len(ranking.document_ids) for ranking in candidates]
        parts = np.split(scores, np.cumsum(lengths, dtype=np.int64))  # the last one is empty
        return [
            SearchResult(ranking.query_id, ranking.document_ids, part)
            for ranking, part in zip(candidates, parts, strict=False)
        ]

    def _score_passages(self, pairs: Sequence[tuple[str, Sequence[str]]]) -> Floats:
        """Return the maximum score over the passages, for each pair of a query and a document's passages."""
        counts = [len(passages) for _, passages in pairs]
        self._pair_count, self._passages = self._pair_count + len(pairs), self._passages + sum(counts)
        scores = self.scorer.score(
            [query for query, passages in pairs for _ in passages],
            [passage for _, passages in pairs for passage in passages],
        )
        return np.maximum.reduceat(scores, np.cumsum([0, *counts[:-1]])) if pairs else scores


def parse_depths(text: str, max_depth: int) -> tuple[int, ...]:
    """Return the depths in a text such as "10,50,100,200" that are below `max_depth`, followed by `max_depth`.

    Raises InvalidParameter if the text is invalid.
    """
    return (*(depth for depth in _NAMED_DEPTHS(text) if depth < max_depth), max_depth)


def _depths(parameters: Mapping[str, Any]) -> dict[str, int]:
    depths = parse_depths(parameters["reranking_depths"], parameters["reranking_depth"])
    return {f"top {depth}": depth for depth in depths}


def _check_parameters(parameters: Mapping[str, Any], checkpoint: CheckpointDescription | None) -> None:
    check_passages(parameters)
    check_prompts(parameters, checkpoint)


PARAMETERS = (
    Parameter("reranking_depth", 100, "number of first-stage documents to re-rank", minimum=1, maximum=_MAX_DEPTH),
    Parameter(
        "reranking_depths",
        "10,50,100,200",
        f"smaller depths to report from the same scores, at most {MAX_DEPTHS - 1}; empty for none",
        check=_NAMED_DEPTHS,
    ),
    FIELDS_PARAMETER,
    *PROMPT_PARAMETERS,
    Parameter(
        "template",
        AUTO,
        "prompt template of a language model for a pair; auto uses the checkpoint's, or monot5 for T5",
        choices=(AUTO, *TEMPLATES),
    ),
    *PASSAGE_PARAMETERS,
    MAXIMUM_LENGTH,
    COMPUTE_DTYPE,
    BATCH_TOKENS,
)

DESCRIPTIONS = (
    EngineDescription(
        name="cross-encoder",
        label="Cross-encoder",
        architecture="re-ranking",
        description="A cross-encoder or a language model re-ranks the top documents of BM25 or of a given run.",
        parameters=PARAMETERS,
        create=CrossEncoderReRanking,
        checkpoints=(CheckpointKind.CROSS_ENCODER, CheckpointKind.SEQ2SEQ),
        runs=(0, 1),
        word_index=lambda parameters: {},
        main_alone={"reranking_depths": ""},
        variants=lambda parameters: labels(_depths(parameters)),
        check_parameters=_check_parameters,
    ),
)
