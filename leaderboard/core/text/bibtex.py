"""Reading and writing of BibTeX entries and author names.

Entries are stored as submitted. bibtexparser would save about ten lines here, but drops the second of two
entries with the same key and reformats entries. Author names are joined by “and”, with LaTeX accents and braces, and
may or may not be written “Family, Given”. pylatexenc takes 0.5 ms per name, compared with 0.01 to 0.07 ms here, drops
the `&` of “Team & Co”, and raises RecursionError for 400 open braces.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self

from leaderboard.core.text.latex import escape, find_forbidden_command

_START = re.compile(r"@\s*([A-Za-z]+)\s*\{\s*([^\s,{}=\"#%'()~\\]+)\s*,")
_BRACE = re.compile("[{}]")
#: Text that BibTeX reads as the start of an entry or command wherever it looks for one: after an error, even
#: within a field.
_BEGINNING = re.compile(r"@\s*[^\s{}=\"#%'(),@]+\s*[{(]")
#: A field on a line of its own, with its value without outer braces or quotes.
_LINE = re.compile(r"^\s*(\w+)\s*=\s*[{\"]*(.+?)[}\"]*,?\s*$", re.MULTILINE)
#: Entry types that are not publications.
_OTHER_KINDS = ("comment", "string", "preamble")
#: LaTeX accents as Unicode combining characters.
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
#: Maximum number of parts of a BibTeX name: family, “Jr”, given.
_MAX_PARTS = 3
_AND = re.compile(r"\s+and\s+", re.IGNORECASE)
#: Letters without a Unicode decomposition to Latin ones, for URLs.
_LATIN_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d",
     "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ı": "i", "ŋ": "n", "Ŋ": "N"}
)  # fmt: skip


class BibtexEntry(NamedTuple):
    """An entry of a bibliography: type, key, and the text between the key's comma and the closing brace."""

    kind: str
    key: str
    fields: str

    def with_key(self, key: str) -> str:
        return f"@{self.kind}{{{key},{self.fields}}}"


def parse_entries(text: str) -> list[BibtexEntry]:
    """Return the entries of a BibTeX text, in time linear in its length.

    Skips entries that do not end; entries that end differently for BibTeX, which counts braces after a backslash, and
    programs that do not; entries that contain the start of another; and entries with LaTeX commands that do more than
    typesetting.
    """
    closing, open_braces = {}, []
    for brace in _BRACE.finditer(text):  # Counts escaped braces as BibTeX does.
        if brace[0] == "{":
            open_braces.append(brace.start())
        elif open_braces:
            closing[open_braces.pop()] = brace.start()
    entries, position = [], 0
    while match := _START.search(text, position):
        opening = text.index("{", match.start())
        end = closing.get(opening)
        if end is None:
            position = match.end()
            continue
        kind = match[1].lower()
        if kind not in _OTHER_KINDS and _is_whole(text[opening : end + 1]):
            entries.append(BibtexEntry(kind, match[2], text[match.end() : end]))
        position = end + 1
    return entries


def _is_whole(entry: str) -> bool:
    """Return whether an entry ends at its last brace for all readers, and contains no other entry or unsafe command."""
    if _BEGINNING.search(entry) or find_forbidden_command(entry):
        return False
    depth = 0
    for brace in _BRACE.finditer(entry):
        if entry[brace.start() - 1] != "\\":
            depth += 1 if brace[0] == "{" else -1
        if depth < 1 and brace.end() < len(entry):
            return False
    return depth == 0


def authors_and_year(text: str) -> tuple[str, str]:
    """Return the authors, joined by “and”, and the year of the first entry; empty if its lines do not have them."""
    entries = parse_entries(text)
    fields = {name.lower(): value for name, value in _LINE.findall(entries[0].fields)} if entries else {}
    return latex_to_text(fields.get("author", "")), fields.get("year", "")


def misc_entry(key: str, fields: Mapping[str, str]) -> str:
    """Return a `@misc` entry of the nonempty fields, which are LaTeX.

    A month is a macro that styles define (`nov`) and therefore has no braces.
    """
    lines = [
        f"  {name} = {value}," if name == "month" else f"  {name} = {{{_escape_field(value)}}},"
        for name, value in fields.items()
        if value
    ]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def _escape_field(value: str) -> str:
    """Escape LaTeX for a field: literal braces, which BibTeX would count, and `@`, which could start an entry."""
    escaped = value.replace(r"\{", r"\textbraceleft{}").replace(r"\}", r"\textbraceright{}")
    return _BEGINNING.sub(lambda match: "{@}" + match[0][1:], escaped)


def escape_url(url: str) -> str:
    """Percent-encode the characters of a URL that could end the entry or start another."""
    return re.sub(r"[{}\\\s\"@]", lambda match: f"%{ord(match[0]):02X}", url)


class AuthorName(NamedTuple):
    """An author's name: plain-text parts between commas, and whether braces marked it as a corporate name."""

    parts: tuple[str, ...]
    is_corporate: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name of a BibTeX author field. Names in braces, or with too many commas, are corporate."""
        depths = list(_depths(text))
        if text.startswith("{") and depths[-1] == 0 and all(depths[:-1]):
            return cls((latex_to_text(text),), is_corporate=True)
        parts = tuple(part for part in map(latex_to_text, _split(text, re.compile(","))) if part)
        if len(parts) > _MAX_PARTS:  # More parts than a BibTeX name can have.
            return cls((", ".join(parts),), is_corporate=True)
        return cls(parts, is_corporate=False)

    @property
    def display_name(self) -> str:
        """Name in reading order: `Jan van der Berg` for `van der Berg, Jan`, with “Jr” at the end."""
        family, *other_parts = self.parts
        if not other_parts:
            return family
        return " ".join(part for part in (other_parts[-1], family, *other_parts[:-1]) if part)

    @property
    def bibtex(self) -> str:
        """Name in BibTeX order, as LaTeX that compiles."""
        if self.is_corporate:
            return f"{{{escape(self.display_name)}}}"
        names = ((part, escape(part)) for part in self.parts)
        return ", ".join(f"{{{name}}}" if "," in part or _AND.search(part) else name for part, name in names)


def parse_authors(text: str | None) -> list[AuthorName]:
    """Return the names in a BibTeX author field, without “others”."""
    names = (" ".join(part.split()) for part in _split(text or "", _AND))
    return [AuthorName.parse(part) for part in names if part != "others" and latex_to_text(part).strip(", ")]


def authors_field(text: str) -> str:
    """Rewrite an author field as LaTeX that compiles, whatever it contains; empty if it has no names."""
    names = [name.bibtex for name in parse_authors(text)]
    has_others = [*_split(text, _AND)][-1].strip() == "others"
    return " and ".join([*names, *(["others"] if names and has_others else [])])


def latex_to_text(text: str) -> str:
    r"""Convert the LaTeX of a name to text: `{\"O}zg\"ur` becomes Özgür. Commands that are not letters are dropped."""
    text = _ACCENTED.sub(lambda match: (match[3] or match[4] or match[5]) + _ACCENTS[match[1] or match[2]], text)
    text = _LETTER.sub(lambda match: _LETTERS[match[1]], text)
    text = re.sub(r"\\[A-Za-z]+\s*", "", text)
    text = re.sub(r"(?<!\\)[{}]", "", text.replace(r"\ ", " ").replace("~", " "))
    return " ".join(unicodedata.normalize("NFC", text.replace("\\", "")).split())


def to_latin(text: str) -> str:
    return text.translate(_LATIN_LETTERS)


def _split(text: str, separator: re.Pattern[str]) -> Iterator[str]:
    """Yield the parts of a text, split outside of braces or, if the braces are unbalanced, at every match."""
    depths = list(_depths(text))
    balanced = not depths or (depths[-1] == 0 and min(depths) >= 0)
    start = 0
    for match in separator.finditer(text):
        if not balanced or depths[match.start()] == 0:
            yield text[start : match.start()]
            start = match.end()
    yield text[start:]


def _depths(text: str) -> Iterator[int]:
    """Yield the number of open braces after each character."""
    depth = 0
    for place, character in enumerate(text):
        if character in "{}" and (place == 0 or text[place - 1] != "\\"):
            depth += 1 if character == "{" else -1
        yield depth
