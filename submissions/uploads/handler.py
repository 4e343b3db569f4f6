"""Upload handler that accepts files only where views expect them, hashes them, and enforces size limits."""

import hashlib
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import TemporaryUploadedFile, UploadedFile
from django.core.files.uploadhandler import StopUpload, TemporaryFileUploadHandler
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from rest_framework.request import Request

from evaluation.archives.compression import describe_bytes
from evaluation.core.problems import ProblemCode
from leaderboard.core.http.api_errors import error_answer
from leaderboard.core.http.middleware import Middleware
from leaderboard.core.storage.disk import DiskFull, is_disk_full, require_free_space
from submissions.core.errors import Refused

#: Models whose rows curators can import as tables.
_TABLES = ("dataset", "system", "benchmark", "price", "hardwareclass")
#: Names of the views that accept files. Other views cannot store files, because the CSRF check reads a form with its
#: files before any view can check permissions.
TAKE_FILES = frozenset(
    {
        "submit",
        "submit-model",
        "api-check",
        "api-submissions",
        "admin:leaderboard_dataset_changelist",  # query tags
        "admin:leaderboard_dataset_import",
        "admin:leaderboard_judgementimport_bring",
        "admin:leaderboard_entry_report",
        *(f"admin:leaderboard_topicsource_{page}" for page in ("add", "change")),
        *(f"admin:leaderboard_{table}_table" for table in _TABLES),
    }
)
#: Views that accept a checkpoint, in this form field.
TAKE_CHECKPOINTS = frozenset({"submit-model", "api-check", "api-submissions"})
CHECKPOINT_FIELD = "checkpoint"
#: Views that check a run for visitors without an account. Their request size limit is the size of a run that is
#: checked immediately. No other view accepts files from them.
TAKE_VISITORS_RUNS = frozenset({"submit", "api-check"})
#: Maximum size of a form without its files.
FORM_BYTES = 1024 * 1024
#: Free disk space is checked again after this number of bytes, since other uploads are written at the same time.
SPACE_CHECK_BYTES = 16 * 1024 * 1024
#: Key in `request.META` for the limit at which the handler stopped.
EXCEEDED_LIMIT = "submissions.upload_stopped_at"


def announced_bytes(request: HttpRequest | Request | None) -> int:
    """Return the Content-Length of the request, or 0 if it is missing."""
    return int(request.META.get("CONTENT_LENGTH") or 0) if request is not None else 0


class HashedUpload(TemporaryUploadedFile):
    """Temporary upload file with the SHA-256 of its content."""

    sha256: str | None = None


class LimitedUploadHandler(TemporaryFileUploadHandler):
    """Upload handler that hashes files and closes the connection when a request exceeds its limit.

    If the Content-Length is too large already, it stops before the first byte of a file.
    """

    received = 0
    limit = 0
    checked_at = 0
    #: Error after which nothing is written. The request is still read to its end, since the client would otherwise get
    #: no response.
    disk_error: DiskFull | None = None

    def new_file(self, field_name: str, *args: Any, **kwargs: Any) -> None:
        """Begin a file.

        Raises StopUpload if the view or user may not send files, or the announced size exceeds the limit. If the disk
        is full, the file is not written and `upload_complete` raises the error.
        """
        request = self.request
        view = request.resolver_match.view_name if request is not None and request.resolver_match else ""
        user = getattr(request, "user", None)
        is_visitor = user is None or not user.is_authenticated
        takes_checkpoint = field_name == CHECKPOINT_FIELD and view in TAKE_CHECKPOINTS
        needs_account = takes_checkpoint or view not in TAKE_VISITORS_RUNS
        if view not in TAKE_FILES or (is_visitor and needs_account):
            raise StopUpload(connection_reset=True)
        self.limit = max(self.limit, _get_limit(takes_checkpoint=takes_checkpoint, is_visitor=is_visitor))
        if announced_bytes(request) > self.limit + FORM_BYTES:
            self._stop()
        if self.disk_error is None:
            with self._stop_if_full():
                require_free_space(settings.FILE_UPLOAD_TEMP_DIR, self._bytes_left())
                # Like the parent class, with our own file class.
                super(TemporaryFileUploadHandler, self).new_file(field_name, *args, **kwargs)
                self.sha256 = hashlib.sha256()
                self.file = self.hashed = HashedUpload(
                    self.file_name or "", self.content_type, 0, self.charset, self.content_type_extra
                )

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Count, hash, and write a chunk. Raises StopUpload if the files of the request exceed the limit.

        After the disk was full, chunks are counted but not written.
        """
        self.received += len(raw_data)
        if self.received > self.limit:
            self._stop()
        if self.disk_error is None:
            self.sha256.update(raw_data)
            with self._stop_if_full():
                if self.received - self.checked_at >= SPACE_CHECK_BYTES:
                    self.checked_at = self.received
                    require_free_space(settings.FILE_UPLOAD_TEMP_DIR, min(self._bytes_left(), SPACE_CHECK_BYTES))
                super().receive_data_chunk(raw_data, start)

    def file_complete(self, file_size: int) -> UploadedFile | None:
        """Return the complete file with its hash, or None if the disk was full."""
        if self.disk_error is None:
            with self._stop_if_full():
                self.hashed.sha256 = self.sha256.hexdigest()
                return super().file_complete(file_size)
        return None

    def upload_complete(self) -> None:
        """Raise DiskFull if the files could not be written."""
        if self.disk_error is not None:
            raise self.disk_error

    def _stop(self) -> None:
        if self.request is not None:
            self.request.META[EXCEEDED_LIMIT] = self.limit
        raise StopUpload(connection_reset=True)

    @contextmanager
    def _stop_if_full(self) -> Iterator[None]:
        """Store the error and close the file if the block fails because the disk is full. Other errors are raised."""
        try:
            yield
        except OSError as error:
            if not is_disk_full(error):
                raise
            self.disk_error = error if isinstance(error, DiskFull) else DiskFull(settings.FILE_UPLOAD_TEMP_DIR)
            if hasattr(self, "file"):
                # Closing flushes the buffer, which fails again; the file is removed anyway.
                with suppress(OSError):
                    self.file.close()
                del self.file

    def _bytes_left(self) -> int:
        """Return the number of announced bytes that have not arrived."""
        return max(0, announced_bytes(self.request) - self.received)


REQUEST_TOO_LARGE = ProblemCode("request_too_large", "The request exceeds the size limit for uploads.",
    "Compress the runs, or submit fewer at a time.")  # fmt: skip

#: Views of chunked uploads, which may be checkpoints and enforce their own limits.
_CHUNK_VIEWS = frozenset({"api-uploads", "api-upload"})
#: Seconds for which data of a refused client is read and discarded. Most clients would not read the response if the
#: connection were closed at once.
_LINGER_SECONDS = 1.0

#: Advice for oversized requests, by kind of file.
SMALLER_RUNS = "Compress the runs with gzip or zstd, keep at most 1,000 documents per query, or submit fewer at a time."
SIGN_IN_TO_SEND = "Compress the run with gzip or zstd, or sign in to send a larger one."
SMALLER_CHECKPOINT = (
    "Store the weights in half precision and remove everything but the model: python -m evaluation pack FOLDER "
    "writes an archive of the files that are needed."
)


def refuse_oversize(request: HttpRequest | Request) -> None:
    """Raise Refused if the announced body exceeds the limit, or if the upload handler stopped reading its files."""
    size = announced_bytes(request)
    with_checkpoint = CHECKPOINT_FIELD in request.FILES
    default_limit = settings.CHECKPOINT_LIMIT_BYTES if with_checkpoint else settings.UPLOAD_LIMIT_BYTES
    limit = request.META.get(EXCEEDED_LIMIT, default_limit)
    if EXCEEDED_LIMIT in request.META or size > limit:
        raise _refusal(size, limit)


class RequestSizeMiddleware(Middleware):
    """Middleware that responds with 413 before reading a body whose Content-Length exceeds the view's limit.

    Otherwise clients that announce large bodies and send slowly would block threads.
    """

    def process_view(self, request: HttpRequest, view: Any, arguments: Any, options: Any) -> HttpResponse | None:
        """Return a 413 response, as JSON for the API, if the announced body exceeds the view's limit, otherwise None.

        Runs before the CSRF check, which reads forms. After the response, the connection accepts no further input.
        """
        name = request.resolver_match.view_name if request.resolver_match else ""
        is_visitor = name in TAKE_VISITORS_RUNS and not request.user.is_authenticated
        limit = _get_limit(
            takes_checkpoint=name in TAKE_CHECKPOINTS or name in _CHUNK_VIEWS,
            is_visitor=is_visitor and "Authorization" not in request.headers,  # the API checks tokens later
        )
        size = announced_bytes(request)
        if size <= limit + FORM_BYTES:
            return None
        refusal = _refusal(size, limit)
        if request.path_info.startswith("/api/"):
            answer = error_answer(refusal.code, refusal.detail, refusal.all_problems())
            response: HttpResponse = JsonResponse(answer, status=413)
        else:
            response = render(request, "413.html", {"refusal": refusal}, status=413)
        if connection := request.META.get("gunicorn.socket"):
            response._resource_closers.append(lambda: _hang_up(connection))  # type: ignore[attr-defined]
        return response


def _get_limit(*, takes_checkpoint: bool, is_visitor: bool) -> int:
    if is_visitor:
        return settings.VALIDATE_AT_ONCE_BYTES
    return settings.CHECKPOINT_LIMIT_BYTES if takes_checkpoint else settings.UPLOAD_LIMIT_BYTES


def _refusal(size: int, limit: int) -> Refused:
    """Build the refusal of a request of `size` bytes, with advice on how to stay below the limit."""
    advice = {settings.CHECKPOINT_LIMIT_BYTES: SMALLER_CHECKPOINT, settings.VALIDATE_AT_ONCE_BYTES: SIGN_IN_TO_SEND}
    return Refused.for_problem(
        REQUEST_TOO_LARGE,
        f"The request has {describe_bytes(size)}; the limit is {describe_bytes(limit)}.",
        advice.get(limit, SMALLER_RUNS),
    )


def _hang_up(connection: socket.socket) -> None:
    """Discard input for up to a second after the response, then close the receiving side to free the thread."""
    deadline = time.monotonic() + _LINGER_SECONDS
    with suppress(OSError):
        while (remaining_seconds := deadline - time.monotonic()) > 0:
            connection.settimeout(remaining_seconds)
            if not connection.recv(1 << 16):
                break
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
