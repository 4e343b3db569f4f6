"""The headers of tus 1.0.0 in requests. Each reader raises Refused for what is malformed."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress

from django.http import HttpRequest
from rest_framework.request import Request

from evaluation.core.problems import ProblemCode
from leaderboard.core.http.slow_requests import WatchedBody, is_chunked
from leaderboard.core.text.numbers import parse_number
from submissions.core.errors import Refused
from submissions.models import Upload
from submissions.uploads.service import UPLOAD_CHECKSUM, Checksum

UPLOAD_HEADER = ProblemCode("upload_header", "A header of an upload is missing, or is no number of bytes.",
    "Send Upload-Length to begin, Upload-Offset to go on.", "Upload-Length: 1048576")  # fmt: skip
UPLOAD_METADATA = ProblemCode("upload_metadata", "Upload-Metadata is not made of keys with values in base64.",
    "Pairs with commas between them.", "filename cnVuLnR4dA==,kind cnVu")  # fmt: skip
UPLOAD_KIND = ProblemCode("upload_kind", "Upload-Metadata names no kind of file.", "run or model.")
WRONG_CONTENT_TYPE = ProblemCode("content_type", "The body of an upload is no piece of a file.", "Send the bytes as "
    "they are.", "Content-Type: application/offset+octet-stream")  # fmt: skip
TUS_VERSION = ProblemCode("tus_version", "The request does not say that it speaks tus 1.0.0.", "Send the header with "
    "every request.", "Tus-Resumable: 1.0.0")  # fmt: skip

VERSION = "1.0.0"
EXTENSIONS = ("creation", "creation-with-upload", "termination", "expiration", "checksum")
ALGORITHMS = ("sha1", "sha256")
CONTENT_TYPE = "application/offset+octet-stream"
#: What is read of a request at a time, in bytes.
BLOCK = 64 * 1024
#: After so many seconds a piece ends, and its sender goes on with another.
PIECE_SECONDS = 900.0
#: The longest Upload-Metadata that is kept.
LONGEST_METADATA = 1000


def require_version(request: Request) -> None:
    """Raises Refused for a request that does not name this version."""
    if request.headers.get("Tus-Resumable") != VERSION:
        raise Refused.of(
            TUS_VERSION,
            f"Uploads here are tus {VERSION}.",
            f"Send the header Tus-Resumable: {VERSION}.",
        )


def require_content_type(request: Request) -> None:
    """Raises Refused for a body that does not say that it is bytes of a file."""
    if (request.content_type or "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        raise Refused.of(
            WRONG_CONTENT_TYPE,
            f"“{(request.content_type or '')[:80]}” is no piece of a file.",
            f"Send the bytes as they are, with Content-Type: {CONTENT_TYPE}.",
        )


def number_of(request: Request, header: str) -> int:
    """Return a header that is a number of bytes."""
    text = request.headers.get(header, "")
    number = parse_number(text, 15)
    if number is None:
        said = f"“{text[:40]}” is no number of bytes" if text else "the header is missing"
        raise Refused.of(UPLOAD_HEADER, f"{header}: {said}.", f"Send {header}: 1024.")
    return number


def metadata_of(request: Request) -> dict[str, str]:
    """Return Upload-Metadata: pairs with commas between them, a key and its value in base64."""
    header = request.headers.get("Upload-Metadata", "")
    try:
        if len(header) > LONGEST_METADATA or not header.isascii():
            raise ValueError
        pairs = [pair.split() for pair in header.split(",") if pair.strip()]
        found = {
            key: base64.b64decode(value[0] if value else "", validate=True).decode() for key, *value in pairs
        }
    except (ValueError, binascii.Error) as error:
        raise Refused.of(
            UPLOAD_METADATA,
            f"Upload-Metadata is not made of pairs of a key and a value in base64, {LONGEST_METADATA:,} bytes at most.",
            "Send Upload-Metadata: filename bW9kZWwuemlw,kind bW9kZWw= for example.",
        ) from error
    return found


def file_of(metadata: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the file, which is shown to people only, and its kind."""
    kind = metadata.get("kind", "") or Upload.Kind.RUN.value
    if kind not in Upload.Kind.values:
        raise Refused.of(
            UPLOAD_KIND,
            f"Upload-Metadata: “{kind[:40]}” is no kind of file.",
            f"Send one of {', '.join(Upload.Kind.values)}.",
        )
    name = metadata.get("filename", "").replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in name if letter.isprintable())[:200], kind


def checksum_of(request: Request) -> Checksum | None:
    """Return Upload-Checksum: an algorithm and the digest of this request's bytes in base64; None without."""
    header = request.headers.get("Upload-Checksum", "")
    if not header:
        return None
    algorithm, _, encoded = header.partition(" ")
    try:
        digest = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        digest = b""
    if algorithm not in ALGORITHMS or len(digest) != hashlib.new(algorithm).digest_size:
        raise Refused.of(
            UPLOAD_CHECKSUM,
            "Upload-Checksum is no checksum that can be tested.",
            f"Send {' or '.join(ALGORITHMS)}, a blank and the digest in base64.",
        )
    return Checksum(algorithm, digest)


def body_length(request: HttpRequest) -> int | None:
    """Return how many bytes the request announces; None where it comes in chunks and does not say."""
    return None if is_chunked(request.META) else int(request.META.get("CONTENT_LENGTH") or 0)


def blocks_of(request: HttpRequest) -> Iterator[bytes]:
    """Yield the bytes that the request brings, as they come; they end where the connection breaks."""
    body = request.META["wsgi.input"]
    if isinstance(body, WatchedBody):
        body.longest = PIECE_SECONDS
    stream = body if is_chunked(request.META) else request
    with suppress(OSError):  # the sender is gone; it will ask how far it came
        while block := stream.read(BLOCK):
            yield block
