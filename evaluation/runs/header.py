"""Header of a run file, and quotations for error messages about files that are not runs.

Comments at the top are `ir_metadata` (PRIMAD), which is YAML:

# ir_metadata.start
# platform:
#   hardware:
#     cpu:
#       model: 'Example CPU'
# method:
#   retrieval:
#     - 1: bm25
# ir_metadata.end

`select_metadata` applies the same limits to the metadata of comments and of JSON predictions.

Query ids may begin with `#`, so a line with the fields of a result is not a comment (`is_result`).
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml

from evaluation.archives.compression import FileLimits, open_blocks
from evaluation.core.problems import LINES_NAMED, PROBLEM_CODES, ProblemCode, format_count
from evaluation.text.yaml import load_yaml

#: Size of the region at the top of the file that is searched for comments.
MAX_HEADER_BYTES = 256 * 1024

#: Bytes that some programs write before UTF-8 text. They are not part of the text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_START, _END = "ir_metadata.start", "ir_metadata.end"
_START_LINE = re.compile(rb"^#[ \t]*ir_metadata\.start[ \t\r]*$", re.MULTILINE)
_END_LINE = re.compile(rb"^#[ \t]*ir_metadata\.end[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Header before the first line of a run.

    Attributes:
        size: Length in bytes, including a byte order mark.
        lines: Number of lines.
    """

    size: int = 0
    lines: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


def is_result(line: bytes, *, in_metadata: bool = False) -> bool:
    """Return whether a line is a result, even if it begins with `#`: six fields with a numeric score.

    A line with `Q0` and a rank is a result with any number of fields, so that it is reported as damaged and not dropped
    as a comment. Within metadata, which is free text, other lines are not results: `# six words of 2.5 prose` is a
    comment.
    """
    fields = line.split()
    if len(fields) >= 5 and fields[1] in (b"Q0", b"q0") and fields[3].isdigit():
        return True
    if len(fields) != 6 or in_metadata:
        return False
    try:
        numeric = math.isfinite(float(fields[4]))
    except ValueError:
        return False
    return numeric and (fields[0].strip(b"#") != b"" or fields[3].isdigit())


def read_header(start: bytes) -> RunHeader:
    """Return the header of a file that begins with `start`.

    Comments that cannot be parsed are omitted without an error.
    """
    size = len(BYTE_ORDER_MARK) if start.startswith(BYTE_ORDER_MARK) else 0
    start_match = _START_LINE.search(start, 0, MAX_HEADER_BYTES)
    end_match = _END_LINE.search(start, start_match.end(), MAX_HEADER_BYTES) if start_match else None
    metadata_range = range(start_match.start(), end_match.end()) if start_match and end_match else range(0)
    comments: list[str] = []
    while start.startswith(b"#", size) and size < MAX_HEADER_BYTES:
        end = start.find(b"\n", size)
        end = len(start) if end < 0 else end + 1
        line = start[size:end]
        if is_result(line, in_metadata=size in metadata_range):
            break
        # Databases may reject NUL, so it becomes U+FFFD like every other byte that is not text.
        comments.append(line.decode("utf-8", "replace").replace("\0", "\ufffd").rstrip()[1:])
        size = end
    return RunHeader(size, len(comments), _parse_metadata(comments) if comments else {})


def _parse_metadata(comments: list[str]) -> dict[str, Any]:
    """Return the ir_metadata in comments without their `#`, with all values as text.

    Returns an empty dict if there is none, or if it is not valid YAML, is nested too deeply, or has aliases.
    """
    names = [comment.strip() for comment in comments]
    if _START not in names:
        return {}
    first_line = names.index(_START) + 1
    last = names.index(_END) if _END in names else len(names)
    try:
        metadata = load_yaml("\n".join(comments[first_line:last]))
    except yaml.YAMLError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


#: Maximum number of entries of one object or list.
MAX_ENTRIES = 64
#: Limits in characters. Entries with a longer name are dropped, and longer texts are truncated.
LONGEST_NAME = 200
LONGEST_TEXT = 2000
#: Maximum nesting of objects and lists.
MAX_DEPTH = 16
#: Maximum size of all metadata as JSON.
MAX_BYTES = 64 * 1024

_OMITTED = object()


def select_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are strings, numbers, booleans, or objects and lists of these, up to the size limits.

    NUL becomes U+FFFD because databases may reject it. The result as compact JSON has at most `MAX_BYTES` bytes.
    The function is idempotent.
    """
    return _MetadataBudget(MAX_BYTES).select_object(metadata, MAX_DEPTH)


class _MetadataBudget:
    """Remaining bytes of JSON for the metadata of a run."""

    def __init__(self, remaining: int) -> None:
        self.remaining = remaining

    def take(self, count: int) -> bool:
        """Reserve `count` bytes and return True, or return False if fewer are left."""
        if count > self.remaining:
            return False
        self.remaining -= count
        return True

    def select_value(self, value: Any, depth: int) -> Any:
        """Return the value, shortened if necessary, or `_OMITTED` if it does not fit or has an unsupported type."""
        if isinstance(value, str):
            value = value[: LONGEST_TEXT - 1] + "…" if len(value) > LONGEST_TEXT else value
            value = value.replace("\0", "\ufffd")
        elif isinstance(value, (Mapping, list)):
            if depth == 0 or not self.take(2):  # its brackets
                return _OMITTED
            return self.select_items(value, depth) if isinstance(value, list) else self.select_object(value, depth)
        elif not isinstance(value, (int, float)):
            return _OMITTED
        return value if self.take(len(orjson.dumps(value))) else _OMITTED

    def select_object(self, entries: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return the entries of an object that fit into the remaining bytes and limits."""
        selected: dict[str, Any] = {}
        for original_name, value in entries.items():
            if len(selected) == MAX_ENTRIES:
                break
            if len(original_name) > LONGEST_NAME:
                continue
            name = original_name.replace("\0", "\ufffd")
            remaining_before = self.remaining
            selected_value = self.select_value(value, depth - 1) if self.take(len(orjson.dumps(name)) + 2) else _OMITTED
            if selected_value is _OMITTED:
                self.remaining = remaining_before
            else:
                selected[name] = selected_value
        return selected

    def select_items(self, values: list[Any], depth: int) -> list[Any]:
        selected = (self.select_value(value, depth - 1) for value in values[:MAX_ENTRIES] if self.take(1))
        return [value for value in selected if value is not _OMITTED]


#: Maximum characters of a line, and of one field, that a message quotes.
QUOTED_CHARACTERS, QUOTED_FIELD_CHARACTERS = 80, 40
#: Maximum bytes of a line that are read for a quotation.
_QUOTED_BYTES = 4096
#: Words that occur only in the header of a table.
_HEADINGS = re.compile(
    rb"(query|q|topic|doc|document|corpus|passage|p|run)[-_ ]?(id|no|num|number)|query|topic|qid|docno|doc|document|"
    rb"iter|iteration|rank|score|sim|similarity|tag|run|system|relevance|grade|label",
    re.IGNORECASE,
)
_GRADE = re.compile(rb"-?[0-9]{1,3}(\.0*)?")


def read_lines(path: Path | str | bytes, numbers: Collection[int], limits: FileLimits) -> dict[int, bytes]:
    """Return the lines with these 1-based numbers, without line ends, each truncated to 4,096 bytes."""
    requested_numbers = set(numbers)
    lines: dict[int, bytes] = {}
    number, rest = 1, b""  # `rest` is the start of line `number`.
    for block in open_blocks(path, limits) if requested_numbers else ():
        last = number + block.count(b"\n")
        if any(number <= line_number <= last for line_number in requested_numbers):
            *complete_lines, rest = (rest + block).split(b"\n")
            lines |= {
                position: line[:_QUOTED_BYTES]
                for position, line in enumerate(complete_lines, number)
                if position in requested_numbers
            }
            rest = rest[:_QUOTED_BYTES]
        else:
            rest = b""
        number = last
        if number > max(requested_numbers):
            break
    if rest and number in requested_numbers:
        lines.setdefault(number, rest)
    return {position: line.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r") for position, line in lines.items()}


def quote(text: bytes, max_characters: int = QUOTED_CHARACTERS) -> str:
    """Return a line of at most `max_characters` characters for a message, with unprintable characters escaped."""
    decoded = text[: 4 * max_characters + 4].decode("utf-8", "backslashreplace")
    escaped = "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in decoded)
    return escaped if len(escaped) <= max_characters else escaped[: max_characters - 1] + "…"


def quotation(code: ProblemCode, lines: tuple[int, ...], texts: Mapping[int, bytes]) -> str:
    """Return "; line 4 has 5 fields: `…`" for the first line of a problem, or an empty string if `texts` lacks it."""
    if code.quote is None or not lines or lines[0] not in texts:
        return ""
    text, description = texts[lines[0]], ""
    fields = text.split()
    if code == "fields":
        description = code.quote.format(fields=format_count(len(fields), "field")) if fields else "is blank"
    elif len(fields) >= 5:
        query, document, score = (f"`{quote(fields[place], QUOTED_FIELD_CHARACTERS)}`" for place in (0, 2, 4))
        sizes = {"query_bytes": len(fields[0]), "document_bytes": len(fields[2])}
        description = code.quote.format(query=query, document=document, score=score, **sizes)
    return f"; line {lines[0]:,}{f' {description}' if description else ''}{f': `{quote(text)}`' if fields else ''}"


def is_header(text: bytes) -> bool:
    """Return whether a line has column names, such as `query_id Q0 doc_id rank score tag`."""
    fields = [field.strip(b"\"'#") for field in re.split(rb"[\s,;]+", text.strip())]
    return sum(bool(_HEADINGS.fullmatch(field)) for field in fields) >= 2


def recognize_other_kind(rows: Sequence[bytes]) -> tuple[str, str] | None:
    """Guess the kind of a file that is not a run; return it with a hint, or None if it is unknown."""
    rows_below_header = rows[1:] if rows and is_header(rows[0]) else rows
    cells = [re.split(rb"[\s,;]+", row.strip()) for row in rows_below_header]
    if not cells:
        return None
    if all(map(is_trec_eval_result, cells)):
        return "results of trec_eval", "Send the run that trec_eval evaluated instead."
    # `query 0 document grade` (TREC) or `query document grade` (BEIR)
    forms = [len(row) == 3 or (len(row) == 4 and row[1] in (b"0", b"Q0", b"q0")) for row in cells]
    if not all(forms) or not all(_GRADE.fullmatch(row[-1]) for row in cells):
        return None
    hint = "Send a system's ranking instead."
    if all(len(row) == 3 for row in cells) and cells[0][2] in (b"1", b"1.0") and len({row[2] for row in cells}) > 1:
        hint += " If the third column is a rank, as in MS MARCO's runs, add the header line `qid docid rank`."
    return "relevance judgments (qrels)", hint


#: Names in the first column of trec_eval's output.
_RESULT = re.compile(
    rb"runid|num_(q|ret|rel|rel_ret)|map(_cut_\d+)?|gm_(map|bpref)|Rprec(_mult_[\d.]+)?|bpref|recip_rank|infAP|Rndcg|11pt_avg"
    rb"|ndcg(_rel)?|iprec_at_recall_[\d.]+|(relative_)?P_\d+|(recall|success|ndcg_cut)_\d+|set_\w+|utility|(bin)?G"
)  # fmt: skip


def is_trec_eval_result(cells: Sequence[bytes]) -> bool:
    """Return whether the cells are a measure, a query id or `all`, and a value."""
    return len(cells) == 3 and _RESULT.fullmatch(cells[0]) is not None


def lines_to_quote(problem_lines: Mapping[str, tuple[int, ...]]) -> set[int]:
    """Return the numbers of the lines that messages quote.

    Messages quote the first line of a problem. For `fields`, five lines are used to recognize judgments.
    """
    return {
        line
        for code, lines in problem_lines.items()
        if PROBLEM_CODES[code].quote is not None
        for line in lines[: LINES_NAMED if code == "fields" else 1]
    }
