"""No pattern of ours can take for ever: none that is written out repeats without limit what repeats without limit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("evaluation", "leaderboard", "submissions")


def is_nested(items: Iterable[Any], inside: bool = False) -> bool:
    """Whether an unlimited repetition stands in another, as (a*)* does: such may try every way to share a text out."""
    for operation, argument in items:
        match operation:
            case constants.MAX_REPEAT | constants.MIN_REPEAT:
                unlimited = argument[1] is constants.MAXREPEAT
                if (unlimited and inside) or is_nested(argument[2], inside or unlimited):
                    return True
            case constants.SUBPATTERN:
                if is_nested(argument[3], inside):
                    return True
            case constants.BRANCH:
                if any(is_nested(branch, inside) for branch in argument[1]):
                    return True
            case constants.ASSERT | constants.ASSERT_NOT:
                if is_nested(argument[1], inside):
                    return True
    return False


def patterns() -> Iterator[tuple[str, str | bytes]]:
    """Where a pattern is written out, and what it is. Those put together from parts are not looked at."""
    for folder in OURS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if "import re\n" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).startswith("re."):
                    pattern = node.args[0]
                    if isinstance(pattern, ast.Constant) and isinstance(pattern.value, (str, bytes)):
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", pattern.value


def test_no_pattern_repeats_what_repeats() -> None:
    found = list(patterns())
    assert len(found) > 50
    assert [(place, pattern) for place, pattern in found if is_nested(parser.parse(pattern))] == []


@pytest.mark.parametrize("pattern", ["(a*)*b", "(?:x|(?:a+)+)$", "(?:[^{}]|_\\w+)*}", "((?=a+)b)+"])
def test_one_that_did_would_be_found(pattern: str) -> None:
    assert is_nested(parser.parse(pattern))
    assert re.compile(pattern)
