"""Archives that must be refused whatever is in them: paths, links, headers, bombs, and what follows on their end."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import zstandard

from tests.evaluation.small_checkpoint import files, write, zipped

#: A file beside the folder that archives are taken apart in, at which they point, and which nothing may touch.
CANARY = "canary.safetensors"
#: Expected problem code, and function that writes the archive into an empty folder, by name.
ARCHIVES: dict[str, tuple[str, Callable[[Path], Path]]] = {}


def _archive(name: str, code: str, make: Callable[[Path], Path]) -> None:
    ARCHIVES[name] = (code, make)


def _zip_with(add: Callable[[zipfile.ZipFile], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = zipped(files(), folder / "checkpoint.zip")
        with zipfile.ZipFile(path, "a") as archive:
            add(archive)
        return path

    return make


def _zips() -> None:
    def member(name: str, data: bytes = b"x", mode: int = 0) -> Callable[[Path], Path]:
        info = zipfile.ZipInfo(name)
        info.external_attr, info.compress_type = mode << 16, zipfile.ZIP_DEFLATED
        return _zip_with(lambda archive: archive.writestr(info, data))

    _archive("zip-path-up", "member_name", member(f"../{CANARY}"))
    _archive("zip-path-absolute", "member_name", member(f"/tmp/{CANARY}"))
    _archive("zip-backslashes", "member_name", member(f"..\\{CANARY}"))
    _archive("zip-name-twice", "member_name", member("CONFIG.json", b"{}"))
    _archive("zip-double-slash", "member_name", member("2_Dense//config.json", b"{}"))
    _archive("zip-double-slash-beside", "member_name", member("1_Pooling//config.json", b"{}"))
    _archive("zip-dot-folder", "member_name", member("./1_Pooling/config.json", b"{}"))
    _archive("zip-inert-file-and-folder", "member_name", _zip_with(_license_twice))
    _archive("zip-folder-by-capitals", "member_name", member("1_POOLING/README.md"))
    _archive("zip-leading-data", "trailing_data", _zip_after(b"PK\x03\x04" + bytes(60), moved=False))
    _archive("zip-leading-data-told", "trailing_data", _zip_after(b"PK\x03\x04" + bytes(60), moved=True))
    _archive("zip-leading-words", "archive_kind", _zip_after(b"#!/bin/sh\n", moved=True))
    _archive("zip-file-and-folder", "member_name", member("config.json/x.json", b"{}"))
    _archive(
        "zip-symbolic-link",
        "member_kind",
        member("2_Dense/config.json", f"../../{CANARY}".encode(), 0o120777),
    )
    _archive("zip-bomb", "expansion", member("2_Dense/model.safetensors", bytes(80 << 20)))
    _archive("zip-many-files", "too_many_files", _zip_with(_many_files))
    _archive(
        "zip-trailing-data",
        "trailing_data",
        lambda folder: _append(zipped(files(), folder / "a.zip"), b"more"),
    )
    _archive("zip-cut-off", "compression", _zip_cut)
    _archive("zip-password", "member_kind", _zip_password)
    _archive("zip-empty", "empty_folder", lambda folder: zipped({}, folder / "a.zip"))
    _archive("zip-only-words", "empty_folder", lambda folder: zipped({"README.md": b"#"}, folder / "a.zip"))


def _license_twice(archive: zipfile.ZipFile) -> None:
    archive.writestr("license", "words")
    archive.writestr("license/config.json", "{}")


def _zip_after(data: bytes, moved: bool) -> Callable[[Path], Path]:
    """A zip with something before it, of which its list of members knows (`moved`), or not."""

    def make(folder: Path) -> Path:
        path = zipped(files(), folder / "checkpoint.zip")
        if not moved:
            path.write_bytes(data + path.read_bytes())
            return path
        path.write_bytes(data)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files().items():
                archive.writestr(name, content)
        return path

    return make


def _many_files(archive: zipfile.ZipFile) -> None:
    for number in range(100):
        archive.writestr(f"part/{number}.json", "{}")


def _append(path: Path, data: bytes) -> Path:
    path.write_bytes(path.read_bytes() + data)
    return path


def _zip_cut(folder: Path) -> Path:
    path = zipped(files(), folder / "checkpoint.zip")
    path.write_bytes(path.read_bytes()[:3000])
    return path


def _zip_password(folder: Path) -> Path:
    path = zipped(files(), folder / "checkpoint.zip")
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        found = data.find(mark)
        while found >= 0:
            data[found + place] |= 1
            found = data.find(mark, found + 4)
    path.write_bytes(data)
    return path


def tarred(
    folder: Path,
    more: Callable[[tarfile.TarFile], None] = lambda archive: None,
    tail: bytes = b"",
    content: Mapping[str, bytes] | None = None,
) -> Path:
    """A good checkpoint, or these files, as tar.zst, and what `more` adds."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in (content or files()).items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        more(archive)
    path = folder / "checkpoint.tar.zst"
    path.write_bytes(zstandard.compress(buffer.getvalue() + tail))
    return path


def _tar_member(
    kind: bytes, name: str = "2_Dense/config.json", link: str = "", size: int = 0
) -> Callable[[Path], Path]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return lambda folder: tarred(folder, lambda archive: archive.addfile(info, io.BytesIO(bytes(size))))


def _tar_extended(headers: Mapping[str, str]) -> Callable[[Path], Path]:
    info = tarfile.TarInfo("2_Dense/config.json")
    data = info.create_pax_global_header(dict(headers))

    def add(archive: tarfile.TarFile) -> None:
        assert archive.fileobj is not None
        archive.fileobj.write(data)

    return lambda folder: tarred(folder, add)


def _tars() -> None:
    _archive("tar-symbolic-link", "member_kind", _tar_member(tarfile.SYMTYPE, link=f"../../{CANARY}"))
    _archive("tar-hard-link", "member_kind", _tar_member(tarfile.LNKTYPE, link=f"../{CANARY}"))
    _archive("tar-device", "member_kind", _tar_member(tarfile.CHRTYPE))
    _archive("tar-pipe", "member_kind", _tar_member(tarfile.FIFOTYPE))
    _archive("tar-sparse", "member_kind", _tar_member(tarfile.GNUTYPE_SPARSE))
    _archive("tar-long-name", "member_kind", _tar_member(tarfile.GNUTYPE_LONGNAME, size=20))
    _archive("tar-name-by-header", "member_kind", _tar_extended({"path": f"../{CANARY}"}))
    _archive("tar-size-by-header", "member_kind", _tar_extended({"size": "99999999999"}))
    _archive("tar-sparse-by-header", "member_kind", _tar_extended({"GNU.sparse.major": "1"}))
    _archive("tar-path-up", "member_name", _tar_member(tarfile.REGTYPE, f"../{CANARY}"))
    _archive("tar-path-absolute", "member_name", _tar_member(tarfile.REGTYPE, f"/tmp/{CANARY}"))
    _archive("tar-name-twice", "member_name", _tar_member(tarfile.REGTYPE, "MODEL.safetensors"))
    for name, member in {
        "double-slash": "1_Pooling//config.json",
        "dot-folder-inside": "1_Pooling/./config.json",
        "two-dot-folders": "././config.json",
        "double-slash-in-words": "2_Dense//README.md",
        "file-and-folder": "config.json/config.json",
        "folder-by-capitals": "1_POOLING/README.md",
    }.items():
        _archive(f"tar-{name}", "member_name", _tar_member(tarfile.REGTYPE, member))
    _archive("tar-inert-file-and-folder", "member_name", lambda folder: tarred(folder, _license_in_tar))
    _archive("tar-trailing-data", "trailing_data", lambda folder: tarred(folder, tail=b"more" * 200))
    _archive("tar-bad-checksum", "compression", lambda folder: _tar_bytes(folder, _spoilt_checksum()))
    _archive("tar-cut-off", "compression", lambda folder: _tar_bytes(folder, _plain_tar(folder)[:2000]))
    _archive("tar-bomb", "expansion", _tar_member(tarfile.REGTYPE, "big.safetensors", size=80 << 20))
    _archive("zstd-window", "compression", _wide_window)
    _archive("zstd-cut-off", "compression", lambda folder: _cut(tarred(folder)))
    _archive("gzip-tarball", "archive_kind", _gzip)
    _archive("plain-text", "archive_kind", lambda folder: _append_new(folder / "checkpoint.zip", b"not an archive"))


def _license_in_tar(archive: tarfile.TarFile) -> None:
    for name in ("license", "license/config.json"):
        archive.addfile(tarfile.TarInfo(name))


def _plain_tar(folder: Path) -> bytes:
    return zstandard.decompress(tarred(folder).read_bytes())


def _tar_bytes(folder: Path, data: bytes) -> Path:
    return _append_new(folder / "checkpoint.tar.zst", zstandard.compress(data))


def _spoilt_checksum() -> bytes:
    return (
        b"config.json".ljust(100, b"\0")
        + b"0000644\0" * 3
        + b"0" * 24
        + b"1234567\0"
        + b"0"
        + bytes(100)
        + b"ustar\x0000".ljust(255, b"\0")
    )


def _wide_window(folder: Path) -> Path:
    """A frame that asks for a window of two GiB."""
    return _append_new(
        folder / "checkpoint.tar.zst", b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([21 << 3]) + b"\x01\x00\x00"
    )


def _cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-100])
    return path


def _gzip(folder: Path) -> Path:
    path = folder / "checkpoint.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(write(files(), folder / "files"), arcname=".")
    return path


def _append_new(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


_zips()
_tars()
