"""Answer strings of queries, and where a ranking's texts have one: for Answer@k and R@2kt.

`answers.jsonl` has a line for each query: `{"_id": "q1", "answers": ["Paris", "City of Light"]}`, or `patterns`,
regular expressions, in the place of `answers`. A text has an answer as DPR sees it (`has_answer` of
facebookresearch/DPR at 10ca720, dpr/data/qa_validation.py): text and answer in Unicode's form NFD, cut into tokens
(letters, digits and marks, or one other character) in lower case, the answer's one behind the other in the text. A
pattern is searched in the text, in any case. Titles are not looked at.
"""

import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import regex
from numpy.typing import NDArray

from evaluation.archives.compression import open_blocks
from evaluation.collections.beir import Document, as_text
from evaluation.core.problems import EndlessPattern, InvalidContent, LineProblems
from evaluation.judgements import pattern_check

_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")
#: Seconds of the processor that one search of a text may take, and all slow ones of a run together; a search that takes
#: longer than the last is a slow one.
IN_ONE_TEXT, ALTOGETHER, SLOW = 2.0, 30.0, 0.02
_PROBLEMS = {
    "malformed_answers": ("{lines} not an object with `_id` and a list of strings, `answers` or `patterns`",
        'Write lines such as {"_id": "q1", "answers": ["Paris"]}.'),
    "repeated_answers": ("{lines} with the `_id` of an earlier one", "Write one line for each query."),
    "empty_answer": ("{lines} with no answer, or an empty one, which every text would have",
        "Leave empty strings out; a query without an answer is not judged."),
    "unusable_pattern": ("{lines} with a pattern that is no regular expression, calls one of its groups, has the flag "
        f"x, or is longer than {pattern_check.LONGEST:,} characters",
        "Correct it, or write plain strings as `answers`."),
    "endless_pattern": (f"{{lines}} with a pattern that takes more than {pattern_check.TRIED} s on a text of "
        f"{pattern_check.TRIAL:,} characters, or too much time or memory to compile",
        EndlessPattern.HINT),
    "too_many_patterns": (f"{{lines}} past the limit of {pattern_check.MOST:,} patterns, or of "
        f"{pattern_check.ALTOGETHER:g} s for checks",
        "Write plain strings as `answers` where possible, and simplify or remove patterns."),
}  # fmt: skip


class PatternSearch:
    """Searches that share a bound. Make a new one for each run that is scored."""

    def __init__(self) -> None:
        self._left = ALTOGETHER

    def search(self, pattern: Any, text: str, line: int) -> Any:
        """Return the first match of a pattern (of the package regex), None where there is none.

        `line` is where the pattern stands in its file. Raises EndlessPattern.
        """
        begun = time.process_time()
        try:
            found = pattern.search(text, timeout=IN_ONE_TEXT)
        except TimeoutError as error:
            raise EndlessPattern(line, f"takes more than {IN_ONE_TEXT:g} s in one text") from error
        took = time.process_time() - begun
        if took > SLOW:
            self._left -= took
        if self._left < 0:
            raise EndlessPattern(line, f"and others take more than {ALTOGETHER:g} s altogether")
        return found


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text, in lower case."""
    found: list[str] = _TOKEN.findall(unicodedata.normalize("NFD", text).lower())
    return found


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one query: each as its tokens between blanks, or as a pattern; and their line in the file."""

    strings: tuple[str, ...] = ()
    patterns: tuple[Any, ...] = ()
    line: int = 0

    def tokens_until(self, text: str, tokens: str, searching: PatternSearch) -> int:
        """How many tokens are read of a text until an answer ends, 0 where it has none; `tokens` as in `strings`.

        Raises EndlessPattern.
        """
        ends = [start + len(each) for each in self.strings if (start := tokens.find(each)) >= 0]
        read = [tokens.count(" ", 0, end) - 1 for end in ends]
        if self.patterns:
            normal = unicodedata.normalize("NFD", text)
            found = [searching.search(pattern, normal, self.line) for pattern in self.patterns]
            read += [max(len(tokens_of(normal[: each.end()])), 1) for each in found if each]
        return min(read, default=0)


def _between_blanks(tokens: Sequence[str]) -> str:
    return f" {' '.join(tokens)} "


def read_answers(path: Path, *, try_patterns: bool = True) -> dict[str, Answers]:
    """Return the answers by query id. Raises InvalidContent with every problem of the file.

    `try_patterns`: refuse patterns that cost too much time or memory. A file that was read before
    need not be tried.
    """
    problems, answers, patterns = LineProblems(), dict[str, Answers](), dict[int, list[str]]()
    asked: dict[str, int] = {}
    for number, line in enumerate(b"".join(open_blocks(path)).splitlines(), 1):
        if not line.strip():
            continue
        try:
            read = orjson.loads(line)
            query = as_text(read["_id"])
            name = "patterns" if "patterns" in read else "answers"
            strings = [text for text in read[name] if isinstance(text, str)]
            if not query or strings != read[name]:
                raise TypeError
        except (ValueError, TypeError, KeyError):
            problems.note("malformed_answers", number)
            continue
        if query in asked:
            problems.note("repeated_answers", number)
        asked[query] = number
        if name == "patterns":
            patterns[number] = [unicodedata.normalize("NFD", text) for text in strings]
        else:
            answers[query] = Answers(tuple(_between_blanks(tokens_of(text)) for text in strings), line=number)
        if not strings or not all(map(tokens_of, strings)):
            problems.note("empty_answer", number)
    for number, code in (pattern_check.check_patterns(patterns) if try_patterns else {}).items():
        problems.note(code, number)
    if problems:
        raise InvalidContent.of(*problems.report(_PROBLEMS))
    for query, number in asked.items():
        if number in patterns:
            compiled = tuple(regex.compile(text, pattern_check.FLAGS) for text in patterns[number])
            answers[query] = Answers(patterns=compiled, line=number)
    return answers


@dataclass(frozen=True, slots=True)
class FoundAnswers:
    """Where each judged query's ranking first has an answer, infinite where it has none: at which rank, and after how
    many tokens of the texts before and up to the end of the answer."""

    rank: NDArray[np.float64]
    tokens: NDArray[np.float64]


def find_answers(
    query_ids: Sequence[str],
    ranked: Mapping[str, Sequence[str]],
    answers: Mapping[str, Answers],
    corpus: Iterable[Document],
) -> FoundAnswers:
    """Return the first answers in rankings (document ids, best first), from one pass over the corpus.

    Raises evaluation.core.problems.EndlessPattern.
    """
    searching = PatternSearch()
    wanted: dict[str, list[str]] = {}
    for query in query_ids:
        for document in ranked.get(query, ()):
            wanted.setdefault(document, []).append(query)
    lengths, ends = dict[str, int](), dict[tuple[str, str], int]()
    for each in corpus:
        if each.id in wanted:
            tokens = tokens_of(each.text)
            lengths[each.id], joined = len(tokens), _between_blanks(tokens)
            for query in wanted[each.id]:
                if end := answers.get(query, Answers()).tokens_until(each.text, joined, searching):
                    ends[query, each.id] = end
    ranks, read = np.full((2, len(query_ids)), np.inf)
    for row, query in enumerate(query_ids):
        before = 0
        for rank, document in enumerate(ranked.get(query, ()), 1):
            if (query, document) in ends:
                ranks[row], read[row] = rank, before + ends[query, document]
                break
            before += lengths.get(document, 0)
    return FoundAnswers(ranks, read)
