"""API views of resumable uploads (tus 1.0.0)."""

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
from submissions.accounts.permissions import require_user
from submissions.accounts.throttling import SubmitThrottle
from submissions.api.schema import call
from submissions.core.errors import Refused
from submissions.models import Scope, Upload
from submissions.uploads import service
from submissions.uploads.service import UPLOAD_CHECKSUM, Checksum
from submissions.uploads.storage import UploadInUse

UPLOAD_HEADER = ProblemCode(
    "upload_header",
    "An upload header is missing or is not a byte count.",
    "Send Upload-Length to create an upload and Upload-Offset to continue one.",
    "Upload-Length: 1048576",
)
UPLOAD_METADATA = ProblemCode(
    "upload_metadata",
    "Upload-Metadata does not consist of keys with base64 values.",
    "Send comma-separated pairs.",
    "filename cnVuLnR4dA==,kind cnVu",
)
UPLOAD_KIND = ProblemCode("upload_kind", "Upload-Metadata has an unknown kind of file.", "Send run or model.")
WRONG_CONTENT_TYPE = ProblemCode(
    "content_type",
    "The body of an upload has the wrong content type.",
    "Send raw bytes.",
    "Content-Type: application/offset+octet-stream",
)
TUS_VERSION = ProblemCode(
    "tus_version",
    "The request lacks the protocol version tus 1.0.0.",
    "Send the header with every request.",
    "Tus-Resumable: 1.0.0",
)

VERSION = "1.0.0"
EXTENSIONS = ("creation", "creation-with-upload", "termination", "expiration", "checksum")
ALGORITHMS = ("sha1", "sha256")
CONTENT_TYPE = "application/offset+octet-stream"
#: Block size for reading requests, in bytes.
BLOCK = 64 * 1024
#: Maximum duration of one PATCH request in seconds; the client then continues with another.
PIECE_SECONDS = 900.0
#: Maximum length of Upload-Metadata.
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
    service.TOO_MANY_PIECES: status.HTTP_503_SERVICE_UNAVAILABLE,  # existing tus clients retry on this status
}
#: Status that tus defines for a checksum mismatch.
_CHECKSUM_MISMATCH = 460


def header(name: str, kind: type, description: str, **options: Any) -> OpenApiParameter:
    """Return the schema of a request header or, if `options` contains `response`, of a header of responses.

    `response` is a list of statuses whose responses have the header.
    """
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, **options)


class UploadSerializer(Answer):
    """A resumable upload."""

    id = text_field("Id to send as `upload` in a submission.", "pk")
    kind = serializers.ChoiceField(choices=["run", "model"])
    file_name = text_field("File name sent by the client.")
    length = integer_field("Announced number of bytes.")
    offset = integer_field("Number of bytes received.")
    complete = IsSetField(source="completed_at")
    sha256 = text_field("SHA-256 of the file; empty until the upload is complete.")
    created = serializers.DateTimeField(source="created_at")
    expires = serializers.DateTimeField(
        source="expires_at", help_text="Time when the upload is deleted unless it is continued or submitted."
    )
    url = AddressField(source="api_path")


_ID = OpenApiParameter("identifier", str, OpenApiParameter.PATH, description="The upload's id.")
_VERSION = header("Tus-Resumable", str, "Protocol version, 1.0.0.", required=True)
_CHECKSUM = header(
    "Upload-Checksum", str, "`sha1` or `sha256`, a space, and the base64 digest of this request's bytes."
)
_EXPIRES = header(
    "Upload-Expires", str, "Time when the upload is deleted unless more bytes arrive.", response=[201, 204]
)
_BEGIN_ERRORS = {
    412: "A tus version other than 1.0.0.",
    413: "Larger than the limit for its kind, which is at most `Tus-Max-Size`.",
    429: "Too many unfinished uploads.",
    460: "The bytes do not match the checksum.",
}
_PIECE_ERRORS = {
    409: "The offset does not match the upload's current size. Request the offset with HEAD.",
    410: "The upload has expired. Create a new one.",
    423: "Another request is writing to the upload.",
    460: "The bytes do not match the checksum and were discarded.",
}
_BYTES = {CONTENT_TYPE: OpenApiTypes.BINARY}


class _TusView(APIView):
    """Base of the upload views."""

    permission_classes = [IsAuthenticated]
    required_scope = Scope.SUBMIT

    def dispatch(self, request: HttpRequest, *arguments: Any, **options: Any) -> HttpResponseBase:
        """Apply X-HTTP-Method-Override, for clients behind proxies that block PATCH or DELETE."""
        override = request.headers.get("X-HTTP-Method-Override", "").upper()
        if request.method == "POST" and override in ("PATCH", "DELETE", "HEAD"):
            request.method = override
        return super().dispatch(request, *arguments, **options)

    def initial(self, request: Request, *arguments: Any, **options: Any) -> None:
        """Check the client's protocol version, except for GET and OPTIONS. Raises Refused for other versions."""
        super().initial(request, *arguments, **options)
        if request.method not in ("GET", "OPTIONS") and request.headers.get("Tus-Resumable") != VERSION:
            hint = f"Send the header Tus-Resumable: {VERSION}."
            raise Refused.for_problem(TUS_VERSION, f"Uploads here are tus {VERSION}.", hint)

    def finalize_response(self, request: Request, response: Any, *arguments: Any, **options: Any) -> Response:
        """Add the protocol version and disable caching. With status 412, add the supported version."""
        answer = super().finalize_response(request, response, *arguments, **options)
        answer["Tus-Resumable"] = VERSION
        answer["Cache-Control"] = "no-store"
        if answer.status_code == status.HTTP_412_PRECONDITION_FAILED:
            answer["Tus-Version"] = VERSION
        return answer

    def get_permissions(self) -> list[Any]:
        return [] if self.request.method == "OPTIONS" else list(super().get_permissions())

    def options(self, request: Request, *arguments: Any, **options: Any) -> Response:  # type: ignore[override]
        """Return supported versions, extensions, and the maximum file size."""
        headers = {
            "Tus-Version": VERSION,
            "Tus-Extension": ",".join(EXTENSIONS),
            "Tus-Max-Size": str(max(service.get_size_limit(kind) for kind in Upload.Kind.values)),
            "Tus-Checksum-Algorithm": ",".join(ALGORITHMS),
            "Allow": ", ".join(self.allowed_methods),
        }
        return Response(status=status.HTTP_204_NO_CONTENT, headers=headers)

    def handle_exception(self, error: Exception) -> Response:
        """Convert refusals, uploads in use, and missing uploads to API errors with the statuses that tus prescribes."""
        if isinstance(error, UploadInUse):
            error = Refused.for_problem(
                service.UPLOAD_IN_USE,
                "Another request is writing to this upload, or a submission or backup is reading it.",
                "Wait until it has finished, then request the offset with HEAD.",
            )
        if isinstance(error, Upload.DoesNotExist):
            error = Http404("This upload does not exist.")
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
        """Write the request's bytes to the upload, starting at `offset`, and return the updated upload.

        Raises:
            Refused: If the offset, length, or checksum is wrong, or the user or site has too many concurrent uploads.
            UploadInUse: If another request writes or reads the upload.
            Upload.DoesNotExist: If the upload was deleted.
        """
        length, checksum = body_length(request._request), parse_checksum(request)
        service.require_offset(upload, offset)
        if length is not None and length > upload.length - offset:
            raise service.build_too_long_refusal(upload)
        with service.piece_slot(upload.owner_id):
            return service.receive_bytes(upload, offset, read_blocks(request._request), checksum)


class UploadsView(_TusView):
    """API view that creates and lists uploads."""

    def get_throttles(self) -> list[Any]:
        return [SubmitThrottle()] if self.request.method == "POST" else []

    @call("uploads", "My uploads", {200: UploadSerializer(many=True)}, 401, operation_id="uploads_list")
    def get(self, request: Request) -> Response:
        """List your partial and complete uploads that no submission has used, newest first."""
        rows = service.get_uploads(require_user(request))
        return Response(UploadSerializer(rows, many=True, context={"request": request}).data)

    @call(
        "uploads",
        "Create an upload",
        {201: OpenApiResponse(UploadSerializer, "Created; send the bytes to `Location`.")},
        400,
        401,
        415,
        remarks=_BEGIN_ERRORS,
        operation_id="uploads_create",
        extensions={"x-curl": '-X POST -H "Tus-Resumable: 1.0.0" -H "Upload-Length: 1048576"'},
        parameters=[
            _VERSION,
            header("Upload-Length", int, "Size of the file in bytes.", required=True),
            header(
                "Upload-Metadata",
                str,
                "`filename` and `kind` (`run`, the default, or `model`), with base64 values.",
            ),
            _CHECKSUM,
            header("Location", str, "URL of the upload.", response=[201]),
            header("Upload-Offset", int, "Number of bytes received with this request.", response=[201]),
            _EXPIRES,
        ],
        request=_BYTES,
    )
    def post(self, request: Request) -> Response:
        """Create an upload of a given length. The request may contain the first bytes (creation-with-upload).

        The protocol is [tus](https://tus.io/protocols/resumable-upload) 1.0.0, so existing tus clients work.
        """
        length = parse_byte_count(request, "Upload-Length")
        metadata_header = request.headers.get("Upload-Metadata", "")
        metadata = parse_metadata(metadata_header)
        if has_body := body_length(request._request) != 0:
            require_content_type(request)
        name, kind = parse_file(metadata)
        upload = service.begin_upload(
            require_user(request), length=length, kind=kind, file_name=name, metadata=metadata_header
        )
        if has_body:
            upload = self.receive(request, upload, 0)
        answer = _serialize_upload(upload, request)
        headers = {"Location": answer["url"], **_offset_headers(upload)}
        return Response(answer, status=status.HTTP_201_CREATED, headers=headers)


class UploadView(_TusView):
    """API view of one upload, visible only to its sender."""

    @call(
        "uploads",
        "An upload",
        {200: UploadSerializer},
        401,
        404,
        410,
        operation_id="uploads_retrieve",
        parameters=[_ID],
    )
    def get(self, request: Request, identifier: str) -> Response:
        """Return the upload's offset and, once it is complete, its sha256. HEAD returns the same in tus headers."""
        return Response(_serialize_upload(service.finish_upload(_find(request, identifier)), request))

    @extend_schema(exclude=True)
    def head(self, request: Request, identifier: str) -> Response:
        """Return the upload's length, offset, expiry, and metadata in headers."""
        upload = service.finish_upload(_find(request, identifier))
        headers = {"Upload-Length": str(upload.length), **_offset_headers(upload)}
        if upload.metadata:
            headers["Upload-Metadata"] = upload.metadata
        return Response(headers=headers)

    @call(
        "uploads",
        "Resume upload",
        {204: OpenApiResponse(description="Written; `Upload-Offset` is the new offset.")},
        400,
        401,
        404,
        412,
        413,
        415,
        remarks=_PIECE_ERRORS,
        parameters=[
            _ID,
            _VERSION,
            header("Upload-Offset", int, "Offset of these bytes: the number of bytes sent before.", required=True),
            _CHECKSUM,
            header("Upload-Offset", int, "Number of bytes received so far.", response=[204]),
            _EXPIRES,
        ],
        operation_id="uploads_partial_update",
        extensions={
            "x-curl": '-X PATCH -H "Tus-Resumable: 1.0.0" -H "Upload-Offset: 0" '
            f'-H "Content-Type: {CONTENT_TYPE}" -T model.zip'
        },
        request=_BYTES,
    )
    def patch(self, request: Request, identifier: str) -> Response:
        """Write the next bytes.

        If the connection breaks, received bytes remain. Request the offset with HEAD and continue.
        """
        upload = _find(request, identifier)
        require_content_type(request)
        upload = self.receive(request, upload, parse_byte_count(request, "Upload-Offset"))
        return Response(status=status.HTTP_204_NO_CONTENT, headers=_offset_headers(upload))

    @call(
        "uploads",
        "Delete an upload",
        {204: OpenApiResponse(description="Deleted.")},
        401,
        404,
        410,
        412,
        remarks={423: "A request is writing to the upload, or a submission or backup is reading it."},
        operation_id="uploads_destroy",
        parameters=[_ID, _VERSION],
        extensions={"x-curl": '-X DELETE -H "Tus-Resumable: 1.0.0"'},
        request=None,
    )
    def delete(self, request: Request, identifier: str) -> Response:
        """Delete the upload and its bytes."""
        service.discard_upload(_find(request, identifier))
        return Response(status=status.HTTP_204_NO_CONTENT)


def _find(request: Request, identifier: str) -> Upload:
    """Return the user's upload. Raises Upload.DoesNotExist, or Refused if it has expired."""
    upload = service.find_upload(require_user(request), identifier)
    if upload is None:
        raise Upload.DoesNotExist
    return upload


def _offset_headers(upload: Upload) -> dict[str, str]:
    return {"Upload-Offset": str(upload.offset), "Upload-Expires": http_date(upload.expires_at.timestamp())}


def _serialize_upload(upload: Upload, request: Request) -> dict[str, Any]:
    return UploadSerializer(upload, context={"request": request}).data


def require_content_type(request: Request) -> None:
    """Raise Refused unless the content type is that of upload bytes."""
    if (request.content_type or "").partition(";")[0].strip().lower() != CONTENT_TYPE:
        raise Refused.for_problem(
            WRONG_CONTENT_TYPE,
            f"“{(request.content_type or '')[:80]}” is not the content type of upload bytes.",
            f"Send raw bytes with Content-Type: {CONTENT_TYPE}.",
        )


def parse_byte_count(request: Request, header: str) -> int:
    """Return the number of bytes in a header. Raises Refused if the header is missing or not a number."""
    text = request.headers.get(header, "")
    number = parse_number(text, 15)
    if number is None:
        message = f"“{text[:40]}” is not a byte count" if text else "the header is missing"
        raise Refused.for_problem(UPLOAD_HEADER, f"{header}: {message}.", f"Send {header}: 1024.")
    return number


def parse_metadata(header: str) -> dict[str, str]:
    """Parse Upload-Metadata, which contains comma-separated pairs of a key and a base64 value. Raises Refused."""
    try:
        if len(header) > LONGEST_METADATA or not header.isascii():
            raise ValueError
        pairs = [pair.split() for pair in header.split(",") if pair.strip()]
        return {key: base64.b64decode("".join(value[:1]), validate=True).decode() for key, *value in pairs}
    except (ValueError, binascii.Error) as error:
        raise Refused.for_problem(
            UPLOAD_METADATA,
            f"Upload-Metadata must consist of keys with base64 values, at most {LONGEST_METADATA:,} bytes in all.",
            "For example, send Upload-Metadata: filename bW9kZWwuemlw,kind bW9kZWw=.",
        ) from error


def parse_file(metadata: Mapping[str, str]) -> tuple[str, str]:
    """Return the file name, which is only displayed, and the kind of file (a run by default).

    Folders and unprintable characters are removed from the name. Raises Refused for an unknown kind.
    """
    kind = metadata.get("kind", "") or Upload.Kind.RUN.value
    if kind not in Upload.Kind.values:
        raise Refused.for_problem(
            UPLOAD_KIND,
            f"Upload-Metadata: “{kind[:40]}” is not a kind of file.",
            f"Send one of {', '.join(Upload.Kind.values)}.",
        )
    name = metadata.get("filename", "").replace("\\", "/").rpartition("/")[2]
    return "".join(letter for letter in name if letter.isprintable())[:200], kind


def parse_checksum(request: Request) -> Checksum | None:
    """Return the checksum of the request's bytes from Upload-Checksum, or None if the header is missing.

    The header contains an algorithm and a base64 digest. Raises Refused if it is malformed.
    """
    header = request.headers.get("Upload-Checksum", "")
    if not header:
        return None
    algorithm, _, digest_text = header.partition(" ")
    try:
        digest = base64.b64decode(digest_text, validate=True)
    except (ValueError, binascii.Error):
        digest = b""
    if algorithm not in ALGORITHMS or len(digest) != hashlib.new(algorithm).digest_size:
        raise Refused.for_problem(
            UPLOAD_CHECKSUM,
            "Upload-Checksum is malformed.",
            f"Send {' or '.join(ALGORITHMS)}, a space, and the base64 digest.",
        )
    return Checksum(algorithm, digest)


def body_length(request: HttpRequest) -> int | None:
    """Return the announced length of the body in bytes, or None if it is chunked."""
    return None if is_chunked(request.META) else int(request.META.get("CONTENT_LENGTH") or 0)


def read_blocks(request: HttpRequest) -> Iterator[bytes]:
    """Yield blocks of the request's body until it ends or the connection breaks. Allow PIECE_SECONDS for the body."""
    body = request.META["wsgi.input"]
    if isinstance(body, WatchedBody):
        body.max_seconds = PIECE_SECONDS
    stream = body if is_chunked(request.META) else request
    with suppress(OSError):  # the client has disconnected and will ask for the offset
        while block := stream.read(BLOCK):
            yield block
