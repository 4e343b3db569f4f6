"""Answers looked for a second time, by the plain loops of DPR's `has_answer`, in every text of every ranking."""

import gzip
import json
import sys
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import regex
from numpy import array, int64
from numpy.typing import NDArray

#: Seconds of the processor that a pattern may take in one text; and in all texts where it takes longer than `SLOW`.
IN_ONE_TEXT, ALTOGETHER, SLOW = 2.0, 30.0, 0.02
_GZIP_MAGIC = b"\x1f\x8b"

#: Of each document of a ranking, how many tokens are read until an answer ends (0: it has none), and all it has.
ReadTokens = tuple[NDArray[int64], NDArray[int64]]
NO_TEXTS: ReadTokens = (array([], int64), array([], int64))


class SlowAnswers(Exception):
    """A pattern on this line of the answers takes too long: the texts were not read to their end."""

    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__(f"line {line}")


class _Clock:
    """Searches for patterns, and the seconds that are left for slow ones."""

    def __init__(self) -> None:
        self.left = ALTOGETHER

    def search(self, pattern: Any, text: str, line: int) -> Any:
        begun = time.process_time()
        try:
            found = pattern.search(text, timeout=IN_ONE_TEXT)
        except TimeoutError as error:
            raise SlowAnswers(line) from error
        took = time.process_time() - begun
        self.left -= took if took > SLOW else 0
        if self.left < 0:
            raise SlowAnswers(line)
        return found


def _parsed(line: bytes) -> Any:
    """Parse a line of an accepted file, which may be nested 1,024 deep, more than Python's stack is by default."""
    try:
        return json.loads(line)
    except RecursionError:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + 2_000)
        try:
            return json.loads(line)
        finally:
            sys.setrecursionlimit(before)


def _words(text: str) -> list[str]:
    words, inside = list[str](), False
    for character in unicodedata.normalize("NFD", text).lower():
        kind = unicodedata.category(character)[0]
        if kind in "LNM" and inside:
            words[-1] += character
        elif kind not in "ZC":
            words.append(character)
        inside = kind in "LNM"
    return words


@dataclass(frozen=True)
class _Wanted:
    """The answers of one query, and their line in the file."""

    words: Sequence[Sequence[str]] = ()
    patterns: Sequence[Any] = ()
    line: int = 0

    @classmethod
    def of(cls, told: Mapping[str, Any], line: int) -> Self:
        flags = regex.IGNORECASE | regex.MULTILINE
        normal = [unicodedata.normalize("NFD", text) for text in told.get("patterns", ())]
        return cls(
            [_words(text) for text in told.get("answers", ())],
            [regex.compile(text, flags) for text in normal],
            line,
        )


@dataclass(frozen=True)
class AnswerTexts:
    """Where the answers (`answers.jsonl`) and the texts (`corpus.jsonl`, perhaps gzip) are read."""

    answers: Path
    corpus: Path

    def read(
        self, rankings: Mapping[str, Sequence[str]], after_block: Callable[[], object]
    ) -> dict[str, ReadTokens]:
        """Read the texts of rankings (document ids by query). `after_block` is called now and then, and may raise.

        Raises SlowAnswers.
        """
        answers, clock = dict[str, _Wanted](), _Clock()
        for number, line in enumerate(self.answers.open("rb"), 1):
            if line.strip():
                each = _parsed(line)
                answers[str(each["_id"])] = _Wanted.of(each, number)
        asking: defaultdict[str, list[str]] = defaultdict(list)
        for query, names in rankings.items():
            for name in names:
                asking[name].append(query)
        ends, lengths = dict[tuple[str, str], int](), dict[str, int]()
        with self.corpus.open("rb") as file:
            packed = file.read(2) == _GZIP_MAGIC
        with gzip.open(self.corpus) if packed else self.corpus.open("rb") as lines:
            for number, line in enumerate(lines):
                if number % 10_000 == 0:
                    after_block()
                if not line.strip():
                    continue
                document = _parsed(line)
                if (name := str(document["_id"])) in asking:
                    text = document.get("text")
                    text = "" if text is None or text != text else str(text)  # null or NaN
                    words = _words(text)
                    lengths[name] = len(words)
                    for query in asking[name]:
                        wanted = answers.get(query, _Wanted())
                        ends[query, name] = _first_end(text, words, wanted, clock)
        return {
            query: (
                array([ends.get((query, name), 0) for name in names], int64),
                array([lengths.get(name, 0) for name in names], int64),
            )
            for query, names in rankings.items()
        }


def _first_end(text: str, words: Sequence[str], wanted: _Wanted, clock: _Clock) -> int:
    ends = []
    for answer in wanted.words:
        starts = range(len(words) - len(answer) + 1)
        ends += [start + len(answer) for start in starts if words[start : start + len(answer)] == answer][:1]
    normal = unicodedata.normalize("NFD", text)
    for pattern in wanted.patterns:
        found = clock.search(pattern, normal, wanted.line)
        ends += [max(len(_words(normal[: found.end()])), 1)] if found else []
    return min(ends, default=0)
