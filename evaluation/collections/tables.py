"""Tables with named columns, in CSV, JSON lines or Parquet, as corpus, queries and judgements in BEIR's layout.

A document or query has the columns `_id`, `text` and optionally `title`, or such as `id`, `docid` and `contents`; a
judgement has `query-id`, `corpus-id` and `score`, or in a table of pairs alone, whose grades are all 1, only the first
two. Other columns are ignored.
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
    write_excluded,
    write_judgements,
    write_records,
    wrong,
)


def _canonical(name: str) -> str:
    """Return a column's name in lower case, without spaces, quotes, `#`, `-`, and `_`."""
    return "".join(letter for letter in name.lower() if letter not in "-_#\"' \r\t")


#: The column of a query's text, which has further names.
_QUERY_TEXT = "query text"
#: Column → its names in order of preference, as `_canonical` writes them.
_NAMES = {
    "_id": ("id",),
    "text": ("text", "content"),
    _QUERY_TEXT: ("text", "content"),
    "query-id": ("queryid", "qid", "topicid", "questionid", "topicno", "topic", "query"),
    "corpus-id": (
        "corpusid", "documentid", "docid", "docno", "did", "passageid", "pid", "document", "doc", "passage",
    ),
}  # fmt: skip
#: Further names, which a table may have once: the meaning of a second one would be ambiguous.
_OTHER_NAMES = {
    "_id": (
        "docid", "docno", "documentid", "corpusid", "passageid", "pid", "queryid", "qid", "topicid", "questionid",
    ),
    "text": tuple(map(_canonical, beir.OTHER_TEXT_FIELDS)),
    _QUERY_TEXT: tuple(map(_canonical, (*beir.OTHER_TEXT_FIELDS, *beir.OTHER_QUERY_FIELDS))),
    "score": ("score", "grade", "relevance", "rel", "label", "judgment", "judgement", "relevancy", "qrel"),
}  # fmt: skip
_ROWS_AT_ONCE = 1000

Row = tuple[int, Mapping[str, Any]]


def convert_texts(paths: Sequence[Path], target: Path) -> None:
    """Write the documents or queries of tables one after the other as `corpus.jsonl` or `queries.jsonl`.

    Raises InvalidContent with the file and the line (of Parquet the row) of what is wrong.
    """
    columns = ("_id", _text_column(target.name))
    records = (
        Record(_text(path, line, identifier), _text(path, line, title), _text(path, line, text), line)
        for path in paths
        for line, (identifier, text, title) in _columns(path, columns, ("title",))
    )
    write_records(target, records)


def convert_judgements(paths: Sequence[Path], target: Path) -> None:
    """Write the judgements of tables as `qrels/SPLIT.tsv`; errors as `convert_texts`. 1.0 is the grade 1."""
    write_judgements(target, (judgement for path in paths for judgement in _judgements(path)))


def convert_examples(paths: Sequence[Path], folder: Path, split: str) -> None:
    """Write what BRIGHT's tables of examples have into the folder: queries, judgements, and excluded documents.

    A row has `id`, `query`, and the lists `gold_ids`, of relevant documents, and `excluded_ids`, in which `N/A` stands
    for none. Errors as `convert_texts`.
    """
    queries: list[Record] = []
    relevant: list[tuple[str, str, int]] = []
    left_out: list[tuple[str, str]] = []
    for path in paths:
        for line, (query, text, *lists) in _columns(path, ("_id", "query", "gold_ids", "excluded_ids")):
            for column, ids in zip(("gold_ids", "excluded_ids"), lists, strict=True):
                if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
                    hint = 'Write a list of texts, such as ["d1", "d2"].'
                    raise wrong(path, [line], f"{column} that is no list of ids", hint)
            gold, excluded = lists
            queries.append(Record(str(query), "", str(text), line))
            relevant += [(query, document, 1) for document in dict.fromkeys(gold)]
            left_out += [(query, document) for document in excluded if document != "N/A"]
    write_records(folder / "queries.jsonl", queries)
    write_judgements(folder / "qrels" / f"{split}.tsv", relevant)
    write_excluded(folder / "excluded.tsv", left_out)


def _judgements(path: Path) -> Iterator[tuple[str, str, object]]:
    """Yield the judgments of a table, with the grade 1 if a row has no column but those of its pair."""
    rows = ((line, {**row, "score": 1} if len(row) == 2 else row) for line, row in _rows(path))
    for line, (query, document, grade) in _columns(path, ("query-id", "corpus-id", "score"), rows=rows):
        whole = int(grade) if isinstance(grade, float) and grade.is_integer() else grade
        yield _text(path, line, query), _text(path, line, document), whole


def _text_column(part: str) -> str:
    return _QUERY_TEXT if part.startswith("queries") else "text"


def _text(path: Path, line: int, value: Any) -> str:
    """Return an id or text as a string. Raises InvalidContent for fractions, booleans, lists, and objects."""
    text = beir.as_text(value)
    if text is None:
        message = f"{str(value)[:60]!r} is neither a text nor a whole number"
        raise wrong(path, [line], message, "Write ids and texts as strings, in double quotes.")
    return text


def has_other_names(path: Path, part: str) -> bool:
    """Return whether `corpus.jsonl` or `queries.jsonl` names ids and texts differently from BEIR, by its first line."""
    problems = FileProblems(path.name)
    line = next((line for _, line in beir.iterate_lines(path, problems) if line.strip()), b"")
    record = beir.parse_leniently(line, 1, problems)
    named = isinstance(record, dict) and column_places(tuple(record), ("_id", _text_column(part))) is not None
    return named and not ("_id" in record and "text" in record)


def _columns(
    path: Path, needed: Sequence[str], optional: Sequence[str] = (), rows: Iterable[Row] | None = None
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """(line, values of the columns) for each row; an optional column that is not there is None."""
    for line, row in _rows(path) if rows is None else rows:
        cells = tuple(row)
        values = []
        for column in (*needed, *optional):
            place = _place(cells, column)
            value = None if place is None else row[cells[place]]
            if value != value:  # pandas writes a missing value as NaN
                value = None
            if column in needed and (place is None or (value is None and not column.endswith("text"))):
                name = column.removeprefix("query ")
                what = f"no value in a column {name} (there are {', '.join(map(str, row))})"
                raise wrong(path, [line], what, "Name the columns so, and give every row a value.")
            values.append(value)
        yield line, tuple(values)


def column_places(cells: Sequence[str], columns: Sequence[str]) -> tuple[int, ...] | None:
    """Return the positions of these columns in a header, or None if one is missing or ambiguous."""
    places = [_place(tuple(cells), column) for column in columns]
    if "score" in columns and "rank" in map(_canonical, cells):  # a run
        return None
    return None if None in places else tuple(place for place in places if place is not None)


@lru_cache(maxsize=1024)
def _place(cells: tuple[str, ...], column: str) -> int | None:
    names = [_canonical(cell) for cell in cells]
    if column in cells and column != "score":
        return cells.index(column)
    for name in _NAMES.get(column, () if column in _OTHER_NAMES else (_canonical(column),)):
        if name in names:
            return names.index(name)
    others = [place for place, name in enumerate(names) if name in _OTHER_NAMES.get(column, ())]
    return others[0] if len(others) == 1 else None


def _rows(path: Path) -> Iterable[Row]:
    kinds = {".parquet": _parquet, ".csv": _csv}
    return kinds.get(Path(path.name.removesuffix(".gz")).suffix, _json)(path)


def _json(path: Path) -> Iterator[Row]:
    problems = FileProblems(path.name)
    for number, line in beir.iterate_lines(path, problems):
        if line.isspace():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = beir.parse_leniently(line, number, problems)
        if not isinstance(row, dict):
            raise wrong(path, [number], "a line that is not one JSON object", "Write one object a line.")
        yield number, row
    problems.raise_if_any()


def _csv(path: Path) -> Iterator[Row]:
    problems = FileProblems(path.name)
    lines = (line.decode() for _, line in beir.iterate_lines(path, problems))
    rows = csv.DictReader(lines, strict=True)
    limit = csv.field_size_limit(beir.MAX_LINE_BYTES)  # of the whole process: a document may be long
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
    """Yield the rows of a Parquet file. Raises ImportError where pyarrow, an optional package, is not installed."""
    from pyarrow import ArrowInvalid, parquet

    try:
        batches = parquet.ParquetFile(path).iter_batches(_ROWS_AT_ONCE)
        rows = (row for batch in batches for row in batch.to_pylist())
        yield from enumerate(rows, 1)
    except (ArrowInvalid, OSError) as error:
        raise wrong(path, [], f"no Parquet: {error}", "Fetch the file again.") from error
