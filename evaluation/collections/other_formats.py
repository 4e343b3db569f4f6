"""Collections in formats other than BEIR's: helpers of their converters, SMART's format, and TREC topics.

SMART's format has documents and queries with the fields `.I`, `.T`, `.A`, `.B`, and `.W`, and judgments. Cranfield,
CISI, MED, and others are distributed in this format: ir.dcs.gla.ac.uk/resources/test_collections.

TREC topics are in SGML (`<top>`) or XML (`<topic>`). SGML has `<num>`, `<title>`, `<desc>`, and `<narr>`, mostly
without end tags, with labels such as `Number:`. XML gives a topic's number in the attribute `number` or in an element
of that name. TREC-COVID has `query`, `question`, and `narrative`; the clinical trials tracks have text without fields.
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
#: Maximum size of topics and SMART collections, which are read into memory. Published ones have a few
#: MB.
MAX_BYTES = 16 * 2**20


class Record(NamedTuple):
    """A document or query, and the 1-based line of its file where it begins."""

    id: str
    title: str
    text: str
    line: int


def format_error(path: Path, lines: Sequence[int], message_text: str, hint: str) -> InvalidContent:
    """Return the error for a file that cannot be converted; `lines` are all affected lines."""
    message = f"{path.name}: {message_text}"
    first_lines = tuple(lines[:LINES_NAMED])
    return InvalidContent.build(Problem("error", "unreadable_format", max(1, len(lines)), message, hint, first_lines))


def read_text(path: Path) -> str:
    """Return the content of a text file, plain or compressed. Raises InvalidContent if it is not UTF-8 or too large."""
    try:
        data = b"".join(open_blocks(path, FileLimits(max_expanded_bytes=MAX_BYTES)))
    except InvalidContent as error:
        hint = f"Use BEIR's layout or CSV: in this format, at most {describe_bytes(MAX_BYTES)} are read."
        raise format_error(path, [], str(error), hint) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise format_error(path, [line], "not UTF-8", "Save the file as UTF-8.") from error


def plain_number(identifier: str) -> str:
    """Return an id as judgments write it: a number without leading zeros, anything else unchanged."""
    return identifier.lstrip("0") or "0" if re.fullmatch("[0-9]+", identifier) else identifier


def check_repeated(path: Path, records: Iterable[Record]) -> None:
    """Raise InvalidContent with the lines of records that repeat an earlier id."""
    line_by_id: dict[str, int] = {}
    repeated_lines = [record.line for record in records if line_by_id.setdefault(record.id, record.line) != record.line]
    if repeated_lines:
        raise format_error(path, repeated_lines, "the id of an earlier record", "Give every record a different id.")


def write_records(target: Path, records: Iterable[Record]) -> None:
    """Write `corpus.jsonl` or `queries.jsonl`, with titles only for records that have one."""
    with target.open("wb") as file:
        for identifier, title, text, _ in records:
            title_field = {"title": title} if title else {}
            file.write(orjson.dumps({"_id": identifier, **title_field, "text": text}) + b"\n")


def write_judgements(target: Path, judgements: Iterable[tuple[str, str, object]]) -> None:
    """Write `qrels/SPLIT.tsv` from (query id, document id, grade)."""
    with target.open("w", encoding="utf-8") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        file.writelines(f"{query}\t{document}\t{grade}\n" for query, document, grade in judgements)


def write_excluded(target: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Write `excluded.tsv` from (query id, document id), without repetitions; no file if there are no pairs."""
    if lines := [f"{query}\t{document}\n" for query, document in dict.fromkeys(pairs)]:
        target.write_text(f"{EXCLUDED_HEADER}\n{''.join(lines)}", "utf-8")


_FIELD = re.compile(r"\.([A-Z])(?:\s+(\S+))?\s*")
_HINT = "Begin each record with `.I 1`, followed by `.T` (title), `.A`, `.B`, and `.W` (text), each on its own line."
_JUDGEMENT_HINT = "Write `query document code` (Cranfield), `query document 0 0` (CISI), or `query 0 document grade`."


def read_smart(path: Path) -> list[Record]:
    """Return the documents or queries of a file in SMART's format, with ids stripped of leading zeros.

    Raises InvalidContent with the lines of the first problem, and for repeated ids or a file without records.
    """
    records: list[Record] = []
    parts: dict[str, list[str]] = {}
    identifier, first_line, field = "", 0, ""

    def close() -> None:
        if first_line:
            title, text = (" ".join(" ".join(parts.get(name, ())).split()) for name in "TW")
            records.append(Record(identifier, title, text, first_line))

    for number, line in enumerate(read_text(path).split("\n"), 1):
        tag = _FIELD.fullmatch(line)
        if tag and tag[1] == "I":
            if not tag[2]:
                raise format_error(path, [number], ".I without an id", _HINT)
            close()
            parts, identifier, first_line, field = {}, plain_number(tag[2]), number, ""
        elif tag and not tag[2]:
            field = tag[1]
        elif first_line and field:
            parts.setdefault(field, []).append(line)
        elif line.strip():
            raise format_error(path, [number], "text before the first field of a record", _HINT)
    close()
    if not records:
        raise format_error(path, [], "there are no records", _HINT)
    check_repeated(path, records)
    return records


def read_smart_judgements(path: Path, queries: Sequence[Record]) -> Iterator[tuple[str, str, int]]:
    """Yield (query id, document id, grade) for each line. Raises InvalidContent with the lines that are not judgments.

    Cranfield's codes are descending: 1 is a complete answer, 4 of minimum interest
    (fox.cs.vt.edu/VAD1/DOWN/IRCOLLS/CRANQREL.TXT). They become the grades 4 to 1, and any other code becomes 0. Its
    judgments refer to queries by position, 1 to 225, although the ids are up to 365. Positions are therefore assumed if
    the judgments contain a query that is not an id and none is beyond the last position.
    """
    lines, unusable = [], []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if fields := line.split():
            try:
                lines.append(_parse_judgement([plain_number(field) for field in fields]))
            except ValueError:
                unusable.append(number)
    if unusable:
        raise format_error(path, unusable, "a line that is not a judgment", _JUDGEMENT_HINT)
    ids = [query.id for query in queries]
    judged_queries = {query for query, _, _ in lines}
    if not judged_queries <= set(ids) and judged_queries <= {str(position) for position in range(1, len(ids) + 1)}:
        return ((ids[int(query) - 1], document, grade) for query, document, grade in lines)
    return iter(lines)


def _parse_judgement(fields: Sequence[str]) -> tuple[str, str, int]:
    """Return (query, document, grade) from a line's fields. Raises ValueError for an unknown layout."""
    if len(fields) == 3:
        code = int(fields[2])
        return fields[0], fields[1], 5 - code if 1 <= code <= 4 else 0
    query, second_field, third_field, fourth_field = fields
    if second_field == "0":
        return query, third_field, int(fourth_field)
    if float(third_field) == 0:
        return query, second_field, 1
    raise ValueError("neither the second nor the third field is 0")


#: Fields of a topic that may be the query. Text without fields is the field `text`, used if there are no others.
FIELDS = ("title", "description", "narrative", "title+description")

_NAMES = {"query": "title", "desc": "description", "question": "description", "narr": "narrative", "": "text"}
_TAG = re.compile(r"<(/?)(top|num|title|desc|narr|con|dom|head|fac|def|smry)\b[^<>]*>|\Z", re.IGNORECASE)
_LABEL = re.compile(r"(?:Number|Topic|Description|Narrative)\s*:\s*", re.IGNORECASE)
_NUMBERS = ("number", "num")
_LAYOUT_HINT = "Write <top> with <num>, <title>, <desc>, and <narr>, or XML: <topics><topic number='1'><query>…"


class Topic(NamedTuple):
    """A topic: its non-empty fields by name (the single ones of FIELDS, and others), and its first line."""

    id: str
    fields: dict[str, str]
    line: int


def read_topics(path: Path) -> list[Topic]:
    """Return the topics of a file in SGML or XML. Raises InvalidContent with the affected lines if it is neither."""
    text = read_text(path)
    is_sgml = re.search(r"<top\b", text, re.IGNORECASE) is not None
    records = _read_sgml(path, text) if is_sgml else _XmlTopics(path).read(text)
    if not records:
        raise format_error(path, [], "there are no topics", _LAYOUT_HINT)
    topics = []
    for fields, line in records:
        fields_by_name = {_NAMES.get(name, name): value for name, value in fields.items() if value}
        topic_id = next((fields_by_name.pop(name) for name in _NUMBERS if name in fields_by_name), "")
        topics.append(Topic(plain_number(topic_id), fields_by_name, line))
    if lines_without_number := [topic.line for topic in topics if not topic.id]:
        raise format_error(path, lines_without_number, "a topic without a number", _LAYOUT_HINT)
    return topics


def select_queries(path: Path, topics: Sequence[Topic], field: str | None) -> tuple[str, list[Record]]:
    """Return the name of the query field and the queries.

    By default (`field` is None), this is the text of topics without fields, or else the title. Raises InvalidContent
    with the available fields if a topic lacks the requested one.
    """
    if field is None:
        field = "text" if all("text" in topic.fields for topic in topics) else "title"
    names = field.split("+")
    if lines_without_field := [topic.line for topic in topics if not topic.fields.keys() >= set(names)]:
        available_fields = sorted(set[str]().union(*(topic.fields for topic in topics)))
        raise format_error(
            path,
            lines_without_field,
            f"a topic has no {field}",
            f"Choose another field ({', '.join(FIELDS)}); these topics have {', '.join(available_fields) or 'none'}.",
        )
    queries = [Record(topic.id, "", " ".join(topic.fields[name] for name in names), topic.line) for topic in topics]
    check_repeated(path, queries)
    return field, queries


def _read_sgml(path: Path, text: str) -> list[tuple[dict[str, str], int]]:
    """Return (fields, line) of each `<top>`. A field ends where the next tag begins.

    Raises InvalidContent if `<top>` and `</top>` do not alternate.
    """
    topics: list[tuple[dict[str, str], int]] = []
    fields: dict[str, str] | None = None
    line = first_line = 1
    position = 0
    for tag, following in pairwise(_TAG.finditer(text)):
        line += text.count("\n", position, tag.start())
        position = tag.start()
        closes, name = tag[1], tag[2].lower()
        if name == "top":
            if closes and fields is not None:
                topics.append((fields, first_line))
            elif closes or fields is not None:
                raise format_error(path, [line], "<top> and </top> do not alternate", _LAYOUT_HINT)
            fields, first_line = None if closes else {}, line
        elif fields is not None and not closes:
            value = " ".join(text[tag.end() : following.start()].split())
            fields.setdefault(name, _LABEL.sub("", value, count=1) if _LABEL.match(value) else value)
    if fields is not None:
        raise format_error(path, [first_line], "<top> has no </top>", _LAYOUT_HINT)
    return topics


class _XmlTopics:
    """Event-based reader of `<topic>` elements.

    It refuses a DOCTYPE, which is required to declare entities, so no entity is expanded.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.topics: list[tuple[dict[str, str], int]] = []
        self._pieces: dict[str, list[str]] = {}
        #: Depth of the element: 0 outside of topics, 1 in a topic, 2 in one of its fields, and more if nested in it.
        self._line = self._depth = 0
        self._field = ""
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.StartElementHandler = self._start_element
        self._parser.EndElementHandler = self._end_element
        self._parser.CharacterDataHandler = self._add_text

    def read(self, text: str) -> list[tuple[dict[str, str], int]]:
        """Return (fields, line) of each topic."""
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise format_error(self.path, [error.lineno], f"not well-formed XML: {reason}", _LAYOUT_HINT) from error
        return self.topics

    def _refuse(self, *declared: object) -> None:
        line = self._parser.CurrentLineNumber
        raise format_error(self.path, [line], "XML with a DOCTYPE is not supported", "Remove the declaration.")

    def _start_element(self, name: str, attributes: dict[str, str]) -> None:
        """Begin a topic, with the number in its attributes, or one of its fields."""
        if self._depth or name == "topic":
            self._depth += 1
        if self._depth == 1:
            self._pieces = {"number": [attributes.get("number", "")]}
            self._line = self._parser.CurrentLineNumber
        self._field = name if self._depth == 2 else self._field if self._depth > 2 else ""

    def _end_element(self, name: str) -> None:
        """End an element, and store the topic if it is one."""
        if self._depth == 1:
            fields = {name: " ".join("".join(pieces).split()) for name, pieces in self._pieces.items()}
            self.topics.append((fields, self._line))
        self._depth = max(0, self._depth - 1)
        self._field = self._field if self._depth > 1 else ""

    def _add_text(self, data: str) -> None:
        if self._depth:
            self._pieces.setdefault(self._field, []).append(data)
