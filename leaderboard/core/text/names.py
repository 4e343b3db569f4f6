"""Validation of names and texts against invisible and direction-changing characters."""

import unicodedata
from collections.abc import Iterator

from django.core.exceptions import ValidationError

#: Forbidden Unicode categories of names: controls (including line ends), invisible formatting such as text
#: direction, line and paragraph separators, private use, and surrogates.
_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs"})
#: Forbidden categories of longer texts: controls and surrogates.
_CONTROLS = frozenset({"Cc", "Cs"})
#: Characters that change the text direction of the rest of a paragraph.
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Characters in letter and symbol categories that fonts draw as blank: Hangul fillers, the empty Braille
#: pattern.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800")


def validate_name(text: str) -> None:
    """Raise ValidationError if a name has invisible characters or no visible ones."""
    _refuse(character for character in text if unicodedata.category(character) in _FORBIDDEN_CATEGORIES)
    if not any(unicodedata.category(letter)[0] in "LNPS" and letter not in _BLANK for letter in text):
        raise ValidationError("Enter at least one visible character.")


def validate_text(text: str) -> None:
    """Raise ValidationError if a text has control characters other than tabs and line ends, or direction overrides."""
    _refuse(
        character
        for character in text
        if character in _DIRECTION_MARKS or (unicodedata.category(character) in _CONTROLS and character not in "\t\n\r")
    )


def _refuse(characters: Iterator[str]) -> None:
    if (character := next(characters, None)) is not None:
        raise ValidationError(f"U+{ord(character):04X} is an invisible character. Remove it.")
