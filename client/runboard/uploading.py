"""Resumable uploads of large files by tus 1.0.0, also across processes.

The client stores no state. The site lists unfinished uploads with the announced sha256 of each file, so that only an
upload of the same file is continued.
"""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import BufferedReader
from pathlib import Path

from runboard.answers import Upload
from runboard.connection import Connection
from runboard.errors import LONGEST_WAIT, Refused, SiteUnavailable
from runboard.terminal import say

#: Callback with a file's name, the bytes transferred so far, and the total.
Progress = Callable[[str, int, int], None]
#: Bytes per request and per write, and pauses in seconds after consecutive attempts without progress.
PIECE, BLOCK = 64 * 1024 * 1024, 256 * 1024
WAITS = (1, 2, 4, 8, 15, 30, 30, 30)
#: Seconds between checks whether the site has verified the file, and their maximum number.
VERIFICATION_PAUSE, MAX_VERIFICATION_CHECKS = 5.0, 360
_TUS = {"Tus-Resumable": "1.0.0"}
#: Statuses worth a retry: another writer, a different offset, or a busy site.
_RETRY_STATUSES = frozenset({409, 423, 429})


def upload(site: Connection, path: Path, kind: str, progress: Progress) -> str:
    """Upload a file, resuming an earlier upload of the same content, and return the upload's id for a submission.

    Raises SiteUnavailable, and Refused also if the file changes meanwhile.
    """
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        record = _with_retries(lambda: _find_or_create(site, path.name, length, kind, sha256))
        while record["offset"] != length:
            record = _with_retries(partial(_send_piece, site, record["id"], file, length, progress))
    record = _await_verification(site, record)
    if record["sha256"] != sha256:
        # The upload was announced as this file, so its content is wrong.
        with suppress(Refused, SiteUnavailable):  # The site deletes abandoned uploads.
            site.ask("DELETE", f"uploads/{record['id']}/", headers=_TUS)
        detail = f"{path.name} changed during the upload. Send it again."
        raise Refused(0, "changed", detail, [])
    return record["id"]


def _await_verification(site: Connection, record: Upload) -> Upload:
    """Wait until the site has verified the upload, and return it. Raises SiteUnavailable after half an hour."""
    for _ in range(MAX_VERIFICATION_CHECKS):
        if record["complete"]:
            return record
        time.sleep(VERIFICATION_PAUSE)
        record = _with_retries(partial(site.ask_for, Upload, "GET", f"uploads/{record['id']}/", headers=_TUS))
    raise SiteUnavailable(
        f"{record['file_name']} is uploaded, but the site is still verifying it. Run the same command again later."
    )


def _with_retries(action: Callable[[], Upload]) -> Upload:
    """Return the result of an action, retrying while the connection breaks or the site is busy.

    Raises the error after the last retry, for other refusals, and for waits of more than LONGEST_WAIT seconds.
    """
    for wait in WAITS:
        try:
            return action()
        except (SiteUnavailable, Refused) as error:
            if error.wait > LONGEST_WAIT or (isinstance(error, Refused) and error.status not in _RETRY_STATUSES):
                raise
            pause = max(wait, error.wait)
            say(f"\n{error}\nTrying again in {pause:.0f} s.", file=sys.stderr)
            time.sleep(pause)
    return action()


def _find_or_create(site: Connection, name: str, length: int, kind: str, sha256: str) -> Upload:
    """Return the user's existing upload with this length, kind, and checksum, or create one."""
    for upload in site.ask_for(list[Upload], "GET", "uploads/", headers=_TUS):
        if (upload["length"], upload["kind"]) == (length, kind) and _has_checksum(site, upload, sha256):
            return upload
    pairs = {"filename": name, "kind": kind, "sha256": sha256}
    metadata = ",".join(_pair(key, value) for key, value in pairs.items())
    headers = {**_TUS, "Upload-Length": str(length), "Upload-Metadata": metadata}
    return site.ask_for(Upload, "POST", "uploads/", headers=headers)


def _has_checksum(site: Connection, upload: Upload, sha256: str) -> bool:
    """Return whether the upload has, or was announced with, this checksum."""
    if upload["complete"]:
        return upload["sha256"] == sha256
    try:
        metadata = site.get_headers(f"uploads/{upload['id']}/", headers=_TUS).get("Upload-Metadata", "")
    except Refused:  # The upload was deleted after the request for the list.
        return False
    return _pair("sha256", sha256) in metadata.split(",")


def _pair(key: str, value: str) -> str:
    """Return a pair in the format of Upload-Metadata."""
    return f"{key} {base64.b64encode(value.encode()).decode()}"


def _send_piece(site: Connection, identifier: str, file: BufferedReader, length: int, progress: Progress) -> Upload:
    """Send the next piece of at most PIECE bytes from the site's offset. Return the upload with its new offset.

    Raises SiteUnavailable if the site reports an impossible or unchanged offset.
    """
    path = f"uploads/{identifier}/"
    record = site.ask_for(Upload, "GET", path, headers=_TUS)
    start = record["offset"]
    if start == length:
        return record
    if not 0 <= start < length:
        raise SiteUnavailable(f"{site.url} reports {start:,} of the file's {length:,} bytes.")
    size = min(PIECE, length - start)
    headers = {
        **_TUS,
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(size),
        "Upload-Offset": str(start),
    }
    blocks = _blocks(file, start, size, length, progress)
    site.ask("PATCH", path, headers=headers, data=_SizedBlocks(blocks, size))
    record = site.ask_for(Upload, "GET", path, headers=_TUS)
    if record["offset"] <= start:
        raise SiteUnavailable(f"{site.url} accepted {size:,} bytes, but reports the same offset as before.")
    return record


class _SizedBlocks:
    """Iterator over blocks with a known total size, which prevents chunked transfer."""

    def __init__(self, blocks: Iterator[bytes], size: int) -> None:
        self._blocks, self._size = blocks, size

    def __iter__(self) -> Iterator[bytes]:
        return self._blocks

    def __len__(self) -> int:
        return self._size


def _blocks(file: BufferedReader, start: int, size: int, length: int, progress: Progress) -> Iterator[bytes]:
    """Yield `size` bytes from `start` in blocks. Report the progress towards `length` after each block."""
    file.seek(start)
    end = start + size
    while start < end and (block := file.read(min(BLOCK, end - start))):
        yield block
        start += len(block)
        progress(Path(file.name).name, start, length)
