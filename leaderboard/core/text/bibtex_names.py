r"""Names of people as BibTeX has them: joined by “and”, with LaTeX's accents and braces, “Family, Given” or not.

pylatexenc takes 0.5 ms a name where this takes 0.01 to 0.07, drops the `&` of “Team & Co”, and ends in a
RecursionError at 400 open braces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from leaderboard.core.text.latex import escape

#: LaTeX's accents as the characters that Unicode combines with the letter before them.
_ACCENTS = {
    "`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", "=": "\u0304", "u": "\u0306", ".": "\u0307",
    '"': "\u0308", "r": "\u030a", "H": "\u030b", "v": "\u030c", "d": "\u0323", "c": "\u0327", "k": "\u0328",
    "b": "\u0331",
}  # fmt: skip
_LETTERS = {
    "ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å", "AA": "Å", "o": "ø", "O": "Ø", "l": "ł",
    "L": "Ł", "dh": "ð", "DH": "Ð", "th": "þ", "TH": "Þ", "dj": "đ", "DJ": "Đ", "ng": "ŋ", "NG": "Ŋ", "i": "ı",
    "j": "ȷ",
}  # fmt: skip
_ACCENTED = re.compile(
    r"\\(?:([`'^~=.\"])|([urHvdckb])(?![A-Za-z]))\s*(?:\{\s*\\?([^\W\d_])\s*\}|\\([ij])(?![A-Za-z])|([^\W\d_]))"
)
_LETTER = re.compile(rf"\\({'|'.join(sorted(_LETTERS, key=len, reverse=True))})(?![A-Za-z])(?:\{{\}}|\s+)?")
#: Family, “Jr”, given.
_MOST_PARTS = 3
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
#: Letters that no decomposition brings to a Latin one, for addresses.
_ALIKE = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d",
     "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ı": "i", "ŋ": "n", "Ŋ": "N"}
)  # fmt: skip


class Name(NamedTuple):
    """One name: its parts between commas as plain text, and whether braces made it the name of a body."""

    parts: tuple[str, ...]
    whole: bool

    @property
    def said(self) -> str:
        """In the order in which one says it: `Jan van der Berg` of `van der Berg, Jan`, with a “Jr” at the end."""
        family, *others = self.parts
        if not others:
            return family
        return " ".join(part for part in (others[-1], family, *others[:-1]) if part)

    @property
    def written(self) -> str:
        """As BibTeX wants it, in LaTeX that compiles."""
        if self.whole:
            return f"{{{escape(self.said)}}}"
        return ", ".join(_guarded(part) for part in self.parts)


def names_in(text: str | None) -> list[Name]:
    """The names in a BibTeX field of authors; “others” is nobody."""
    found = (" ".join(part.split()) for part in _split(text or "", _AND))
    return [_name(part) for part in found if part != "others" and plain(part).strip(", ")]


def authors_field(text: str) -> str:
    """The field of authors as LaTeX that compiles, whatever was written into it; empty where nobody is named."""
    names = [name.written for name in names_in(text)]
    others = [*_split(text, _AND)][-1].strip() == "others"
    return " and ".join([*names, *(["others"] if names and others else [])])


def plain(text: str) -> str:
    r"""LaTeX of a name as characters: `{\"O}zg\"ur` is Özgür. Commands that are no letters are left out."""
    text = _ACCENTED.sub(_accented, text)
    text = _LETTER.sub(lambda match: _LETTERS[match[1]], text)
    text = re.sub(r"\\[A-Za-z]+\s*", "", text)
    text = re.sub(r"(?<!\\)[{}]", "", text.replace(r"\ ", " ").replace("~", " "))
    return " ".join(unicodedata.normalize("NFC", text.replace("\\", "")).split())


def latin(text: str) -> str:
    """The text with letters such as ø and ł as those that they look like."""
    return text.translate(_ALIKE)


def _accented(match: re.Match[str]) -> str:
    letter = match[3] or match[4] or match[5]
    return letter + _ACCENTS[match[1] or match[2]]


def _guarded(part: str) -> str:
    return f"{{{escape(part)}}}" if "," in part or _AND.search(part) else escape(part)


def _name(text: str) -> Name:
    depths = list(_depths(text))
    if text.startswith("{") and depths[-1] == 0 and all(depths[:-1]):
        return Name((plain(text),), whole=True)
    parts = tuple(part for part in map(plain, _split(text, re.compile(","))) if part)
    if len(parts) > _MOST_PARTS:  # no name of BibTeX's
        return Name((", ".join(parts),), whole=True)
    return Name(parts, whole=False)


def _split(text: str, at: re.Pattern[str]) -> Iterator[str]:
    """The text in parts, split where no brace is open; where braces do not balance, wherever `at` matches."""
    depths = list(_depths(text))
    balanced = not depths or (depths[-1] == 0 and min(depths) >= 0)
    start = 0
    for match in at.finditer(text):
        if not balanced or depths[match.start()] == 0:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _depths(text: str) -> Iterator[int]:
    """How many braces are open after each character."""
    depth = 0
    for place, character in enumerate(text):
        if character in "{}" and (place == 0 or text[place - 1] != "\\"):
            depth += 1 if character == "{" else -1
        yield depth
