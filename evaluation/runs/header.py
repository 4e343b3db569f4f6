"""Comments in front of a run: `ir_metadata` (PRIMAD), which is YAML.

# ir_metadata.start
# platform:
#   hardware:
#     cpu:
#       model: 'Example CPU'
# method:
#   retrieval:
#     - 1: bm25
# ir_metadata.end
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

#: Comments are looked for in so many bytes at the top of the file.
MAX_HEADER_BYTES = 256 * 1024

#: What some programs put before the text of a UTF-8 file. It is no part of the text.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_START, _END = "ir_metadata.start", "ir_metadata.end"
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What stands before the first line of the run: its length in bytes (with a byte order mark) and lines, and its
    metadata."""

    size: int = 0
    lines: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


def read_header(start: bytes) -> RunHeader:
    """The header of a file that begins with `start`. Anything that is not understood in it is left out, silently:
    a comment is never an error."""
    size = len(BYTE_ORDER_MARK) if start.startswith(BYTE_ORDER_MARK) else 0
    comments: list[str] = []
    while start.startswith(b"#", size) and size < MAX_HEADER_BYTES:
        end = start.find(b"\n", size)
        end = len(start) if end < 0 else end + 1
        # NUL, which a database need not take, becomes U+FFFD like every other byte that is no text.
        comments.append(start[size:end].decode("utf-8", "replace").replace("\0", "\ufffd").rstrip()[1:])
        size = end
    return RunHeader(size, len(comments), _metadata(comments))


def _metadata(comments: list[str]) -> dict[str, Any]:
    names = [comment.strip() for comment in comments]
    if _START not in names:
        return {}
    first = names.index(_START) + 1
    last = names.index(_END) if _END in names else len(names)
    try:
        metadata = _loaded("\n".join(comments[first:last]))
    except yaml.YAMLError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _loaded(text: str) -> Any:
    """YAML with every scalar as its text. Raises YAMLError, also for aliases (a few make gigabytes) and for depth."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CBaseLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("nested too deep, or with an alias")
    return yaml.load(text, Loader=yaml.CBaseLoader)  # noqa: S506 (makes text, lists and dictionaries alone)
