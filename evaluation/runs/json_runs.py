"""Runs in JSON, recognized by their nesting.

The formats are `{query: {document: score}}`, as in mteb 1, ranx, and pytrec_eval, the same format below MTEB's subset
and split, and objects for each query or each hit, in a list or in JSON Lines.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import orjson

from evaluation.archives.compression import MIB, SIZE, FileLimits, describe_bytes, open_blocks, open_lines
from evaluation.core.problems import InvalidContent, ProblemCode, format_count
from evaluation.runs.header import BYTE_ORDER_MARK, quote, select_metadata
from evaluation.runs.problems import DUPLICATE, IDENTIFIER, SCORE

JSON = ProblemCode("json", "A JSON file that is not a run in one of the formats above.", "See JSON above.",
    about="file")  # fmt: skip

_META = "mteb_model_meta"
_HINT = (
    'Send `{"<query>": {"<document>": <score>}}`, as it is or under MTEB\'s `{"<subset>": {"<split>": …}}`, or a '
    'TREC run. Send answers as JSON Lines, `{"query_id": …, "answer": "…", "citations": […]}`.'
)
_HINT_SIZE = "Send it as TREC lines, `query Q0 document rank score tag`: such a run may be much larger."
_HINT_SCORE = "Write every score as a finite JSON number."

#: Column names in order of preference, normalized as in `find_column`. In PyTerrier, `docid` is an internal
#: number and `query` is a text.
QUERY = ("qid", "queryid", "topicid", "queryno", "topic", "query", "q")
DOCUMENT = (
    "docno", "docid", "documentid", "corpusid", "passageid", "pid", "did", "doc", "document", "passage", "id"
)  # fmt: skip
RANK = ("rank", "position")
SCORE_NAMES = ("score", "similarity", "sim", "docscore")
TAG = ("tag", "runid", "runtag", "runname", "run", "system")


def find_column(names: Iterable[str], column_names: tuple[str, ...]) -> int | None:
    """Return the index of the column with the first of the given names, ignoring case and punctuation."""
    bare = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in names]
    return next((bare.index(name) for name in column_names if name in bare), None)


#: Maximum number of objects and lists in a file. Runs have one for each query and a few around them.
MAX_OBJECTS = 100_000
#: Maximum number of entries of all objects and lists. A parsed entry needs up to 200 bytes.
MAX_ENTRIES = 1_000_000
#: Minimum size for a check of the compression ratio, because parsing multiplies memory again.
_RATIO_FLOOR = MIB
_LONGEST_TAG = 64
#: Maximum number of repeated names in a message.
_QUOTED_NAMES = 5
#: Levels of objects: `{query: {document: score}}` has two.
_FLAT, _SPLITS, _SUBSETS = 2, 3, 4
#: Range of grades. If all scores of a file are whole numbers in this range, it is treated as judgments.
_GRADES = range(-2, 5)
#: Largest number of keys in an object that describes one query or one hit.
_MAX_KEYS = 32
#: First characters of numbers. Other texts in quotes are not scores.
_NUMERIC = "+-.0123456789"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def json_as_lines(
    path: Path | str | bytes, limits: FileLimits, output: IO[bytes], *, by_line: bool = False
) -> dict[str, Any]:
    """Write the run in a (compressed) JSON file to `output` as TREC lines; return the metadata of its model.

    If there are several, the subset `default` and the split `test` are used. `by_line` means that the file is JSON
    Lines. Raises InvalidContent if the file is too large, not JSON, or not a run. Brackets and commas are counted
    before parsing to bound the parser's memory to about 200 MiB.
    """
    lines = _TrecLines(limits, output)
    if by_line:
        for number, line in enumerate(open_lines(path, limits, limits.max_json_bytes), 1):
            if line.strip():
                lines.add(parse_json(bytearray(line.removeprefix(BYTE_ORDER_MARK)), number))
        metadata = {}
    else:
        content = bytearray()
        strict_limits = replace(limits, ratio_floor_bytes=min(_RATIO_FLOOR, limits.ratio_floor_bytes))
        for block in open_blocks(path, strict_limits):
            content += block
            if len(content) > limits.max_json_bytes:
                message = f"the JSON file is over {describe_bytes(limits.max_json_bytes)} expanded"
                raise SIZE.refusal(message, _HINT_SIZE)
        document = parse_json(content.removeprefix(BYTE_ORDER_MARK), None)
        metadata = lines.name_model(document) if isinstance(document, dict) else {}
        lines.add(document)
    lines.finish()
    return {_META: metadata} if metadata else {}


def parse_json(content: bytearray, line: int | None) -> Any:
    """Parse a JSON text, including NaN and Infinity as Python writes them.

    `line` is its number in JSON Lines, or None. Raises InvalidContent if it is not JSON, too large, or repeats a key.
    """
    # The numbers of brackets and commas bound the number of values.
    objects, entries = content.count(b"{") + content.count(b"["), content.count(b",")
    if objects > MAX_OBJECTS:
        message = f"the JSON file has {objects:,} objects and lists; at most {MAX_OBJECTS:,} are read"
        raise JSON.refusal(message, _HINT_SIZE)
    if entries > MAX_ENTRIES:
        message = f"the JSON file has {entries:,} entries; at most {MAX_ENTRIES:,} are read"
        raise SIZE.refusal(message, _HINT_SIZE)
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        document = None
        # Python's parser accepts these constants, but also unpaired surrogates, in bytes and in escapes.
        if (b"NaN" in content or b"Infinity" in content) and not _SURROGATE.search(content):
            with suppress(ValueError, RecursionError):
                document = json.loads(content.decode(), parse_int=lambda text: (int if len(text) < 19 else float)(text))
        if document is None:
            message = f"{'the file' if line is None else f'line {line:,}'} is not JSON: {error}"
            raise JSON.refusal(message, _HINT, (line or error.lineno,)) from error
    _refuse_repeated_keys(content, document)
    return document


def _refuse_repeated_keys(content: bytearray, document: Any) -> None:
    """Raise InvalidContent if an object repeats a key, because the parser stores only one of the values.

    A colon follows every key, so if `content` has as many colons as `document` has keys, no key is repeated. Otherwise
    the text is parsed again without storing objects.
    """
    key_count, pending_values = 0, [document]
    while pending_values:
        value = pending_values.pop()
        if isinstance(value, dict):
            key_count += len(value)
            pending_values += [child for child in value.values() if isinstance(child, dict | list)]
        elif isinstance(value, list):
            pending_values += [child for child in value if isinstance(child, dict | list)]
    if content.count(b":") == key_count:
        return
    repeated_keys: Counter[str] = Counter()

    def count_repeated(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            repeated_keys.update({name: times - 1 for name, times in counts.items() if times > 1})

    try:
        json.loads(content, object_pairs_hook=count_repeated, parse_int=float)
    except RecursionError as error:
        raise JSON.refusal("lists and objects are nested too deeply", _HINT) from error
    if repeated_keys:
        names = ", ".join(quote(name.encode("utf-8", "replace"), 80) for name in list(repeated_keys)[:_QUOTED_NAMES])
        message = (
            f"{format_count(repeated_keys.total(), 'repeated name')} of a query or document within one object: "
            f"{names}{' …' if len(repeated_keys) > _QUOTED_NAMES else ''}"
        )
        hint = "Name each query once, and each document once per query."
        raise InvalidContent.build(DUPLICATE.problem(message, hint, count=repeated_keys.total()))


@dataclass
class _TrecLines:
    """Writer of rankings as TREC lines, which also counts scores that are not finite."""

    limits: FileLimits
    output: IO[bytes]
    tag: str = "run"
    not_finite: int = 0
    #: Query, document, and score of the first score that is not finite.
    first_not_finite: tuple[str, str, float] | None = None
    #: Whether all scores are small whole numbers without ranks, as in judgments. None before the first score.
    only_grades: bool | None = None
    #: Whether queries are below a split, as in MTEB's predictions. Files of settings are rarely nested so deeply.
    has_splits: bool = False

    def name_model(self, document: dict[str, Any]) -> dict[str, Any]:
        """Remove MTEB's model metadata from the document and return it. The model's name becomes the tag."""
        metadata = document.pop(_META, None) or {}
        metadata = select_metadata(metadata) if isinstance(metadata, dict) else {}
        tag = "_".join(str(metadata.get("model_name") or "").split())[:_LONGEST_TAG]
        self.tag = tag or ("mteb" if _count_levels(document) >= _SPLITS else self.tag)
        return metadata

    def add(self, document: Any) -> None:
        """Write the results of a JSON value, which is the run or a part of it: a list, a query, a hit, or all queries.

        Raises InvalidContent if it is none of these, or has unusable ids or scores.
        """
        key = find_key(document, QUERY) if isinstance(document, dict) else None
        if isinstance(document, list):
            for record in document:
                if not isinstance(record, dict) or find_key(record, QUERY) is None:
                    raise JSON.refusal("an item of the list has no query id", _HINT)
                self._add_object(record)
        elif key is not None and len(document) > 1 and not _is_ranking(document[key]):
            self._add_object(document)  # One query or one hit: its keys are column names, not ids.
        elif isinstance(document, dict):
            levels = _count_levels(document)
            if levels >= _SPLITS:
                self.has_splits, self.only_grades = True, False  # No tool writes judgments this way.
            if levels > _SUBSETS:
                raise JSON.refusal("objects are nested too deeply for a run", _HINT)
            if levels == _SUBSETS:
                document = _choose_entry(document, "default", "subset")
            if levels >= _SPLITS:
                document = _choose_entry(document, "test", "split")
            # All queries are checked first, as the clearest sign of a file that is not a run.
            for query, hits in document.items():
                _check_hits(query, hits)
            for query, hits in document.items():
                self._add_query(query, hits)
        else:
            raise JSON.refusal("the file is neither a JSON object nor a list of objects", _HINT)

    def _add_object(self, record: dict[str, Any]) -> None:
        """Write an object with a query id: one hit, or a query with all of its hits under one other key."""
        query = record[find_key(record, QUERY) or ""]
        if isinstance(query, dict):  # {"query": {"qid": …, "text": …}, "candidates": […]}
            query = query.get(find_key(query, QUERY) or "")
        if find_key(record, DOCUMENT) and (find_key(record, SCORE_NAMES) or find_key(record, RANK)):
            self._add_query(as_id(query), [record])
            return
        nested = [each for each in record.values() if _is_list_of_hits(each) or (each and _is_ranking(each))]
        if len(nested) != 1:
            raise JSON.refusal(f"the object of query {str(query)[:64]!r} has no list of scored documents", _HINT)
        self._add_query(as_id(query), nested[0])

    def _add_query(self, query: str, hits: Any) -> None:
        """Write the hits of a query, an object of scores or a list, as TREC lines.

        Raises InvalidContent if they are unusable.
        """
        _check_hits(query, hits)
        self._check_id(query)
        ranking = self._rank_scores(query, hits) if isinstance(hits, dict) else self._rank_hits(query, hits)
        # Writing line by line saves memory. The repr of a float round-trips.
        self.output.writelines(
            f"{query} Q0 {document_id} {rank} {score!r} {self.tag}\n".encode() for document_id, rank, score in ranking
        )

    def _rank_scores(self, query: str, scores: dict[str, Any]) -> Iterator[tuple[str, int, float]]:
        """Yield documents, ranks, and scores of an object of scores, best first.

        Raises InvalidContent if one is unusable.
        """
        for document_id, score in scores.items():
            self._check_id(document_id)
            self._check_score(query, document_id, score)
        for rank, document_id in enumerate(sorted(scores, key=scores.__getitem__, reverse=True), 1):
            yield document_id, rank, float(scores[document_id])

    def _rank_hits(self, query: str, hits: list[Any]) -> Iterator[tuple[str, int, float]]:
        """Yield documents, ranks (0 if missing), and scores, which default to reciprocal ranks."""
        for hit in hits:
            document_id, score, rank = parse_hit(hit)
            if document_id is None:
                raise JSON.refusal(f"query {query[:64]!r} has a list with items that are not documents", _HINT)
            if type(rank) is int and rank >= 0:
                self.only_grades = False
                score = 1 / (rank + 1) if score is None else score
            document_id = as_id(document_id)
            self._check_id(document_id)
            self._check_score(query, document_id, score)
            yield document_id, rank if type(rank) is int else 0, float(score)

    def _check_score(self, query: str, document: str, score: Any) -> None:
        """Raise InvalidContent if a score is not a number, and count it if it is not finite.

        Also record whether all scores so far look like grades.
        """
        if isinstance(score, bool) or not isinstance(score, int | float):
            defect = "no score" if score is None else "a score that is not a number"
            message = f"query {query[:64]!r} has {defect} for document {document[:64]!r}"
            may_be_score = score is None or (isinstance(score, str) and score[:1] in _NUMERIC)
            raise (SCORE if may_be_score or self.has_splits else JSON).refusal(message, _HINT_SCORE)
        if self.only_grades is not False:
            self.only_grades = type(score) is int and score in _GRADES
        if not math.isfinite(score):
            self.not_finite += 1
            self.first_not_finite = self.first_not_finite or (query, document, score)

    def _check_id(self, name: str) -> None:
        """Raise InvalidContent for an unusable id, before a long one is written for every document."""
        limit = self.limits.max_id_bytes
        if len(name) > limit or len(name.encode()) > limit:
            message = f"the id {name[:64]!r}… is longer than {limit} bytes"
            raise IDENTIFIER.refusal(message, "Use the ids of the dataset's files.")
        if not name or name.split() != [name]:
            raise IDENTIFIER.refusal(
                f"the id {name[:64]!r} is empty or has white space", "Use the ids of the dataset's files."
            )

    def finish(self) -> None:
        """Raise InvalidContent if a score was not finite or the file looks like judgments."""
        if self.only_grades:
            message = "the file looks like relevance judgments (qrels), not like a run: all scores are small integers"
            hint = "Send a system's ranking. If this is one, write its scores with a decimal point, such as 2.0."
            raise JSON.refusal(message, hint)
        if self.first_not_finite is None:
            return
        query, document, score = self.first_not_finite
        score_text = "NaN" if math.isnan(score) else "Infinity" if score > 0 else "-Infinity"
        message = f"query {query[:64]!r} has the score {score_text} for document {document[:64]!r}"
        if self.not_finite > 1:
            message = f"{self.not_finite:,} scores are not finite numbers; {message}"
        raise InvalidContent.build(SCORE.problem(message, _HINT_SCORE, count=self.not_finite))


def _check_hits(query: str, hits: Any) -> None:
    if not isinstance(hits, dict | list):
        raise JSON.refusal(f"query {query[:64]!r} has no object of document scores", _HINT)


def find_key(record: Mapping[str, Any], column_names: tuple[str, ...]) -> str | None:
    """Return the key with the first of the given names, or None. Long keys never match, and stay out of the cache."""
    names = tuple(name for name in record if len(name) <= _LONGEST_TAG)
    return _find_cached_column(names, column_names) if len(record) <= _MAX_KEYS else None


@lru_cache(maxsize=256)
def _find_cached_column(keys: tuple[str, ...], column_names: tuple[str, ...]) -> str | None:
    index = find_column(keys, column_names)
    return None if index is None else keys[index]


def _is_ranking(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(score, int | float) for score in value.values())


def _is_list_of_hits(value: Any) -> bool:
    return isinstance(value, list) and (not value or parse_hit(value[0])[0] is not None)


def as_id(value: Any) -> str:
    """Return an id (a string or a whole number) as text, or an empty string, which is rejected later."""
    return str(value) if isinstance(value, str) or type(value) is int else ""


def parse_hit(hit: Any) -> tuple[Any, Any, Any]:
    """Return document, score, and rank of an item in a list of hits, with None for missing ones."""
    if isinstance(hit, dict):
        document, score, rank = (
            hit.get(find_key(hit, column_names) or "") for column_names in (DOCUMENT, SCORE_NAMES, RANK)
        )
        return document, score, rank
    if isinstance(hit, list) and len(hit) == 2 and isinstance(hit[0], str):
        return hit[0], hit[1], None
    return (hit if isinstance(hit, str) else None), None, None


def _count_levels(value: Any, limit: int = _SUBSETS + 1) -> int:
    """Return the nesting depth of objects, up to `limit`; a list of hits is as deep as an object of scores."""
    if limit and isinstance(value, dict):
        return 1 + max((_count_levels(each, limit - 1) for each in value.values()), default=0)
    return int(isinstance(value, list))


def _choose_entry(options: dict[str, Any], preferred: str, kind: str) -> dict[str, Any]:
    """Return the only entry that is an object, or the preferred one of several. Raises InvalidContent."""
    objects = {name: value for name, value in options.items() if isinstance(value, dict)}
    if len(objects) == 1:
        preferred = next(iter(objects))
    if preferred in objects:
        return objects[preferred]
    names = ", ".join(name[:64] for name in sorted(objects)[:5]) or "none"
    raise JSON.refusal(f"the {kind} is ambiguous ({names})", f"Keep one {kind}. {_HINT}")
