"""Cutting text into words by the word boundaries of Unicode (UAX #29), as Lucene's StandardTokenizer does.

Letters and digits stay together, and so do the parts of `don't`, `u.s`, `foo:bar`, `3.14`, `1,000` and
`snake_case`. Ideographs and hiragana are words of their own; a run of Thai, Lao, Khmer or Myanmar, which would
need a dictionary, is one word. Departures: pictographs (emoji) are not words, and katakana is not joined by
underscores.

Most text is ASCII, or has a few letters beyond it, and is cut by one regular expression. The general case
first writes down the class of each character, one letter each, and cuts that string.
"""

from __future__ import annotations

import re
import unicodedata

#: Runs of letters, digits and underscores, joined by a mark between two letters or two digits.
_JOINED = (
    r"""\w+(?:[{marks}](?:(?<={letter}[{in_words}])(?={letter})|(?<={digit}[{in_numbers}])(?={digit}))\w+)*"""
)

_MID_LETTER = ":\u00b7\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a"
_MID_NUMBER = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_MID_BOTH = ".\u2018\u2019\u2024\ufe52\uff07\uff0e"
_EXTENDERS = "_\u202f\u203f\u2040\u2054\ufe33\ufe34\ufe4d\ufe4e\ufe4f\uff3f"

_ASCII_WORD = re.compile(
    _JOINED.format(marks=".:',;", in_words=".:'", in_numbers=".,;'", letter="[a-z]", digit="[0-9]"), re.ASCII
)
_LETTERS_WORD = re.compile(
    _JOINED.format(
        marks=_MID_LETTER + _MID_NUMBER + _MID_BOTH + "'",
        in_words=_MID_LETTER + _MID_BOTH + "'",
        in_numbers=_MID_NUMBER + _MID_BOTH + "'",
        letter=r"[^\W\d_]",
        digit=r"\d",
    )
)
#: The same over classes (see `_class_of`), each character followed by those that extend it (x).
_CLASSES_WORD = re.compile(
    r"""(?: h x*+ (?: "x*+(?=h) | [:.']x*+(?=[ah]) | 'x*+ )?+
          | a x*+ (?: [:.']x*+(?=[ah]) )?+
          | 0 x*+ (?: [,.']x*+(?=0) )?+
          | _ x*+ )++
      | (?: k x*+ )++ | (?: s x*+ )++ | i x*+""",
    re.VERBOSE,
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

_SOUTH_EAST_ASIAN = ("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TAI ", "NEW TAI ", "AHOM ")
_IDEOGRAPHS = (
    "CJK UNIFIED",
    "CJK COMPATIBILITY IDEOGRAPH",
    "HIRAGANA ",
    "IDEOGRAPHIC ",
    "HANGZHOU ",
    "NUSHU ",
    "TANGUT ",
)
_KATAKANA = ("KATAKANA", "HALFWIDTH KATAKANA", "CIRCLED KATAKANA", "SQUARE ")


def words(text: str) -> list[str]:
    """The words of the text in order; in lower case where the text is ASCII, as they stand elsewhere.

    Runs of underscores alone are included: who calls this drops them, once for each distinct word.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    plain = True
    for character in set(_NOT_ASCII.findall(text)):
        kind = _CLASSES[ord(character)]
        if kind == " ":
            text = text.replace(character, " ")
        elif kind in "hkisx" or (kind in "_0a" and not character.isalnum()):
            plain = False
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return _LETTERS_WORD.findall(text) if plain else words_by_classes(text)


def words_by_classes(text: str) -> list[str]:
    """The words of any text: the general case of `words`, which is tested against it. In the text's own case."""
    classes = text.translate(_CLASSES)
    return [text[found.start() : found.end()] for found in _CLASSES_WORD.finditer(classes)]


class _Classes(dict[int, str]):
    """Code point → class, looked up once for each distinct character."""

    def __missing__(self, code_point: int) -> str:
        self[code_point] = kind = _class_of(chr(code_point))
        return kind


def _class_of(character: str) -> str:
    """The character's word-break class in one letter; a space for whatever is never part of a word.

    a letter, h Hebrew letter, 0 digit, _ joins everything, k katakana, i ideograph or hiragana,
    s South-East Asian, x extends the character before it; the marks stand for their kind.
    """
    if character in "'\"":
        return character
    for kind, characters in ((":", _MID_LETTER), (",", _MID_NUMBER), (".", _MID_BOTH), ("_", _EXTENDERS)):
        if character in characters:
            return kind
    category = unicodedata.category(character)
    name = unicodedata.name(character, "")
    if category[0] in "LM" and name.startswith(_SOUTH_EAST_ASIAN):
        return "s"
    if category == "Nd":
        return "0"
    if character in "\uff9e\uff9f" or category[0] == "M" or (category == "Cf" and character != "\u200b"):
        return "x"
    if name.startswith(_IDEOGRAPHS) and category in ("Lo", "Lm", "Nl"):
        return "i"
    if name.startswith(_KATAKANA):
        return "k"
    if category[0] == "L" or category == "Nl" or "\u24b6" <= character <= "\u24e9":
        return "h" if name.startswith("HEBREW LETTER") else "a"
    return " "


_CLASSES = _Classes()
