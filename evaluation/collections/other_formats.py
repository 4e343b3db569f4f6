"""Collections in other formats than BEIR's: what their converters share, and SMART's format.

SMART had documents and queries under `.I`, `.T`, `.A`, `.B` and `.W`, and their judgements. Cranfield, CISI, MED and
others are distributed so: ir.dcs.gla.ac.uk/resources/test_collections.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
