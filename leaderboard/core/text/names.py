"""Names and texts as others read them: something to see, nothing that hides or turns around what stands beside it."""

import unicodedata
from collections.abc import Iterator

from django.core.exceptions import ValidationError

#: Controls (line ends among them), invisible formatting such as text direction, separators of lines and paragraphs,
#: private use, halves of surrogate pairs.
_REFUSED = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs"})
#: Those of them that no program takes in a text: controls and halves of surrogate pairs.
_CONTROLS = frozenset({"Cc", "Cs"})
#: What turns around how the rest of its paragraph reads.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
#: Letters and symbols by their category that fonts draw as nothing: Hangul fillers, the empty Braille pattern.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800")


def validate_name(text: str) -> None:
    """Raises ValidationError for characters that nobody sees, and for a text that has none that anybody sees."""
    _refuse(character for character in text if unicodedata.category(character) in _REFUSED)
    if not any(unicodedata.category(each)[0] in "LNPS" and each not in _BLANK for each in text):
        raise ValidationError("It needs at least one character that can be seen.")


def validate_text(text: str) -> None:
    """Raises ValidationError for what no text of several lines needs: control characters but tabs and line ends, and
    those that turn the direction of reading around.
    """
    _refuse(
        character
        for character in text
        if character in _TURNING
        or (unicodedata.category(character) in _CONTROLS and character not in "\t\n\r")
    )


def _refuse(characters: Iterator[str]) -> None:
    if (character := next(characters, None)) is not None:
        raise ValidationError(
            f"U+{ord(character):04X} cannot be part of it: nobody can see it. Type it without."
        )
