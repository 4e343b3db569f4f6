"""Hostile and damaged images: each gets one message per kind of problem, and nothing is written outside."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluation.core.problems import InvalidContent
from evaluation.images.archive import ImageArchive
from evaluation.images.findings import DEFAULT_LIMITS
from tests.evaluation.images.builder import (
    Member,
    docker_archive,
    image_config,
    layer,
    member,
    oci_archive,
    python_layer,
    sha256,
    write_tar,
)

GOOD = layer({"bin/run": b"run", "etc/passwd": b"root:x:0:0::/root:/bin/sh\n"})


def problems(path: Path, **limits: float) -> dict[str, str]:
    report = ImageArchive(path, replace(DEFAULT_LIMITS, **limits)).report  # type: ignore[arg-type]
    assert len({problem.code for problem in report.problems}) == len(report.problems)
    return {problem.code: problem.message for problem in report.errors}


@pytest.mark.parametrize(
    ("name", "entry", "code", "words"),
    [
        ("../../etc/cron.d/x", b"", "image_path", "leaves the root"),
        ("a/../../x", b"", "image_path", "leaves the root"),
        ("bin/run/below", b"", "image_path", "below a file"),
        ("/".join("d" * 80), b"", "image_path", "too deep"),
        ("n" * 300, b"", "image_path", "too long"),
        ("twin", member(tarfile.LNKTYPE, "../../../etc/shadow"), "image_link", "hard link"),
        ("twin", member(tarfile.LNKTYPE, "/etc/shadow"), "image_link", "hard link"),
        ("twin", member(tarfile.LNKTYPE, "bin"), "image_link", "hard link"),
        ("link", member(tarfile.SYMTYPE, "x" * 5000), "image_link", "symbolic link"),
        ("disk", member(tarfile.BLKTYPE, devmajor=8), "image_device", "disk"),
        ("null", member(tarfile.CHRTYPE, devmajor=1, devminor=3), "image_device", "null"),
        ("pipe", member(tarfile.FIFOTYPE), "image_device", "pipe"),
    ],
)
def test_a_bad_member_is_named(name: str, entry: Member, code: str, words: str, tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "image.tar", [GOOD, layer([(name, entry)])])
    found = problems(path)
    assert list(found) == [code]
    assert words in found[code]
    before = {*tmp_path.rglob("*")}
    with pytest.raises(InvalidContent):
        ImageArchive(path).unpack(tmp_path / "root")
    assert {*tmp_path.rglob("*")} == before


def test_links_of_folders_do_not_lead_out(tmp_path: Path) -> None:
    """A later layer writes below a link to the machine's own folder."""
    outside = tmp_path / "outside"
    outside.mkdir()
    first = layer({"escape": member(tarfile.SYMTYPE, str(outside)), "up": member(tarfile.SYMTYPE, "../../../..")})
    second = layer({"escape/file": b"x", f"up/{outside}/other": b"x"})
    ImageArchive(docker_archive(tmp_path / "i.tar", [GOOD, first, second])).unpack(tmp_path / "root")
    assert not [*outside.iterdir()]
    assert (tmp_path / "root" / str(outside).lstrip("/") / "file").read_bytes() == b"x"


def test_circles_of_links_end(tmp_path: Path) -> None:
    first = layer(
        {
            "a": member(tarfile.SYMTYPE, "b"),
            "b": member(tarfile.SYMTYPE, "a"),
            "etc/passwd": member(tarfile.SYMTYPE, "passwd"),
        }
    )
    path = docker_archive(tmp_path / "i.tar", [first, layer({"a/file": b""})], User="somebody")
    assert set(problems(path)) == {"image_path", "image_command"}


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    bad = layer([("../x", b""), ("pipe", member(tarfile.FIFOTYPE)), ("l", member(tarfile.LNKTYPE, "nowhere"))])
    path = docker_archive(tmp_path / "i.tar", [GOOD, bad], Cmd=None, platform={"architecture": "s390x"})
    assert set(problems(path)) == {"image_path", "image_device", "image_link", "image_command", "image_platform"}


def test_limits_hold_before_writing(tmp_path: Path) -> None:
    big = layer({"big": member(tarfile.REGTYPE, size=5_000_000)})
    path = oci_archive(tmp_path / "i.tar", [GOOD, big])
    assert path.stat().st_size < 60_000
    assert "1 MiB" in problems(path, expanded_bytes=1 << 20)["image_size"]
    assert "times its size" in problems(path, ratio=10, ratio_floor_bytes=1000)["image_format"]
    assert "files of all layers" in problems(path, members=2)["image_size"]
    assert "layers" in problems(path, layers=1)["image_size"]
    assert "archive" in problems(path, archive_bytes=1000)["image_size"]
    assert not problems(path)


def test_wrong_digests_are_found(tmp_path: Path) -> None:
    path = oci_archive(tmp_path / "i.tar", [GOOD])
    with tarfile.open(path) as archive:
        files = {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]
    blob = next(name for name, content in files.items() if content[:2] == b"\x1f\x8b")
    write_tar(path, {**files, blob: gzip.compress(layer({"bin/run": b"other"}))})
    assert "digest" in problems(path)["image_digest"]
    assert "digest" in problems(docker_archive(path, [GOOD], raw_config=image_config([b"other"])))["image_digest"]


def oci_manifest(content: bytes) -> bytes:
    """Return an archive in OCI layout with this manifest."""
    index = json.dumps({"manifests": [{"digest": sha256(content)}]}).encode()
    return layer({f"blobs/{sha256(content).replace(':', '/')}": content, "index.json": index})


@pytest.mark.parametrize("content", [b"[]", b"null", b"5"])
def test_configurations_without_an_object_are_refused(content: bytes, tmp_path: Path) -> None:
    found = problems(docker_archive(tmp_path / "i.tar", [GOOD], raw_config=content))
    assert "not contain a JSON object" in found["image_format"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "neither manifest.json nor index.json"),
        (b"PK\x03\x04" + bytes(600), "cannot be read"),
        (gzip.compress(b"x" * 5000), "is compressed"),
        (layer({"hello": b"x"}), "neither manifest.json nor index.json"),
        (layer({"manifest.json": b"{"}), "not valid JSON"),
        (layer({"manifest.json": b"[" * 100_000}), "not valid JSON"),
        (layer({"manifest.json": b"[]"}), "exactly one image"),
        (layer({"manifest.json": b'[{"Config": "c", "Layers": ["x"]}]'}), "lacks “c”"),
        (layer({"index.json": b'{"manifests": []}'}), "no image for linux"),
        (layer({"index.json": b"[]"}), "not contain a JSON object"),
        (layer({"manifest.json": b"{}"}), "not contain a JSON list"),
        (oci_manifest(b"[]"), "not contain a JSON object"),
        (oci_manifest(b'"abc"'), "not contain a JSON object"),
        (layer({"index.json": b'{"manifests": [{"digest": "../../x"}]}'}), "lacks"),
        (docker_archive.__doc__.encode(), "cannot be read"),  # type: ignore[union-attr]
    ],
)
def test_other_files_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(content)
    found = problems(path)
    assert len(found) == 1
    assert words in next(iter(found.values()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"User": "nobody-here"}, "no user"),
        ({"User": "99999999999"}, "no user"),
        ({"Cmd": None}, "neither ENTRYPOINT nor CMD"),
        ({"Cmd": [1, 2]}, "CMD in the configuration is not a JSON list of strings"),
        ({"Cmd": "text"}, "CMD in the configuration is not a JSON list of strings"),
        ({"Entrypoint": "text", "Cmd": ["a"]}, "ENTRYPOINT in the configuration is not a JSON list of strings"),
        ({"Cmd": ["a\0b"]}, "NUL or a surrogate"),
        ({"Cmd": ["a", "\ud800"]}, "NUL or a surrogate"),
        ({"Cmd": ["a" * 70_000]}, "64 KiB"),
        ({"Env": ["A=\0"]}, "NUL or a surrogate"),
        ({"Env": ["A=\udcff"]}, "NUL or a surrogate"),
        ({"Env": ["A=" + "x" * 200_000]}, "64 KiB"),
        ({"Env": [f"A{n}=" + "x" * 1000 for n in range(600)]}, "512 KiB"),
        ({"WorkingDir": "/a\0b"}, "NUL or a surrogate"),
        ({"WorkingDir": "/\ud800"}, "NUL or a surrogate"),
        ({"WorkingDir": "/" + "a" * 300}, "too long"),
        ({"WorkingDir": "/a" * 3000}, "too long"),
        ({"WorkingDir": "/bin/run"}, "is a file"),
        ({"WorkingDir": "/bin/run/below"}, "below a file"),
        ({"User": "nul"}, "NUL or a surrogate"),
        ({"User": "long"}, "64 KiB"),
        ({"Labels": {"org.runboard.interface": "telepathy"}}, "telepathy"),
    ],
)
def test_configurations_that_cannot_run_are_refused(changes: dict[str, object], words: str, tmp_path: Path) -> None:
    users = b"root:x:0:0::/root:/bin/sh\nnul:x:1:1::/a\0b:/bin/sh\nlong:x:2:2::/" + b"h" * 70_000 + b":/bin/sh\n"
    content = layer({"bin/run": b"run", "etc/passwd": users})
    found = problems(docker_archive(tmp_path / "i.tar", [content], **changes))
    assert words in found.pop("image_command")
    assert not found


def test_a_missing_working_folder_is_created_below_links(tmp_path: Path) -> None:
    content = layer({"bin/run": b"run", "usr/lib/x": b"x", "lib": member(tarfile.SYMTYPE, "usr/lib")})
    image = ImageArchive(docker_archive(tmp_path / "i.tar", [content], WorkingDir="lib/./app/"))
    assert image.config.folder == "/lib/app"
    image.unpack(tmp_path / "root")
    assert (tmp_path / "root" / "usr" / "lib" / "app").is_dir()
    assert (tmp_path / "root" / "lib").is_symlink()


def header(name: str, kind: bytes, body: bytes = b"", **fields: Any) -> bytes:
    """Return a header with its content, as a hostile program writes it."""
    info = member(kind, **{"size": len(body), **fields})
    info.name = name
    return info.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % tarfile.BLOCKSIZE)


def pax(kind: bytes = tarfile.XHDTYPE, **values: object) -> bytes:
    content = b""
    for key, value in values.items():
        record = f" {key}={value}\n".encode()
        digits = next(number for number in range(1, 7) if len(str(len(record) + number)) == number)
        content += str(len(record) + digits).encode() + record
    return header("pax", kind, content)


def sparse_chain(blocks: int) -> bytes:
    """Return an old GNU sparse file whose map fills many blocks, each of which names the next one."""
    first = bytearray(member(tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    first[482] = 1
    first[148:156] = b" " * 8
    first[148:156] = b"%06o\0 " % sum(first)
    block = bytearray((b"00000100001\0" * 42).ljust(tarfile.BLOCKSIZE, b"\0"))
    block[504] = 1
    return bytes(first) + bytes(block) * blocks + bytes(tarfile.BLOCKSIZE)


FILE = header("f", tarfile.REGTYPE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header("l", tarfile.GNUTYPE_LONGNAME, size=8 << 30), "longer than 64 KiB"),
        (header("l", tarfile.GNUTYPE_LONGNAME, b"name\0") * 2000 + FILE, "too many extended headers"),
        (pax(comment=1) * 2000 + FILE, "too many extended headers"),
        (header("p", tarfile.XHDTYPE, b"5 a=\n" * 100) + FILE, "too many records"),
        (header("p", tarfile.XHDTYPE, b"9 a=\n") + FILE, "damaged"),
        (pax(tarfile.XGLTYPE, comment=1) + FILE, "global header"),
        (sparse_chain(2000), "sparse file"),
        (
            pax(**{"GNU.sparse.major": 1, "GNU.sparse.minor": 0}) + header("f", tarfile.REGTYPE, b"1\n0\n0\n"),
            "sparse file",
        ),
        (header("f", tarfile.REGTYPE, size=-5), "negative size"),
        (pax(size=-5) + FILE, "negative size"),
        (pax(size="x") + FILE, "damaged"),
        (FILE + b"x" * 512, "ustar"),
        (FILE + FILE[:100], "truncated"),
    ],
)
def test_hostile_headers_are_refused_before_they_are_read(content: bytes, words: str, tmp_path: Path) -> None:
    for blobs in ([], [gzip.compress(content)]):
        path = oci_archive(tmp_path / "i.tar", [content], blobs)
        assert words in problems(path)["image_format"]


def test_long_names_of_all_formats_are_read(tmp_path: Path) -> None:
    """PAX and GNU headers replace names, targets, and times; layers may lack the zeros at the end."""
    name, target = "d/" * 60 + "é", "t" * 300
    members = [
        header("l", tarfile.GNUTYPE_LONGNAME, name.encode() + b"\0") + header("short", tarfile.REGTYPE, b"gnu"),
        header("l", tarfile.GNUTYPE_LONGLINK, target.encode() + b"\0") + header("link", tarfile.SYMTYPE),
        pax(path=f"{name}x", mtime=12.5, comment="1" * 40_000) + header("short", tarfile.REGTYPE, b"pax"),
        pax(linkpath=f"{target}x") + header("linkx", tarfile.SYMTYPE),
    ]
    image = ImageArchive(docker_archive(tmp_path / "i.tar", [GOOD, b"".join(members)]))
    assert not image.report.problems
    image.unpack(tmp_path / "root")
    assert [(tmp_path / "root" / each).read_bytes() for each in (name, f"{name}x")] == [b"gnu", b"pax"]
    assert (tmp_path / "root" / f"{name}x").stat().st_mtime == 12.5
    assert [str((tmp_path / "root" / each).readlink()) for each in ("link", "linkx")] == [target, f"{target}x"]


def test_names_and_folders_are_limited(tmp_path: Path) -> None:
    """Each name below a link with a long target costs time, and each name can create many folders."""
    link = pax(linkpath="./" * 2000 + "d") + header("t", tarfile.SYMTYPE) + header("d", tarfile.DIRTYPE)
    path = docker_archive(tmp_path / "i.tar", [GOOD, link + b"".join(header(f"t/{n}", b"0") for n in range(100))])
    assert "names of all files" in problems(path, name_bytes=100_000)["image_size"]
    folders = b"".join(header(f"{n}/a/b/c/d/e/f", b"0") for n in range(20))
    assert "files of all layers" in problems(docker_archive(path, [GOOD, folders]), members=100)["image_size"]
    long = "n" * 200 + "/"
    below = (
        pax(linkpath=long * 12)
        + header("a", b"2")
        + pax(linkpath=long * 12)
        + header("a/b", b"2")
        + header("a/b/c", b"0")
    )
    assert "too long" in problems(docker_archive(path, [GOOD, below]))["image_path"]
    deep = b"".join(pax(linkpath=f"{n}/" * 60) + header("a/" * n + "a", b"2") for n in range(4))
    assert "too many folders" in problems(docker_archive(path, [GOOD, deep + header("a/a/a/a/x", b"0")]))["image_path"]


def test_a_folder_is_emptied_once_for_each_layer(tmp_path: Path) -> None:
    def members(layer_name: str) -> bytes:
        return layer([("d/.wh..wh..opq", b""), (f"d/{layer_name}", b"x"), ("d/.wh..wh..opq", b"")])

    image = ImageArchive(docker_archive(tmp_path / "i.tar", [members("a"), members("b")]))
    image.unpack(tmp_path / "root")
    assert [path.name for path in (tmp_path / "root" / "d").iterdir()] == ["b"]


def test_damaged_bytes_never_raise_another_error(tmp_path: Path) -> None:
    """Random changes of a good archive give a verdict, and a valid verdict unpacks inside of its folder."""
    chance, path = random.Random(7), tmp_path / "image.tar"
    good = oci_archive(path, [GOOD, layer({"a/.wh.b": b"", "l": member(tarfile.SYMTYPE, "/x")})]).read_bytes()
    outside = {*tmp_path.iterdir()}
    for number in range(300):
        content = bytearray(good)
        for _ in range(chance.randrange(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content[: chance.randrange(len(content))] if number % 5 == 0 else content)
        image = ImageArchive(path)
        if image.report.valid:
            image.unpack(tmp_path / f"root-{number}")
    assert {each for each in tmp_path.iterdir() if not each.name.startswith("root-")} == outside


def test_a_layer_of_this_machines_python_is_accepted(tmp_path: Path) -> None:
    image = ImageArchive(docker_archive(tmp_path / "i.tar", [python_layer()], Cmd=["/usr/bin/python3"]))
    assert not image.report.problems
    image.unpack(tmp_path / "root")
    assert (tmp_path / "root" / "usr/bin/python3").is_symlink()
    assert json.dumps(image.describe().image)
