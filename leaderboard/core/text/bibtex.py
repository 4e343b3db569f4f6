"""BibTeX, read and written.

Entries are repeated as they were sent. bibtexparser would save about ten lines here, but loses the second of two
entries under one key, and writes entries anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from leaderboard.core.text.latex import foreign_command

_START = re.compile(r"@\s*([A-Za-z]+)\s*\{\s*([^\s,{}=\"#%'()~\\]+)\s*,")
_BRACE = re.compile("[{}]")
#: What BibTeX takes for an entry or a command wherever it looks for one: after a mistake, even within a field.
_BEGINNING = re.compile(r"@\s*[^\s{}=\"#%'(),@]+\s*[{(]")
#: Entries that are no publications.
_OTHER_KINDS = ("comment", "string", "preamble")


class Reference(NamedTuple):
    """One entry of a bibliography: its type, its key, and what stands between the key's comma and the last brace."""

    kind: str
    key: str
    fields: str

    def written(self, key: str) -> str:
        """The entry under another key."""
        return f"@{self.kind}{{{key},{self.fields}}}"


def references_in(text: str) -> list[Reference]:
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
            found.append(Reference(kind, match[2], text[match.end() : end]))
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
    if _BEGINNING.search(entry) or foreign_command(entry):
        return False
    depth = 0
    for brace in _BRACE.finditer(entry):
        if entry[brace.start() - 1] != "\\":
            depth += 1 if brace[0] == "{" else -1
        if depth < 1 and brace.end() < len(entry):
            return False
    return depth == 0


def misc(key: str, fields: Mapping[str, str]) -> str:
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


def url_in(url: str) -> str:
    """An address in which no brace or backslash ends the entry, and no `@` begins one."""
    return re.sub(r"[{}\\\s\"@]", lambda match: f"%{ord(match[0]):02X}", url)
