"""Public repositories of the Hugging Face hub, or of a mirror: their files at a revision, and downloads.

Requests go to `HF_ENDPOINT` over HTTP(S) and follow redirects to the storage of large files. File sizes are known
before a download and checked during it.
"""

import errno
import hashlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from evaluation.archives.compression import MIB

#: Patterns of a repository's owner/name, and of a commit, which determines its content.
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
COMMIT = re.compile(r"[0-9a-f]{40}")
#: Seconds without data after which a connection is closed.
TIMEOUT = 60
#: Minimum bytes per second of a download, after the first TIMEOUT seconds.
MIN_RATE = 10_000

_ENDPOINT = "https://huggingface.co"
_MAX_LISTING = 8 * MIB
_BLOCK = MIB


class NotFetched(Exception):
    """Error of a download: a code such as `hub_missing`, `hub_unreachable`, or `hub_too_large`, and a message."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as described by the hub: its size in bytes and its checksum, empty if the hub has none."""

    name: str
    size: int
    sha256: str


class Repository:
    """A repository of models or datasets at a revision; `commit` is the hub's commit of the revision.

    Raises NotFetched if there is no such public repository or the hub's answer is unusable.
    """

    def __init__(self, kind: Literal["models", "datasets"], name: str, revision: str) -> None:
        self._endpoint = os.environ.get("HF_ENDPOINT", _ENDPOINT).rstrip("/")
        self._files = f"{self._endpoint}/{'datasets/' if kind == 'datasets' else ''}{name}/resolve"
        url = f"{self._endpoint}/api/{kind}/{name}/revision/{quote(revision, safe='')}?blobs=true"
        try:
            with _open_url(url) as answer:
                data = b"".join(read_blocks(answer, _MAX_LISTING, "the hub's listing"))
            listing = json.loads(data) if len(data) <= _MAX_LISTING else None
        except urllib.error.HTTPError as error:
            if error.code in (401, 403, 404):
                raise NotFetched("hub_missing", f"the hub has no public repository {name} at {revision}") from error
            raise NotFetched("hub_unreachable", f"the hub answered {error.code}") from error
        except (ValueError, RecursionError) as error:
            raise NotFetched("hub_unreachable", "the hub's answer is not JSON") from error
        if not isinstance(listing, dict) or not isinstance(listing.get("siblings"), list):
            raise NotFetched("hub_unreachable", "the hub's answer lists no files")
        self.commit = str(listing.get("sha", revision))
        self.card: Any = listing.get("cardData")
        self.entries: list[Any] = listing["siblings"]

    def names(self) -> list[str]:
        return [name for entry in self.entries if (name := _get_name(entry))]

    def files(self, accepts: Callable[[str], bool]) -> list[HubFile]:
        """Return the files with accepted names. Raises NotFetched if the hub does not report a file's size."""
        files = []
        for entry in self.entries:
            name = _get_name(entry)
            if not name or not accepts(name):
                continue
            size, lfs = entry.get("size"), entry.get("lfs")
            if type(size) is not int or size < 0:
                raise NotFetched("hub_unreachable", f"the hub does not report the size of {name}")
            sha256 = lfs.get("sha256", "") if isinstance(lfs, dict) else ""
            files.append(HubFile(name, size, str(sha256)))
        return files

    def download(self, file: HubFile, target: Path, report: Callable[[int], object] = int) -> None:
        """Download a file to `target`, which must not exist, and check its size and checksum.

        `report` is called with the number of bytes after each block. Raises NotFetched if the file is larger than the
        hub reported, incomplete, damaged, or too slow.
        """
        digest, remaining_bytes = hashlib.sha256(), file.size
        with _open_url(f"{self._files}/{self.commit}/{quote(file.name)}") as answer, target.open("xb") as writer:
            for block in read_blocks(answer, file.size, file.name):
                remaining_bytes -= len(block)
                if remaining_bytes < 0:
                    raise NotFetched("hub_too_large", f"{file.name} is larger than the hub reported")
                writer.write(block)
                digest.update(block)
                report(file.size - remaining_bytes)
        if remaining_bytes or (file.sha256 and digest.hexdigest() != file.sha256):
            raise NotFetched("hub_unreachable", f"the download of {file.name} is incomplete or damaged")


def read_blocks(answer: Any, limit: int, name: str, code: str = "hub_unreachable") -> Iterator[bytes]:
    """Yield a response's data in blocks, up to `limit` + 1 bytes, so that the caller can detect a longer response.

    Raises NotFetched with `code` if the data, called `name` in the message, arrives too slowly.
    """
    start, received_bytes = time.monotonic(), 0
    while received_bytes <= limit and (block := answer.read1(min(_BLOCK, limit + 1 - received_bytes))):
        received_bytes += len(block)
        if time.monotonic() - start > TIMEOUT + received_bytes / MIN_RATE:
            raise NotFetched(code, f"{name} arrives too slowly")
        yield block


@contextmanager
def connection_errors(host: str = "hub", code: str = "hub_unreachable") -> Iterator[None]:
    """Convert connection errors in the block to NotFetched with `code`. A full disk still raises OSError."""
    try:
        yield
    except (OSError, HTTPException) as error:  # URLError is an OSError.
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise NotFetched(code, f"the {host} cannot be reached ({type(error).__name__})") from error


def _get_name(entry: object) -> str:
    """Return the hub's name of a file, or an empty string for an invalid entry."""
    name = entry.get("rfilename") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _open_url(url: str) -> Any:
    """Request a URL and return the open response. Raises NotFetched for a scheme other than HTTP and HTTPS."""
    if not url.startswith(("https://", "http://")):
        raise NotFetched("hub_unreachable", "the hub's address is not a web address")
    request = urllib.request.Request(url, headers={"User-Agent": "runboard"})  # noqa: S310
    return urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
