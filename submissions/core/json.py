"""JSON that people type: read so that every database can keep what comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

#: How deep objects and lists may be nested.
DEEPEST = 16


def read_json(text: str) -> Any:
    """The value. Raises ValueError for anything but strict JSON without NUL characters, and for deep nesting."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check(value, DEEPEST)
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("it has a NUL character")
        value.encode()  # half of a surrogate pair is no text: UnicodeEncodeError, which is a ValueError
    elif isinstance(value, float) and abs(value) == float("inf"):
        raise ValueError("a number is too large")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check(key, depth)
            _check(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth - 1)


class StrictJSONParser(JSONParser):
    """A JSON body as `read_json` reads it, no larger than a form may be. The default of all calls (REST_FRAMEWORK)."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The value. Raises ParseError for what is no usable JSON in UTF-8, RequestDataTooBig for a large body."""
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise RequestDataTooBig(f"The body is over {limit:,} bytes.")
        try:
            return read_json(body.decode())
        except ValueError as error:
            raise ParseError(f"The body is not JSON that can be used: {error}") from None
