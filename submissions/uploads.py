"""Uploads on their way in: taken from whom and where they are wanted, counted, and stopped at the limit."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import StopUpload, TemporaryFileUploadHandler

#: The views that take files, by their names. Elsewhere, and from strangers, no byte is written: the check against
#: forged requests reads a form, files and all, before any view can ask who sends it.
TAKE_FILES = frozenset({"submit", "api-check", "api-submissions", "admin:leaderboard_dataset_import"})


class LimitedUploadHandler(TemporaryFileUploadHandler):
    """Writes uploads to temporary files and cuts the connection once a request brings more than it may."""

    received = 0

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Begin a file; raises StopUpload where none is wanted."""
        if not self._is_wanted():
            raise StopUpload(connection_reset=True)
        super().new_file(*args, **kwargs)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Count and write a chunk; raises StopUpload beyond `UPLOAD_LIMIT_BYTES`."""
        self.received += len(raw_data)
        if self.received > settings.UPLOAD_LIMIT_BYTES:
            raise StopUpload(connection_reset=True)
        super().receive_data_chunk(raw_data, start)

    def _is_wanted(self) -> bool:
        request = self.request
        if request is None or request.resolver_match is None:
            return False
        user = getattr(request, "user", None)
        return request.resolver_match.view_name in TAKE_FILES and user is not None and user.is_authenticated
