"""`/api/v1/uploads/`: files in pieces, by tus 1.0.0. Doors: translate in, one domain call, translate out."""

from __future__ import annotations

from collections.abc import Sequence
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

from leaderboard.api.fields import AddressField, Answer, IsSetField
from leaderboard.core.http.api_errors import ApiError
from submissions.accounts.permissions import signed_in
from submissions.accounts.throttling import SubmitThrottle
from submissions.api.schema import errors
from submissions.core.errors import Refused
from submissions.models import Scope, Upload
from submissions.uploads import protocol, service
from submissions.uploads.protocol import TUS_VERSION, WRONG_CONTENT_TYPE, blocks_of, number_of
from submissions.uploads.storage import UploadInUse

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


def header(
    name: str, kind: type, description: str, *, required: bool = False, answers: Sequence[int] = ()
) -> OpenApiParameter:
    """A header of requests, or of answers with these statuses."""
    return OpenApiParameter(
        name,
        kind,
        OpenApiParameter.HEADER,
        description=description,
        required=required,
        response=list(answers) or False,
    )


class UploadSerializer(Answer):
    """A file that comes in pieces."""

    id = serializers.CharField(source="pk", help_text="What a submission names in `upload`.")
    kind = serializers.ChoiceField(choices=["run", "model"])
    file_name = serializers.CharField(help_text="What its sender called it.")
    length = serializers.IntegerField(help_text="Bytes that were announced.")
    offset = serializers.IntegerField(help_text="Bytes that are here.")
    complete = IsSetField(source="completed_at")
    sha256 = serializers.CharField(help_text="Of the whole file; empty until it is here.")
    created = serializers.DateTimeField(source="created_at")
    expires = serializers.DateTimeField(
        source="expires_at", help_text="When it is given up, unless bytes or a submission come."
    )
    url = AddressField(source="api_path")


_ID = OpenApiParameter("identifier", str, OpenApiParameter.PATH, description="The upload's id.")
_VERSION = header("Tus-Resumable", str, "The protocol's version, 1.0.0.", required=True)
_CHECKSUM = header("Upload-Checksum", str, "sha1 or sha256, a blank, and the digest of this request's bytes.")
_IN_USE = "It is being written, or taken by a submission or a backup."
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
_BYTES = {protocol.CONTENT_TYPE: OpenApiTypes.BINARY}


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
        if request.method not in ("GET", "OPTIONS"):
            protocol.require_version(request)

    def finalize_response(self, request: Request, response: Any, *arguments: Any, **options: Any) -> Response:
        """Every answer names the version, and nobody keeps one."""
        answer = super().finalize_response(request, response, *arguments, **options)
        answer["Tus-Resumable"] = protocol.VERSION
        answer["Cache-Control"] = "no-store"
        if answer.status_code == status.HTTP_412_PRECONDITION_FAILED:
            answer["Tus-Version"] = protocol.VERSION
        return answer

    def get_permissions(self) -> list[Any]:
        """Anybody may ask what is spoken here."""
        return [] if self.request.method == "OPTIONS" else list(super().get_permissions())

    def options(self, request: Request, *arguments: Any, **options: Any) -> Response:  # type: ignore[override]
        """Versions, extensions, and the size of the largest file."""
        told = {
            "Tus-Version": protocol.VERSION,
            "Tus-Extension": ",".join(protocol.EXTENSIONS),
            "Tus-Max-Size": str(max(service.limit_of(kind) for kind in Upload.Kind.values)),
            "Tus-Checksum-Algorithm": ",".join(protocol.ALGORITHMS),
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
        announced, checksum = protocol.body_length(request._request), protocol.checksum_of(request)
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

    @extend_schema(
        summary="My uploads",
        operation_id="uploads_list",
        responses={200: UploadSerializer(many=True), **errors(401)},
        tags=["uploads"],
    )
    def get(self, request: Request) -> Response:
        """Files that came in pieces, or are on their way, and that no submission has taken; newest first."""
        rows = service.uploads_of(signed_in(request))
        return Response(UploadSerializer(rows, many=True, context={"request": request}).data)

    @extend_schema(
        summary="Begin an upload",
        operation_id="uploads_create",
        extensions={"x-curl": '-X POST -H "Tus-Resumable: 1.0.0" -H "Upload-Length: 1048576"'},
        parameters=[
            _VERSION,
            header("Upload-Length", int, "The file's bytes.", required=True),
            header(
                "Upload-Metadata", str, "filename, and kind (run, the default, or model), each in base64."
            ),
            _CHECKSUM,
            header("Location", str, "The upload's address.", answers=[201]),
            header("Upload-Offset", int, "How many bytes came with this request.", answers=[201]),
            header("Upload-Expires", str, "When it is given up, unless bytes come before.", answers=[201]),
        ],
        request=_BYTES,
        responses={
            201: OpenApiResponse(UploadSerializer, "Begun; `Location` is where its bytes go."),
            **errors(400, 401, 415, remarks=_BEGIN_ERRORS),
        },
        tags=["uploads"],
    )
    def post(self, request: Request) -> Response:
        """Announce a file by its length; its first bytes may come with this (creation-with-upload).

        The protocol is [tus](https://tus.io/protocols/resumable-upload) 1.0.0, so its published clients work.
        """
        length = number_of(request, "Upload-Length")
        metadata = protocol.metadata_of(request)
        brings = protocol.body_length(request._request) != 0
        if brings:
            protocol.require_content_type(request)
        name, kind = protocol.file_of(metadata)
        said = request.headers.get("Upload-Metadata", "")
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

    @extend_schema(
        summary="An upload",
        parameters=[_ID],
        operation_id="uploads_retrieve",
        responses={200: UploadSerializer, **errors(401, 404, 410)},
        tags=["uploads"],
    )
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

    @extend_schema(
        summary="Resume upload",
        parameters=[
            _ID,
            _VERSION,
            header("Upload-Offset", int, "Where these bytes begin: how many came before.", required=True),
            _CHECKSUM,
            header("Upload-Offset", int, "How many bytes are here now.", answers=[204]),
            header("Upload-Expires", str, "When it is given up, unless bytes come before.", answers=[204]),
        ],
        operation_id="uploads_partial_update",
        extensions={
            "x-curl": '-X PATCH -H "Tus-Resumable: 1.0.0" -H "Upload-Offset: 0" '
            f'-H "Content-Type: {protocol.CONTENT_TYPE}" -T model.zip'
        },
        request=_BYTES,
        responses={
            204: OpenApiResponse(description="Written; `Upload-Offset` says how far it is."),
            **errors(400, 401, 404, 412, 413, 415, remarks=_PIECE_ERRORS),
        },
        tags=["uploads"],
    )
    def patch(self, request: Request, identifier: str) -> Response:
        """Write the next bytes. Where the connection breaks, what came is kept: ask with HEAD and go on."""
        upload = _find(request, identifier)
        protocol.require_content_type(request)
        upload = self.receive(request, upload, number_of(request, "Upload-Offset"))
        return Response(status=status.HTTP_204_NO_CONTENT, headers=_position(upload))

    @extend_schema(
        summary="Delete an upload",
        parameters=[_ID, _VERSION],
        operation_id="uploads_destroy",
        extensions={"x-curl": '-X DELETE -H "Tus-Resumable: 1.0.0"'},
        request=None,
        responses={
            204: OpenApiResponse(description="It is gone, whole or not."),
            **errors(401, 404, 410, 412, remarks={423: _IN_USE}),
        },
        tags=["uploads"],
    )
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
    return {
        "Upload-Offset": str(upload.offset),
        "Upload-Expires": http_date(upload.expires_at.timestamp()),
    }


def _answer(upload: Upload, request: Request) -> dict[str, Any]:
    return UploadSerializer(upload, context={"request": request}).data
