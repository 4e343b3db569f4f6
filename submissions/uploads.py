"""Uploads on their way in: taken from whom and where they are wanted, counted, and stopped at the limit."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import StopUpload, TemporaryFileUploadHandler

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
        *(f"admin:leaderboard_{table}_table" for table in _TABLES),
    }
)
#: Those of them that take a model's checkpoint, in the field of this name.
TAKE_CHECKPOINTS = frozenset({"submit-model", "api-check", "api-submissions"})
CHECKPOINT_FIELD = "checkpoint"
#: Where the handler notes, in `request.META`, the limit at which it stopped.
STOPPED_AT = "submissions.upload_stopped_at"


class LimitedUploadHandler(TemporaryFileUploadHandler):
    """Writes uploads to temporary files and cuts the connection once a request brings more than it may."""

    received = 0
    limit = 0

    def new_file(self, field_name: str, *args: Any, **kwargs: Any) -> None:
        """Begin a file; raises StopUpload where none is wanted."""
        if not self._is_wanted():
            raise StopUpload(connection_reset=True)
        self.limit = max(self.limit, self._limit(field_name))
        super().new_file(field_name, *args, **kwargs)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Count and write a chunk; raises StopUpload beyond the limit for the files that the request brings."""
        self.received += len(raw_data)
        if self.received > self.limit:
            if self.request is not None:
                self.request.META[STOPPED_AT] = self.limit
            raise StopUpload(connection_reset=True)
        super().receive_data_chunk(raw_data, start)

    def _is_wanted(self) -> bool:
        user = getattr(self.request, "user", None)
        return self._view() in TAKE_FILES and user is not None and user.is_authenticated

    def _limit(self, field_name: str) -> int:
        takes_checkpoint = field_name == CHECKPOINT_FIELD and self._view() in TAKE_CHECKPOINTS
        limit: int = settings.CHECKPOINT_LIMIT_BYTES if takes_checkpoint else settings.UPLOAD_LIMIT_BYTES
        return limit

    def _view(self) -> str:
        request = self.request
        return "" if request is None or request.resolver_match is None else request.resolver_match.view_name
