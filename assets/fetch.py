"""Fetch plotly.js's smallest bundle and two fonts from npm packages, without node.

`make assets` runs this script. It checks the sha512 of each archive before reading it, and writes either all files or
none. The registry is `NPM_CONFIG_REGISTRY`, or that of an installed npm. If the registry cannot be reached, the script
prints one line and ends with status 1; the site then uses plotly's whole bundle and system fonts.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SECONDS = 20


class Package(NamedTuple):
    """A version of an npm package, its sha512 in npm's notation, and served paths by file of the package."""

    name: str
    version: str
    sha512: str
    files: Mapping[str, str]


PACKAGES = (
    # The plotly.js version of the pinned `plotly` wheel. Bars and scatter plots suffice for all figures.
    Package(
        "plotly.js-basic-dist-min",
        "4.1.1",
        "1oNF8PeQx2hv/y7tqEVWKD3JGwn/MGEMQ8mL9HUwsaqG9FGy/OU5FHUHvzqbqxN4mnwZGI9abTiE775C4kkjMQ==",
        {"plotly-basic.min.js": "plotly/plotly.min.js"},
    ),
    Package(
        "@fontsource-variable/inter",
        "5.3.0",
        "OupL48va4JNofb97w6NYeF9S7W/kHNKM0Er8Dem5nqi4jeOLrVJDoE8tZEpnMJmtkvNbB1EIPPwHcdkF6b1oUA==",
        {
            "files/inter-latin-wght-normal.woff2": "fonts/inter.woff2",
            # Only pictures for link previews use these; pages use the reader's fonts for other scripts.
            "files/inter-latin-ext-wght-normal.woff2": "fonts/inter-latin-ext.woff2",
            "files/inter-greek-wght-normal.woff2": "fonts/inter-greek.woff2",
            "files/inter-cyrillic-wght-normal.woff2": "fonts/inter-cyrillic.woff2",
            "LICENSE": "fonts/inter.txt",
        },
    ),
    Package(
        "@fontsource/source-serif-4",
        "5.3.1",
        "cWcTCXjYYrgF9A67fThVir1VSc0lPEYmwQ6jA4pPt01s2MSCi/maINUcZoCzaqnU8fyUReDO97eGcBUkHgOeug==",
        {
            "files/source-serif-4-latin-600-normal.woff2": "fonts/source-serif-4.woff2",
            "LICENSE": "fonts/source-serif-4.txt",
        },
    ),
)


class NotFetchedError(Exception):
    """The files could not be fetched."""


def registry() -> str:
    """Return the address of the registry. Raises NotFetchedError if none is configured and npm is not installed."""
    if named := os.environ.get("NPM_CONFIG_REGISTRY"):
        return named
    npm = shutil.which("npm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if npm is None:
        raise NotFetchedError("NPM_CONFIG_REGISTRY names no registry of npm's, and npm is not installed")
    asked = subprocess.run([npm, "config", "get", "registry"], capture_output=True, text=True, check=False)
    if asked.returncode:
        raise NotFetchedError(f"npm names no registry: {asked.stderr.strip()}")
    return asked.stdout.strip()


def archive(package: Package, address: str) -> bytes:
    """Return the package's archive. Raises NotFetchedError if it cannot be fetched or has another checksum."""
    url = f"{address.rstrip('/')}/{package.name}/-/{package.name.rpartition('/')[2]}-{package.version}.tgz"
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - an operator names it
            content: bytes = answer.read()
    except (OSError, ValueError) as error:
        raise NotFetchedError(f"{package.name} {package.version}: {error}") from None
    if hashlib.sha512(content).digest() != base64.b64decode(package.sha512):
        raise NotFetchedError(f"{package.name} {package.version} is not the file whose sha512 assets/fetch.py names")
    return content


def fetch(folder: Path, packages: tuple[Package, ...] = PACKAGES) -> None:
    """Replace the folder by the files of all packages and the fonts' style sheet. Raises NotFetchedError."""
    address = registry()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        contents = Path(scratch) / "contents"
        for package in packages:
            with tarfile.open(fileobj=io.BytesIO(archive(package, address))) as files:
                for name, place in package.files.items():
                    (contents / place).parent.mkdir(parents=True, exist_ok=True)
                    (contents / place).write_bytes(files.extractfile(f"package/{name}").read())
        (contents / "css").mkdir()
        shutil.copy(HERE / "fonts.css", contents / "css")
        shutil.rmtree(folder, ignore_errors=True)
        contents.rename(folder)


def main() -> int:
    """Fetch the files; return the exit status."""
    try:
        fetch(Path(sys.argv[1]).resolve())
    except NotFetchedError as error:
        print(f"Without npm's files, the site serves plotly's whole bundle and system fonts ({error}).")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
