"""What is printed: a site's words cannot move the cursor, change the title or fill the clipboard."""

from __future__ import annotations

import re
from typing import TextIO

#: Control characters except tab and line feed, marks that turn the direction of text, and halves of surrogate pairs,
#: which no terminal's encoding has.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """The text with control characters as JSON escapes them, so that printed JSON keeps its meaning."""
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(what: object, file: TextIO | None = None, end: str = "\n") -> None:
    """Print what may hold words of a site."""
    print(printable(str(what)), file=file, end=end)
