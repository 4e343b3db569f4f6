"""Uploads on their way in: taken from whom and where they are wanted, counted, hashed, and stopped at the limit."""

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

#: Those tables that curators may bring in.
_TABLES = ("dataset", "system", "benchmark", "price", "hardwareclass")
#: The views that take files, by their names. Elsewhere, and from strangers, no byte is written: the check against
#: forged requests reads a form, files and all, before any view can ask who sends it.
TAKE_FILES = frozenset(
    {
        "submit",
        "submit-model",
        "api-check",
        "api-submissions",
        "admin:leaderboard_dataset_import",
        "admin:leaderboard_judgementimport_bring",
        "admin:leaderboard_entry_report",
        *(f"admin:leaderboard_{table}_table" for table in _TABLES),
    }
)
#: Those of them that take a model's checkpoint, in the field of this name.
TAKE_CHECKPOINTS = frozenset({"submit-model", "api-check", "api-submissions"})
CHECKPOINT_FIELD = "checkpoint"
#: What a form may have beside its files: fields, and the lines between them.
FORM_BYTES = 1024 * 1024
#: The disk is asked for room again after so many bytes: others, who were asked before these came, write to it too.
ASK_EVERY = 16 * 1024 * 1024
#: Where the handler notes, in `request.META`, the limit at which it stopped.
STOPPED_AT = "submissions.upload_stopped_at"


def announced_bytes(request: HttpRequest | Request | None) -> int:
    """How long the request says that its body is; 0 where it does not say."""
    return int(request.META.get("CONTENT_LENGTH") or 0) if request is not None else 0


class HashedUpload(TemporaryUploadedFile):
    """An upload in a temporary file, with the sha256 of what came."""

    sha256: str | None = None


class LimitedUploadHandler(TemporaryFileUploadHandler):
    """Writes uploads to temporary files, finds their sha256 as they come, and cuts the connection once a request brings
    more than it may: before the first byte of a file where the request's length says so."""

    received = 0
    limit = 0
    asked_at = 0
    #: Why nothing more is written. The request is read to its end all the same: who is cut off reads no answer.
    trouble: DiskFull | None = None

    def new_file(self, field_name: str, *args: Any, **kwargs: Any) -> None:
        """Begin a file; raises StopUpload where none is wanted, or what is announced is over the limit."""
        request = self.request
        view = request.resolver_match.view_name if request is not None and request.resolver_match else ""
        user = getattr(request, "user", None)
        if view not in TAKE_FILES or user is None or not user.is_authenticated:
            raise StopUpload(connection_reset=True)
        takes_checkpoint = field_name == CHECKPOINT_FIELD and view in TAKE_CHECKPOINTS
        allowed = settings.CHECKPOINT_LIMIT_BYTES if takes_checkpoint else settings.UPLOAD_LIMIT_BYTES
        self.limit = max(self.limit, allowed)
        if announced_bytes(request) > self.limit + FORM_BYTES:
            self._stop()
        if self.trouble is None:
            with self._giving_up():
                require_free_space(settings.FILE_UPLOAD_TEMP_DIR, self._bytes_left())
                # As the class above does, with a file of our own.
                super(TemporaryFileUploadHandler, self).new_file(field_name, *args, **kwargs)
                self.sha256 = hashlib.sha256()
                self.file = self.hashed = HashedUpload(
                    self.file_name or "", self.content_type, 0, self.charset, self.content_type_extra
                )

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Count, hash and write a chunk; raises StopUpload beyond the limit for the files that the request brings."""
        self.received += len(raw_data)
        if self.received > self.limit:
            self._stop()
        if self.trouble is None:
            self.sha256.update(raw_data)
            with self._giving_up():
                if self.received - self.asked_at >= ASK_EVERY:
                    self.asked_at = self.received
                    require_free_space(settings.FILE_UPLOAD_TEMP_DIR, min(self._bytes_left(), ASK_EVERY))
                super().receive_data_chunk(raw_data, start)

    def file_complete(self, file_size: int) -> UploadedFile | None:
        """Return the whole file, on disk; None where it could not be kept."""
        if self.trouble is None:
            with self._giving_up():
                self.hashed.sha256 = self.sha256.hexdigest()
                return super().file_complete(file_size)
        return None

    def upload_complete(self) -> None:
        """Raise DiskFull at the end of a request whose files could not be kept."""
        if self.trouble is not None:
            raise self.trouble

    def _stop(self) -> None:
        if self.request is not None:
            self.request.META[STOPPED_AT] = self.limit
        raise StopUpload(connection_reset=True)

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Store nothing more where the block finds no room."""
        try:
            yield
        except OSError as error:
            if not is_disk_full(error):
                raise
            self.trouble = error if isinstance(error, DiskFull) else DiskFull(settings.FILE_UPLOAD_TEMP_DIR)
            if hasattr(self, "file"):
                # Closing writes what is left, and that fails again; the file is removed all the same.
                with suppress(OSError):
                    self.file.close()
                del self.file

    def _bytes_left(self) -> int:
        """How many bytes of the request are still to come, as far as it says."""
        return max(0, announced_bytes(self.request) - self.received)


REQUEST_TOO_LARGE = ProblemCode("request_too_large", "The request as a whole is over the limit for uploads.",
    "Compress the runs, or submit fewer at a time.")  # fmt: skip

#: The views of uploads in pieces, of which one may be a checkpoint: they say themselves what is too much.
_PIECES = frozenset({"api-uploads", "api-upload"})
#: For how long, in seconds, what a refused sender goes on sending is thrown away: cut off at once it would mostly
#: not read the answer.
_LINGER = 1.0

#: The advice with it, for files of either kind.
SMALLER_RUNS = (
    "Compress the runs with gzip or zstd, keep at most 1,000 documents per query, or submit fewer at a time."
)
SMALLER_CHECKPOINT = (
    "Store the weights in half precision and leave out everything but the model: python -m evaluation pack FOLDER "
    "writes an archive of what is needed."
)


def refuse_oversize(request: HttpRequest | Request) -> None:
    """Raise Refused for a request whose body is over the limit: its files were not read to the end."""
    size = announced_bytes(request)
    with_checkpoint = CHECKPOINT_FIELD in request.FILES
    allowed = settings.CHECKPOINT_LIMIT_BYTES if with_checkpoint else settings.UPLOAD_LIMIT_BYTES
    limit = request.META.get(STOPPED_AT, allowed)
    if STOPPED_AT in request.META or size > limit:
        raise _refusal(size, limit)


class RequestSizeMiddleware(Middleware):
    """Answers 413 before anything of the body is read, where its length is over all that the address takes.

    Whoever announces much and sends little would otherwise hold a thread for as long as it likes.
    """

    def process_view(
        self, request: HttpRequest, view: Any, arguments: Any, options: Any
    ) -> HttpResponse | None:
        """None where the view may read it; before the check against forged requests, which reads forms."""
        name = request.resolver_match.view_name if request.resolver_match else ""
        checkpoints = name in TAKE_CHECKPOINTS or name in _PIECES
        limit = settings.CHECKPOINT_LIMIT_BYTES if checkpoints else settings.UPLOAD_LIMIT_BYTES
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


def _refusal(size: int, limit: int) -> Refused:
    return Refused.of(
        REQUEST_TOO_LARGE,
        f"The request has {describe_bytes(size)}; the limit is {describe_bytes(limit)}.",
        SMALLER_CHECKPOINT if limit == settings.CHECKPOINT_LIMIT_BYTES else SMALLER_RUNS,
    )


def _hang_up(connection: socket.socket) -> None:
    """Once the answer is written: read on for a moment, then end what comes, so that the server's thread is free."""
    until = time.monotonic() + _LINGER
    with suppress(OSError):
        while (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            if not connection.recv(1 << 16):
                break
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RD)
