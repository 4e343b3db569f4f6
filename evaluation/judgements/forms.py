"""Formats of judgment files, recognized by their first line: TREC qrels, and tables with or without a header."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from evaluation.collections.beir import BYTE_ORDER_MARK, MAX_ID_BYTES
from evaluation.collections.tables import column_places
from evaluation.core.problems import LineProblems

_GRADE = re.compile(r"([+-]?[0-9]{1,9})(?:\.0*)?")
_COLUMNS = ("query-id", "corpus-id", "score")
#: Pattern of column names. They have no digits, so that no line of judgments is mistaken for a header.
_NAME = re.compile(r"[^\W\d][^\d]*|#.*")


def is_number(value: Any, low: float, high: float) -> bool:
    """Return whether a JSON value is a number from `low` to `high`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def is_id(name: bytes) -> bool:
    """Return whether a run file can have this id."""
    return name.split() == [name] and len(name) <= MAX_ID_BYTES


#: Texts for lines that cannot be used: code → (message, hint).
PROBLEMS = {
    "encoding": ("not UTF-8: {lines}", "Save the file as UTF-8."),
    "identifier": (
        "an id that cannot be in a run file: {lines}", "Write ids of 1 to 256 bytes without white space.",
    ),
    "fields": (
        "unexpected columns: {lines}",
        "Write `query 0 document grade` (TREC), or query, document, and grade separated by tabs or commas, usually "
        "under the header `query-id<TAB>corpus-id<TAB>score`.",
    ),
    "header": (
        "a header that does not name the query, the document, and the grade: {lines}",
        "Name the columns query-id, corpus-id, and score, as BEIR does, or omit the header.",
    ),
    "json": (
        "JSON, which is not supported for judgments: {lines}",
        "Write a line for each judgment: `query-id<TAB>corpus-id<TAB>score`. For labels of answers, choose “judges in "
        "the file” or pass --labels.",
    ),
    "run": (
        "a run (six fields with a score), not judgments: {lines}",
        "Choose the file of relevance judgments (qrels): `query 0 document grade`.",
    ),
}  # fmt: skip


class JudgementLine(NamedTuple):
    """A judgment as written in the file: 1-based line number, ids, and the grade as text."""

    number: int
    query: str
    document: str
    grade: str


class _Form(NamedTuple):
    """Columns of query, document, and grade in a table; the separator is empty for white space.

    `width` is the exact number of fields, or 0 below a header, where further columns are ignored. `is_quoted` is true
    if double quotes enclose fields. In tables separated by commas or semicolons, they are always allowed.
    """

    separator: str
    places: tuple[int, ...]
    width: int
    is_quoted: bool = False


def parse_whole_grade(text: str) -> int | None:
    """Return the grade of a text such as `2` or `2.0`, or None if it is not a whole number."""
    match = _GRADE.fullmatch(text)
    return int(match[1]) if match else None


def judgement_lines(
    lines: Iterable[bytes], problems: LineProblems, clean: Callable[[str], str] = str
) -> Iterator[JudgementLine]:
    """Yield the judgments in a file's lines, and note other lines in `problems`.

    The first line decides the format of the file. `clean` is applied to the cells of tables with a header. Double
    quotes around fields are removed if the header or the first row has them.
    """
    texts = _decode_lines(lines, problems)
    form = None
    for number, text in texts:
        if not text.strip():
            continue
        if form is None:
            form = _find_header_form(text)
            if form is not None:
                continue
            form = _find_headless_form(text)
            clean = clean if form is None else str
        if form is not None:
            cells = _split_cells(text, form.separator)
            quoted = form.is_quoted or _is_quoted([cells[index] for index in form.places if index < len(cells)])
            form = form._replace(is_quoted=quoted)
            for row, cells in _read_rows(chain([(number, text)], texts), form, problems):
                if len(cells) <= max(form.places) or (form.width and len(cells) != form.width):
                    problems.note("fields", row)
                else:
                    yield JudgementLine(row, *(clean(cells[place].strip()) for place in form.places))
            return
        problems.note(_line_problem(text), number)


def _decode_lines(lines: Iterable[bytes], problems: LineProblems) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text) of each line in UTF-8, without a byte order mark; note other lines in `problems`.

    Lines with NUL, or with another byte order mark at their start, are noted too.
    """
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text or text.startswith("\ufeff"):
            problems.note("encoding", number)
        else:
            yield number, text


def _split_fields(text: str) -> list[str]:
    """Split at ASCII white space only, because other white space may be part of an id."""
    return [field.decode() for field in text.encode().split()]


def _split_cells(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else _split_fields(text)


def _is_quoted(cells: Sequence[str]) -> bool:
    """Return whether at least two cells are in double quotes, because a single one may be an id with quotes."""
    stripped_cells = [cell.strip() for cell in cells]
    return sum(len(cell) > 1 and cell[0] == cell[-1] == '"' for cell in stripped_cells) > 1


def _find_header_form(text: str) -> _Form | None:
    """Return the format of a table with column names in its first line, or None for any other line."""
    for separator in ("\t", ",", ";", ""):
        cells = _split_cells(text if separator else text.removeprefix("#"), separator)
        indices = column_places(cells, _COLUMNS)
        if indices is not None:
            return _Form(separator, indices, 0 if separator else len(cells), _is_quoted(cells))
    names = text.lower().split("\t")
    if len(names) == 3 and "-id" in names[0] and parse_whole_grade(names[2].strip()) is None:
        return _Form("\t", (0, 1, 2), 3, _is_quoted(names))  # BEIR's layout, other names
    return None


def _find_headless_form(text: str) -> _Form | None:
    """Return the format of a table with a judgment in its first line, or None if it is unclear."""
    fields = _split_fields(text)
    for separator in (",", ";"):
        cells = [cell.strip() for cell in text.split(separator)]
        has_plain_cells = all(len(_split_fields(cell)) == 1 for cell in cells)
        if has_plain_cells and len(cells) in (3, 4) and parse_whole_grade(cells[-1].strip('"')) is not None:
            return _Form(separator, (0, len(cells) - 2, len(cells) - 1), len(cells))
    if all(map(_NAME.fullmatch, fields)):
        return None
    if len(fields) == 3 and text.count("\t") == 2:
        return _Form("\t", (0, 1, 2), 3)
    if len(fields) == 4:
        return _Form("\t" if text.count("\t") == 3 and _is_quoted(fields) else "", (0, 2, 3), 4)
    if len(fields) == 3 and parse_whole_grade(fields[2]) is not None and fields[1].upper() not in ("0", "Q0"):
        return _Form("", (0, 1, 2), 3)
    return None


def _line_problem(text: str) -> str:
    """Return the problem code of a line that is not in a known format: json, run, header, or fields."""
    fields = _split_fields(text)
    if text.lstrip().startswith(("{", "[")):
        return "json"
    if len(fields) == 6 and re.fullmatch(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?", fields[4]):
        return "run"
    cells = next((cells for sign in ("\t", ",", ";") if len(cells := text.split(sign)) > 2), fields)
    return "header" if len(cells) > 2 and all(_NAME.fullmatch(cell.strip()) for cell in cells) else "fields"


def _read_rows(
    texts: Iterator[tuple[int, str]], form: _Form, problems: LineProblems
) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of each row that is not blank. For a row of several lines, `line` is the first.

    Rows with invalid quotes are noted in `problems`.
    """
    if form.separator in ("", "\t") and not form.is_quoted:
        for number, text in texts:
            if text.strip():
                yield number, _split_cells(text, form.separator)
        return
    first_number = last_number = 0

    def feed() -> Iterator[str]:
        nonlocal first_number, last_number
        for number, text in texts:
            first_number, last_number = first_number or number, number
            yield text + "\n"

    rows = csv.reader(feed(), delimiter=form.separator or " ", strict=True, skipinitialspace=True)
    while True:
        first_number = 0
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error:
            problems.note("fields", first_number or last_number)
            continue
        if any(cell.strip() for cell in cells):
            yield first_number, cells
