"""Process that downloads a container image from a registry, without access to secrets.

The arguments are NAME DIGEST ARCHIVE MAX_BYTES RESERVE_BYTES. It prints a line of JSON: the number of bytes, or a code
and a message. It writes an OCI archive sequentially, so that the archive's length tells how far an interrupted
download got, and the next one resumes there. All sizes are known before the first layer.

Sources: the OCI distribution specification 1.1, and the token authentication of distribution/distribution
(its token specification).
"""

import errno
import fcntl
import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib import request as urls
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit

from evaluation.archives.compression import describe_bytes
from evaluation.archives.hub import TIMEOUT, NotFetched, connection_errors, read_blocks
from evaluation.images import findings
from evaluation.images.archive import DIGEST, blob_name, choose_manifest, content_digest, own_architecture
from submissions.core.public_addresses import PinnedConnection, is_public, resolve

#: Hosts of registries whose API has a different host name.
_HOSTS = {"docker.io": "registry-1.docker.io"}
_OCI, _DOCKER = "application/vnd.oci.image", "application/vnd.docker.distribution"
_KINDS = (f"{_OCI}.manifest.v1", f"{_OCI}.index.v1", f"{_DOCKER}.manifest.v2", f"{_DOCKER}.manifest.list.v2")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_MAX_NESTING = 4
#: Number of attempts to download a layer, and the pause between them in seconds, which increases.
_ATTEMPTS, _PAUSE = 8, 1.0
#: Zero bytes that end an archive.
_END = bytes(2 * tarfile.BLOCKSIZE)


_connection_errors = partial(connection_errors, "registry", findings.IMAGE_UNREACHABLE)


class _PublicHosts(urls.AbstractHTTPHandler):
    """HTTPS handler that only connects to hosts on the internet."""

    def https_open(self, request: urls.Request) -> HTTPResponse:
        return self.do_open(self._connect, request)  # type: ignore[arg-type]

    https_request = urls.AbstractHTTPHandler.do_request_

    @staticmethod
    def _connect(netloc: str, timeout: float) -> PinnedConnection:
        """Return a connection to a checked address. Raises AddressRefused."""
        parts = urlsplit(f"//{netloc}")
        host, port = parts.hostname or "", parts.port or 443
        return PinnedConnection(host, port, resolve(host, port, is_public)[0], secure=True, timeout=timeout)


#: Opener that follows redirects, but only over HTTPS, and uses no proxy.
_OPENER = urls.OpenerDirector()
for _handler in (_PublicHosts, urls.HTTPRedirectHandler, urls.HTTPErrorProcessor, urls.HTTPDefaultErrorHandler):
    _OPENER.add_handler(_handler())
_OPENER.add_handler(urls.UnknownHandler())


class Registry:
    """Client of a repository in a registry, such as ghcr.io/owner/name, with anonymous access."""

    def __init__(self, name: str) -> None:
        host, _, self._repository = name.partition("/")
        self._address, self._token = f"https://{_HOSTS.get(host, host)}/v2/{self._repository}", ""

    def read_manifest(self, digest: str) -> tuple[bytes, Mapping[str, Any]]:
        """Return a manifest as bytes and parsed, resolving an index to this machine's platform. Raises NotFetched."""
        for _ in range(_MAX_NESTING):
            content = _read(
                self.open(f"manifests/{digest}", {"Accept": ", ".join(f"{kind}+json" for kind in _KINDS)}),
                "the manifest",
            )
            if digest != content_digest(content):
                raise _damage(digest)
            values = _parse(content)
            if "manifests" not in values:
                return content, values
            digest = choose_manifest(values["manifests"])
            if not DIGEST.fullmatch(digest):
                raise NotFetched(findings.IMAGE_PLATFORM, f"the index lists no image for linux/{own_architecture()}")
        raise NotFetched(findings.IMAGE_FORMAT, "its indexes are nested too deeply")

    def download(self, digest: str, size: int, file: BinaryIO, start: int) -> None:
        """Append a layer to the file, in which it begins at `start`, resume after interruptions, and verify it.

        Raises NotFetched. The file then contains the received part of the layer, or none of it if the digest is wrong.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with _connection_errors():
                    self._continue_download(digest, size, file, start)
                return
            except NotFetched as error:
                if error.code != findings.IMAGE_UNREACHABLE or attempt == _ATTEMPTS:
                    raise
            time.sleep(attempt * _PAUSE)

    def _continue_download(self, digest: str, size: int, file: BinaryIO, start: int) -> None:
        """Append the rest of a layer to the file, and verify the layer. Raises NotFetched."""
        hasher, offset = hashlib.sha256(), file.seek(0, io.SEEK_END) - start
        with closing(self.open(f"blobs/{digest}", {"Range": f"bytes={offset}-"} if offset else {})) as answer:
            if answer.status == 200:  # the whole layer
                file.truncate(start)
            file.seek(start)
            offset = 0
            while block := file.read(1 << 20):
                hasher.update(block)
                offset += len(block)
            if is_longer := offset + (answer.length or 0) > size:
                offset = size + 1
            for block in read_blocks(answer, size - offset, "a layer", findings.IMAGE_UNREACHABLE):
                offset += len(block)
                file.write(block)
                hasher.update(block)
        if offset < size:
            message = f"a layer ended after {describe_bytes(offset)} of {describe_bytes(size)}"
            raise NotFetched(findings.IMAGE_UNREACHABLE, message)
        if is_longer or digest != f"sha256:{hasher.hexdigest()}":
            file.truncate(start)
            if offset > size:
                raise NotFetched(findings.IMAGE_SIZE, "a layer is larger than its manifest states")
            raise _damage(digest)

    def open(self, path: str, headers: Mapping[str, str]) -> HTTPResponse:
        """Request a path of the repository, with a token if the registry asks for one. Raises NotFetched."""
        request = urls.Request(f"{self._address}/{path}", headers={"User-Agent": "runboard", **headers})  # noqa: S310
        for is_last in (False, True):
            if self._token:  # not for hosts that the registry redirects to
                request.add_unredirected_header("Authorization", f"Bearer {self._token}")
            try:
                return _open(request)
            except HTTPError as error:
                if error.code != 401 or is_last:
                    raise _refusal(error.code) from error
                self._token = self._request_token(error.headers.get("WWW-Authenticate", ""))
        raise AssertionError

    def _request_token(self, challenge: str) -> str:
        """Return an anonymous token from the service that the challenge names. Raises NotFetched."""
        fields = dict(_CHALLENGE.findall(challenge))
        if not challenge.lower().startswith("bearer ") or "realm" not in fields:
            raise _refusal(401)
        query = urlencode({"service": fields.get("service", ""), "scope": f"repository:{self._repository}:pull"})
        try:
            values = _parse(_read(_open(urls.Request(f"{fields['realm']}?{query}")), "the token"))  # noqa: S310
        except HTTPError as error:
            raise _refusal(error.code) from error
        token = str(values.get("token") or values.get("access_token") or "")
        return token if token.isascii() and token.isprintable() else ""


def pull(name: str, digest: str, archive: Path, maximum_bytes: int, reserve_bytes: int) -> int:
    """Download the image to an OCI archive, resuming a partial one, and return its size in bytes.

    Raises NotFetched, and OSError with ENOSPC if the disk cannot store the archive and its copy.
    """
    with archive.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the process of a worker that was killed may still write
        registry = Registry(name)
        with _connection_errors():
            content, manifest = registry.read_manifest(digest)
        layers, head = _list_layers(manifest), _head(content)
        total = len(head) + sum(tarfile.BLOCKSIZE + size + _padding(size) for size in layers.values()) + len(_END)
        if total > maximum_bytes:
            message = f"the image has {describe_bytes(total)}, over the limit of {describe_bytes(maximum_bytes)}"
            raise NotFetched(findings.IMAGE_SIZE, message)
        if shutil.disk_usage(archive.parent).free < 2 * total - file.seek(0, io.SEEK_END) + reserve_bytes:
            raise OSError(errno.ENOSPC, "the image does not fit on the disk of this worker")
        position = _append(file, 0, head)
        for layer, size in layers.items():
            position = _append(file, position, _header(blob_name(layer), size))
            if file.seek(0, io.SEEK_END) < position + size:
                registry.download(layer, size, file, position)
            position = _append(file, position + size, bytes(_padding(size)))
        return _append(file, position, _END)


def _append(file: BinaryIO, position: int, content: bytes) -> int:
    """Write content at a position unless an earlier download has written it, and return the position after it."""
    end = position + len(content)
    if file.seek(0, io.SEEK_END) < end:
        file.truncate(position)
        file.write(content)
    return end


def _list_layers(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of an image's configuration and layers by digest. Raises NotFetched."""
    layers, sizes = manifest.get("layers"), dict[str, int]()
    if not isinstance(layers, list) or len(layers) > findings.DEFAULT_LIMITS.layers:
        message = f"its manifest does not list 1 to {findings.DEFAULT_LIMITS.layers} layers"
        raise NotFetched(findings.IMAGE_FORMAT, message)
    for entry in (manifest.get("config"), *layers):
        values = entry if isinstance(entry, dict) else {}
        digest, size = str(values.get("digest")), values.get("size")
        if not DIGEST.fullmatch(digest) or type(size) is not int or size < 0:
            raise NotFetched(findings.IMAGE_FORMAT, "its manifest lists a layer without a sha256 digest or a size")
        sizes[digest] = size
    return sizes


def _head(manifest: bytes) -> bytes:
    """Return the start of the archive: the layout version, the index, and the image's manifest."""
    digest = content_digest(manifest)
    entry = {"mediaType": f"{_OCI}.manifest.v1+json", "digest": digest, "size": len(manifest)}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": index, blob_name(digest): manifest}
    return b"".join(_header(name, len(data)) + data + bytes(_padding(len(data))) for name, data in files.items())


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE


def _open(request: urls.Request) -> HTTPResponse:
    """Open a request and return the response. Raises HTTPError, and NotFetched for a disallowed address."""
    try:
        return cast(HTTPResponse, _OPENER.open(request, timeout=TIMEOUT))
    except ValueError as error:  # AddressRefused, or an invalid port
        message = "the host of the registry, or one that it refers to, is unknown or not on the internet"
        raise NotFetched(findings.IMAGE_UNREACHABLE, message) from error


def _refusal(status: int) -> NotFetched:
    """Return the error for an HTTP status from the registry."""
    if status in (401, 403):
        message = "the registry asks for a password: the image is not public, or does not exist"
        return NotFetched(findings.IMAGE_MISSING, message)
    if status == 404:
        return NotFetched(findings.IMAGE_MISSING, "the registry has no image of this name with this digest")
    return NotFetched(findings.IMAGE_UNREACHABLE, f"the registry answered {status}")


def _read(answer: HTTPResponse, name: str) -> bytes:
    """Return the body of a small response. Raises NotFetched."""
    limit = findings.DEFAULT_LIMITS.json_bytes
    with closing(answer):
        content = b"".join(read_blocks(answer, limit, name, findings.IMAGE_UNREACHABLE))
    if len(content) > limit:
        raise NotFetched(findings.IMAGE_SIZE, f"{name} exceeds the limit of {describe_bytes(limit)}")
    return content


def _parse(content: bytes) -> Mapping[str, Any]:
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise NotFetched(findings.IMAGE_FORMAT, "the registry's answer is not a JSON object")
    return values


def _damage(digest: str) -> NotFetched:
    return NotFetched(findings.IMAGE_DIGEST, f"the registry sent other content than {digest}")


def main() -> int:
    """Download the image named on the command line and print the result. Return 0 if it succeeded, else 1."""
    name, digest, archive, maximum_bytes, reserve_bytes = sys.argv[1:]
    try:
        size = pull(name, digest, Path(archive), int(maximum_bytes), int(reserve_bytes))
        answer: dict[str, Any] = {"bytes": size}
    except NotFetched as error:
        answer = {"code": error.code, "message": error.message}
    print(json.dumps(answer))
    return int("code" in answer)


if __name__ == "__main__":
    sys.exit(main())
