"""TREC topics, in SGML (`<top>`) or XML (`<topic>`), and which of their fields is the query.

SGML has `<num>`, `<title>`, `<desc>` and `<narr>`, mostly without end tags, with labels such as `Number:`. XML names a
topic by the attribute `number` or an element of that name; TREC-COVID's has `query`, `question` and `narrative`, and
those of the clinical trials tracks are text without fields.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

from evaluation.collections.other_formats import Record, check_repeated, plain_number, read_text, wrong

#: What may be asked of a topic. Text without fields is the field `text`, which is asked where there is no other.
FIELDS = ("title", "description", "narrative", "title+description")

_NAMES = {"query": "title", "desc": "description", "question": "description", "narr": "narrative", "": "text"}
_TAG = re.compile(r"<(/?)(top|num|title|desc|narr|con|dom|head|fac|def|smry)\b[^<>]*>|\Z", re.IGNORECASE)
_LABEL = re.compile(r"(?:Number|Topic|Description|Narrative)\s*:\s*", re.IGNORECASE)
_NUMBERS = ("number", "num")
_LAYOUT_HINT = (
    "Topics are <top> with <num>, <title>, <desc> and <narr>, or XML: <topics><topic number='1'><query>…"
)


class Topic(NamedTuple):
    """One topic: its fields that are not empty by name (FIELDS' single ones, and others), and where it begins."""

    id: str
    fields: dict[str, str]
    line: int


def read_topics(path: Path) -> list[Topic]:
    """Return the topics of a file in SGML or XML. Raises InvalidContent with the line of what is wrong."""
    text = read_text(path)
    is_sgml = re.search(r"<top\b", text, re.IGNORECASE) is not None
    found = _read_sgml(path, text) if is_sgml else _XmlTopics(path).read(text)
    if not found:
        raise wrong(path, [], "there are no topics", _LAYOUT_HINT)
    topics = []
    for fields, line in found:
        named = {_NAMES.get(name, name): value for name, value in fields.items() if value}
        number = next((named.pop(name) for name in _NUMBERS if name in named), "")
        topics.append(Topic(plain_number(number), named, line))
    if unnumbered := [topic.line for topic in topics if not topic.id]:
        raise wrong(path, unnumbered, "a topic without a number", _LAYOUT_HINT)
    return topics


def queries_of(path: Path, topics: Sequence[Topic], asked: str | None) -> tuple[str, list[Record]]:
    """Which field is the query, and the queries. None asks the text of topics without fields, else the title.

    Raises InvalidContent where a topic lacks it, with the names of those that there are.
    """
    if asked is None:
        asked = "text" if all("text" in topic.fields for topic in topics) else "title"
    names = asked.split("+")
    if lacking := [topic.line for topic in topics if not topic.fields.keys() >= set(names)]:
        there = sorted(set[str]().union(*(topic.fields for topic in topics)))
        raise wrong(
            path, lacking, f"a topic has no {asked}",
            f"Ask for another field ({', '.join(FIELDS)}); these topics have {', '.join(there) or 'none'}.",
        )  # fmt: skip
    queries = [
        Record(topic.id, "", " ".join(topic.fields[name] for name in names), topic.line) for topic in topics
    ]
    check_repeated(path, queries)
    return asked, queries


def _read_sgml(path: Path, text: str) -> list[tuple[dict[str, str], int]]:
    """(fields, line) of each `<top>`. A field ends where the next tag begins."""
    topics: list[tuple[dict[str, str], int]] = []
    fields: dict[str, str] | None = None
    line = begun = 1
    passed = 0
    for tag, following in pairwise(_TAG.finditer(text)):
        line += text.count("\n", passed, tag.start())
        passed = tag.start()
        closes, name = tag[1], tag[2].lower()
        if name == "top":
            if closes and fields is not None:
                topics.append((fields, begun))
            elif closes or fields is not None:
                raise wrong(path, [line], "<top> and </top> do not alternate", _LAYOUT_HINT)
            fields, begun = None if closes else {}, line
        elif fields is not None and not closes:
            value = " ".join(text[tag.end() : following.start()].split())
            fields.setdefault(name, _LABEL.sub("", value, count=1) if _LABEL.match(value) else value)
    if fields is not None:
        raise wrong(path, [begun], "<top> has no </top>", _LAYOUT_HINT)
    return topics


class _XmlTopics:
    """Reads `<topic>` elements by events, so that nothing is expanded: a DOCTYPE, which entities need, is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[tuple[dict[str, str], int]] = []
        self._pieces: dict[str, list[str]] = {}
        self._line = self._depth = (
            0  # 0: outside; 1: in a topic; 2: in a field of it; 3 and more: within that
        )
        self._field = ""
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._add

    def read(self, text: str) -> list[tuple[dict[str, str], int]]:
        """(fields, line) of each topic."""
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise wrong(self.path, [error.lineno], f"no well-formed XML: {reason}", _LAYOUT_HINT) from error
        return self.found

    def _refuse(self, *declared: object) -> None:
        line = self._parser.CurrentLineNumber
        raise wrong(self.path, [line], "XML with a DOCTYPE is not read", "Take the declaration out.")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._depth or name == "topic":
            self._depth += 1
        if self._depth == 1:
            self._pieces, self._line = (
                {"number": [attributes.get("number", "")]},
                self._parser.CurrentLineNumber,
            )
        self._field = name if self._depth == 2 else self._field if self._depth > 2 else ""

    def _end(self, name: str) -> None:
        if self._depth == 1:
            fields = {name: " ".join("".join(pieces).split()) for name, pieces in self._pieces.items()}
            self.found.append((fields, self._line))
        self._depth = max(0, self._depth - 1)
        self._field = self._field if self._depth > 1 else ""

    def _add(self, data: str) -> None:
        if self._depth:
            self._pieces.setdefault(self._field, []).append(data)
