"""Images are read from both layouts of archives, and their layers are merged as container runtimes do it."""

from __future__ import annotations

import shutil
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.core.problems import InvalidContent
from evaluation.images.archive import ImageArchive, validate_image
from tests.evaluation.images.builder import docker_archive, layer, member, oci_archive, oci_folder, sha256

BASE = layer(
    {
        "bin": member(tarfile.DIRTYPE),
        "bin/run": b"#!/bin/sh\n",
        "etc/passwd": b"root:x:0:0::/root:/bin/sh\nwriter:x:1000:100::/home/writer:/bin/sh\n",
        "data/old.txt": b"old",
        "data/kept.txt": b"kept",
        "cache/a": b"a",
        "cache/b": b"b",
        "usr/lib": member(tarfile.DIRTYPE),
        "lib": member(tarfile.SYMTYPE, "usr/lib"),
        "private": member(tarfile.DIRTYPE, mode=0o700),
        "private/key": member(tarfile.REGTYPE, mode=0o600, size=3),
    }
)
CHANGES = layer(
    [
        ("data/.wh.old.txt", b""),
        ("cache/.wh..wh..opq", b""),
        ("cache/c", b"c"),
        ("lib/libx.so", b"library"),
        ("bin/twin", member(tarfile.LNKTYPE, "bin/run")),
        ("bin/absolute", member(tarfile.SYMTYPE, "/bin/run")),
        ("bin/outside", member(tarfile.SYMTYPE, "../../../../etc/shadow")),
        ("bin/su", member(tarfile.REGTYPE, mode=0o4755, size=2)),
    ]
)


@pytest.mark.parametrize("write", [docker_archive, oci_archive])
def test_layers_are_merged(write: Callable[..., Path], tmp_path: Path) -> None:
    image = ImageArchive(write(tmp_path / "image.tar", [BASE, CHANGES], User="writer", WorkingDir="/data"))
    assert [problem.code for problem in image.report.problems] == ["image_setuid"]
    assert image.report.valid
    assert (image.config.user, image.config.group, image.config.home) == (1000, 100, "/home/writer")
    assert (image.config.command, image.config.folder) == (("/bin/run",), "/data")
    image.unpack(tmp_path / "root")
    root = tmp_path / "root"
    regular = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
    assert regular == {
        "bin/run", "bin/twin", "bin/su", "data/kept.txt", "cache/c", "usr/lib/libx.so", "private/key", "etc/passwd",
        "etc/hosts",
    }  # fmt: skip
    assert (root / "bin" / "twin").samefile(root / "bin" / "run")
    assert str((root / "bin" / "outside").readlink()) == "../../../../etc/shadow"
    assert str((root / "lib").readlink()) == "usr/lib"
    assert stat.S_IMODE((root / "bin" / "su").stat().st_mode) == 0o755
    assert (root / "private" / "key").stat().st_mode & 0o004
    assert "localhost" in (root / "etc" / "hosts").read_text()
    assert (root / "tira-data" / "input").is_dir()


def test_both_layouts_have_the_same_identity(tmp_path: Path) -> None:
    docker = validate_image(docker_archive(tmp_path / "docker.tar", [BASE]))
    oci = validate_image(oci_archive(tmp_path / "oci.tar", [BASE], Labels={"maintainer": "a"}))
    assert docker.plan
    assert oci.plan
    assert docker.plan.description.sha256 == oci.plan.description.sha256
    assert docker.plan.description.image["digest"] == f"sha256:{docker.plan.description.sha256}"
    assert oci.plan.description.image["digest"] != docker.plan.description.image["digest"]
    assert oci.plan.description.image["labels"] == {"maintainer": "a"}


@pytest.mark.parametrize("name", ["tmp", "proc", "tira-data", "etc"])
def test_mount_points_are_folders(name: str, tmp_path: Path) -> None:
    """A link in their place would have the sandbox mount elsewhere."""
    image = ImageArchive(docker_archive(tmp_path / "i.tar", [layer({name: member(tarfile.SYMTYPE, "/elsewhere")})]))
    image.unpack(tmp_path / "root")
    assert (tmp_path / "root" / name).is_dir()
    assert not (tmp_path / "root" / name).is_symlink()


def test_a_layer_that_changed_after_the_check_is_not_unpacked(tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "image.tar", [BASE])
    image = ImageArchive(path)
    path.write_bytes(path.read_bytes().replace(b"kept\0", b"KEPT\0"))
    with pytest.raises(InvalidContent, match="digest"):
        image.unpack(tmp_path / "root")


def test_the_digest_of_the_configuration_identifies_an_image(tmp_path: Path) -> None:
    image = ImageArchive(docker_archive(tmp_path / "a.tar", [BASE]))
    other = ImageArchive(docker_archive(tmp_path / "b.tar", [BASE], Cmd=["/bin/other"]))
    assert image.id != other.id
    assert sha256(b"") not in (image.id, other.id)


@pytest.mark.skipif(not shutil.which("umoci"), reason="umoci is not installed")
def test_layers_are_merged_as_umoci_does_it(tmp_path: Path) -> None:
    third = layer(
        [
            ("usr/lib/deep/x", b"1"),
            ("data", member(tarfile.SYMTYPE, "usr")),
            ("cache/.wh.c", b""),
            ("etc/copy", member(tarfile.LNKTYPE, "etc/passwd")),
        ]
    )
    fourth = layer([("usr/lib/.wh..wh..opq", b""), ("usr/lib/new", b"new")])
    folder = oci_folder(tmp_path / "oci", [BASE, CHANGES, third, fourth])
    command = ["umoci", "unpack", "--rootless", "--image", f"{folder}:image", str(tmp_path / "bundle")]
    subprocess.run(command, check=True)
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(folder, arcname=".")
    ImageArchive(tmp_path / "image.tar").unpack(tmp_path / "root")
    expected, actual = files(tmp_path / "bundle" / "rootfs"), files(tmp_path / "root")
    actual.pop("etc/hosts")
    assert actual == expected


def files(root: Path) -> dict[str, str | bytes]:
    """Return the content of files and the targets of links by path."""
    paths = [path for path in root.rglob("*") if path.is_symlink() or path.is_file()]
    return {
        str(path.relative_to(root)): str(path.readlink()) if path.is_symlink() else path.read_bytes() for path in paths
    }
