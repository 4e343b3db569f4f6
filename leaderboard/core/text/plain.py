"""Plain-text formatting of values for people, XML, and CSV."""

import re
from collections.abc import Mapping
from typing import Any

from evaluation.judgements.import_file import FORMULA_STARTS
from leaderboard.core.text.numbers import MINUS

#: Characters that XML 1.0 forbids (production 2, Char): a single one would make a whole feed or image
#: invalid.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: A number or an interval, such as `-0.5` or `+0.015 to +0.053`, which cannot call a function of a spreadsheet.
_NUMBERS = re.compile(f"[+-]?[0-9.]+( to [+{MINUS}-]?[0-9.]+)?")


def for_xml(text: str) -> str:
    """Remove the characters that XML forbids; markup characters must still be escaped."""
    return _NOT_XML.sub("", text)


def plain_text(value: Any) -> str:
    """Format a value as one line of text, without programming-language quotes and brackets."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if 0 < abs(value) < 0.001 else f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain_text(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(plain_text(item) for item in value)
    return str(value)


def safe_cell(text: str) -> str:
    """Prefix text that spreadsheets would interpret as a formula with an apostrophe, except numbers and intervals."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not _NUMBERS.fullmatch(text) else text
