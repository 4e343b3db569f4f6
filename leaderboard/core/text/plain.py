"""Values of records as people read them: lists joined by commas, numbers to four decimals; texts for XML and CSV."""

import re
from collections.abc import Mapping
from typing import Any

from evaluation.judgements.import_file import FORMULA_STARTS

#: What XML 1.0 has no way to write (its production 2, Char), so that one sign would spoil a whole feed or picture.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def for_xml(text: str) -> str:
    """The text without the characters that no XML can have; what else has a meaning there is still to be escaped."""
    return _NOT_XML.sub("", text)


def plain_text(value: Any) -> str:
    """A value as one line of text, without quotes and brackets of a programming language."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if 0 < abs(value) < 0.001 else f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain_text(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(plain_text(each) for each in value)
    return str(value)


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
