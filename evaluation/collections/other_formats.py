"""Collections in other formats than BEIR's: what their converters share, SMART's format, and TREC topics.

SMART had documents and queries under `.I`, `.T`, `.A`, `.B` and `.W`, and their judgements. Cranfield, CISI, MED and
others are distributed so: ir.dcs.gla.ac.uk/resources/test_collections.

TREC topics are in SGML (`<top>`) or XML (`<topic>`). SGML has `<num>`, `<title>`, `<desc>` and `<narr>`, mostly without
end tags, with labels such as `Number:`. XML names a topic by the attribute `number` or an element of that name;
TREC-COVID's has `query`, `question` and `narrative`, and those of the clinical trials tracks are text without fields.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.parsers import expat

import orjson

from evaluation.archives.compression import FileLimits, describe_bytes, open_blocks
from evaluation.core.problems import LINES_NAMED, InvalidContent, Problem

EXCLUDED_HEADER = "query-id\tcorpus-id"
#: Topics and SMART collections are read whole: those that are handed out so have some megabytes.
MOST_BYTES = 16 * 2**20


class Record(NamedTuple):
    """A document or query, and the 1-based line of its file where it begins."""

    id: str
    title: str
    text: str
    line: int


def wrong(path: Path, lines: Sequence[int], what: str, hint: str) -> InvalidContent:
    """Return the error of a file that cannot be converted; `lines` are all that are concerned."""
    message = f"{path.name}: {what}"
    named = tuple(lines[:LINES_NAMED])
    return InvalidContent.of(Problem("error", "unreadable_format", max(1, len(lines)), message, hint, named))


def read_text(path: Path) -> str:
    """Return the whole of a text file, plain or compressed. Raises InvalidContent if it is not UTF-8, or too large."""
    try:
        data = b"".join(open_blocks(path, FileLimits(max_expanded_bytes=MOST_BYTES)))
    except InvalidContent as error:
        hint = f"At most {describe_bytes(MOST_BYTES)} are read; BEIR's layout and CSV may be larger."
        raise wrong(path, [], str(error), hint) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise wrong(path, [line], "not UTF-8", "Save the file as UTF-8.") from error


def plain_number(identifier: str) -> str:
    """Return an id as judgements write it: a number without leading zeros, anything else as it is."""
    return identifier.lstrip("0") or "0" if re.fullmatch("[0-9]+", identifier) else identifier


def check_repeated(path: Path, records: Iterable[Record]) -> None:
    """Raise InvalidContent with the lines of records whose id an earlier one has."""
    first: dict[str, int] = {}
    again = [record.line for record in records if first.setdefault(record.id, record.line) != record.line]
    if again:
        raise wrong(path, again, "an id that is there already", "Give every record an id of its own.")


def write_records(target: Path, records: Iterable[Record]) -> None:
    """Write `corpus.jsonl` or `queries.jsonl`; a title only where there is one."""
    with target.open("wb") as file:
        for identifier, title, text, _ in records:
            titled = {"title": title} if title else {}
            file.write(orjson.dumps({"_id": identifier, **titled, "text": text}) + b"\n")


def write_judgements(target: Path, judgements: Iterable[tuple[str, str, object]]) -> None:
    """Write `qrels/SPLIT.tsv` from (query id, document id, grade)."""
    with target.open("w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        file.writelines(f"{query}\t{document}\t{grade}\n" for query, document, grade in judgements)


def write_excluded(target: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Write `excluded.tsv` from (query id, document id), each pair once; no file where there are none."""
    lines = [f"{query}\t{document}\n" for query, document in dict.fromkeys(pairs)]
    if lines:
        target.write_text(f"{EXCLUDED_HEADER}\n{''.join(lines)}", "utf-8")


_FIELD = re.compile(r"\.([A-Z])(?:\s+(\S+))?\s*")
_HINT = "A record begins with `.I 1`; then come `.T` (title), `.A`, `.B` and `.W` (text), each on a line of its own."
_JUDGEMENT_HINT = (
    "A line is `query document code` (Cranfield), `query document 0 0` (CISI) or `query 0 document grade`."
)


def read_smart(path: Path) -> list[Record]:
    """Return the documents or queries of a file. Numbers lose leading zeros. Raises InvalidContent with lines."""
    records: list[Record] = []
    parts: dict[str, list[str]] = {}
    identifier, begun, field = "", 0, ""

    def close() -> None:
        if begun:
            title, text = (" ".join(" ".join(parts.get(name, ())).split()) for name in "TW")
            records.append(Record(identifier, title, text, begun))

    for number, line in enumerate(read_text(path).split("\n"), 1):
        tag = _FIELD.fullmatch(line)
        if tag and tag[1] == "I":
            if not tag[2]:
                raise wrong(path, [number], ".I without an id", _HINT)
            close()
            parts, identifier, begun, field = {}, plain_number(tag[2]), number, ""
        elif tag and not tag[2]:
            field = tag[1]
        elif begun and field:
            parts.setdefault(field, []).append(line)
        elif line.strip():
            raise wrong(path, [number], "text before the first field of a record", _HINT)
    close()
    if not records:
        raise wrong(path, [], "there are no records", _HINT)
    check_repeated(path, records)
    return records


def read_smart_judgements(path: Path, queries: Sequence[Record]) -> Iterator[tuple[str, str, int]]:
    """(query id, document id, grade) for each line. Raises InvalidContent with the lines that are none.

    Cranfield's codes fall: 1 is a complete answer, 4 of minimum interest
    (fox.cs.vt.edu/VAD1/DOWN/IRCOLLS/CRANQREL.TXT). They become the grades 4 to 1, any other code 0. Its queries are
    judged by their place, 1 to 225, though their ids go up to 365: so it is wherever judgements name a query that has
    no such id, and none beyond the last place.
    """
    lines, unusable = [], []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if fields := line.split():
            try:
                lines.append(_judgement([plain_number(each) for each in fields]))
            except ValueError:
                unusable.append(number)
    if unusable:
        raise wrong(path, unusable, "no judgement", _JUDGEMENT_HINT)
    ids = [query.id for query in queries]
    named = {query for query, _, _ in lines}
    if not named <= set(ids) and named <= {str(place) for place in range(1, len(ids) + 1)}:
        return ((ids[int(query) - 1], document, grade) for query, document, grade in lines)
    return iter(lines)


def _judgement(fields: Sequence[str]) -> tuple[str, str, int]:
    """(query, document, grade) of a line's fields. Raises ValueError where they are none of the known layouts."""
    if len(fields) == 3:
        code = int(fields[2])
        return fields[0], fields[1], 5 - code if 1 <= code <= 4 else 0
    query, second, third, fourth = fields
    if second == "0":
        return query, third, int(fourth)
    if float(third) == 0:
        return query, second, 1
    raise ValueError("neither the second nor the third field is 0")


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
