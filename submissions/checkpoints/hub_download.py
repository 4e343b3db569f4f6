"""The process that fetches a model from the hub: it is given a name, a commit and a folder, and no secrets.

It is called with NAME COMMIT FOLDER MOST_BYTES, and prints a line of JSON: the bytes fetched and the heads left
there, or a code and a sentence. Only files that a checkpoint is made of are asked for, and their sizes are known, and
added up, before the first is. It talks plain HTTP(S) to `HF_ENDPOINT` and follows it to where it keeps large files.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evaluation.archives.compression import MIB, describe_bytes
from evaluation.checkpoints.description import PICKLED_HEADS
from evaluation.checkpoints.files import check_file_name
from evaluation.checkpoints.findings import Findings

_ENDPOINT = "https://huggingface.co"
_TIMEOUT = 60
_MOST_LISTING = 8 * MIB
_MOST_FILES = 64
_BLOCK = MIB


class NotFetched(Exception):
    """Why nothing was fetched: a code of checkpoints, and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    size: int
    sha256: str


def fetch(name: str, commit: str, folder: Path, most: int) -> tuple[int, list[str]]:
    """Fetch the model's files into the empty folder; how many bytes, and pickled heads left. Raises NotFetched."""
    endpoint = os.environ.get("HF_ENDPOINT", _ENDPOINT).rstrip("/")
    listing = _listing(f"{endpoint}/api/models/{name}/revision/{commit}?blobs=true", name, commit)
    files = _select_files(listing, commit)
    total = sum(file.size for file in files)
    if total > most:
        raise NotFetched(
            "hub_too_large", f"{name} has {describe_bytes(total)}, over the limit of {describe_bytes(most)}"
        )
    for file in files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        _download(f"{endpoint}/{name}/resolve/{commit}/{quote(file.name)}", file, target)
    return total, [
        head for head in PICKLED_HEADS if any(_name(entry) == head for entry in listing["siblings"])
    ]


def _listing(url: str, name: str, commit: str) -> Mapping[str, Any]:
    """What the hub says of the model at this commit."""
    try:
        with _open(url) as answer:
            data = answer.read(_MOST_LISTING + 1)
        listing = json.loads(data) if len(data) <= _MOST_LISTING else None
    except urllib.error.HTTPError as error:
        if error.code in (401, 403, 404):
            message = f"the hub has no public model {name} at {commit}"
            raise NotFetched("hub_missing", message) from error
        raise NotFetched("hub_unreachable", f"the hub answered {error.code}") from error
    except (ValueError, RecursionError) as error:
        raise NotFetched("hub_unreachable", "the hub's answer is no JSON") from error
    if not isinstance(listing, dict) or not isinstance(listing.get("siblings"), list):
        raise NotFetched("hub_unreachable", "the hub's answer lists no files")
    return listing


def _select_files(listing: Mapping[str, Any], commit: str) -> list[_File]:
    """The files that a checkpoint is made of. Weights that run code when they are opened are never asked for."""
    if listing.get("sha", commit) != commit:
        raise NotFetched("hub_missing", "the hub answered with another commit")
    files = []
    for entry in listing["siblings"]:
        name = _name(entry)
        if not check_file_name(name, Findings()):
            continue
        size, large = entry.get("size"), entry.get("lfs")
        if type(size) is not int or size < 0:
            raise NotFetched("hub_unreachable", f"the hub does not say how large {name} is")
        sha256 = large.get("sha256", "") if isinstance(large, dict) else ""
        files.append(_File(name, size, str(sha256)))
    if not 0 < len(files) <= _MOST_FILES:
        raise NotFetched(
            "hub_missing", f"the model has {len(files)} usable files; 1 to {_MOST_FILES} are taken"
        )
    return files


def _name(entry: object) -> str:
    """What the hub calls a file; empty for anything that is none."""
    name = entry.get("rfilename") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _download(url: str, file: _File, target: Path) -> None:
    """One file, as large as it was said to be, and with the hash that was said."""
    digest, left = hashlib.sha256(), file.size
    with _open(url) as answer, target.open("xb") as writer:
        while block := answer.read(min(_BLOCK, left + 1)):
            left -= len(block)
            if left < 0:
                raise NotFetched("hub_too_large", f"{file.name} is larger than the hub said")
            writer.write(block)
            digest.update(block)
    if left or (file.sha256 and digest.hexdigest() != file.sha256):
        raise NotFetched("hub_unreachable", f"{file.name} did not arrive whole")


def _open(url: str) -> Any:
    if not url.startswith(("https://", "http://")):
        raise NotFetched("hub_unreachable", "the hub's address is no web address")
    request = urllib.request.Request(url, headers={"User-Agent": "runboard"})  # noqa: S310
    return urllib.request.urlopen(request, timeout=_TIMEOUT)  # noqa: S310


def main() -> int:
    """Fetch what the command line names, and say how it went."""
    name, commit, folder, most = sys.argv[1:]
    try:
        total, heads = fetch(name, commit, Path(folder), int(most))
        answer: dict[str, Any] = {"bytes": total, "heads": heads}
    except NotFetched as error:
        answer = {"code": error.code, "message": error.message}
    except (OSError, HTTPException) as error:  # URLError is one too
        message = f"the hub cannot be reached ({type(error).__name__})"
        answer = {"code": "hub_unreachable", "message": message}
    print(json.dumps(answer))
    return int("code" in answer)


if __name__ == "__main__":
    sys.exit(main())
