"""Converters from tables with named columns (CSV, JSON Lines, or Parquet) to BEIR's layout.

A document or query has the columns `_id`, `text`, and optionally `title`, or variants such as `id`, `docid`, and
`contents`. A judgment has `query-id`, `corpus-id`, and `score`. In a table with only the first two, all grades are 1.
Other columns are ignored.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from evaluation.collections import beir
from evaluation.collections.beir import FileProblems
from evaluation.collections.other_formats import (
    Record,
    format_error,
    write_excluded,
    write_judgements,
    write_records,
)


def _canonical_name(name: str) -> str:
    """Return a column's name in lower case, without spaces, quotes, `#`, `-`, and `_`."""
    return "".join(letter for letter in name.lower() if letter not in "-_#\"' \r\t")


#: Column of a query's text, which has more alternative names than the text of a document.
_QUERY_TEXT = "query text"
#: Names of each column in order of preference, as `_canonical_name` writes them.
_NAMES = {
    "_id": ("id",),
    "text": ("text", "content"),
    _QUERY_TEXT: ("text", "content"),
    "query-id": ("queryid", "qid", "topicid", "questionid", "topicno", "topic", "query"),
    "corpus-id": (
        "corpusid", "documentid", "docid", "docno", "did", "passageid", "pid", "document", "doc", "passage",
    ),
}  # fmt: skip
#: Further names, used only if a table has exactly one of them, because several would be ambiguous.
_OTHER_NAMES = {
    "_id": (
        "docid", "docno", "documentid", "corpusid", "passageid", "pid", "queryid", "qid", "topicid", "questionid",
    ),
    "text": tuple(map(_canonical_name, beir.OTHER_TEXT_FIELDS)),
    _QUERY_TEXT: tuple(map(_canonical_name, (*beir.OTHER_TEXT_FIELDS, *beir.OTHER_QUERY_FIELDS))),
    "score": ("score", "grade", "relevance", "rel", "label", "judgment", "judgement", "relevancy", "qrel"),
}  # fmt: skip
_ROWS_AT_ONCE = 1000

Row = tuple[int, Mapping[str, Any]]


def convert_texts(paths: Sequence[Path], target: Path) -> None:
    """Write the documents or queries of several tables to one `corpus.jsonl` or `queries.jsonl`.

    Raises InvalidContent with the file and the line (for Parquet, the row) of a problem.
    """
    records = (
        Record(_to_text(path, line, identifier), _to_text(path, line, title), _to_text(path, line, text), line)
        for path in paths
        for line, (identifier, text, title) in _read_columns(path, ("_id", _text_column(target.name)), ("title",))
    )
    write_records(target, records)


def convert_judgements(paths: Sequence[Path], target: Path) -> None:
    """Write the judgments of tables as `qrels/SPLIT.tsv`, with whole grades such as 1.0 as integers.

    Raises the same errors as `convert_texts`.
    """
    write_judgements(target, (judgement for path in paths for judgement in _read_judgements(path)))


def convert_examples(paths: Sequence[Path], folder: Path, split: str) -> None:
    """Write the queries, judgments, and excluded documents of BRIGHT's tables of examples to the folder.

    A row has `id`, `query`, and the lists `gold_ids` (relevant documents) and `excluded_ids`, where `N/A` stands for
    none. Raises the same errors as `convert_texts`.
    """
    queries: list[Record] = []
    judgements: list[tuple[str, str, int]] = []
    excluded_pairs: list[tuple[str, str]] = []
    for path in paths:
        for line, (query, text, *lists) in _read_columns(path, ("_id", "query", "gold_ids", "excluded_ids")):
            for column, ids in zip(("gold_ids", "excluded_ids"), lists, strict=True):
                if not isinstance(ids, list) or not all(isinstance(identifier, str) for identifier in ids):
                    hint = 'Write a list of strings, such as ["d1", "d2"].'
                    raise format_error(path, [line], f"{column} is not a list of ids", hint)
            relevant_ids, excluded_ids = lists
            queries.append(Record(str(query), "", str(text), line))
            judgements += [(query, document, 1) for document in dict.fromkeys(relevant_ids)]
            excluded_pairs += [(query, document) for document in excluded_ids if document != "N/A"]
    write_records(folder / "queries.jsonl", queries)
    write_judgements(folder / "qrels" / f"{split}.tsv", judgements)
    write_excluded(folder / "excluded.tsv", excluded_pairs)


def _read_judgements(path: Path) -> Iterator[tuple[str, str, object]]:
    """Yield the judgments of a table, with grade 1 for rows of two columns."""
    rows = ((line, {**row, "score": 1} if len(row) == 2 else row) for line, row in _read_rows(path))
    for line, (query, document, grade) in _read_columns(path, ("query-id", "corpus-id", "score"), rows=rows):
        whole_grade = int(grade) if isinstance(grade, float) and grade.is_integer() else grade
        yield _to_text(path, line, query), _to_text(path, line, document), whole_grade


def _text_column(part: str) -> str:
    return _QUERY_TEXT if part.startswith("queries") else "text"


def _to_text(path: Path, line: int, value: Any) -> str:
    """Return an id or text as a string. Raises InvalidContent for fractions, booleans, lists, and objects."""
    text = beir.as_text(value)
    if text is None:
        message = f"{str(value)[:60]!r} is neither a text nor a whole number"
        raise format_error(path, [line], message, "Write ids and texts as strings, in double quotes.")
    return text


def has_other_names(path: Path, part: str) -> bool:
    """Return whether the first line of a file has an id and a text, but not under BEIR's names `_id` and `text`.

    `part` is `corpus.jsonl` or `queries.jsonl`, which have different variants of the names.
    """
    problems = FileProblems(path.name)
    line = next((line for _, line in beir.iterate_lines(path, problems) if line.strip()), b"")
    record = beir.parse_leniently(line, 1, problems)
    has_columns = isinstance(record, dict) and column_places(tuple(record), ("_id", _text_column(part))) is not None
    return has_columns and not ("_id" in record and "text" in record)


def _read_columns(
    path: Path, required_columns: Sequence[str], optional_columns: Sequence[str] = (), rows: Iterable[Row] | None = None
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (line, values of the columns) for each row of a table, or of `rows`; a missing optional column is None.

    Raises InvalidContent if a required column is missing or ambiguous, or if it is empty and does not contain texts.
    """
    for line, row in _read_rows(path) if rows is None else rows:
        cells = tuple(row)
        values = []
        for column in (*required_columns, *optional_columns):
            index = _find_column(cells, column)
            value = None if index is None else row[cells[index]]
            if value != value:  # pandas writes missing values as NaN.
                value = None
            if column in required_columns and (index is None or (value is None and not column.endswith("text"))):
                name = column.removeprefix("query ")
                message = f"no value in the column {name} (the columns are {', '.join(map(str, row))})"
                raise format_error(path, [line], message, f"Name the column {name} and give every row a value.")
            values.append(value)
        yield line, tuple(values)


def column_places(cells: Sequence[str], columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return the positions of these columns in a header, or None if one is missing or ambiguous.

    Also returns None for a table with ranks if `score` is among the columns, because such a table is a run.
    """
    indices = [_find_column(tuple(cells), column) for column in columns]
    if "score" in columns and "rank" in map(_canonical_name, cells):  # The table is a run.
        return None
    return None if None in indices else tuple(index for index in indices if index is not None)


@lru_cache(maxsize=1024)
def _find_column(cells: tuple[str, ...], column: str) -> int | None:
    """Return the index of a column in a header by its own name or a variant, or None if it is missing or ambiguous."""
    names = [_canonical_name(cell) for cell in cells]
    if column in cells and column != "score":
        return cells.index(column)
    for name in _NAMES.get(column, () if column in _OTHER_NAMES else (_canonical_name(column),)):
        if name in names:
            return names.index(name)
    indices = [index for index, name in enumerate(names) if name in _OTHER_NAMES.get(column, ())]
    return indices[0] if len(indices) == 1 else None


def _read_rows(path: Path) -> Iterable[Row]:
    kinds = {".parquet": _read_parquet, ".csv": _read_csv}
    return kinds.get(Path(path.name.removesuffix(".gz")).suffix, _read_json)(path)


def _read_json(path: Path) -> Iterator[Row]:
    """Yield (line number, object) of each line in JSON Lines that is not blank.

    Raises InvalidContent for other lines.
    """
    problems = FileProblems(path.name)
    for number, line in beir.iterate_lines(path, problems):
        if line.isspace():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = beir.parse_leniently(line, number, problems)
        if not isinstance(row, dict):
            raise format_error(path, [number], "a line that is not a JSON object", "Write one object per line.")
        yield number, row
    problems.raise_if_any()


def _read_csv(path: Path) -> Iterator[Row]:
    """Yield (number of its last line, values by column name) of each row of a CSV with a header.

    Raises InvalidContent for a row that does not fit the header, and if the file is not UTF-8 or not valid CSV.
    """
    problems = FileProblems(path.name)
    rows = csv.DictReader((line.decode() for _, line in beir.iterate_lines(path, problems)), strict=True)
    limit = csv.field_size_limit(beir.MAX_LINE_BYTES)  # Process-wide; documents may be long.
    try:
        for row in rows:
            if None in row or None in row.values():
                hint = "Quote fields with a comma, a quote, or a line break."
                raise format_error(path, [rows.reader.line_num], "a different number of fields than the header", hint)
            yield rows.reader.line_num, row
    except UnicodeDecodeError as error:
        raise format_error(path, [rows.reader.line_num + 1], "not UTF-8", "Save the file as UTF-8.") from error
    except csv.Error as error:
        raise format_error(path, [rows.reader.line_num], f"not valid CSV: {error}", "Quote as in RFC 4180.") from error
    finally:
        csv.field_size_limit(limit)
    problems.raise_if_any()


def _read_parquet(path: Path) -> Iterator[Row]:
    """Yield the rows of a Parquet file. Raises ImportError if the optional package pyarrow is not installed."""
    from pyarrow import ArrowInvalid, parquet

    try:
        rows = (row for batch in parquet.ParquetFile(path).iter_batches(_ROWS_AT_ONCE) for row in batch.to_pylist())
        yield from enumerate(rows, 1)
    except (ArrowInvalid, OSError) as error:
        raise format_error(path, [], f"not valid Parquet: {error}", "Download the file again.") from error
