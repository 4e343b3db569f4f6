"""What a run says of itself: comments in front of it, and how much of such metadata is kept.

Comments are `ir_metadata` (PRIMAD), which is YAML:

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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml

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
