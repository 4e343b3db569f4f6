"""Uploads on their way in: taken from whom and where they are wanted, counted, hashed, and stopped at the limit."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import TemporaryUploadedFile, UploadedFile
from django.core.files.uploadhandler import StopUpload, TemporaryFileUploadHandler
from django.http import HttpRequest
from rest_framework.request import Request

from leaderboard.core.storage.disk import DiskFull, is_disk_full, require_free_space

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
            try:
                require_free_space(settings.FILE_UPLOAD_TEMP_DIR, self._bytes_left())
                # As the class above does, with a file of our own.
                super(TemporaryFileUploadHandler, self).new_file(field_name, *args, **kwargs)
                self.sha256 = hashlib.sha256()
                self.file = self.hashed = HashedUpload(
                    self.file_name or "", self.content_type, 0, self.charset, self.content_type_extra
                )
            except OSError as error:
                self._give_up(error)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Count, hash and write a chunk; raises StopUpload beyond the limit for the files that the request brings."""
        self.received += len(raw_data)
        if self.received > self.limit:
            self._stop()
        if self.trouble is None:
            self.sha256.update(raw_data)
            try:
                if self.received - self.asked_at >= ASK_EVERY:
                    self.asked_at = self.received
                    require_free_space(settings.FILE_UPLOAD_TEMP_DIR, min(self._bytes_left(), ASK_EVERY))
                super().receive_data_chunk(raw_data, start)
            except OSError as error:
                self._give_up(error)

    def file_complete(self, file_size: int) -> UploadedFile | None:
        """The whole file, on disk; None where it could not be kept."""
        if self.trouble is None:
            try:
                self.hashed.sha256 = self.sha256.hexdigest()
                return super().file_complete(file_size)
            except OSError as error:
                self._give_up(error)
        return None

    def upload_complete(self) -> None:
        """The end of the request. Raises leaderboard.core.storage.disk.DiskFull where it could not be kept."""
        if self.trouble is not None:
            raise self.trouble

    def _stop(self) -> None:
        if self.request is not None:
            self.request.META[STOPPED_AT] = self.limit
        raise StopUpload(connection_reset=True)

    def _give_up(self, error: OSError) -> None:
        """Keep nothing more. Raises what is no lack of room."""
        if not is_disk_full(error):
            raise error
        self.trouble = error if isinstance(error, DiskFull) else DiskFull(settings.FILE_UPLOAD_TEMP_DIR)
        if hasattr(self, "file"):
            with suppress(
                OSError
            ):  # closing writes what is left, and that fails again; the file goes all the same
                self.file.close()
            del self.file

    def _bytes_left(self) -> int:
        """How many bytes of the request are still to come, as far as it says."""
        return max(0, announced_bytes(self.request) - self.received)
