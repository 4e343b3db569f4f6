"""Bombs of every compression: little that is sent, 1 GiB or more that would come out. Each is refused in a process of
its own, whose memory is measured: `PYTHONPATH=. python tests/fuzz/bombs.py` prints the table.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import resource
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from tests.figures import Figures, add_option

ROOT = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024
#: What comes out of each, and the memory that refusing it may take, in MB.
GIB, MAX_MB = 1024 * MIB, 512
_PIECE = 16 * MIB


@dataclass(frozen=True, slots=True)
class Bomb:
    """What writes it, what it is sent as (`run`, `runs` in a zip, `checkpoint`), and the code of its refusal."""

    make: Callable[[], bytes]
    sent_as: str
    code: str


def _gzip() -> bytes:
    """One member of a GiB: whole blocks that need nothing before them can be repeated."""
    compressor = zlib.compressobj(9, wbits=-15)
    piece = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + piece * (GIB // MIB) + compressor.flush() + bytes(8)


def _deflated() -> bytes:
    return _gzip()[10:-8]


def _zstd(piece: bytes = bytes(_PIECE), before: bytes = b"", **options: int) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, **options)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    pieces = [compressor.compress(piece) for _ in range(GIB // len(piece))]
    return compressor.compress(before) + b"".join(pieces) + compressor.flush()


def _tar(name: str, kind: bytes = tarfile.REGTYPE, size: int = GIB) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    header = compressor.compress(info.tobuf(tarfile.USTAR_FORMAT))
    pieces = [compressor.compress(bytes(_PIECE)) for _ in range(size // _PIECE)]
    return header + b"".join(pieces) + compressor.flush()


def _pax() -> bytes:
    """An extended header of a GiB."""
    return _tar("PaxHeaders/config.json", tarfile.XHDTYPE)


def _many_members() -> bytes:
    header = tarfile.TarInfo("README.md").tobuf(tarfile.USTAR_FORMAT)
    return zstandard.compress(header * 100_000, 1)


def _sparse() -> bytes:
    """A few bytes that say they are 8 GiB with holes."""
    info = tarfile.TarInfo("model.safetensors")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 8 * GIB - 1
    return zstandard.compress(info.tobuf(tarfile.USTAR_FORMAT))


def zip_of(
    stored: bytes, expanded: int, members: int = 1, apart: bool = True, method: int = 8, named: str = "{}.txt"
) -> bytes:
    """A zip of so many members with these stored bytes; not `apart`, they are all the same bytes."""
    out, entries, place = io.BytesIO(), [], 0
    for number in range(members):
        name = named.format(number).encode()
        fields = struct.pack("<4H3I2H", 0, method, 0, 33, 0, len(stored), expanded, len(name), 0)
        if apart or number == 0:
            place = out.tell()
            out.write(b"PK\x03\x04" + struct.pack("<H", 20) + fields + name + stored)
        entries.append(
            b"PK\x01\x02" + struct.pack("<2H", 20, 20) + fields + struct.pack("<3H2I", 0, 0, 0, 0, place) + name
        )
    listed = b"".join(entries)
    end = struct.pack("<4H2IH", 0, 0, members, members, len(listed), out.tell(), 0)
    return out.getvalue() + listed + b"PK\x05\x06" + end


def _zip64_that_lies() -> bytes:
    """A member that says it begins where no file goes."""
    data = bytearray(zip_of(b"x", 1, method=0))
    listed, extra = data.index(b"PK\x01\x02"), struct.pack("<2HQ", 1, 8, 2**64 - 1)
    data[listed + 42 : listed + 46] = b"\xff" * 4
    data[listed + 30 : listed + 32] = struct.pack("<H", len(extra))
    end = data.index(b"PK\x05\x06")
    data[end + 12 : end + 16] = struct.pack("<I", end - listed + len(extra))
    return bytes(data[:end] + extra + data[end:])


def _zip_in_zip() -> bytes:
    inner = zip_of(_deflated(), GIB)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.zip", inner)
    return out.getvalue()


BOMBS: dict[str, Bomb] = {
    "gzip, one member": Bomb(_gzip, "run", "expansion"),
    "gzip, 64 members": Bomb(lambda: gzip.compress(bytes(_PIECE)) * 64, "run", "expansion"),
    "gzip in gzip": Bomb(lambda: gzip.compress(_gzip()), "run", "compression"),
    "bz2": Bomb(lambda: bz2.compress(bytes(_PIECE)) * 64, "run", "expansion"),
    "zstd": Bomb(_zstd, "run", "expansion"),
    "zstd, 64 frames": Bomb(lambda: zstandard.compress(bytes(_PIECE)) * 64, "run", "expansion"),
    "zstd, window of 256 MiB": Bomb(lambda: _zstd(window_log=28), "run", "compression"),
    "xz": Bomb(lambda: lzma.compress(bytes(_PIECE), preset=0) * 64, "run", "compression"),
    "zstd, JSON": Bomb(lambda: _zstd(b"[" * _PIECE, b'{"default":'), "run", "expansion"),
    "zip": Bomb(lambda: zip_of(_deflated(), GIB), "runs", "expansion"),
    "zip, four members": Bomb(lambda: zip_of(_deflated(), GIB, 4), "runs", "expansion"),
    "zip, members overlap": Bomb(lambda: zip_of(_deflated(), GIB, 8, apart=False), "runs", "compression"),
    "zip, bzip2 inside": Bomb(lambda: zip_of(bz2.compress(bytes(_PIECE)), GIB, method=12), "runs", "compression"),
    "zip, place of 2^64": Bomb(_zip64_that_lies, "runs", "compression"),
    "zip, 65,535 members": Bomb(lambda: zip_of(b"", 0, 65_535, method=0), "runs", "too_many_files"),
    "zip in zip": Bomb(_zip_in_zip, "checkpoint", "nested_archive"),
    "zip of a checkpoint": Bomb(lambda: zip_of(_deflated(), GIB, named="model.safetensors"), "checkpoint", "expansion"),
    "tar.zst": Bomb(lambda: _tar("model.safetensors"), "checkpoint", "expansion"),
    "tar.zst, extended header": Bomb(_pax, "checkpoint", "compression"),
    "tar.zst, 100,000 members": Bomb(_many_members, "checkpoint", "member_name"),
    "tar.zst, sparse": Bomb(_sparse, "checkpoint", "member_kind"),
    "tar.gz": Bomb(_gzip, "checkpoint", "archive_kind"),
}


def judge(sent_as: str, path: Path) -> list[tuple[str, str]]:
    """The codes and sentences that a file is refused with, by the limits that the site has."""
    from evaluation.archives.compression import FileLimits
    from evaluation.archives.zip import ZipPolicy, open_archive
    from evaluation.checkpoints.rebuilding import validate_archive
    from evaluation.core.problems import InvalidContent
    from evaluation.runs.score import ScoringTarget, check_run

    with tempfile.TemporaryDirectory() as folder:
        if sent_as == "run":
            report = check_run(path, ScoringTarget())
        elif sent_as == "checkpoint":
            report = validate_archive(path, Path(folder, "scratch")).report
        else:
            policy = ZipPolicy(200, "", "", max_expanded_bytes=FileLimits().max_expanded_bytes)
            try:
                with open_archive(path, policy) as archive:
                    archive.extract({name: Path(folder, str(at)) for at, name in enumerate(archive.names)})
            except InvalidContent as error:
                report = error.report
            else:
                return []
    return [(problem.code, problem.sentences()) for problem in report.errors]


def peak_mb() -> float:
    """The most memory that this process has held. Linux's own figure for a process counts what started it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def judged(files: list[tuple[str, Path]]) -> dict[str, Any]:
    """What a fresh process says of these files: `verdicts`, `seconds` and `peak_mb`, all files in one process."""
    sent = json.dumps([(sent_as, str(path)) for sent_as, path in files])
    command = [sys.executable, str(Path(__file__)), "--judge"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, input=sent, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _judge_what_is_asked() -> None:
    files = json.loads(sys.stdin.read())
    started = time.perf_counter()
    verdicts = [judge(sent_as, Path(path)) for sent_as, path in files]
    seconds = time.perf_counter() - started
    print(json.dumps({"verdicts": verdicts, "seconds": seconds, "peak_mb": peak_mb()}))


def main() -> int:
    """The table of all bombs; 1 where one is not refused as it should be, or takes too much memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    add_option(parser)
    options = parser.parse_args()
    if options.judge:
        _judge_what_is_asked()
        return 0
    figures = Figures(__file__)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sent")
        for name, bomb in BOMBS.items():
            path.write_bytes(bomb.make())
            result = judged([(bomb.sent_as, path)])
            codes = [code for code, _ in result["verdicts"][0]]
            if bomb.code not in codes:
                figures.missed.append(f"{name}: refused with {codes}, not with {bomb.code}")
            bound = figures.bound(name, result["peak_mb"], MAX_MB, " MB")
            seconds, peak = f"{result['seconds']:.1f}", f"{result['peak_mb']:.0f}"
            rows.append([name, f"{path.stat().st_size:,}", seconds, peak, bound, f"`{', '.join(codes)}`"])
    figures.table(["bomb", "bytes sent", "seconds", "peak MB", "bound", "refused with"], rows)
    return figures.finish(options.write)


if __name__ == "__main__":
    sys.exit(main())
