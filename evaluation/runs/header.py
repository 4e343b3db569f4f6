"""Lines of a run file besides its results: the header, and quotations in messages about files that are not runs.

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

One rule (`select_metadata`) cuts the metadata of comments, of predictions, and of whatever comes next.

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
from evaluation.core.problems import LINES_NAMED, PROBLEM_CODES, ProblemCode, number_of

#: Comments are looked for in so many bytes at the top of the file.
MAX_HEADER_BYTES = 256 * 1024

#: What some programs put before the text of a UTF-8 file. It is no part of the text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_START, _END = "ir_metadata.start", "ir_metadata.end"
_START_LINE = re.compile(rb"^#[ \t]*ir_metadata\.start[ \t\r]*$", re.MULTILINE)
_END_LINE = re.compile(rb"^#[ \t]*ir_metadata\.end[ \t\r]*$", re.MULTILINE)
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What stands before the first line of the run: its length in bytes (with a byte order mark) and lines, and its
    metadata."""

    size: int = 0
    lines: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


def is_result(line: bytes, *, in_metadata: bool = False) -> bool:
    """Return whether a line is a result of a run, whatever its first character: six fields with a numeric score.

    A line with `Q0` and a rank counts with any number of fields, so that it is reported and not dropped as a comment.
    Within metadata, which is free text, no other line counts. `# six words of 2.5 prose` does not count either.
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

    Anything in it that cannot be understood is left out: a comment is never an error.
    """
    size = len(BYTE_ORDER_MARK) if start.startswith(BYTE_ORDER_MARK) else 0
    opened = _START_LINE.search(start, 0, MAX_HEADER_BYTES)
    closed = _END_LINE.search(start, opened.end(), MAX_HEADER_BYTES) if opened else None
    inside = range(opened.start(), closed.end()) if opened and closed else range(0)
    comments: list[str] = []
    while start.startswith(b"#", size) and size < MAX_HEADER_BYTES:
        end = start.find(b"\n", size)
        end = len(start) if end < 0 else end + 1
        line = start[size:end]
        if is_result(line, in_metadata=size in inside):
            break
        # NUL, which a database need not take, becomes U+FFFD like every other byte that is no text.
        comments.append(line.decode("utf-8", "replace").replace("\0", "\ufffd").rstrip()[1:])
        size = end
    return RunHeader(size, len(comments), _metadata(comments) if comments else {})


def _metadata(comments: list[str]) -> dict[str, Any]:
    names = [comment.strip() for comment in comments]
    if _START not in names:
        return {}
    first = names.index(_START) + 1
    last = names.index(_END) if _END in names else len(names)
    text, depth = "\n".join(comments[first:last]), 0
    try:
        for event in yaml.parse(text, Loader=yaml.CBaseLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):  # a few aliases make gigabytes
                return {}
        metadata = yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506 (makes text, lists and dictionaries alone)
    except yaml.YAMLError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


#: Entries of one object or list.
MOST_ENTRIES = 64
#: Characters; an entry with a longer name is left out, a longer text is cut.
LONGEST_NAME = 200
LONGEST_TEXT = 2000
#: How deep objects and lists may be nested.
DEEPEST = 16
#: All of it, as JSON.
MOST_BYTES = 64 * 1024

_LEFT_OUT = object()


def select_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that are text, numbers, truths, and objects and lists of those, in order, as far as there is room.

    NUL, which a database need not take, becomes U+FFFD. The result as compact JSON has at most `MOST_BYTES` bytes;
    to keep what was kept changes nothing.
    """
    return _MetadataBudget(MOST_BYTES).object(metadata, DEEPEST)


class _MetadataBudget:
    """The bytes of JSON that are left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> bool:
        """Whether there was so much room; what does not fit takes none, so that something smaller still may."""
        if count > self.left:
            return False
        self.left -= count
        return True

    def value(self, value: Any, depth: int) -> Any:
        """Return the value, or as much of it as is kept, or `_LEFT_OUT`."""
        if isinstance(value, str):
            value = value[: LONGEST_TEXT - 1] + "…" if len(value) > LONGEST_TEXT else value
            value = value.replace("\0", "\ufffd")
        elif isinstance(value, (Mapping, list)):
            if depth == 0 or not self.take(2):  # its brackets
                return _LEFT_OUT
            return self.items(value, depth) if isinstance(value, list) else self.object(value, depth)
        elif not isinstance(value, (int, float)):
            return _LEFT_OUT
        return value if self.take(len(orjson.dumps(value))) else _LEFT_OUT

    def object(self, entries: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return the entries that are kept."""
        kept: dict[str, Any] = {}
        for given, value in entries.items():
            if len(kept) == MOST_ENTRIES:
                break
            if len(given) > LONGEST_NAME:
                continue
            name = given.replace("\0", "\ufffd")
            before = self.left
            found = self.value(value, depth - 1) if self.take(len(orjson.dumps(name)) + 2) else _LEFT_OUT
            if found is _LEFT_OUT:
                self.left = before
            else:
                kept[name] = found
        return kept

    def items(self, values: list[Any], depth: int) -> list[Any]:
        """Return the items that are kept."""
        found = (self.value(value, depth - 1) for value in values[:MOST_ENTRIES] if self.take(1))
        return [value for value in found if value is not _LEFT_OUT]


#: Characters of a line, and of one of its fields, that a message shows.
SHOWN, SHOWN_FIELD = 80, 40
#: Bytes of a line that are kept: a longer one is cut before it is looked at.
_KEPT = 4096
#: Words that only the first line of a table has.
_HEADINGS = re.compile(
    rb"(query|q|topic|doc|document|corpus|passage|p|run)[-_ ]?(id|no|num|number)|query|topic|qid|docno|doc|document|"
    rb"iter|iteration|rank|score|sim|similarity|tag|run|system|relevance|grade|label",
    re.IGNORECASE,
)
_GRADE = re.compile(rb"-?[0-9]{1,3}(\.0*)?")


def lines_at(path: Path | str | bytes, numbers: Collection[int], limits: FileLimits) -> dict[int, bytes]:
    """Return the lines of a file with these 1-based numbers, without line ends, each cut to 4,096 bytes."""
    wanted = set(numbers)
    found: dict[int, bytes] = {}
    number, rest = 1, b""  # `rest` is the beginning of line `number`
    for block in open_blocks(path, limits) if wanted else ():
        last = number + block.count(b"\n")
        if any(number <= each <= last for each in wanted):
            *whole, rest = (rest + block).split(b"\n")
            found |= {at: line[:_KEPT] for at, line in enumerate(whole, number) if at in wanted}
            rest = rest[:_KEPT]
        else:
            rest = b""
        number = last
        if number > max(wanted):
            break
    if rest and number in wanted:
        found.setdefault(number, rest)
    return {at: line.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r") for at, line in found.items()}


def quote(text: bytes, longest: int = SHOWN) -> str:
    """Text for a message: one line of at most `longest` characters, with escapes for what cannot be printed."""
    decoded = text[: 4 * longest + 4].decode("utf-8", "backslashreplace")
    escaped = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in decoded
    )
    return escaped if len(escaped) <= longest else escaped[: longest - 1] + "…"


def quotation(code: ProblemCode, lines: tuple[int, ...], texts: Mapping[int, bytes]) -> str:
    """Return `; line 4 has 5 fields: “…”` for the first line of a problem, empty if the line is not at hand."""
    if code.quote is None or not lines or lines[0] not in texts:
        return ""
    text, description = texts[lines[0]], ""
    fields = text.split()
    if code == "fields":
        description = code.quote.format(fields=number_of(len(fields), "field")) if fields else "is blank"
    elif len(fields) >= 5:
        query, document, score = (f"'{quote(fields[place], SHOWN_FIELD)}'" for place in (0, 2, 4))
        sizes = {"query_bytes": len(fields[0]), "document_bytes": len(fields[2])}
        description = code.quote.format(query=query, document=document, score=score, **sizes)
    return f"; line {lines[0]:,}{f' {description}' if description else ''}: “{quote(text)}”"


def is_header(text: bytes) -> bool:
    """Whether a line is one of column names, such as `query_id Q0 doc_id rank score tag`."""
    fields = [field.strip(b"\"'#") for field in re.split(rb"[\s,;]+", text.strip())]
    return sum(bool(_HEADINGS.fullmatch(field)) for field in fields) >= 2


def recognize_other(rows: Sequence[bytes]) -> tuple[str, str] | None:
    """Return the kind of a file that is not a run, by its first rows, and a hint, or None if it is unknown."""
    below_names = rows[1:] if rows and is_header(rows[0]) else rows
    cells = [re.split(rb"[\s,;]+", row.strip()) for row in below_names]
    if not cells:
        return None
    if all(map(is_trec_eval_result, cells)):
        return "results of trec_eval", "Send the run that trec_eval scored."
    # `query 0 document grade` (TREC), or `query document grade` (BEIR).
    forms = [len(row) == 3 or (len(row) == 4 and row[1] in (b"0", b"Q0", b"q0")) for row in cells]
    if not all(forms) or not all(_GRADE.fullmatch(row[-1]) for row in cells):
        return None
    hint = "Send the ranking of a system."
    if (
        all(len(row) == 3 for row in cells)
        and cells[0][2] in (b"1", b"1.0")
        and len({row[2] for row in cells}) > 1
    ):
        hint += " If the third column is a rank, as in MS MARCO's runs, add the header line `qid docid rank`."
    return "relevance judgements (qrels)", hint


#: The first column of trec_eval's output.
_RESULT = re.compile(
    rb"runid|num_(q|ret|rel|rel_ret)|map(_cut_\d+)?|gm_(map|bpref)|Rprec(_mult_[\d.]+)?|bpref|recip_rank|infAP|Rndcg|11pt_avg"
    rb"|ndcg(_rel)?|iprec_at_recall_[\d.]+|(relative_)?P_\d+|(recall|success|ndcg_cut)_\d+|set_\w+|utility|(bin)?G"
)  # fmt: skip


def is_trec_eval_result(cells: Sequence[bytes]) -> bool:
    """Return whether the cells are a measure, a query or `all`, and a value."""
    return len(cells) == 3 and _RESULT.fullmatch(cells[0]) is not None


def lines_to_quote(counted: Mapping[str, tuple[int, ...]]) -> set[int]:
    """Return the lines that messages quote, of the first lines of each problem: one, or five that may be judgments."""
    return {
        line
        for code, lines in counted.items()
        if PROBLEM_CODES[code].quote is not None
        for line in lines[: LINES_NAMED if code == "fields" else 1]
    }
