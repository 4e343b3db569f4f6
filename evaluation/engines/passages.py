"""Passages of long documents. The score of a document is that of its best passage (MaxP).

Z. Dai and J. Callan, "Deeper Text Understanding for IR with Contextual Neural Language Modeling", 2019, §3: passages
of 150 words that overlap by half, each preceded by the document's title. Words are separated by whitespace, so
documents in languages without spaces are divided less finely.

The id of a passage in an index is the document's id, a NUL, which no id contains, and the passage's number. NUL sorts
before all other characters, so passages are in the order of their documents' ids, and ties are broken as between
documents.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evaluation.collections.beir import Document
from evaluation.engines.base import Floats, InvalidParameter, Parameter
from evaluation.engines.index.vector_index import VectorIndex

_MARK = "\0"
_MAX_WORDS = 8_192

PASSAGE_PARAMETERS = (
    Parameter(
        "passage_words",
        0,
        "words per passage; documents are scored by their best passage (MaxP); 0 does not divide documents",
        minimum=0,
        maximum=_MAX_WORDS,
    ),
    Parameter(
        "passage_stride",
        0,
        "words between the starts of two passages; 0 is half a passage",
        minimum=0,
        maximum=_MAX_WORDS,
    ),
)

FIELDS: dict[str, Callable[[Document], str]] = {
    "title+text": lambda document: document.title_and_text,
    "title": lambda document: document.title,
    "text": lambda document: document.text,
}


FIELDS_PARAMETER = Parameter(
    "fields",
    "title+text",
    "text of a document: title and text joined by a space, or one of them",
    choices=tuple(FIELDS),
)


class PassageReader:
    """Function that returns a document's texts for a model: a single text, or one for each passage."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        check_passages(parameters)
        self._fields: str = parameters["fields"]
        self.words: int = parameters["passage_words"]
        self._stride: int = parameters["passage_stride"] or max(self.words // 2, 1)

    def __call__(self, document: Document) -> list[str]:
        """Return the document's text, or one text for each passage if it has more words than a passage."""
        words = document.text.split() if self.words and self._fields != "title" else []
        if len(words) <= self.words:
            return [FIELDS[self._fields](document)]
        starts = range(0, len(words) - self.words + self._stride, self._stride)
        passages = (" ".join(words[start : start + self.words]) for start in starts)
        title = document.title if self._fields == "title+text" else ""
        return [f"{title} {passage}".strip() for passage in passages]


def check_passages(parameters: Mapping[str, Any]) -> None:
    """Raise InvalidParameter if the stride exceeds the length of a passage, so that words would be skipped."""
    words, stride = parameters["passage_words"], parameters["passage_stride"]
    if stride > words:
        raise InvalidParameter(
            f"passage_stride = {stride} is not valid: with passage_words = {words}, enter 0 to {words}."
        )


def passage_ids(identifier: str, count: int) -> list[str]:
    return [f"{identifier}{_MARK}{number}" for number in range(count)]


def count_documents(ids: Iterable[bytes]) -> int:
    """Count the documents among the ids of an index in UTF-8, which may be ids of passages."""
    mark, first_suffix = _MARK.encode(), f"{_MARK}0".encode()
    return sum(mark not in name or name.endswith(first_suffix) for name in ids)


def best_documents(index: VectorIndex, vectors: Floats, depth: int, documents: int) -> list[tuple[list[str], Floats]]:
    """Return the ids and scores of the best documents for each query, from an index of passages.

    The depth of the search is doubled until it has found enough documents or all passages. The result is exact if the
    index is.

    Args:
        index: Index of passages.
        vectors: Query vectors, shape (queries, dimension).
        depth: Number of documents to return.
        documents: Number of documents in the index.
    """
    results: dict[int, tuple[list[str], Floats]] = {}
    queries, search_depth = list(range(len(vectors))), depth
    while queries:
        search_depth = max(min(2 * search_depth, index.documents), 1)
        for query, (passages, scores) in zip(queries, index.search(vectors[queries], search_depth), strict=True):
            best: dict[str, int] = {}  # rank of each document's first passage
            for rank, passage in enumerate(index.identifiers(passages)):
                best.setdefault(passage.partition(_MARK)[0], rank)
                if len(best) == depth:
                    break
            results[query] = list(best), scores[list(best.values())]
        required_count = min(depth, documents) if search_depth < index.documents else 0
        queries = [query for query in queries if len(results[query][0]) < required_count]
    return [results[query] for query in range(len(vectors))]
