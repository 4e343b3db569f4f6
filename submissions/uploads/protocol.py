"""The headers of tus 1.0.0: what requests say in them. Each reader raises ApiError for what is malformed."""

from __future__ import annotations

import base64
import binascii
import hashlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.http import HttpRequest
from rest_framework import status
from rest_framework.request import Request

from evaluation.core.problems import ProblemCode
from leaderboard.core.http.api_errors import ApiError, problem
from leaderboard.core.text.numbers import parse_number
from submissions.models import Upload
from submissions.uploads.service import TOO_MANY_UPLOADS, UPLOAD_IN_USE, UPLOAD_TOO_LARGE, Checksum

UPLOAD_CHECKSUM = ProblemCode("upload_checksum", "The bytes are not those of Upload-Checksum, or it cannot be "
    "tested.", "sha1 or sha256, a blank, and the digest in base64.")  # fmt: skip
UPLOAD_HEADER = ProblemCode("upload_header", "A header of an upload is missing, or is no number of bytes.",
    "Send Upload-Length to begin, Upload-Offset to go on.", "Upload-Length: 1048576")  # fmt: skip
UPLOAD_METADATA = ProblemCode("upload_metadata", "Upload-Metadata is not made of keys with values in base64.",
    "Pairs with commas between them.", "filename cnVuLnR4dA==,kind cnVu")  # fmt: skip
UPLOAD_KIND = ProblemCode("upload_kind", "Upload-Metadata names no kind of file.", "run or model.")
WRONG_CONTENT_TYPE = ProblemCode("content_type", "The body of an upload is no piece of a file.", "Send the bytes as "
    "they are.", "Content-Type: application/offset+octet-stream")  # fmt: skip
UPLOAD_OFFSET = ProblemCode("upload_offset", "The upload is elsewhere than where these bytes begin.",
    "Ask with HEAD how far it is.", "Upload-Offset: 1048576")  # fmt: skip
UPLOAD_EXPIRED = ProblemCode("upload_expired", "No bytes came for a day, so the upload was given up.",
    "Begin another.")  # fmt: skip
TUS_VERSION = ProblemCode("tus_version", "The request does not say that it speaks tus 1.0.0.", "Send the header with "
    "every request.", "Tus-Resumable: 1.0.0")  # fmt: skip

VERSION = "1.0.0"
EXTENSIONS = ("creation", "creation-with-upload", "termination", "expiration", "checksum")
ALGORITHMS = ("sha1", "sha256")
CONTENT_TYPE = "application/offset+octet-stream"
#: Statuses that the protocol adds to HTTP's, or uses in a way of its own.
CHECKSUM_MISMATCH = 460
#: What is read of a request at a time, in bytes.
BLOCK = 64 * 1024
#: After so many seconds without a byte the sender is taken to be gone: it comes back and goes on.
SILENCE = 30.0
#: From so many seconds on a request brings so many bytes a second at least, and ends after so many: its sender goes on
#: with another. A drop now and then would else hold a thread for days.
GRACE, LEAST_RATE, LONGEST = 30.0, 4096, 900.0
#: Seconds between two looks at that.
_LOOK = 1.0
#: The longest Upload-Metadata that is kept.
LONGEST_METADATA = 1000


#: What is refused with another status than 400.
_STATUSES: dict[str, int] = {
    UPLOAD_OFFSET: status.HTTP_409_CONFLICT,
    UPLOAD_EXPIRED: status.HTTP_410_GONE,
    TUS_VERSION: status.HTTP_412_PRECONDITION_FAILED,
    UPLOAD_TOO_LARGE: status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
    WRONG_CONTENT_TYPE: status.HTTP_415_UNSUPPORTED_MEDIA_TYPE,
    UPLOAD_IN_USE: status.HTTP_423_LOCKED,
    TOO_MANY_UPLOADS: status.HTTP_429_TOO_MANY_REQUESTS,
}


def refuse(code: str, message: str, hint: str = "", status_code: int | None = None) -> ApiError:
    """An answer in the API's shape with the status that the protocol has for it."""
    return ApiError(
        code,
        message,
        status_code=status_code or _STATUSES.get(code, status.HTTP_400_BAD_REQUEST),
        problems=[problem(code, message, hint)],
    )


def require_version(request: Request) -> None:
    """Every request says that it speaks this version."""
    if request.headers.get("Tus-Resumable") != VERSION:
        raise refuse(
            TUS_VERSION,
            f"Uploads here are tus {VERSION}.",
            f"Send the header Tus-Resumable: {VERSION}.",
        )


def require_content_type(request: Request) -> None:
    """A body is bytes of the file, and says so."""
    if (request.content_type or "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        raise refuse(
            WRONG_CONTENT_TYPE,
            f"“{(request.content_type or '')[:80]}” is no piece of a file.",
            f"Send the bytes as they are, with Content-Type: {CONTENT_TYPE}.",
        )


def number_of(request: Request, header: str) -> int:
    """A header that is a number of bytes."""
    text = request.headers.get(header, "")
    number = parse_number(text, 15)
    if number is None:
        said = f"“{text[:40]}” is no number of bytes" if text else "the header is missing"
        raise refuse(UPLOAD_HEADER, f"{header}: {said}.", f"Send {header}: 1024.")
    return number


def metadata_of(request: Request) -> dict[str, str]:
    """Upload-Metadata: pairs with commas between them, a key and its value in base64."""
    header = request.headers.get("Upload-Metadata", "")
    try:
        if len(header) > LONGEST_METADATA or not header.isascii():
            raise ValueError
        pairs = [pair.split() for pair in header.split(",") if pair.strip()]
        found = {
            key: base64.b64decode(value[0] if value else "", validate=True).decode() for key, *value in pairs
        }
    except (ValueError, binascii.Error) as error:
        raise refuse(
            UPLOAD_METADATA,
            f"Upload-Metadata is not made of pairs of a key and a value in base64, {LONGEST_METADATA:,} bytes at most.",
            "Send Upload-Metadata: filename bW9kZWwuemlw,kind bW9kZWw= for example.",
        ) from error
    return found


def file_of(metadata: Mapping[str, str]) -> tuple[str, str]:
    """What the file is called, for people alone, and its kind."""
    kind = metadata.get("kind", "") or Upload.Kind.RUN.value
    if kind not in Upload.Kind.values:
        raise refuse(
            UPLOAD_KIND,
            f"Upload-Metadata: “{kind[:40]}” is no kind of file.",
            f"Send one of {', '.join(Upload.Kind.values)}.",
        )
    name = metadata.get("filename", "").replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in name if letter.isprintable())[:200], kind


def checksum_of(request: Request) -> Checksum | None:
    """Upload-Checksum: an algorithm and the digest of this request's bytes in base64; None without."""
    header = request.headers.get("Upload-Checksum", "")
    if not header:
        return None
    algorithm, _, encoded = header.partition(" ")
    try:
        digest = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        digest = b""
    if algorithm not in ALGORITHMS or len(digest) != hashlib.new(algorithm).digest_size:
        raise refuse(
            UPLOAD_CHECKSUM,
            "Upload-Checksum is no checksum that can be tested.",
            f"Send {' or '.join(ALGORITHMS)}, a blank and the digest in base64.",
        )
    return Checksum(algorithm, digest)


def body_length(request: HttpRequest) -> int | None:
    """How many bytes the request announces; None where it comes in chunks and does not say."""
    return None if _chunked(request) else int(request.META.get("CONTENT_LENGTH") or 0)


def blocks_of(request: HttpRequest) -> Iterator[bytes]:
    """The bytes that the request brings, as they come; they end where the connection breaks."""
    stream = request.META["wsgi.input"] if _chunked(request) else request
    connection = request.META.get("gunicorn.socket")
    if connection is not None:
        connection.settimeout(SILENCE)
    came, ended = [0], threading.Event()
    if connection is not None:
        threading.Thread(target=_cut_off_when_slow, args=(connection, came, ended), daemon=True).start()
    try:
        while block := _read(stream):
            came[0] += len(block)
            yield block
    finally:
        ended.set()
        if connection is not None:
            connection.settimeout(None)


def _cut_off_when_slow(connection: socket.socket, came: list[int], ended: threading.Event) -> None:
    """End what a request brings once it is too slow or too long: its reader finds the end of the stream."""
    began = time.monotonic()
    while not ended.wait(_LOOK):
        seconds = time.monotonic() - began
        # A block counts when it is whole: one may be on its way.
        slow = seconds > GRACE and came[0] + BLOCK < LEAST_RATE * seconds
        if slow or seconds > LONGEST:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
            return


def _read(stream: Any) -> bytes:
    try:
        block: bytes = stream.read(BLOCK)
    except OSError:  # the sender is gone; it will ask how far it came
        return b""
    return block


def _chunked(request: HttpRequest) -> bool:
    said = request.META.get("HTTP_TRANSFER_ENCODING", "").lower() == "chunked"
    return said and bool(request.META.get("wsgi.input_terminated"))
