"""Output to a terminal, safe from text of a site that moves the cursor, changes the title, or fills the clipboard."""

from __future__ import annotations

import re
from typing import TextIO

#: Control characters except tab and line feed, marks that change the direction of text, and surrogates, which
#: cannot be encoded.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with control characters escaped as in JSON, so that printed JSON has the same meaning."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def say(value: object, file: TextIO | None = None, end: str = "\n") -> None:
    """Print a value that may contain text from a site."""
    print(printable(str(value)), file=file, end=end)
