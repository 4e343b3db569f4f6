"""Comments in front of a run: `ir_metadata` (PRIMAD) in the YAML subset that run files use.

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
    lines = [line for line in comments[first:last] if line.strip() and not line.strip().startswith("#")]
    result = _block([(len(line) - len(line.lstrip()), line.strip()) for line in lines])
    return result if isinstance(result, dict) else {}


def _block(lines: list[tuple[int, str]], depth: int = 0) -> Any:
    """(indentation, text) lines of one block as a dictionary or a list."""
    result: dict[str, Any] = {}
    items: list[Any] = []
    index = 0
    while index < len(lines):
        indent, text = lines[index]
        end = index + 1
        while end < len(lines) and lines[end][0] > indent:
            end += 1
        inner = lines[index + 1 : end]
        if text.startswith("- "):
            items.append(_item(text[2:].strip(), indent, inner, depth))
        elif ":" in text and depth < _DEEPEST:
            key, _, value = text.partition(":")
            result[key.strip().strip("'\"")] = (
                _scalar(value) if value.strip() or not inner else _block(inner, depth + 1)
            )
        index = end
    return items if items and not result else result


def _item(text: str, indent: int, inner: list[tuple[int, str]], depth: int) -> Any:
    if ": " in text or text.endswith(":"):
        return _block([(indent + 2, text), *inner], depth + 1) if depth < _DEEPEST else {}
    return _scalar(text)


def _scalar(text: str) -> Any:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return [_unquoted(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    return _unquoted(text)


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
