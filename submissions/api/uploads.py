"""Calls that upload files in pieces, by tus 1.0.0. Each makes one call of the domain."""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.utils.http import http_date
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from evaluation.core.problems import ProblemCode
from leaderboard.api.fields import AddressField, Answer, IsSetField, integer_field, text_field
from leaderboard.core.http.api_errors import ApiError
from leaderboard.core.http.slow_requests import WatchedBody, is_chunked
from leaderboard.core.text.numbers import parse_number
from submissions.accounts.permissions import signed_in
from submissions.accounts.throttling import SubmitThrottle
from submissions.api.schema import call
from submissions.core.errors import Refused
from submissions.models import Scope, Upload
from submissions.uploads import service
from submissions.uploads.service import UPLOAD_CHECKSUM, Checksum
from submissions.uploads.storage import UploadInUse

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

#: Statuses of refusals other than 400.
_STATUSES: dict[str, int] = {
    service.UPLOAD_OFFSET: status.HTTP_409_CONFLICT,
    service.UPLOAD_EXPIRED: status.HTTP_410_GONE,
    TUS_VERSION: status.HTTP_412_PRECONDITION_FAILED,
    service.UPLOAD_TOO_LARGE: status.HTTP_413_REQUEST_ENTITY_TOO_LARGE,
    WRONG_CONTENT_TYPE: status.HTTP_415_UNSUPPORTED_MEDIA_TYPE,
    service.UPLOAD_IN_USE: status.HTTP_423_LOCKED,
    service.TOO_MANY_UPLOADS: status.HTTP_429_TOO_MANY_REQUESTS,
    service.TOO_MANY_PIECES: status.HTTP_503_SERVICE_UNAVAILABLE,  # the published clients try again after it
}
#: The status that the protocol has for bytes with another checksum.
_CHECKSUM_MISMATCH = 460


def header(name: str, kind: type, description: str, **options: Any) -> OpenApiParameter:
    """Return the schema of a header of requests, or of answers with the statuses of `response`."""
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, **options)


class UploadSerializer(Answer):
    """A file that comes in pieces."""

    id = text_field("What a submission names in `upload`.", "pk")
    kind = serializers.ChoiceField(choices=["run", "model"])
    file_name = text_field("What its sender called it.")
    length = integer_field("Bytes that were announced.")
    offset = integer_field("Bytes that are here.")
    complete = IsSetField(source="completed_at")
    sha256 = text_field("Of the whole file; empty until it is here.")
    created = serializers.DateTimeField(source="created_at")
    expires = serializers.DateTimeField(
        source="expires_at", help_text="When it is given up, unless bytes or a submission come."
    )
    url = AddressField(source="api_path")


_ID = OpenApiParameter("identifier", str, OpenApiParameter.PATH, description="The upload's id.")
_VERSION = header("Tus-Resumable", str, "The protocol's version, 1.0.0.", required=True)
_CHECKSUM = header("Upload-Checksum", str, "sha1 or sha256, a blank, and the digest of this request's bytes.")
_BEGIN_ERRORS = {
    412: "Another version of tus than 1.0.0.",
    413: "Over the limit for its kind, `Tus-Max-Size` at most.",
    429: "Too many uploads begun.",
    460: "The bytes are not those of the checksum.",
}
_PIECE_ERRORS = {
    409: "The upload is elsewhere: ask with HEAD.",
    410: "It was given up; begin another.",
    423: "Another request writes to it.",
    460: "The bytes are not those of the checksum; none was kept.",
}
_BYTES = {CONTENT_TYPE: OpenApiTypes.BINARY}


class _TusView(APIView):
    """What all calls about uploads have in common."""

    permission_classes = [IsAuthenticated]
    required_scope = Scope.SUBMIT

    def dispatch(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        """Answer; X-HTTP-Method-Override stands for the method where something between knows only a few."""
        override = request.headers.get("X-HTTP-Method-Override", "").upper()
        if request.method == "POST" and override in ("PATCH", "DELETE", "HEAD"):
            request.method = override
        return super().dispatch(request, *arguments, **options)

    def initial(self, request: Request, *arguments: Any, **options: Any) -> None:
        """Before each call: who asks, and whether in the protocol's version. Reading with GET needs none."""
        super().initial(request, *arguments, **options)
        if request.method not in ("GET", "OPTIONS") and request.headers.get("Tus-Resumable") != VERSION:
            hint = f"Send the header Tus-Resumable: {VERSION}."
            raise Refused.of(TUS_VERSION, f"Uploads here are tus {VERSION}.", hint)

    def finalize_response(self, request: Request, response: Any, *arguments: Any, **options: Any) -> Response:
        """Every answer names the version, and nobody keeps one."""
        answer = super().finalize_response(request, response, *arguments, **options)
        answer["Tus-Resumable"] = VERSION
        answer["Cache-Control"] = "no-store"
        if answer.status_code == status.HTTP_412_PRECONDITION_FAILED:
            answer["Tus-Version"] = VERSION
        return answer

    def get_permissions(self) -> list[Any]:
        """Anybody may ask what is spoken here."""
        return [] if self.request.method == "OPTIONS" else list(super().get_permissions())

    def options(self, request: Request, *arguments: Any, **options: Any) -> Response:  # type: ignore[override]
        """Versions, extensions, and the size of the largest file."""
        told = {
            "Tus-Version": VERSION,
            "Tus-Extension": ",".join(EXTENSIONS),
            "Tus-Max-Size": str(max(service.get_size_limit(kind) for kind in Upload.Kind.values)),
            "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
            "Allow": ", ".join(self.allowed_methods),
        }
        return Response(status=status.HTTP_204_NO_CONTENT, headers=told)

    def handle_exception(self, error: Exception) -> Response:
        """Answer a refusal with the protocol's status."""
        if isinstance(error, UploadInUse):
            error = Refused.of(
                service.UPLOAD_IN_USE,
                "Another request writes to this upload, or a submission or a backup of the site takes it.",
                "Wait for that to end, then ask with HEAD how far the upload is.",
            )
        if isinstance(error, Upload.DoesNotExist):
            error = Http404("There is no such upload.")
        if isinstance(error, Refused):
            mismatch = isinstance(error, service.ChecksumMismatch)
            error = ApiError(
                error.code,
                error.detail,
                status_code=_CHECKSUM_MISMATCH if mismatch else _STATUSES.get(error.code, 400),
                problems=error.problems,
                wait=service.RETRY_SECONDS if error.code == service.TOO_MANY_PIECES else None,
            )
        return super().handle_exception(error)

    def receive(self, request: Request, upload: Upload, offset: int) -> Upload:
        """Write what the request brings. Raises Refused, UploadInUse, and Upload.DoesNotExist."""
        announced, checksum = body_length(request._request), checksum_of(request)
        service.require_offset(upload, offset)
        if announced is not None and announced > upload.length - offset:
            raise service.too_long(upload)
        with service.piece_slot(upload.owner_id):
            return service.receive_bytes(upload, offset, blocks_of(request._request), checksum)


class UploadsView(_TusView):
    """Begin an upload, and list one's own."""

    def get_throttles(self) -> list[Any]:
        """Only what is begun is counted."""
        return [SubmitThrottle()] if self.request.method == "POST" else []

    @call("uploads", "My uploads", {200: UploadSerializer(many=True)}, 401, operation_id="uploads_list")
    def get(self, request: Request) -> Response:
        """Files that came in pieces, or are on their way, and that no submission has taken; newest first."""
        rows = service.get_uploads(signed_in(request))
        return Response(UploadSerializer(rows, many=True, context={"request": request}).data)

    @call(
        "uploads", "Begin an upload",
        {201: OpenApiResponse(UploadSerializer, "Begun; `Location` is where its bytes go.")}, 400, 401, 415,
        remarks=_BEGIN_ERRORS,
        operation_id="uploads_create",
        extensions={"x-curl": '-X POST -H "Tus-Resumable: 1.0.0" -H "Upload-Length: 1048576"'},
        parameters=[
            _VERSION,
            header("Upload-Length", int, "The file's bytes.", required=True),
            header("Upload-Metadata", str, "filename, and kind (run, the default, or model), each in base64."),
            _CHECKSUM,
            header("Location", str, "The upload's address.", response=[201]),
            header("Upload-Offset", int, "How many bytes came with this request.", response=[201]),
            header("Upload-Expires", str, "When it is given up, unless bytes come before.", response=[201]),
        ],
        request=_BYTES,
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Announce a file by its length; its first bytes may come with this (creation-with-upload).

        The protocol is [tus](https://tus.io/protocols/resumable-upload) 1.0.0, so its published clients work.
        """
        length = number_of(request, "Upload-Length")
        said = request.headers.get("Upload-Metadata", "")
        metadata = parse_metadata(said)
        brings = body_length(request._request) != 0
        if brings:
            require_content_type(request)
        name, kind = file_of(metadata)
        upload = service.begin_upload(
            signed_in(request), length=length, kind=kind, file_name=name, metadata=said
        )
        if brings:
            upload = self.receive(request, upload, 0)
        answer = _answer(upload, request)
        headers = {"Location": answer["url"], **_position(upload)}
        return Response(answer, status=status.HTTP_201_CREATED, headers=headers)


class UploadView(_TusView):
    """One upload, which exists for its sender alone."""

    @call(
        "uploads", "An upload", {200: UploadSerializer}, 401, 404, 410,
        operation_id="uploads_retrieve", parameters=[_ID],
    )  # fmt: skip
    def get(self, request: Request, identifier: str) -> Response:
        """How far it is; once it is whole, its sha256. (HEAD says the same in the protocol's headers.)"""
        return Response(_answer(service.finish_upload(_find(request, identifier)), request))

    @extend_schema(exclude=True)
    def head(self, request: Request, identifier: str) -> Response:
        """How far it is, in headers."""
        upload = service.finish_upload(_find(request, identifier))
        headers = {"Upload-Length": str(upload.length), **_position(upload)}
        if upload.metadata:
            headers["Upload-Metadata"] = upload.metadata
        return Response(headers=headers)

    @call(
        "uploads", "Resume upload",
        {204: OpenApiResponse(description="Written; `Upload-Offset` says how far it is.")},
        400, 401, 404, 412, 413, 415,
        remarks=_PIECE_ERRORS,
        parameters=[
            _ID,
            _VERSION,
            header("Upload-Offset", int, "Where these bytes begin: how many came before.", required=True),
            _CHECKSUM,
            header("Upload-Offset", int, "How many bytes are here now.", response=[204]),
            header("Upload-Expires", str, "When it is given up, unless bytes come before.", response=[204]),
        ],
        operation_id="uploads_partial_update",
        extensions={
            "x-curl": '-X PATCH -H "Tus-Resumable: 1.0.0" -H "Upload-Offset: 0" '
            f'-H "Content-Type: {CONTENT_TYPE}" -T model.zip'
        },
        request=_BYTES,
    )  # fmt: skip
    def patch(self, request: Request, identifier: str) -> Response:
        """Write the next bytes. Where the connection breaks, what came is kept: ask with HEAD and go on."""
        upload = _find(request, identifier)
        require_content_type(request)
        upload = self.receive(request, upload, number_of(request, "Upload-Offset"))
        return Response(status=status.HTTP_204_NO_CONTENT, headers=_position(upload))

    @call(
        "uploads", "Delete an upload", {204: OpenApiResponse(description="It is gone, whole or not.")},
        401, 404, 410, 412,
        remarks={423: "It is being written, or taken by a submission or a backup."},
        operation_id="uploads_destroy",
        parameters=[_ID, _VERSION],
        extensions={"x-curl": '-X DELETE -H "Tus-Resumable: 1.0.0"'},
        request=None,
    )  # fmt: skip
    def delete(self, request: Request, identifier: str) -> Response:
        """Give the upload up; its bytes are deleted."""
        service.discard_upload(_find(request, identifier))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _find(request: Request, identifier: str) -> Upload:
    upload = service.find_upload(signed_in(request), identifier)
    if upload is None:
        raise Upload.DoesNotExist
    return upload


def _position(upload: Upload) -> dict[str, str]:
    """How far it is, and until when it waits."""
    return {"Upload-Offset": str(upload.offset), "Upload-Expires": http_date(upload.expires_at.timestamp())}


def _answer(upload: Upload, request: Request) -> dict[str, Any]:
    return UploadSerializer(upload, context={"request": request}).data


def require_content_type(request: Request) -> None:
    """Raise Refused for a body that does not say that it is bytes of a file."""
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


def parse_metadata(header: str) -> dict[str, str]:
    """Return Upload-Metadata: pairs with commas between them, a key and its value in base64."""
    try:
        if len(header) > LONGEST_METADATA or not header.isascii():
            raise ValueError
        pairs = [pair.split() for pair in header.split(",") if pair.strip()]
        return {key: base64.b64decode("".join(value[:1]), validate=True).decode() for key, *value in pairs}
    except (ValueError, binascii.Error) as error:
        raise Refused.of(
            UPLOAD_METADATA,
            f"Upload-Metadata is not made of pairs of a key and a value in base64, {LONGEST_METADATA:,} bytes at most.",
            "Send Upload-Metadata: filename bW9kZWwuemlw,kind bW9kZWw= for example.",
        ) from error


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
