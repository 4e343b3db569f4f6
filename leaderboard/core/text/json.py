"""Strict parsing of user-provided JSON into values that every database can store."""

import json
from typing import Any, NoReturn

#: Maximum nesting depth of objects and lists.
MAX_DEPTH = 16
#: Maximum number of digits of an integer.
MAX_DIGITS = 300


def read_json(text: str) -> Any:
    """Parse strict JSON. Raises ValueError for other syntax, and for values that some database cannot store.

    These are NUL characters, unpaired surrogates, deep nesting, and numbers that are too large.
    """

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a JSON number")

    def integer(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise ValueError(f"a number has {len(digits):,} digits; the maximum is {MAX_DIGITS}")
        return int(digits)

    try:
        value = json.loads(text, parse_constant=refuse, parse_int=integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_storable(value, MAX_DEPTH)
    return value


def _check_storable(value: Any, depth: int) -> None:
    """Raise ValueError if a value is nested more than `depth` levels deep, or contains what databases reject."""
    if depth == 0:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("it has a NUL character")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError("it has an unpaired surrogate")
    elif isinstance(value, float) and abs(value) == float("inf"):
        raise ValueError("a number is too large")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_storable(key, depth)
            _check_storable(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check_storable(inner, depth - 1)
