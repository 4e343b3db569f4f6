"""Public repositories of the Hugging Face hub, or of a mirror of it: what is in one at a revision, and its files.

It talks plain HTTP(S) to `HF_ENDPOINT` and follows it to where it keeps large files. Sizes are known before a file is
asked for, and held against what comes.
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

#: owner/name of a repository, and a commit, which alone pins what is in it.
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
COMMIT = re.compile(r"[0-9a-f]{40}")
#: Seconds that a mirror may be silent.
TIMEOUT = 60
#: After the first TIMEOUT seconds of a file so many bytes a second have come, or no more is waited for.
LEAST_RATE = 10_000

_ENDPOINT = "https://huggingface.co"
_MOST_LISTING = 8 * MIB
_BLOCK = MIB


class NotFetched(Exception):
    """Why nothing was fetched: `hub_missing`, `hub_unreachable` or `hub_too_large`, and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file as the hub describes it: bytes, and a checksum where it has one."""

    name: str
    size: int
    sha256: str


class Repository:
    """A repository of `kind` models or datasets at a revision; `commit` is what the hub says the revision is.

    Raises NotFetched where there is none that is public, or the hub's answer is of no use.
    """

    def __init__(self, kind: Literal["models", "datasets"], name: str, revision: str) -> None:
        self._endpoint = os.environ.get("HF_ENDPOINT", _ENDPOINT).rstrip("/")
        self._files = f"{self._endpoint}/{'datasets/' if kind == 'datasets' else ''}{name}/resolve"
        url = f"{self._endpoint}/api/{kind}/{name}/revision/{quote(revision, safe='')}?blobs=true"
        try:
            with _open(url) as answer:
                data = b"".join(_blocks(answer, _MOST_LISTING, "the hub's listing"))
            listing = json.loads(data) if len(data) <= _MOST_LISTING else None
        except urllib.error.HTTPError as error:
            if error.code in (401, 403, 404):
                message = f"the hub has no public repository {name} at {revision}"
                raise NotFetched("hub_missing", message) from error
            raise NotFetched("hub_unreachable", f"the hub answered {error.code}") from error
        except (ValueError, RecursionError) as error:
            raise NotFetched("hub_unreachable", "the hub's answer is no JSON") from error
        if not isinstance(listing, dict) or not isinstance(listing.get("siblings"), list):
            raise NotFetched("hub_unreachable", "the hub's answer lists no files")
        self.commit = str(listing.get("sha", revision))
        self.entries: list[Any] = listing["siblings"]

    def names(self) -> list[str]:
        """What its files are called."""
        return [name for entry in self.entries if (name := _name(entry))]

    def files(self, wanted: Callable[[str], bool]) -> list[HubFile]:
        """The files of wanted names. Raises NotFetched where the hub does not say how large one is."""
        files = []
        for entry in self.entries:
            name = _name(entry)
            if not name or not wanted(name):
                continue
            size, large = entry.get("size"), entry.get("lfs")
            if type(size) is not int or size < 0:
                raise NotFetched("hub_unreachable", f"the hub does not say how large {name} is")
            sha256 = large.get("sha256", "") if isinstance(large, dict) else ""
            files.append(HubFile(name, size, str(sha256)))
        return files

    def download(self, file: HubFile, target: Path) -> None:
        """One file, as large as it was said to be, and with the hash that was said. Raises NotFetched."""
        digest, left = hashlib.sha256(), file.size
        url = f"{self._files}/{self.commit}/{quote(file.name)}"
        with _open(url) as answer, target.open("xb") as writer:
            for block in _blocks(answer, file.size, file.name):
                left -= len(block)
                if left < 0:
                    raise NotFetched("hub_too_large", f"{file.name} is larger than the hub said")
                writer.write(block)
                digest.update(block)
        if left or (file.sha256 and digest.hexdigest() != file.sha256):
            raise NotFetched("hub_unreachable", f"{file.name} did not arrive whole")


def _blocks(answer: Any, most: int, name: str) -> Iterator[bytes]:
    """What comes, up to a byte more than `most`. Raises NotFetched where it comes too slowly."""
    begun, read = time.monotonic(), 0
    while read <= most and (block := answer.read1(min(_BLOCK, most + 1 - read))):
        read += len(block)
        if time.monotonic() - begun > TIMEOUT + read / LEAST_RATE:
            raise NotFetched("hub_unreachable", f"{name} comes too slowly")
        yield block


@contextmanager
def reaching_the_hub() -> Iterator[None]:
    """Turns what goes wrong with the connection into NotFetched; a full disk stays what it is."""
    try:
        yield
    except (OSError, HTTPException) as error:  # URLError is one too
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        message = f"the hub cannot be reached ({type(error).__name__})"
        raise NotFetched("hub_unreachable", message) from error


def _name(entry: object) -> str:
    """What the hub calls a file; empty for anything that is none."""
    name = entry.get("rfilename") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _open(url: str) -> Any:
    if not url.startswith(("https://", "http://")):
        raise NotFetched("hub_unreachable", "the hub's address is no web address")
    request = urllib.request.Request(url, headers={"User-Agent": "runboard"})  # noqa: S310
    return urllib.request.urlopen(request, timeout=TIMEOUT)  # noqa: S310
