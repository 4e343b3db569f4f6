"""Long documents in passages: a document's score is that of its best one (MaxP).

Z. Dai and J. Callan, "Deeper Text Understanding for IR with Contextual Neural Language Modeling", 2019, §3: passages of
150 words that overlap by half, each with the document's title before it. Words are what stands between blanks; a
language that is written without blanks has one word in a sentence, so that its documents are cut less finely.

An index of passages has the document's id, a NUL, which no id has, and the passage's number in place of each id. NUL is
the least of all characters: passages stand in the order of their documents' ids, and ties break as between documents.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evaluation.collections.beir import Document
from evaluation.engines.base import Floats, InvalidParameter, Parameter
from evaluation.engines.index.vector_index import VectorIndex

_MARK = "\0"
_MOST_WORDS = 8_192

PASSAGE_PARAMETERS = (
    Parameter(
        "passage_words",
        0,
        "words of a passage: documents are cut, and the best passage's score is the document's (MaxP); 0 cuts none",
        least=0,
        most=_MOST_WORDS,
    ),
    Parameter(
        "passage_stride",
        0,
        "words from the beginning of a passage to that of the next; 0 is half a passage",
        least=0,
        most=_MOST_WORDS,
    ),
)

FIELDS: dict[str, Callable[[Document], str]] = {
    "title+text": lambda document: f"{document.title} {document.text}".strip(),
    "title": lambda document: document.title,
    "text": lambda document: document.text,
}


FIELDS_PARAMETER = Parameter(
    "fields",
    "title+text",
    "what of a document is read: title and text with a blank between, or one of them",
    choices=tuple(FIELDS),
)


class PassageReader:
    """The texts of a document that a model reads: all of it, or one for each passage."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        check_passages(parameters)
        self._fields: str = parameters["fields"]
        self.words: int = parameters["passage_words"]
        self._stride: int = parameters["passage_stride"] or max(self.words // 2, 1)

    def __call__(self, document: Document) -> list[str]:
        """Return at least one text."""
        words = document.text.split() if self.words and self._fields != "title" else []
        if len(words) <= self.words:
            return [FIELDS[self._fields](document)]
        starts = range(0, len(words) - self.words + self._stride, self._stride)
        passages = (" ".join(words[start : start + self.words]) for start in starts)
        before = document.title if self._fields == "title+text" else ""
        return [f"{before} {passage}".strip() for passage in passages]


def check_passages(parameters: Mapping[str, Any]) -> None:
    """Raise InvalidParameter where words would stand in no passage."""
    words, stride = parameters["passage_words"], parameters["passage_stride"]
    if stride > words:
        raise InvalidParameter(
            f"passage_stride = {stride} is not possible: with passage_words = {words} it takes 0 to {words}."
        )


def passage_ids(identifier: str, count: int) -> list[str]:
    """Return what the index calls the passages of a document."""
    return [f"{identifier}{_MARK}{number}" for number in range(count)]


def count_documents(ids: Iterable[bytes]) -> int:
    """Documents among the ids of an index (UTF-8), of passages or not."""
    mark, first = _MARK.encode(), f"{_MARK}0".encode()
    return sum(mark not in name or name.endswith(first) for name in ids)


def best_documents(
    index: VectorIndex, vectors: Floats, depth: int, documents: int
) -> list[tuple[list[str], Floats]]:
    """Return the ids and scores of the best `depth` of so many documents, for each query, from an index of passages.

    The search goes twice as deep until it has found enough documents, or has every passage: exact where the index is.
    """
    found: dict[int, tuple[list[str], Floats]] = {}
    left, deep = list(range(len(vectors))), depth
    while left:
        deep = max(min(2 * deep, index.documents), 1)
        for place, (passages, scores) in zip(left, index.search(vectors[left], deep), strict=True):
            best: dict[str, int] = {}  # each document at the place of its first passage
            for rank, passage in enumerate(index.identifiers(passages)):
                best.setdefault(passage.partition(_MARK)[0], rank)
                if len(best) == depth:
                    break
            found[place] = list(best), scores[list(best.values())]
        enough = min(depth, documents) if deep < index.documents else 0
        left = [place for place in left if len(found[place][0]) < enough]
    return [found[place] for place in range(len(vectors))]
