"""Large files in pieces, by tus 1.0.0; what broke off goes on, also in another process.

Nothing is kept on this machine: the site lists what is under way, and what arrived is compared by its sha256.
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
from typing import TYPE_CHECKING

from runboard.answers import Upload
from runboard.errors import Refused, SiteUnavailable

if TYPE_CHECKING:
    from runboard.client import Client, Progress

#: Bytes of one request and of one write, and seconds before tries that follow one another without a byte arriving.
PIECE, BLOCK = 64 * 1024 * 1024, 256 * 1024
WAITS = (1, 2, 4, 8, 15, 30, 30, 30)
_TUS = {"Tus-Resumable": "1.0.0"}
#: Somebody else writes to it, or it is elsewhere than was thought: asked again, the site may say something else.
_PASSING = frozenset({409, 423})


def upload(site: Client, path: Path, kind: str, progress: Progress) -> str:
    """Send a file and return the upload's id, which a submission names. Raises Refused and SiteUnavailable."""
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        found = _with_retries(lambda: _find_or_create(site, path.name, length, kind))
        while found["offset"] < length:
            found = _with_retries(partial(_send_piece, site, found["id"], file, length, progress))
        file.seek(0)
        if found["sha256"] != hashlib.file_digest(file, "sha256").hexdigest():
            with suppress(Refused, SiteUnavailable):  # else the site gives it up by itself
                site.ask("DELETE", f"uploads/{found['id']}/", headers=_TUS)
            detail = f"What arrived is not {path.name}: it changed meanwhile. Send it again."
            raise Refused(0, "changed", detail, [])
    return found["id"]


def _with_retries(act: Callable[[], Upload]) -> Upload:
    """What the act returns, tried again in a while where the connection broke."""
    for wait in WAITS:
        try:
            return act()
        except (SiteUnavailable, Refused) as error:
            if isinstance(error, Refused) and error.status not in _PASSING:
                raise
            print(f"\n{error}\nTrying again in {wait} s.", file=sys.stderr)
            time.sleep(wait)
    return act()


def _find_or_create(site: Client, name: str, length: int, kind: str) -> Upload:
    """The upload of this file that is there already, else a new one."""
    under_way: list[Upload] = site.ask("GET", "uploads/", headers=_TUS)
    for each in under_way:
        if (each["file_name"], each["length"], each["kind"]) == (name, length, kind):
            return each
    pairs = (("filename", name), ("kind", kind))
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs)
    headers = {**_TUS, "Upload-Length": str(length), "Upload-Metadata": metadata}
    made: Upload = site.ask("POST", "uploads/", headers=headers)
    return made


def _send_piece(
    site: Client, identifier: str, file: BufferedReader, length: int, progress: Progress
) -> Upload:
    """The upload after its next piece, from wherever it is."""
    path = f"uploads/{identifier}/"
    start: int = site.ask("GET", path, headers=_TUS)["offset"]
    if start < length:
        size = min(PIECE, length - start)
        headers = {
            **_TUS,
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(size),
            "Upload-Offset": str(start),
        }
        blocks = _blocks(file, start, size, length, progress)
        site.ask("PATCH", path, headers=headers, data=_Sized(blocks, size))
    arrived: Upload = site.ask("GET", path, headers=_TUS)
    return arrived


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
