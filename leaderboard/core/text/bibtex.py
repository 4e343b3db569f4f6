"""BibTeX, read and written: entries, and names of people.

Entries are repeated as they were sent. bibtexparser would save about ten lines here, but loses the second of two
entries under one key, and writes entries anew. Names are joined by “and”, with LaTeX's accents and braces, “Family,
Given” or not. pylatexenc takes 0.5 ms a name where this takes 0.01 to 0.07, drops the `&` of “Team & Co”, and ends in a
RecursionError at 400 open braces.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

from leaderboard.core.text.latex import escape, find_forbidden_command

_START = re.compile(r"@\s*([A-Za-z]+)\s*\{\s*([^\s,{}=\"#%'()~\\]+)\s*,")
_BRACE = re.compile("[{}]")
#: What BibTeX takes for an entry or a command wherever it looks for one: after a mistake, even within a field.
_BEGINNING = re.compile(r"@\s*[^\s{}=\"#%'(),@]+\s*[{(]")
#: Entries that are no publications.
_OTHER_KINDS = ("comment", "string", "preamble")
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


class BibtexEntry(NamedTuple):
    """One entry of a bibliography: its type, its key, and what stands between the key's comma and the last brace."""

    kind: str
    key: str
    fields: str

    def written(self, key: str) -> str:
        """The entry under another key."""
        return f"@{self.kind}{{{key},{self.fields}}}"


def parse_entries(text: str) -> list[BibtexEntry]:
    """The entries of a BibTeX text, in time linear in its length.

    Left out is what does not end, or would end elsewhere for another reader, since BibTeX counts a brace behind a
    backslash like any other and some programs do not; what has the beginning of another within; and what would make
    its reader's LaTeX do more than set type.
    """
    found, position, closing = [], 0, _closing(text)
    while match := _START.search(text, position):
        opened = text.index("{", match.start())
        end = closing.get(opened)
        if end is None:
            position = match.end()
            continue
        kind = match[1].lower()
        if kind not in _OTHER_KINDS and _is_whole(text[opened : end + 1]):
            found.append(BibtexEntry(kind, match[2], text[match.end() : end]))
        position = end + 1
    return found


def _closing(text: str) -> dict[int, int]:
    """Where each brace that is closed is closed, as BibTeX counts: with or without a backslash before it."""
    found, opened = {}, []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            found[opened.pop()] = brace.start()
    return found


def _is_whole(entry: str) -> bool:
    """Whether an entry, from its first brace to the last, ends there for everyone, and does and begins nothing else."""
    if _BEGINNING.search(entry) or find_forbidden_command(entry):
        return False
    depth = 0
    for brace in _BRACE.finditer(entry):
        if entry[brace.start() - 1] != "\\":
            depth += 1 if brace[0] == "{" else -1
        if depth < 1 and brace.end() < len(entry):
            return False
    return depth == 0


def misc_entry(key: str, fields: Mapping[str, str]) -> str:
    """A `@misc` of fields that are LaTeX already; empty ones are left out.

    A month is one of the names that styles know (`nov`), and stands without braces.
    """
    lines = [
        f"  {name} = {value}," if name == "month" else f"  {name} = {{{_safe(value)}}},"
        for name, value in fields.items()
        if value
    ]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def _safe(value: str) -> str:
    """LaTeX within a field: braces of a text by their names, since BibTeX would count them, and no `@` that begins."""
    named = value.replace(r"\{", r"\textbraceleft{}").replace(r"\}", r"\textbraceright{}")
    return _BEGINNING.sub(lambda found: "{@}" + found[0][1:], named)


def escape_url(url: str) -> str:
    """An address in which no brace or backslash ends the entry, and no `@` begins one."""
    return re.sub(r"[{}\\\s\"@]", lambda match: f"%{ord(match[0]):02X}", url)


class AuthorName(NamedTuple):
    """One name: its parts between commas as plain text, and whether braces made it the name of a body."""

    parts: tuple[str, ...]
    whole: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        depths = list(_depths(text))
        if text.startswith("{") and depths[-1] == 0 and all(depths[:-1]):
            return cls((latex_to_text(text),), whole=True)
        parts = tuple(part for part in map(latex_to_text, _split(text, re.compile(","))) if part)
        if len(parts) > _MOST_PARTS:  # no name of BibTeX's
            return cls((", ".join(parts),), whole=True)
        return cls(parts, whole=False)

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
        return ", ".join(_brace_name(part) for part in self.parts)


def parse_authors(text: str | None) -> list[AuthorName]:
    """The names in a BibTeX field of authors; “others” is nobody."""
    found = (" ".join(part.split()) for part in _split(text or "", _AND))
    return [AuthorName.parse(part) for part in found if part != "others" and latex_to_text(part).strip(", ")]


def authors_field(text: str) -> str:
    """The field of authors as LaTeX that compiles, whatever was written into it; empty where nobody is named."""
    names = [name.written for name in parse_authors(text)]
    others = [*_split(text, _AND)][-1].strip() == "others"
    return " and ".join([*names, *(["others"] if names and others else [])])


def latex_to_text(text: str) -> str:
    r"""LaTeX of a name as characters: `{\"O}zg\"ur` is Özgür. Commands that are no letters are left out."""
    text = _ACCENTED.sub(
        lambda match: (match[3] or match[4] or match[5]) + _ACCENTS[match[1] or match[2]], text
    )
    text = _LETTER.sub(lambda match: _LETTERS[match[1]], text)
    text = re.sub(r"\\[A-Za-z]+\s*", "", text)
    text = re.sub(r"(?<!\\)[{}]", "", text.replace(r"\ ", " ").replace("~", " "))
    return " ".join(unicodedata.normalize("NFC", text.replace("\\", "")).split())


def to_latin(text: str) -> str:
    """The text with letters such as ø and ł as those that they look like."""
    return text.translate(_ALIKE)


def _brace_name(part: str) -> str:
    return f"{{{escape(part)}}}" if "," in part or _AND.search(part) else escape(part)


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
