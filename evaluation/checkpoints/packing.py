"""Write a rebuilt checkpoint as the archive that the site takes, with the same bytes every time."""

from __future__ import annotations

import tarfile
from pathlib import Path

import zstandard

from evaluation.checkpoints.description import FILE_NAME
from evaluation.core.writing import appearing

_LEVEL = 3


def write_archive(rebuilt: Path, out: Path, headers_alone: bool = False) -> None:
    """Write a rebuilt folder as tar.zst to `out`, which appears only when it is complete.

    `headers_alone`: without the weights, for a check before all of them are sent.

    Names, order, times and owners are fixed, so that the same model gives the same bytes. The description is left
    out: whoever takes the archive makes its own. Numbers are as GNU tar writes them: plain ustar ends at 8 GiB a file.
    """
    with (
        appearing(out) as unfinished,
        unfinished.open("wb") as file,
        zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).stream_writer(
            file, closefd=False
        ) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted(path for path in rebuilt.rglob("*") if path.is_file() and path.name != FILE_NAME):
            info = tarfile.TarInfo(path.relative_to(rebuilt).as_posix())
            info.size = path.stat().st_size
            with path.open("rb") as content:
                if headers_alone and path.suffix == ".safetensors":
                    info.size = 8 + int.from_bytes(content.read(8), "little")
                    content.seek(0)
                archive.addfile(info, content)
