"""What converters of other formats share: reading text, writing BEIR's layout, and saying where something is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson

from evaluation.archives.compression import FileLimits, describe_bytes, open_blocks
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import LINES_NAMED, Problem

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
    """The error of a file that cannot be converted; `lines` are all that are concerned."""
    message = f"{path.name}: {what}"
    named = tuple(lines[:LINES_NAMED])
    return InvalidContent.of(Problem("error", "unreadable_format", max(1, len(lines)), message, hint, named))


def read_text(path: Path) -> str:
    """The whole of a text file, plain or compressed. Raises InvalidContent where it is no UTF-8, or too large."""
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
    """An id as judgements write it: a number without leading zeros, anything else as it is."""
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
