"""Collections as SMART had them: documents and queries under `.I`, `.T`, `.A`, `.B` and `.W`, and their judgements.

Cranfield, CISI, MED and others are handed out so: ir.dcs.gla.ac.uk/resources/test_collections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluation.collections.other_formats import Record, check_repeated, plain_number, read_text, wrong

_FIELD = re.compile(r"\.([A-Z])(?:\s+(\S+))?\s*")
_HINT = "A record begins with `.I 1`; then come `.T` (title), `.A`, `.B` and `.W` (text), each on a line of its own."
_JUDGEMENT_HINT = (
    "A line is `query document code` (Cranfield), `query document 0 0` (CISI) or `query 0 document grade`."
)


def read_smart(path: Path) -> list[Record]:
    """The documents or queries of a file. Numbers lose leading zeros. Raises InvalidContent with lines."""
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
