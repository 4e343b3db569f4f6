"""Tables with named columns, in CSV, JSON lines or Parquet, as corpus, queries and judgements in BEIR's layout.

A document or query has the columns `_id` (or `id`), `text` (or `content`) and optionally `title`; a judgement has
`query-id`, `corpus-id` and `score`, or in a table of pairs alone, whose grades are all 1, only the first two. Other
columns are left.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from evaluation.collections.beir import MAX_LINE_BYTES, FileProblems, iterate_lines
from evaluation.collections.other_formats import (
    Record,
    write_excluded,
    write_judgements,
    write_records,
    wrong,
)

#: Column → the names that it may have.
_NAMES = {
    "_id": ("_id", "id"), "text": ("text", "content"), "title": ("title",), "score": ("score",),
    "query-id": ("query-id", "query_id"), "corpus-id": ("corpus-id", "corpus_id"),
}  # fmt: skip
_ROWS_AT_ONCE = 1000

Row = tuple[int, Mapping[str, Any]]


def convert_texts(paths: Sequence[Path], target: Path) -> None:
    """Write the documents or queries of tables one after the other as `corpus.jsonl` or `queries.jsonl`.

    Raises InvalidContent with the file and the line (of Parquet the row) of what is wrong.
    """
    write_records(target, (record for path in paths for record in _records(path)))


def convert_judgements(paths: Sequence[Path], target: Path) -> None:
    """Write the judgements of tables as `qrels/SPLIT.tsv`; errors as `convert_texts`. 1.0 is the grade 1."""
    columns = ("query-id", "corpus-id", "score")
    rows = (values for path in paths for _, values in _columns(path, columns, rows=_graded(_rows(path))))
    write_judgements(target, ((query, document, _whole(grade)) for query, document, grade in rows))


def convert_examples(paths: Sequence[Path], folder: Path, split: str) -> None:
    """Write what BRIGHT's tables of examples have into the folder: queries, judgements, and excluded documents.

    A row has `id`, `query`, and the lists `gold_ids`, of relevant documents, and `excluded_ids`, in which `N/A` stands
    for none. Errors as `convert_texts`.
    """
    columns = ("_id", "query", "gold_ids", "excluded_ids")
    examples = [
        (
            line,
            query,
            text,
            _listed(path, line, "gold_ids", gold),
            _listed(path, line, "excluded_ids", excluded),
        )
        for path in paths
        for line, (query, text, gold, excluded) in _columns(path, columns)
    ]
    write_records(
        folder / "queries.jsonl",
        (Record(str(query), "", str(text), line) for line, query, text, *_ in examples),
    )
    relevant = ((query, document, 1) for _, query, _, gold, _ in examples for document in dict.fromkeys(gold))
    write_judgements(folder / "qrels" / f"{split}.tsv", relevant)
    pairs = ((query, document) for _, query, _, _, listed in examples for document in listed)
    write_excluded(folder / "excluded.tsv", (pair for pair in pairs if pair[1] != "N/A"))


def _listed(path: Path, line: int, column: str, value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise wrong(
        path, [line], f"{column} that is no list of ids", 'Write a list of texts, such as ["d1", "d2"].'
    )


def _graded(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of judgements, with the grade 1 where a row has no column but those of its pair."""
    for line, row in rows:
        yield line, {**row, "score": 1} if len(row) == 2 else row


def _whole(grade: Any) -> Any:
    return int(grade) if isinstance(grade, float) and grade.is_integer() else grade


def _records(path: Path) -> Iterator[Record]:
    for line, (identifier, text, title) in _columns(path, ("_id", "text"), ("title",)):
        yield Record(str(identifier), str(title or ""), str(text), line)


def _columns(
    path: Path, needed: Sequence[str], optional: Sequence[str] = (), rows: Iterable[Row] | None = None
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """(line, values of the columns) for each row; an optional column that is not there is None."""
    for line, row in _rows(path) if rows is None else rows:
        values = []
        for column in (*needed, *optional):
            value = next((row[name] for name in _NAMES.get(column, (column,)) if name in row), None)
            if value is None and column in needed:
                what = f"no value in a column {column} (there are {', '.join(map(str, row))})"
                raise wrong(path, [line], what, "Name the columns so, and give every row a value.")
            values.append(value)
        yield line, tuple(values)


def _rows(path: Path) -> Iterable[Row]:
    kinds = {".parquet": _parquet, ".csv": _csv}
    return kinds.get(Path(path.name.removesuffix(".gz")).suffix, _json)(path)


def _json(path: Path) -> Iterator[Row]:
    problems = FileProblems(path.name)
    for number, line in iterate_lines(path, problems):
        if line.isspace():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            raise wrong(path, [number], "a line that is not one JSON object", "Write one object a line.")
        yield number, row
    problems.raise_if_any()


def _csv(path: Path) -> Iterator[Row]:
    problems = FileProblems(path.name)
    lines = (line.decode() for _, line in iterate_lines(path, problems))
    rows = csv.DictReader(lines, strict=True)
    limit = csv.field_size_limit(MAX_LINE_BYTES)  # of the whole process: a document may be long
    try:
        for row in rows:
            if None in row or None in row.values():
                hint = "Quote a field that has a comma, a quote or a line end."
                raise wrong(path, [rows.reader.line_num], "not as many fields as the header has", hint)
            yield rows.reader.line_num, row
    except UnicodeDecodeError as error:
        raise wrong(path, [rows.reader.line_num + 1], "not UTF-8", "Save the file as UTF-8.") from error
    except csv.Error as error:
        raise wrong(path, [rows.reader.line_num], f"no CSV: {error}", "Quote as RFC 4180 says.") from error
    finally:
        csv.field_size_limit(limit)
    problems.raise_if_any()


def _parquet(path: Path) -> Iterator[Row]:
    """The rows of a Parquet file. Raises ImportError where pyarrow, an optional package, is not installed."""
    from pyarrow import ArrowInvalid, parquet

    try:
        batches = parquet.ParquetFile(path).iter_batches(_ROWS_AT_ONCE)
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from enumerate(rows, 1)
    except (ArrowInvalid, OSError) as error:
        raise wrong(path, [], f"no Parquet: {error}", "Fetch the file again.") from error
