"""Hostile and damaged images: each gets one message per kind of problem, and nothing is written outside."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from dataclasses import replace
from pathlib import Path

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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"PK\x03\x04" + bytes(600), "cannot be read"),
        (gzip.compress(b"x" * 5000), "is compressed"),
        (layer({"hello": b"x"}), "neither manifest.json nor index.json"),
        (layer({"manifest.json": b"{"}), "not valid JSON"),
        (layer({"manifest.json": b"[" * 100_000}), "not valid JSON"),
        (layer({"manifest.json": b"[]"}), "exactly one image"),
        (layer({"manifest.json": b'[{"Config": "c", "Layers": ["x"]}]'}), "lacks “c”"),
        (layer({"index.json": b'{"manifests": []}'}), "no image for linux"),
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
    "changes",
    [
        {"User": "nobody-here"},
        {"User": "99999999999"},
        {"Cmd": [1, 2]},
        {"Cmd": "text"},
        {"Cmd": ["a\0b"]},
        {"Labels": {"org.runboard.interface": "telepathy"}},
    ],
)
def test_configurations_that_cannot_run_are_refused(changes: dict[str, object], tmp_path: Path) -> None:
    assert set(problems(docker_archive(tmp_path / "i.tar", [GOOD], **changes))) == {"image_command"}


def test_headers_that_tarfile_would_read_into_memory(tmp_path: Path) -> None:
    """A long name of gigabytes, and digits that make a search quadratic."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 8 << 30
    long_name = info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    assert "header" in problems(docker_archive(tmp_path / "i.tar", [long_name]))["image_format"]
    digits = layer([("x", member(tarfile.REGTYPE, pax_headers={"comment": "1" * 40_000}))])
    assert "header" in problems(docker_archive(tmp_path / "i.tar", [digits]))["image_format"]


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
