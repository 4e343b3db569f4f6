"""`python -m evaluation upload`: send a large file to the site, and go on where it broke off.

With the standard library alone, by tus 1.0.0. Nothing is kept on this machine: the site lists what is under way, so
that the same command goes on after any interruption, and what arrived is compared by its sha256 in the end.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from evaluation.cli import Subparsers

#: Bytes of one request, of one write, and seconds before tries that follow one another without a byte arriving.
_PIECE, _BLOCK = 64 * 1024 * 1024, 256 * 1024
_WAITS = (1, 2, 4, 8, 15, 30, 30, 30)
_TIMEOUT = 60.0
#: Where the token is taken from: a command's words can be read by everybody on a machine.
TOKEN = "RUNBOARD_TOKEN"  # noqa: S105
#: Statuses after which the same request may do better.
_PASSING = frozenset({409, 423, 502, 503, 504})


def add_parser(subparsers: Subparsers) -> None:
    """Add the command `upload`, which sets `run`, a function from the arguments to the exit status."""
    parser = subparsers.add_parser(
        "upload",
        help="send a large file to the site; the same command goes on after an interruption",
        description="Send a file in pieces and print its id, which a submission names as upload=ID. The token is taken "
        f"from the environment ({TOKEN}). The same command goes on with an upload that broke off.",
    )
    parser.add_argument("file", type=Path, help="run file, or archive of a model")
    parser.add_argument(
        "--to", required=True, metavar="ADDRESS", help="the site: https://runboard.example.org"
    )
    parser.add_argument("--kind", required=True, choices=["run", "model"], help="what the file is")
    parser.set_defaults(run=run_upload)


def run_upload(arguments: argparse.Namespace) -> int:
    """Send the file; 1 where the site refuses it, or cannot be reached for two minutes."""
    token = os.environ.get(TOKEN, "")
    if not token:
        print(f"error: set {TOKEN} to a token of yours; your account's page makes one", file=sys.stderr)
        return 2
    if urllib.parse.urlsplit(arguments.to).scheme not in ("http", "https"):
        print("error: --to is no address; write it with https://", file=sys.stderr)
        return 2
    site = _Site(arguments.to, token)
    try:
        print(_send(site, arguments.file, arguments.kind))
    except _Refusal as refusal:
        print(f"\nerror: {refusal}", file=sys.stderr)
        return 1
    return 0


class _Refusal(Exception):
    """The site does not take it, or does not answer."""


class _ConnectionLost(Exception):
    """The connection broke, or the site has no time: the same may do better in a while."""


class _Site:
    """The API of one site, with a token."""

    def __init__(self, address: str, token: str) -> None:
        parts = urllib.parse.urlsplit(address)
        path = parts.path if "/api/" in parts.path else "/api/v1/"
        self.uploads = f"{parts.scheme}://{parts.netloc}{path.rstrip('/').removesuffix('/uploads')}/uploads/"
        self._headers = {"Authorization": f"Bearer {token}", "Tus-Resumable": "1.0.0"}

    def ask(
        self, method: str, address: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> tuple[Mapping[str, str], Any]:
        """The headers of an answer and what its JSON says. Raises _Refusal and _ConnectionLost."""
        request = urllib.request.Request(  # noqa: S310  the scheme was looked at
            address, data=body, headers={**self._headers, **(headers or {})}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:  # noqa: S310
                content = answer.read()
                return answer.headers, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            if error.code in _PASSING:
                raise _ConnectionLost(f"the site answered {error.code}") from error
            raise _Refusal(_reason(error)) from error
        except (OSError, http.client.HTTPException) as error:
            raise _ConnectionLost(
                str(getattr(error, "reason", "") or error) or type(error).__name__
            ) from error


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        told = json.loads(error.read())
        hints = [problem["hint"] for problem in told["problems"] if problem.get("hint")]
        return " ".join([told["detail"], *hints])
    except (ValueError, KeyError, TypeError):
        return f"the site answered {error.code} {error.reason}"


def _send(site: _Site, path: Path, kind: str) -> str:
    """The upload's id, once all of the file is there. Raises _Refusal, and OSError for a file that cannot be read."""
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        upload = _with_retries(lambda: _find_or_create(site, path.name, length, kind))
        address = f"{site.uploads}{upload['id']}/"
        while upload["offset"] < length:
            upload = _with_retries(lambda: _send_piece(site, address, file, length))
        print(file=sys.stderr)
        if upload["sha256"] != _sha256(file):
            with suppress(_Refusal, _ConnectionLost):  # else the site gives it up by itself
                site.ask("DELETE", address)
            raise _Refusal("what arrived is not this file: it changed meanwhile. Send it again.")
    print("It is there. Submit it: -F upload=ID in place of the file; ID is", file=sys.stderr)
    return str(upload["id"])


def _with_retries(act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the act returns, tried again in a while where the connection broke. Raises _Refusal."""
    for wait in _WAITS:
        try:
            return act()
        except _ConnectionLost as error:
            print(f"\n{error}: trying again in {wait} s", file=sys.stderr)
            time.sleep(wait)
    try:
        return act()
    except _ConnectionLost as error:
        raise _Refusal(f"the site cannot be reached: {error}") from error


def _find_or_create(site: _Site, name: str, length: int, kind: str) -> dict[str, Any]:
    """The upload of this file that is there already, else a new one."""
    _, mine = site.ask("GET", site.uploads)
    wanted = (name, length, kind)
    for each in mine:
        if (each["file_name"], each["length"], each["kind"]) == wanted:
            return dict(each)
    pairs = (("filename", name), ("kind", kind))
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in pairs)
    _, made = site.ask("POST", site.uploads, {"Upload-Length": str(length), "Upload-Metadata": metadata})
    return dict(made)


def _send_piece(site: _Site, address: str, file: BufferedReader, length: int) -> dict[str, Any]:
    """The upload after its next piece, from wherever it is."""
    _, upload = site.ask("GET", address)
    start: int = upload["offset"]
    if start < length:
        size = min(_PIECE, length - start)
        headers = {
            "Content-Type": "application/offset+octet-stream",
            "Content-Length": str(size),
            "Upload-Offset": str(start),
        }
        site.ask("PATCH", address, headers, _blocks(file, start, size, length))
        _, upload = site.ask("GET", address)
    return dict(upload)


def _blocks(file: BufferedReader, start: int, size: int, length: int) -> Iterator[bytes]:
    """The piece, telling how far it is."""
    file.seek(start)
    end = start + size
    while start < end and (block := file.read(min(_BLOCK, end - start))):
        yield block
        start += len(block)
        _print_progress(start, len(block), length)


def _print_progress(sent: int, last: int, length: int) -> None:
    """How far it is: over and over in the same line of a terminal, elsewhere a line for every tenth part."""
    told = f"{sent / 1e6:,.1f} of {length / 1e6:,.1f} MB ({sent / length:.0%})"
    if sys.stderr.isatty():
        print(f"\r{told}", end="", file=sys.stderr, flush=True)
    elif 10 * sent // length > 10 * max(0, sent - last) // length:
        print(told, file=sys.stderr, flush=True)


def _sha256(file: BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()
