"""JSON that people type: read so that every database can keep what comes out."""

import json
from typing import Any, NoReturn

#: How deep objects and lists may be nested.
DEEPEST = 16
#: How many digits a whole number may have.
LONGEST_NUMBER = 300


def read_json(text: str) -> Any:
    """The value. Raises ValueError for anything but strict JSON without NUL characters, and for deep nesting."""

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"{name} is not a JSON number")

    def integer(digits: str) -> int:
        if len(digits) > LONGEST_NUMBER:
            raise ValueError(f"a number has {len(digits):,} digits, of which {LONGEST_NUMBER} are taken")
        return int(digits)

    try:
        value = json.loads(text, parse_constant=refuse, parse_int=integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check(value, DEEPEST)
    return value


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"it is nested more than {DEEPEST} levels deep")
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("it has a NUL character")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError("it has half of a surrogate pair")
    elif isinstance(value, float) and abs(value) == float("inf"):
        raise ValueError("a number is too large")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check(key, depth)
            _check(inner, depth - 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, depth - 1)
