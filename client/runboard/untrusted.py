"""What a site answers, before it is used: JSON of a bounded size and of the form that the schema says, plain names."""

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

from runboard.errors import SiteUnavailable, cause_of

T = TypeVar("T")
#: Bytes of an answer that is no download. The largest boards have a few million.
MOST_BYTES = 64 * 1024 * 1024
_BLOCK = 1 << 16
#: What values of a form are called in JSON.
_JSON = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object", NoneType: "null",
}  # fmt: skip
#: A letter, digit or underscore first: neither a hidden file nor a path.
_PLAIN_NAME = re.compile(r"\w[\w.+@=() -]{0,199}")


def content_of(answer: requests.Response) -> bytes:
    """The body of an answer. Raises SiteUnavailable where it breaks off, or has more than MOST_BYTES."""
    try:
        found = beginning_of(answer, MOST_BYTES + 1)
    except requests.RequestException as error:
        raise SiteUnavailable(f"The answer of {answer.url} broke off: {cause_of(error)}.") from error
    if len(found) > MOST_BYTES:
        raise SiteUnavailable(f"{answer.url} answered more than {MOST_BYTES:,} bytes.")
    return found


def beginning_of(answer: requests.Response, most: int) -> bytes:
    """So many bytes of a body, or all that it has. Raises RequestException where it breaks off."""
    found = bytearray()
    with answer:
        for block in answer.iter_content(_BLOCK):
            found += block
            if len(found) >= most:
                break
    return bytes(found[:most])


def parsed(body: bytes, url: str) -> Any:
    """The JSON of an answer. Raises SiteUnavailable for anything else."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise SiteUnavailable(
            f"{url} answered with something else than JSON: is this the address of a Runboard site?"
        ) from error


def fitting(form: type[T], value: Any, url: str) -> T:
    """The value, if it has the form: a TypedDict, or a list of these. Raises SiteUnavailable, which says where not."""
    wrong = _misfit(form, value, "the answer")
    if wrong:
        raise SiteUnavailable(f"{url} answers otherwise than sites of this client's version: {wrong}.")
    fits: T = value
    return fits


def require_plain_name(name: str, url: str) -> None:
    """Raise SiteUnavailable for a name that a site gives a file or a dataset, and that could lie somewhere else."""
    if not _PLAIN_NAME.fullmatch(name):
        raise SiteUnavailable(f"{url} names a file or a dataset {name[:100]!r}, which is no plain name.")


def _misfit(form: Any, value: Any, at: str) -> str:
    """Where the value has another form, and what is wrong; empty where it fits."""
    origin, parts = get_origin(form), get_args(form)
    if form is Any:
        return ""
    if origin is NotRequired:
        return _misfit(parts[0], value, at)
    if origin in (Union, UnionType):
        wrong = [_misfit(part, value, at) for part in parts]
        return "" if "" in wrong else wrong[0]
    if is_typeddict(form):
        return _misfit_of_fields(_fields(form), value, at)
    if origin is list and isinstance(value, list):
        found = (_misfit(parts[0], each, f"{at}[{number}]") for number, each in enumerate(value))
        return next(filter(None, found), "")
    if origin is dict and isinstance(value, dict):
        found = (_misfit(parts[1], each, f"{at}.{name}") for name, each in value.items())
        return next(filter(None, found), "")
    # Later sites may have further words where this client knows a few.
    wanted = str if origin is Literal else origin or form
    fits = isinstance(value, (int, float) if wanted is float else wanted)
    return "" if fits and (wanted is bool or not isinstance(value, bool)) else f"{at} is no {_JSON[wanted]}"


def _misfit_of_fields(fields: dict[str, Any], value: Any, at: str) -> str:
    if not isinstance(value, dict):
        return f"{at} is no object"
    for name, form in fields.items():
        if name not in value:
            wrong = "" if get_origin(form) is NotRequired else f"{at} has no {name}"
        else:
            wrong = _misfit(form, value[name], f"{at}.{name}")
        if wrong:
            return wrong
    return ""


@lru_cache
def _fields(form: type) -> dict[str, Any]:
    return get_type_hints(form, include_extras=True)
