"""Uploads on their way in: counted, and stopped at the limit, before anything is parsed."""

from __future__ import annotations

from django.conf import settings
from django.core.files.uploadhandler import StopUpload, TemporaryFileUploadHandler


class LimitedUploadHandler(TemporaryFileUploadHandler):
    """Writes uploads to temporary files and cuts the connection once a request brings more than it may."""

    received = 0

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Count and write a chunk; raises StopUpload beyond `UPLOAD_LIMIT_BYTES`."""
        self.received += len(raw_data)
        if self.received > settings.UPLOAD_LIMIT_BYTES:
            raise StopUpload(connection_reset=True)
        super().receive_data_chunk(raw_data, start)
