"""Re-ranking: a cross-encoder reads the query together with each of the first documents of BM25, or of a run.

As in the BEIR paper (N. Thakur et al., 2021, §4: BM25 + CE over the top 100) and in MTEB, the run holds the k documents
that were re-ranked and nothing below them, so that every score is the model's: recall at k and beyond is that of the
first stage at k. One search scores the greatest k; the rankings of smaller ones follow from the same scores.
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
    NamedNumbers,
    Parameter,
    Resources,
    SearchResult,
    VariantEngine,
    labels,
    size_of,
)
from evaluation.engines.first_stage import Texts, document_numbers, first_stage, store_texts
from evaluation.engines.passages import FIELDS_PARAMETER, PASSAGE_PARAMETERS, PassageReader, check_passages
from evaluation.engines.prompts import PROMPT_PARAMETERS, check_prompts

_MOST = 1000
#: The most depths that one job makes rankings of, with that of the run itself.
MOST_DEPTHS = 5
_NAMED_DEPTHS = NamedNumbers("reranking_depths", _MOST, MOST_DEPTHS - 1, "reranking_depth")


class CrossEncoderReRanking(VariantEngine[int]):
    """A re-ranking engine, whose variants are depths; see `engines.base` for its methods."""

    #: Enough pairs that those of like length stand together, few enough that progress is seen.
    queries_at_once = 8

    def __init__(self, parameters: Mapping[str, Any], resources: Resources) -> None:
        from evaluation.engines.neural.pair_scoring import PairScorer

        super().__init__(parameters, resources)
        self.settings = _depths(parameters)
        self.first_stage = first_stage(resources)
        self.scorer = PairScorer(resources, parameters)
        self.texts_of = PassageReader(parameters)
        self._read = self._passages = 0

    @property
    def analyser_name(self) -> str:
        """What is re-ranked, as printed beside results."""
        return f"top {self.main} of {self.first_stage.label}, {self.scorer.maximum_length} tokens at most"

    @property
    def documents(self) -> int:
        """How many documents may be re-ranked."""
        return len(self.texts)

    def build(self, corpus: Iterable[Document], folder: Path) -> None:
        """Keep the texts, and index them for the first stage, in one pass."""
        stored = store_texts(corpus, folder / "texts")
        (folder / "first_stage").mkdir()
        self.first_stage.build(stored, folder / "first_stage")
        deque(stored, maxlen=0)  # what the first stage did not have to read
        self.open(folder)

    def open(self, folder: Path) -> None:
        """Open what `build` left."""
        self.first_stage.open(folder / "first_stage")
        self.texts = Texts(folder / "texts")

    def size(self) -> int:
        """Return the bytes of the texts and of the first stage's index."""
        return size_of(self.texts.folder) + self.first_stage.size()

    def _search(
        self, queries: Sequence[Query], depth: int, settings: Mapping[str, int]
    ) -> Iterator[Mapping[str, SearchResult]]:
        for found in self._scored(queries):
            query, ids, scores = found.query_id, found.document_ids, found.scores
            yield {
                label: SearchResult.ranked(query, ids[:size], scores[:size], depth)
                for label, size in settings.items()
            }

    def facts(self) -> Mapping[str, FactValue]:
        """Return how many documents are re-ranked, and how much of them is read."""
        facts = {"depth": min(self.main, self.documents), "maximum_length": self.scorer.maximum_length}
        passages = {"passages_per_document": self._passages / max(self._read, 1)}
        return {**facts, **(passages if self.texts_of.words else {})}

    def _scored(self, queries: Sequence[Query]) -> list[SearchResult]:
        """The first stage's documents in its order, with the model's scores; the longest of all queries first."""
        texts = self.texts
        with self.clock.part("first_stage"):
            candidates = list(self.first_stage.search(queries, self.main))
        with self.clock.part("search"):
            read = [
                (query.text, self.texts_of(texts[number]))
                for query, ranking in zip(queries, candidates, strict=True)
                for number in document_numbers(ranking, texts.ids).tolist()
            ]
            scores = self._best_passages(read)
        lengths = [len(ranking.document_ids) for ranking in candidates]
        parts = np.split(scores, np.cumsum(lengths, dtype=np.int64))  # and an empty one
        return [
            SearchResult(ranking.query_id, ranking.document_ids, part)
            for ranking, part in zip(candidates, parts, strict=False)
        ]

    def _best_passages(self, read: Sequence[tuple[str, Sequence[str]]]) -> Floats:
        """For each query's text and a document's passages the greatest score of these."""
        counts = [len(passages) for _, passages in read]
        self._read, self._passages = self._read + len(read), self._passages + sum(counts)
        scores = self.scorer.score(
            [query for query, passages in read for _ in passages],
            [passage for _, passages in read for passage in passages],
        )
        return np.maximum.reduceat(scores, np.cumsum([0, *counts[:-1]])) if read else scores


def depths_of(text: str, deepest: int) -> tuple[int, ...]:
    """The depths that a text such as "10,50,100,200" names below `deepest`, and that. Raises InvalidParameter."""
    return (*(depth for depth in _NAMED_DEPTHS(text) if depth < deepest), deepest)


def _depths(parameters: Mapping[str, Any]) -> dict[str, int]:
    depths = depths_of(parameters["reranking_depths"], parameters["reranking_depth"])
    return {f"top {depth}": depth for depth in depths}


def _check_parameters(parameters: Mapping[str, Any], checkpoint: CheckpointDescription | None) -> None:
    check_passages(parameters)
    check_prompts(parameters, checkpoint)


PARAMETERS = (
    Parameter(
        "reranking_depth", 100, "how many documents of the first stage are re-ranked", least=1, most=_MOST
    ),
    Parameter(
        "reranking_depths",
        "10,50,100,200",
        f"smaller depths that are shown too, from the same scores, at most {MOST_DEPTHS - 1}; empty for none",
        check=_NAMED_DEPTHS,
    ),
    FIELDS_PARAMETER,
    *PROMPT_PARAMETERS,
    Parameter(
        "template",
        AUTO,
        "what a language model is asked about a pair; auto is what the checkpoint says, for T5 monot5",
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
        description="A cross-encoder or a language model re-ranks the first documents of BM25, or of a given run.",
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
