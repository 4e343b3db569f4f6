"""MTEB prediction files: `{"mteb_model_meta": …, "<subset>": {"<split>": {query: {document: score}}}}`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import orjson

from evaluation.archives.compression import MIB, SIZE, FileLimits, describe_bytes, open_blocks
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import ProblemCode, number_of
from evaluation.runs.header import BYTE_ORDER_MARK, select_metadata
from evaluation.runs.problems import DUPLICATE, IDENTIFIER, SCORE, quote

JSON = ProblemCode("json", "An MTEB predictions file that is not JSON of the form above.", "See MTEB predictions "
    "above.", about="file")  # fmt: skip

_META = "mteb_model_meta"
_HINT = (
    'Send `{"<subset>": {"<split>": {"<query>": {"<document>": <score>}}}}` as MTEB\'s `save_predictions` writes it, '
    "or a TREC run."
)
_HINT_SIZE = "Send it as TREC lines, `query Q0 document rank score tag`: such a run may be much larger."

#: Objects and lists in one file. Predictions have an object for each query, and a few around them.
MOST_OBJECTS = 100_000
#: Entries of all objects and lists together. Parsed, one takes up to 200 bytes, however few it has in the file.
MOST_ENTRIES = 1_000_000
#: The ratio of expanded to stored bytes is looked at from here on: parsing multiplies what expanding has multiplied.
_RATIO_FLOOR = MIB
_LONGEST_TAG = 64
#: So many repeated names are said.
_SHOWN = 5


def predictions_as_lines(path: Path | str | bytes, limits: FileLimits, out: IO[bytes]) -> dict[str, Any]:
    """Write the predictions in a (compressed) JSON file to `out` as TREC lines; the model's metadata.

    The subset `default` and the split `test` are preferred where there are several. Raises InvalidContent where the
    file is too large, is not JSON, or not of this form. What the parser will need is told from the bytes before it
    is called: at most about 200 MiB.
    """
    content = _content(path, limits)
    _refuse_costly(content)
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _invalid(JSON, f"the file is not JSON: {error}", _HINT, error.lineno) from error
    _refuse_repeated_keys(content, document)
    del content
    if not isinstance(document, dict):
        raise _invalid(JSON, "the file is not a JSON object", _HINT)
    metadata = document.pop(_META, None) or {}
    subset = _choose(document, "default", "subset")
    split = _choose(subset, "test", "split")
    metadata = select_metadata(metadata) if isinstance(metadata, dict) else {}
    tag = "_".join(str(metadata.get("model_name") or "").split())[:_LONGEST_TAG] or "mteb"
    _write(split, tag, limits, out)
    return {_META: metadata}


def _content(path: Path | str | bytes, limits: FileLimits) -> bytearray:
    """The whole expanded file."""
    content = bytearray()
    strict = replace(limits, ratio_floor_bytes=min(_RATIO_FLOOR, limits.ratio_floor_bytes))
    for block in open_blocks(path, strict):
        content += block
        if len(content) > limits.max_json_bytes:
            message = f"the JSON file is over {describe_bytes(limits.max_json_bytes)} expanded"
            raise _invalid(SIZE, message, _HINT_SIZE)
    return content.removeprefix(BYTE_ORDER_MARK)


def _refuse_costly(content: bytearray) -> None:
    """Raises InvalidContent by how often brackets and commas occur, which bounds the values there can be."""
    objects = content.count(b"{") + content.count(b"[")
    if objects > MOST_OBJECTS:
        message = f"the JSON file has {objects:,} objects and lists; at most {MOST_OBJECTS:,} are read"
        raise _invalid(JSON, message, _HINT)
    entries = content.count(b",")
    if entries > MOST_ENTRIES:
        message = f"the JSON file has {entries:,} entries; at most {MOST_ENTRIES:,} are read"
        raise _invalid(SIZE, message, _HINT_SIZE)


def _refuse_repeated_keys(content: bytearray, document: Any) -> None:
    """Raises InvalidContent where an object had a key twice, of which the parser has kept one.

    `document` was parsed from `content`, where every key has a colon behind it; where there are as many colons as keys
    were kept, there is nothing to look for. Objects are read again one by one: none is kept.
    """
    kept, waiting = 0, [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            kept += len(value)
            waiting += [each for each in value.values() if isinstance(each, dict | list)]
        elif isinstance(value, list):
            waiting += [each for each in value if isinstance(each, dict | list)]
    if content.count(b":") == kept:
        return
    repeated: Counter[str] = Counter()

    def count_repeated(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            often = Counter(name for name, _ in pairs)
            repeated.update({name: times - 1 for name, times in often.items() if times > 1})

    try:
        json.loads(content, object_pairs_hook=count_repeated)
    except RecursionError as error:
        raise _invalid(JSON, "lists and objects lie too deep within each other", _HINT) from error
    if repeated:
        first = ", ".join(quote(name.encode("utf-8", "replace"), 80) for name in list(repeated)[:_SHOWN])
        message = (
            f"{number_of(repeated.total(), 'name')} that the same object has already, of a query or of a document: "
            f"{first}{' …' if len(repeated) > _SHOWN else ''}"
        )
        hint = "Name each query once, and each document once per query."
        raise InvalidContent.of(DUPLICATE.problem(message, hint, count=repeated.total()))


def _choose(options: dict[str, Any], preferred: str, what: str) -> dict[str, Any]:
    """The one entry, or the preferred one of several."""
    objects = {name: value for name, value in options.items() if isinstance(value, dict)}
    if len(objects) == 1:
        preferred = next(iter(objects))
    if preferred in objects:
        return objects[preferred]
    found = ", ".join(name[:64] for name in sorted(objects)[:5]) or "none"
    raise _invalid(JSON, f"which {what} is meant is not clear (found: {found})", f"Keep one {what}. {_HINT}")


def _write(ranking: dict[str, Any], tag: str, limits: FileLimits, out: IO[bytes]) -> None:
    for query, scores in ranking.items():
        if not isinstance(scores, dict):
            raise _invalid(JSON, f"query {query[:64]!r} has no object of document scores", _HINT)
        _check_id(query, limits)
        for name, score in scores.items():
            _check_id(name, limits)
            if not isinstance(score, (int, float)):
                message = f"query {query[:64]!r} has a score that is not a number"
                raise _invalid(SCORE, message, "Write every score as a JSON number.")
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)
        # one line at a time, for all of them together would double the memory; repr of a float gives back the same
        out.writelines(
            f"{query} Q0 {name} {rank} {float(scores[name])!r} {tag}\n".encode()
            for rank, name in enumerate(ranked, 1)
        )


def _check_id(name: str, limits: FileLimits) -> None:
    """Length first: a long id would be written once for each of its query's documents."""
    if len(name) > limits.max_id_bytes or len(name.encode()) > limits.max_id_bytes:
        message = f"the id {name[:64]!r}… is longer than {limits.max_id_bytes} bytes"
        raise _invalid(IDENTIFIER, message, "Use the ids of the dataset's files.")
    if not name or name.split() != [name]:
        raise _invalid(IDENTIFIER, f"the id {name[:64]!r} is empty or has white space", "Rename the id.")


def _invalid(code: ProblemCode, message: str, hint: str, line: int | None = None) -> InvalidContent:
    return InvalidContent.of(code.problem(message, hint, lines=() if line is None else (line,)))
