"""Bounded reading of stored files: plain, gzip, zstd, and bz2, recognized by their first bytes.

Limits apply during expansion: on the stored size, the expanded size, their ratio, and the window that a zstd frame may
request. File names are ignored.
"""

import bz2
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from isal import igzip_lib

from evaluation.core.problems import InvalidContent, ProblemCode

SIZE = ProblemCode("size", "The file, or its number of queries, is over a limit.", "At most 1,000 documents per query "
    "are scored: omit the rest, or split the run by dataset.", about="file")  # fmt: skip
EXPANSION = ProblemCode("expansion", "The compressed file expands to more than is plausible for a run.",
    "Real runs shrink by a factor of 3 to 7. Send this one uncompressed.", about="file")  # fmt: skip
COMPRESSION = ProblemCode("compression", "The compressed file is damaged or compressed twice, or the file is in a "
    "format that is not supported.", "Compress once, as .gz, .zst, or .bz2, or as .zip with the method deflate. Write "
    "other formats as text.", about="file")  # fmt: skip
LINE_LENGTH = ProblemCode("line_length", "A line is too long for a run.", "Write one line per document, see above.",
    message="{lines} longer than {max_line} bytes", hint="Write each line as `query Q0 document rank score tag`.",
    quote="", about="file")  # fmt: skip

KIB = 1024
MIB = 1024 * KIB

#: Numbers of stored bytes that are read, and of expanded bytes that are returned, at a time.
STORED_CHUNK = 64 * KIB
BLOCK = MIB

#: Maximum number of concatenated members in a gzip or bz2 file (bgzip writes one per 64 KiB).
MAX_MEMBERS = 100_000

#: Maximum memory that a zstd frame may request.
MAX_ZSTD_WINDOW = 128 * MIB

_DAMAGED: tuple[type[Exception], ...] = (
    EOFError, ValueError, OSError, cast("type[Exception]", igzip_lib.IsalError),
)  # fmt: skip
_REFUSED_MAGIC = {
    b"\xfd7zXZ\x00": "an xz file", b"PK\x03\x04": "a zip file", b"PK\x05\x06": "a zip file",
    b"7z\xbc\xaf": "a 7z file", b"%PDF": "a PDF file", b"Rar!": "a rar file", b"PAR1\x15": "a Parquet file",
    b"\x04\x22\x4d\x18": "an lz4 file", b"LZIP\x01": "an lzip file", b"\x1f\x9d": "a compress (.Z) file",
    b"MSCF\0": "a cab file", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an Excel file",
    b"SQLite format 3\0": "an SQLite database", b"\x93NUMPY": "a NumPy file",
    **{b"\x80" + bytes([protocol]): "a Python pickle" for protocol in range(2, 6)},
    b"version https://git-lfs.github.com/spec/": "a Git LFS pointer",
}  # fmt: skip
_MAGIC_BYTES = max(map(len, _REFUSED_MAGIC))
_AS_CSV = "Write its rows as CSV with a line of column names"
#: Hints for refused files that are not archives.
_HINTS = {
    "a PDF file": "Send the data itself as text, not a document about it.",
    "a Parquet file": f"{_AS_CSV}, and send that: `frame.to_csv('table.csv', index=False)` in pandas.",
    "an Excel file": "Save the sheet as CSV, and send that.",
    "an SQLite database": f"{_AS_CSV}, and send that.",
    "a NumPy file": f"{_AS_CSV}, with ids of queries and documents, and send that.",
    "a Python pickle": "Write its content as JSON or CSV, and send that: `json.dump` for a dict, `to_csv` for a frame.",
    "a Git LFS pointer": "It only names a file. Run `git lfs pull`, and send the file itself.",
}


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Size limits of a file, in bytes unless noted. The defaults suit run files."""

    max_stored_bytes: int = 512 * MIB
    max_expanded_bytes: int = 2048 * MIB
    #: Ratio of expanded to stored bytes for compressed files above `ratio_floor_bytes` expanded. Real runs
    #: reach 7.
    max_ratio: float = 50
    ratio_floor_bytes: int = 64 * MIB
    max_line_bytes: int = 1024
    max_id_bytes: int = 256
    #: Number of different query ids in a run.
    max_queries: int = 1_000_000
    #: Size of the lines of one query, which are in memory together.
    max_query_bytes: int = 64 * MIB
    #: Size of a run with lines that are not grouped by query, which is read into memory.
    max_ungrouped_bytes: int = 512 * MIB
    #: Size of a JSON file, which is parsed in memory and needs several times its size there.
    max_json_bytes: int = 16 * MIB
    #: Whether a tar archive is accepted. It is refused if text is expected.
    may_be_tar: bool = False


#: A decompressor of bz2 or isal, or `_ZstdDecompressor`, all with the interface of bz2's.
_Decompressor: TypeAlias = Any


class _DamagedData(ValueError):
    """Error in compressed data, with a message for the sender that replaces the library's."""


class _MemberReader:
    """Reader of consecutive gzip or bz2 members or zstd frames, which expands only as much as requested."""

    def __init__(self, file: BinaryIO, magic: bytes, create: Callable[[], _Decompressor]) -> None:
        self.file, self.magic, self.create = file, magic, create
        self.decompressor = create()
        self.members = 1

    def readinto(self, view: memoryview, /) -> int:
        """Fill the start of `view` with expanded bytes and return their number, 0 at the end of the file.

        Raises an error of `_DAMAGED` if the data is damaged, truncated, or followed by other data.
        """
        while True:
            data = b""
            if self.decompressor.eof:
                data = self._next_member()
                if not data:
                    return 0
            elif self.decompressor.needs_input:
                data = self.file.read(STORED_CHUNK)
                if not data:
                    raise _DamagedData("the file is truncated")
            if expanded_bytes := self.decompressor.decompress(data, len(view)):
                view[: len(expanded_bytes)] = expanded_bytes
                return len(expanded_bytes)

    def _next_member(self) -> bytes:
        """Return the first bytes of the next member, or empty bytes at the end of the file."""
        data: bytes = self.decompressor.unused_data
        if len(data) < len(self.magic):
            data += self.file.read(STORED_CHUNK)
        if not data:
            return b""
        if not data.startswith(self.magic):
            raise _DamagedData("other data follows the compressed data")
        self.members += 1
        if self.members > MAX_MEMBERS:
            raise _DamagedData(f"it has more than {MAX_MEMBERS:,} members")
        self.decompressor = self.create()
        return data


class _ZstdDecompressor:
    """Decompressor of one zstd frame.

    zstandard reports the end of a frame only from an interface without a limit on output. Input is therefore passed in
    small pieces: a block has at least four bytes and produces at most 128 KiB, so a piece produces at most 16 MiB. Most
    pieces are within a block and produce no output, so they are passed in a tight loop.
    """

    _PIECE_BYTES = 512

    def __init__(self) -> None:
        # Imported on first use: it takes 23 MiB, and uncompressed files do not need it.
        import zstandard

        self._error = zstandard.ZstdError
        self._frame = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).decompressobj()
        self._input, self._position = b"", 0  # `_position` counts the bytes of the input that were passed on.
        self._output = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._frame.eof and not self._output

    @property
    def needs_input(self) -> bool:
        return self._position >= len(self._input) and not self._output and not self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data + self._input[self._position :]

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return the next expanded bytes, at most `max_length`.

        `data` replaces the input, which must be used up. It is empty if input or output remains from an earlier call.
        """
        if data:
            self._input, self._position = data, 0
        if not self._output:
            self._output = memoryview(self._expand(max_length))
        result, self._output = self._output[:max_length], self._output[max_length:]
        return bytes(result)

    def _expand(self, length: int) -> bytes:
        """Expand input until there are at least `length` bytes, the input is used up, or the frame ends; return them.

        The result may be longer than `length` by the output of one piece.
        """
        frame, data, position = self._frame, self._input, self._position
        pieces: list[bytes] = []
        size = 0
        while position < len(data) and size < length and not frame.eof:
            try:
                piece = frame.decompress(data[position : position + self._PIECE_BYTES])
            except self._error as error:
                raise ValueError(str(error)) from error
            position += self._PIECE_BYTES
            pieces.append(piece)
            size += len(piece)
        self._position = position
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


#: First bytes of each kind of compressed file, and a function that creates the decompressor of a member.
_COMPRESSIONS: dict[str, tuple[bytes, Callable[[], _Decompressor]]] = {
    "gzip": (b"\x1f\x8b", lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP)),
    "zstd": (b"\x28\xb5\x2f\xfd", _ZstdDecompressor),
    "bz2": (b"BZh", bz2.BZ2Decompressor),
}


def _recognize_kind(start_bytes: bytes) -> str | None:
    return next((kind for kind, (magic, _) in _COMPRESSIONS.items() if start_bytes.startswith(magic)), None)


class ExpandedFile:
    """Expanded bytes of a stored file, counted as they are read.

    `kind` is `plain`, `gzip`, `zstd`, or `bz2`; `stored_bytes` is the file's size; `expanded_bytes` is the number of
    bytes read so far. Raises InvalidContent if the stored file is too large or in an unsupported format.
    """

    def __init__(self, file: BinaryIO, limits: FileLimits) -> None:
        self.file, self.limits = file, limits
        self.stored_bytes = file.seek(0, 2)
        if self.stored_bytes > limits.max_stored_bytes:
            raise _too_large(SIZE, "stored", limits.max_stored_bytes)
        file.seek(0)
        start_bytes = file.read(_MAGIC_BYTES)
        file.seek(0)
        self._refuse_unsupported_format(start_bytes)
        self.kind = _recognize_kind(start_bytes) or "plain"
        self.expanded_bytes = 0
        #: Function that fills the start of a buffer and returns the number of written bytes.
        self._fill: Callable[[memoryview], int] = cast(io.BufferedReader, file).readinto
        if self.kind != "plain":
            magic, create = _COMPRESSIONS[self.kind]
            self._fill = _MemberReader(file, magic, create).readinto

    @staticmethod
    def _refuse_unsupported_format(start_bytes: bytes) -> None:
        if name := next((name for magic, name in _REFUSED_MAGIC.items() if start_bytes.startswith(magic)), None):
            raise unsupported_format(name)

    @property
    def share_read(self) -> float:
        """Share of the stored file that has been read, from 0 to 1."""
        return min(1.0, self.file.tell() / self.stored_bytes) if self.stored_bytes else 1.0

    def readinto(self, view: memoryview) -> int:
        """Fill the start of `view`; return the number of bytes written, 0 at the end.

        Raises InvalidContent if the compressed data is damaged, expands over a limit, or contains a compressed file, an
        archive, or another unsupported format.
        """
        try:
            count = self._fill(view)
        except _DAMAGED as error:
            if self.kind == "plain":
                raise  # This is an error of the disk, not of the file.
            reason = str(error) if isinstance(error, _DamagedData) else "it cannot be decompressed"
            message = f"the {self.kind} data is damaged after {self.expanded_bytes:,} bytes: {reason}"
            if "checksum" in str(error):  # All bytes were expanded before this error.
                message = f"the {self.kind} data is damaged: its checksum is wrong"
            raise COMPRESSION.refusal(
                message, "Compress the file again and check that the upload is complete."
            ) from error
        if self.expanded_bytes == 0 and count and self.kind != "plain":
            first_bytes = bytes(view[: min(count, _MAGIC_BYTES)])
            self._refuse_unsupported_format(first_bytes)
            if _recognize_kind(first_bytes):
                raise COMPRESSION.refusal("the file is compressed twice", "Compress it once.")
        if self.expanded_bytes == 0 and bytes(view[257:262]) == b"ustar" and not self.limits.may_be_tar:
            raise unsupported_format("a tar archive" if self.kind == "plain" else f"a tar archive in {self.kind}")
        self.expanded_bytes += count
        self._check_limits()
        return count

    def _check_limits(self) -> None:
        """Raise InvalidContent if the bytes read so far are over the maximum size or the maximum compression ratio."""
        if self.expanded_bytes > self.limits.max_expanded_bytes:
            raise _too_large(EXPANSION, "expanded", self.limits.max_expanded_bytes)
        if self.kind == "plain" or self.expanded_bytes <= self.limits.ratio_floor_bytes:
            return
        if self.expanded_bytes > self.limits.max_ratio * max(1, self.file.tell()):
            raise EXPANSION.refusal(
                f"the file expands to more than {self.limits.max_ratio:g} times its size",
                "Real run files shrink by a factor of 3 to 7. Send this file uncompressed.",
            )


def unsupported_format(name: str) -> InvalidContent:
    """Return the error for a file in an unsupported format, such as `an Excel file`."""
    hint = "Send plain text, uncompressed or as .gz, .zst, or .bz2. Pack several files into a zip."
    return COMPRESSION.refusal(f"this is {name}, which is not supported", _HINTS.get(name, hint))


def _too_large(code: ProblemCode, measure: str, limit: int) -> InvalidContent:
    message = f"the file is over the limit of {describe_bytes(limit)} {measure}"
    hint = "Keep at most 1,000 documents per query, or split the run by dataset."
    return code.refusal(message, hint)


def describe_bytes(count: int) -> str:
    """Return a byte count for a sentence, such as `64 MiB`."""
    for unit, size in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"


@contextmanager
def open_expanded(path: Path | str | bytes, limits: FileLimits) -> Iterator[ExpandedFile]:
    """Open a stored file, or its content as bytes, for expanded reading. Raises InvalidContent like `ExpandedFile`."""
    with BytesIO(path) if isinstance(path, bytes) else Path(path).open("rb", buffering=0) as file:
        yield ExpandedFile(cast("BinaryIO", file), limits)


def open_blocks(path: Path | str | bytes, limits: FileLimits | None = None, size: int = BLOCK) -> Iterator[bytes]:
    """Yield the expanded bytes of a stored file in blocks of at most `size` bytes, which may end within a line.

    `path` may also be the file's content as bytes. Raises InvalidContent like `ExpandedFile`.
    """
    with open_expanded(path, limits or FileLimits()) as source, memoryview(bytearray(size)) as view:
        while count := source.readinto(view):
            yield bytes(view[:count])


def open_lines(
    path: Path | str | bytes, limits: FileLimits | None = None, max_line_bytes: int | None = None
) -> Iterator[bytes]:
    """Yield the lines of a stored file as bytes, without line ends (LF or CRLF).

    `path` may also be the file's content as bytes. Raises InvalidContent like `ExpandedFile`, and for a line over
    `max_line_bytes`. A line may exceed this limit by one block before it is detected. By default, any line is read into
    memory.
    """
    rest = b""
    for block in open_blocks(path, limits):
        if max_line_bytes is not None and len(rest) > max_line_bytes:
            message = f"a line is over the limit of {describe_bytes(max_line_bytes)}"
            hint = "Write each record on its own line."
            raise LINE_LENGTH.refusal(message, hint)
        block = rest + block
        *lines, rest = block.split(b"\n")
        yield from [line.removesuffix(b"\r") for line in lines] if b"\r" in block else lines
    if rest:
        yield rest.removesuffix(b"\r")
