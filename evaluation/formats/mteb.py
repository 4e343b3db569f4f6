"""MTEB prediction files: `{"mteb_model_meta": …, "<subset>": {"<split>": {query: {document: score}}}}`."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import orjson

from evaluation.errors import InvalidContent
from evaluation.formats.compression import Limits, describe_bytes, open_blocks
from evaluation.problems import Problem

_META = "mteb_model_meta"
_HINT = (
    'Send `{"<subset>": {"<split>": {"<query>": {"<document>": <score>}}}}` as MTEB\'s `save_predictions` writes it, '
    "or a TREC run."
)


def looks_like_json(start: bytes) -> bool:
    """Whether a file that begins so is meant as JSON; no TREC run's first field begins with a brace in practice."""
    return start.lstrip()[:1] == b"{"


def predictions_as_lines(path: Path | str, limits: Limits, out: IO[bytes]) -> dict[str, Any]:
    """Write the predictions in a (compressed) JSON file to `out` as TREC lines; the model's metadata.

    The subset `default` and the split `test` are preferred where there are several. Raises InvalidContent where the
    file is too large, is not JSON, or not of this form.
    """
    content = bytearray()
    for block in open_blocks(path, limits):
        content += block
        if len(content) > limits.max_json_bytes:
            message = f"the JSON file is over {describe_bytes(limits.max_json_bytes)} expanded"
            raise _invalid("size", message, "Send a TREC run instead; it may be much larger.")
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise _invalid("json", f"the file is not JSON: {error}", _HINT, error.lineno) from error
    del content
    if not isinstance(document, dict):
        raise _invalid("json", "the file is not a JSON object", _HINT)
    metadata = document.pop(_META, None) or {}
    subset = _choose(document, "default", "subset")
    split = _choose(subset, "test", "split")
    _write(split, str(metadata.get("model_name") or "mteb") if isinstance(metadata, dict) else "mteb", out)
    return {_META: _plain(metadata) if isinstance(metadata, dict) else {}}


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """The values that are text, numbers or truths; NUL, which a database need not take, becomes U+FFFD."""
    clean = {name.replace("\0", "\ufffd"): value for name, value in metadata.items()}
    texts = {name: value.replace("\0", "\ufffd") for name, value in clean.items() if isinstance(value, str)}
    return {**{name: value for name, value in clean.items() if isinstance(value, (int, float))}, **texts}


def _choose(options: dict[str, Any], preferred: str, what: str) -> dict[str, Any]:
    """The one entry, or the preferred one of several."""
    objects = {name: value for name, value in options.items() if isinstance(value, dict)}
    if len(objects) == 1:
        preferred = next(iter(objects))
    if preferred in objects:
        return objects[preferred]
    found = ", ".join(sorted(objects)[:5]) or "none"
    raise _invalid(
        "json", f"which {what} is meant is not clear (found: {found})", f"Keep one {what}. {_HINT}"
    )


def _write(ranking: dict[str, Any], tag: str, out: IO[bytes]) -> None:
    tag = "_".join(tag.split())[:64] or "mteb"
    for query, scores in ranking.items():
        if not isinstance(scores, dict):
            raise _invalid("json", f"query {query[:64]!r} has no object of document scores", _HINT)
        _check_ids([query, *scores])
        try:
            ranked = sorted(scores.items(), key=lambda item: -item[1])
        except TypeError as error:
            message = f"query {query[:64]!r} has a score that is not a number"
            raise _invalid("score", message, "Write every score as a JSON number.") from error
        # repr of a float gives back the same float
        lines = [
            f"{query} Q0 {name} {rank} {float(score)!r} {tag}\n"
            for rank, (name, score) in enumerate(ranked, 1)
        ]
        out.write("".join(lines).encode())


def _check_ids(ids: list[str]) -> None:
    for name in ids:
        if not name or name.split() != [name]:
            raise _invalid(
                "identifier", f"the id {name[:64]!r} is empty or has white space", "Rename the id."
            )


def _invalid(code: str, message: str, hint: str, line: int | None = None) -> InvalidContent:
    return InvalidContent.of(Problem("error", code, 1, message, hint, () if line is None else (line,)))
