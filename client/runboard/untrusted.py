"""Checks of a site's responses before their use: JSON of limited size and of the schema's types, and plain names."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import requests

from runboard.errors import SiteUnavailable, describe_root_cause

T = TypeVar("T")
#: Maximum number of bytes of a response, except downloads. The largest boards have a few million.
MAX_BYTES = 64 * 1024 * 1024
_BLOCK = 1 << 16
#: JSON names of types.
_JSON = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object", NoneType: "null",
}  # fmt: skip
#: Pattern of plain names. The first character excludes hidden files and paths.
_PLAIN_NAME = re.compile(r"\w[\w.+@=() -]{0,199}")


def read_content(answer: requests.Response) -> bytes:
    """Return the body of a response. Raises SiteUnavailable if it is interrupted or has more than MAX_BYTES."""
    try:
        content = read_beginning(answer, MAX_BYTES + 1)
    except requests.RequestException as error:
        raise SiteUnavailable(f"The answer of {answer.url} was interrupted: {describe_root_cause(error)}.") from error
    if len(content) > MAX_BYTES:
        raise SiteUnavailable(f"{answer.url} answered more than {MAX_BYTES:,} bytes.")
    return content


def read_beginning(answer: requests.Response, limit: int) -> bytes:
    """Return at most `limit` bytes of a body. Raises RequestException if it is interrupted."""
    content = bytearray()
    with answer:
        for block in answer.iter_content(_BLOCK):
            content += block
            if len(content) >= limit:
                break
    return bytes(content[:limit])


def parse_json(body: bytes, url: str) -> Any:
    """Parse the JSON of a response. Raises SiteUnavailable for other content."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SiteUnavailable(f"{url} did not answer JSON: is this the address of a Runboard site?") from error


def require_form(expected_type: type[T], value: Any, url: str) -> T:
    """Return the value if it has the type, a TypedDict or a list of these. Raises SiteUnavailable otherwise."""
    difference = _find_misfit(expected_type, value, "the answer")
    if difference:
        raise SiteUnavailable(f"{url} does not answer like sites of this client's version: {difference}.")
    fits: T = value
    return fits


def require_plain_name(name: str, url: str) -> None:
    """Raise SiteUnavailable for a name of a file or dataset that could refer to another location."""
    if not _PLAIN_NAME.fullmatch(name):
        raise SiteUnavailable(f"{url} names a file or a dataset {name[:100]!r}, which is not a plain name.")


def _find_misfit(expected_type: Any, value: Any, path: str) -> str:
    """Return a description of the value's first difference from the type; empty if there is none."""
    origin, parts = get_origin(expected_type), get_args(expected_type)
    if expected_type is Any:
        return ""
    if origin is NotRequired:
        return _find_misfit(parts[0], value, path)
    if origin in (Union, UnionType):
        differences = [_find_misfit(part, value, path) for part in parts]
        return "" if "" in differences else differences[0]
    if is_typeddict(expected_type):
        return _find_field_misfit(_fields(expected_type), value, path)
    if origin is list and isinstance(value, list):
        misfits = (_find_misfit(parts[0], item, f"{path}[{number}]") for number, item in enumerate(value))
        return next(filter(None, misfits), "")
    if origin is dict and isinstance(value, dict):
        misfits = (_find_misfit(parts[1], item, f"{path}.{name}") for name, item in value.items())
        return next(filter(None, misfits), "")
    # Newer sites may use words that this client does not know.
    expected = str if origin is Literal else origin or expected_type
    fits = isinstance(value, (int, float) if expected is float else expected)
    return (
        "" if fits and (expected is bool or not isinstance(value, bool)) else f"{path} is not of type {_JSON[expected]}"
    )


def _find_field_misfit(fields: dict[str, Any], value: Any, path: str) -> str:
    """Return a description of the first field that is missing or does not fit; empty if the object fits."""
    if not isinstance(value, dict):
        return f"{path} is not of type object"
    for name, expected_type in fields.items():
        if name not in value:
            misfit = "" if get_origin(expected_type) is NotRequired else f"{path} has no {name}"
        else:
            misfit = _find_misfit(expected_type, value[name], f"{path}.{name}")
        if misfit:
            return misfit
    return ""


@lru_cache
def _fields(expected_type: type) -> dict[str, Any]:
    return get_type_hints(expected_type, include_extras=True)
