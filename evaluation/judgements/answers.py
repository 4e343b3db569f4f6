"""Answer strings of queries and their first occurrences in rankings, for Answer@k and R@2kt.

`answers.jsonl` has a line for each query: `{"_id": "q1", "answers": ["Paris", "City of Light"]}`, or regular
expressions as `patterns` instead of `answers`. Matching follows DPR (`has_answer` of facebookresearch/DPR at 10ca720,
dpr/data/qa_validation.py): text and answer are normalized to NFD and cut into lowercase tokens (letters, digits, and
marks, or one other character), and the answer's tokens must be consecutive in the text. A pattern is searched in the
text, ignoring case. Titles are not searched.
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
#: Maximum processor seconds of one search of a text, maximum for all slow searches of a run together, and minimum
#: for a slow search.
TEXT_SECONDS, RUN_SECONDS, SLOW_SECONDS = 2.0, 30.0, 0.02
_PROBLEMS = {
    "malformed_answers": ("{lines} not an object with `_id` and a list of strings, `answers` or `patterns`",
        'Write lines such as {"_id": "q1", "answers": ["Paris"]}.'),
    "repeated_answers": ("{lines} with the `_id` of an earlier line", "Write one line per query."),
    "empty_answer": ("{lines} without an answer, or with an empty one, which would match every text",
        "Leave out empty strings. A query without an answer is not judged."),
    "unusable_pattern": ("{lines} with a pattern that is not a regular expression, calls its groups, has the flag "
        f"x, or is longer than {pattern_check.MAX_CHARACTERS:,} characters",
        "Correct the pattern, or write plain strings as `answers`."),
    "endless_pattern": (f"{{lines}} with a pattern that takes more than {pattern_check.SEARCH_SECONDS} s on a text of "
        f"{pattern_check.TEXT_LENGTH:,} characters, or too much time or memory to compile",
        EndlessPattern.HINT),
    "too_many_patterns": (f"{{lines}} beyond the limit of {pattern_check.MAX_PATTERNS:,} patterns, or of "
        f"{pattern_check.FILE_SECONDS:g} s for checks",
        "Write plain strings as `answers` where possible, and simplify or remove patterns."),
}  # fmt: skip


class PatternSearch:
    """Pattern searches with a common time limit. Create an instance for each run to score."""

    def __init__(self) -> None:
        self._remaining_seconds = RUN_SECONDS

    def search(self, pattern: Any, text: str, line: int) -> Any:
        """Return the first match of a pattern (of the package regex), or None.

        `line` is the pattern's line in its file. Raises EndlessPattern if this search, or all slow ones together, take
        too long.
        """
        start = time.process_time()
        try:
            match = pattern.search(text, timeout=TEXT_SECONDS)
        except TimeoutError as error:
            raise EndlessPattern(line, f"takes more than {TEXT_SECONDS:g} s in one text") from error
        seconds = time.process_time() - start
        if seconds > SLOW_SECONDS:
            self._remaining_seconds -= seconds
        if self._remaining_seconds < 0:
            raise EndlessPattern(line, f"and others take more than {RUN_SECONDS:g} s altogether")
        return match


def tokenize(text: str) -> list[str]:
    tokens: list[str] = _TOKEN.findall(unicodedata.normalize("NFD", text).lower())
    return tokens


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of one query, as tokens between blanks and as texts, or as patterns, and their line in the file."""

    strings: tuple[str, ...] = ()
    patterns: tuple[Any, ...] = ()
    line: int = 0
    texts: tuple[str, ...] = ()

    def count_tokens_until(self, text: str, tokens: str, search: PatternSearch) -> int:
        """Return the number of tokens up to the end of the first answer in a text, or 0 without an answer.

        `tokens` are the text's tokens in the form of `strings`. Raises EndlessPattern.
        """
        ends = [start + len(string) for string in self.strings if (start := tokens.find(string)) >= 0]
        token_counts = [tokens.count(" ", 0, end) - 1 for end in ends]
        if self.patterns:
            normalized = unicodedata.normalize("NFD", text)
            matches = [search.search(pattern, normalized, self.line) for pattern in self.patterns]
            token_counts += [max(len(tokenize(normalized[: match.end()])), 1) for match in matches if match]
        return min(token_counts, default=0)


def join_tokens(tokens: Sequence[str]) -> str:
    return f" {' '.join(tokens)} "


def read_answers(path: Path, *, try_patterns: bool = True) -> dict[str, Answers]:
    """Return the answers by query id, as joined tokens or compiled patterns.

    `try_patterns` refuses patterns that take too much time or memory. Set it to False for files that were checked
    before. Raises InvalidContent with every problem of the file.
    """
    problems, answers, patterns = LineProblems(), dict[str, Answers](), dict[int, list[str]]()
    line_numbers: dict[str, int] = {}
    for number, line in enumerate(b"".join(open_blocks(path)).splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
            query = as_text(record["_id"])
            name = "patterns" if "patterns" in record else "answers"
            strings = [text for text in record[name] if isinstance(text, str)]
            if not query or strings != record[name]:
                raise TypeError
        except (ValueError, TypeError, KeyError):
            problems.note("malformed_answers", number)
            continue
        if query in line_numbers:
            problems.note("repeated_answers", number)
        line_numbers[query] = number
        if name == "patterns":
            patterns[number] = [unicodedata.normalize("NFD", text) for text in strings]
        else:
            tokens = tuple(join_tokens(tokenize(text)) for text in strings)
            answers[query] = Answers(tokens, line=number, texts=tuple(strings))
        if not strings or not all(map(tokenize, strings)):
            problems.note("empty_answer", number)
    for number, code in (pattern_check.check_patterns(patterns) if try_patterns else {}).items():
        problems.note(code, number)
    if problems:
        raise InvalidContent.build(*problems.report(_PROBLEMS))
    for query, number in line_numbers.items():
        if number in patterns:
            compiled = tuple(regex.compile(text, pattern_check.FLAGS) for text in patterns[number])
            answers[query] = Answers(patterns=compiled, line=number)
    return answers


@dataclass(frozen=True, slots=True)
class FoundAnswers:
    """Position of the first answer in each judged query's ranking, infinite if there is none.

    `rank` is the rank of its document; `tokens` counts the tokens of all texts up to the end of the answer.
    """

    rank: NDArray[np.float64]
    tokens: NDArray[np.float64]


def find_answers(
    query_ids: Sequence[str],
    rankings: Mapping[str, Sequence[str]],
    answers: Mapping[str, Answers],
    corpus: Iterable[Document],
) -> FoundAnswers:
    """Return the position of each query's first answer in its ranking, in one pass over the corpus.

    `rankings` are document ids by query, best first. Raises evaluation.core.problems.EndlessPattern.
    """
    search = PatternSearch()
    queries_by_document: dict[str, list[str]] = {}
    for query in query_ids:
        for document in rankings.get(query, ()):
            queries_by_document.setdefault(document, []).append(query)
    lengths, ends = dict[str, int](), dict[tuple[str, str], int]()
    for each in corpus:
        if each.id in queries_by_document:
            tokens = tokenize(each.text)
            lengths[each.id], joined_tokens = len(tokens), join_tokens(tokens)
            for query in queries_by_document[each.id]:
                if end := answers.get(query, Answers()).count_tokens_until(each.text, joined_tokens, search):
                    ends[query, each.id] = end
    ranks, token_counts = np.full((2, len(query_ids)), np.inf)
    for row, query in enumerate(query_ids):
        token_count = 0
        for rank, document in enumerate(rankings.get(query, ()), 1):
            if (query, document) in ends:
                ranks[row], token_counts[row] = rank, token_count + ends[query, document]
                break
            token_count += lengths.get(document, 0)
    return FoundAnswers(ranks, token_counts)
