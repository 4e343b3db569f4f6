"""Large files in pieces, by tus 1.0.0; what broke off goes on, also in another process.

Nothing is kept on this machine. The site lists what is under way; each upload is announced with the file's sha256, so
that this file's is found again and no other is touched.
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

#: Called with a file's name, the bytes transferred so far, and the bytes in all.
Progress = Callable[[str, int, int], None]
#: Bytes of one request and of one write, and seconds before tries that follow one another without a byte arriving.
PIECE, BLOCK = 64 * 1024 * 1024, 256 * 1024
WAITS = (1, 2, 4, 8, 15, 30, 30, 30)
#: Seconds between two questions whether the site has read the whole file once more, and how often it is asked.
READ_AGAIN, QUESTIONS = 5.0, 360
_TUS = {"Tus-Resumable": "1.0.0"}
#: Somebody else writes to it, it is elsewhere than was thought, or the site has much to do: asked again, the site may
#: say something else.
_PASSING = frozenset({409, 423, 429})


def upload(site: Connection, path: Path, kind: str, progress: Progress) -> str:
    """Send a file and return the upload's id, which a submission names. Raises Refused and SiteUnavailable."""
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        found = _with_retries(lambda: _find_or_create(site, path.name, length, kind, sha256))
        while found["offset"] != length:
            found = _with_retries(partial(_send_piece, site, found["id"], file, length, progress))
    found = _read_by_the_site(site, found)
    if found["sha256"] != sha256:
        # It was announced as this file, so it is of no use to anybody.
        with suppress(Refused, SiteUnavailable):  # else the site gives it up by itself
            site.ask("DELETE", f"uploads/{found['id']}/", headers=_TUS)
        detail = f"What arrived is not {path.name}: it changed meanwhile. Send it again."
        raise Refused(0, "changed", detail, [])
    return found["id"]


def _read_by_the_site(site: Connection, found: Upload) -> Upload:
    """The upload with its checksum, for which the site reads it whole. Raises SiteUnavailable after half an hour."""
    for _ in range(QUESTIONS):
        if found["complete"]:
            return found
        time.sleep(READ_AGAIN)
        found = _with_retries(partial(site.ask_for, Upload, "GET", f"uploads/{found['id']}/", headers=_TUS))
    raise SiteUnavailable(
        f"All of {found['file_name']} is there, and the site still reads it. The same command goes on from here."
    )


def _with_retries(act: Callable[[], Upload]) -> Upload:
    """What the act returns, tried again in a while where the connection broke or the site is busy."""
    for wait in WAITS:
        try:
            return act()
        except (SiteUnavailable, Refused) as error:
            if error.wait > LONGEST_WAIT or (isinstance(error, Refused) and error.status not in _PASSING):
                raise
            pause = max(wait, error.wait)
            say(f"\n{error}\nTrying again in {pause:.0f} s.", file=sys.stderr)
            time.sleep(pause)
    return act()


def _find_or_create(site: Connection, name: str, length: int, kind: str, sha256: str) -> Upload:
    """The upload of this very file that is there already, else a new one."""
    for each in site.ask_for(list[Upload], "GET", "uploads/", headers=_TUS):
        if (each["length"], each["kind"]) == (length, kind) and _is_of(site, each, sha256):
            return each
    pairs = {"filename": name, "kind": kind, "sha256": sha256}
    metadata = ",".join(_pair(key, value) for key, value in pairs.items())
    headers = {**_TUS, "Upload-Length": str(length), "Upload-Metadata": metadata}
    return site.ask_for(Upload, "POST", "uploads/", headers=headers)


def _is_of(site: Connection, found: Upload, sha256: str) -> bool:
    """Whether the site has read this file, or of an upload under way whether its sender announced it."""
    if found["complete"]:
        return found["sha256"] == sha256
    try:
        said = site.headers_of(f"uploads/{found['id']}/", headers=_TUS).get("Upload-Metadata", "")
    except Refused:  # gone since the list was made
        return False
    return _pair("sha256", sha256) in said.split(",")


def _pair(key: str, value: str) -> str:
    """As Upload-Metadata has it."""
    return f"{key} {base64.b64encode(value.encode()).decode()}"


def _send_piece(
    site: Connection, identifier: str, file: BufferedReader, length: int, progress: Progress
) -> Upload:
    """The upload after its next piece, from wherever it is."""
    path = f"uploads/{identifier}/"
    found = site.ask_for(Upload, "GET", path, headers=_TUS)
    start = found["offset"]
    if start == length:
        return found
    if not 0 <= start < length:
        raise SiteUnavailable(f"{site.url} says that it has {start:,} of the file's {length:,} bytes.")
    size = min(PIECE, length - start)
    headers = {
        **_TUS,
        "Content-Type": "application/offset+octet-stream",
        "Content-Length": str(size),
        "Upload-Offset": str(start),
    }
    blocks = _blocks(file, start, size, length, progress)
    site.ask("PATCH", path, headers=headers, data=_Sized(blocks, size))
    found = site.ask_for(Upload, "GET", path, headers=_TUS)
    if found["offset"] <= start:
        raise SiteUnavailable(f"{site.url} accepted {size:,} bytes, and has no more of the file than before.")
    return found


class _Sized:
    """Blocks of a known number of bytes: sent as they are, not in chunks."""

    def __init__(self, blocks: Iterator[bytes], size: int) -> None:
        self._blocks, self._size = blocks, size

    def __iter__(self) -> Iterator[bytes]:
        return self._blocks

    def __len__(self) -> int:
        return self._size


def _blocks(file: BufferedReader, start: int, size: int, length: int, progress: Progress) -> Iterator[bytes]:
    file.seek(start)
    end = start + size
    while start < end and (block := file.read(min(BLOCK, end - start))):
        yield block
        start += len(block)
        progress(Path(file.name).name, start, length)
