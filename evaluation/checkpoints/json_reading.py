"""Untrusted JSON: bounded before it is parsed, and strict while it is."""

import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

from evaluation.archives.compression import describe_bytes
from evaluation.core.files import open_regular

#: Brackets and commas, each of which may become an object in memory: this many take up to 300 MB.
_MOST_VALUES = 3_000_000
_MOST_DIGITS = 18


class NotJson(ValueError):
    """A text is not acceptable JSON, for the reason in the message."""


class FileTooLarge(NotJson):
    """A file is over its limit."""


def read_file(path: Path, most: int) -> bytes:
    """Return at most `most` bytes of a regular file. Raises FileTooLarge, and OSError for other files."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileTooLarge(f"it has {describe_bytes(size)}, over the limit of {describe_bytes(most)}")
        return file.read(most)


def parse(data: bytes) -> Any:
    """Return the value of a JSON text. Raises NotJson."""
    if sum(data.count(mark) for mark in (b"[", b"{", b",")) > _MOST_VALUES:
        raise NotJson(f"it has more than {_MOST_VALUES:,} values")
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_finite,
        )
        if "\\u" in text:  # an escape may hide half a character, which cannot be written again
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise NotJson("it is nested too deep") from error
    except UnicodeEncodeError as error:
        raise NotJson("it has half of a surrogate pair") from error
    except ValueError as error:
        raise NotJson(str(error)[:200]) from error
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotJson("it has a key twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise NotJson(f"it holds {name}")


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise NotJson("it holds a number of many digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson("it holds a number too large")
    return value
