"""Archives of container images, written from files in memory or from this machine's programs, without Docker."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.images.archive import own_architecture

#: Member of a layer: a file's content, or the member itself.
Member = bytes | tarfile.TarInfo


def member(kind: bytes, target: str = "", mode: int = 0o755, **fields: Any) -> tarfile.TarInfo:
    """Return a special member: a link, a folder, or a device."""
    info = tarfile.TarInfo()
    info.type, info.linkname, info.mode = kind, target, mode
    for name, value in fields.items():
        setattr(info, name, value)
    return info


def layer(members: Mapping[str, Member] | Sequence[tuple[str, Member]]) -> bytes:
    """Return the tar of a layer. Pairs may repeat a name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items() if isinstance(members, Mapping) else members:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo()
            info.name = name
            if isinstance(content, bytes):
                info.size, info.mode = len(content), 0o755
                archive.addfile(info, io.BytesIO(content))
            else:
                archive.addfile(info, io.BytesIO(bytes(info.size)) if info.isreg() else None)
    return out.getvalue()


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def image_config(layers: Sequence[bytes], **changes: Any) -> bytes:
    """Return the configuration of an image with these expanded layers. `changes` replaces fields of `config`."""
    platform = {"architecture": own_architecture(), "os": "linux", **changes.pop("platform", {})}
    config = {"Cmd": ["/bin/run"], "Env": ["PATH=/bin:/usr/bin"], "Labels": {"maintainer": "a"}, **changes}
    rootfs = {"type": "layers", "diff_ids": [sha256(content) for content in layers]}
    return json.dumps({**platform, "config": config, "rootfs": rootfs}).encode()


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    path.write_bytes(layer(files))
    return path


def docker_archive(path: Path, layers: Sequence[bytes], **changes: Any) -> Path:
    """Write an archive like `docker save`. `manifest` replaces the manifest's fields, and others those of `config`."""
    manifest = changes.pop("manifest", {})
    config = changes.pop("raw_config", None) or image_config(layers, **changes)
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    row = {"Config": "config.json", "RepoTags": ["x:latest"], "Layers": names, **manifest}
    files = {**dict(zip(names, layers, strict=True)), "config.json": config}
    return write_tar(path, {**files, "manifest.json": json.dumps([row]).encode()})


def oci_archive(path: Path, layers: Sequence[bytes], blobs: Sequence[bytes] = (), **changes: Any) -> Path:
    """Write an archive like `skopeo copy oci-archive:`, with gzipped layers unless `blobs` replaces them."""
    stored = list(blobs) or [gzip.compress(content, 1) for content in layers]
    config = image_config(layers, **changes)
    manifest = json.dumps({"config": {"digest": sha256(config)}, "layers": [{"digest": sha256(b)} for b in stored]})
    contents = [config, manifest.encode(), *stored]
    files = {f"blobs/{sha256(content).replace(':', '/')}": content for content in contents}
    index = {"manifests": [{"digest": sha256(manifest.encode())}]}
    files |= {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
    return write_tar(path, files)


def python_layer() -> bytes:
    """Return a layer with this machine's Python and the libraries that it loads: a root file system for tests."""
    paths = {Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"}
    out = io.BytesIO()
    libraries = Path(sysconfig.get_path("stdlib"))
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:

        def keep(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
            skipped = ("__pycache__", "/test/", "/idlelib", "/tkinter", "/ensurepip", "/config-", "/site-packages",
                       "/dist-packages", "/lib2to3", "/pydoc_data")  # fmt: skip
            return None if any(part in f"/{info.name}/" for part in skipped) else info

        archive.add(libraries, filter=keep)
        extensions = list((libraries / "lib-dynload").glob("*.so"))
        loaded = subprocess.run(
            ["ldd", *map(str, [*paths, *extensions])], capture_output=True, text=True, check=False
        ).stdout
        names = {
            word for line in loaded.splitlines() for word in line.split() if word.startswith("/") and ":" not in word
        }
        for path in {*map(str, paths), *names}:
            archive.add(Path(path).resolve(), arcname=path)
        python = tarfile.TarInfo("usr/bin/python3")
        python.type, python.linkname = tarfile.SYMTYPE, str(next(iter(paths)))
        if python.linkname != "/usr/bin/python3":
            archive.addfile(python)
    return out.getvalue()


def oci_folder(folder: Path, layers: Sequence[bytes]) -> Path:
    """Write an image layout as a folder, with the media types that umoci needs."""
    kind, blobs, config = (
        "application/vnd.oci.image.",
        [gzip.compress(each, 1) for each in layers],
        image_config(layers),
    )

    def entry(name: str, content: bytes) -> dict[str, Any]:
        return {"mediaType": f"{kind}{name}", "digest": sha256(content), "size": len(content)}

    rows = [entry("layer.v1.tar+gzip", blob) for blob in blobs]
    manifest = json.dumps({"schemaVersion": 2, "config": entry("config.v1+json", config), "layers": rows}).encode()
    (folder / "blobs" / "sha256").mkdir(parents=True)
    for content in (config, manifest, *blobs):
        (folder / "blobs" / sha256(content).replace(":", "/")).write_bytes(content)
    name = {"annotations": {"org.opencontainers.image.ref.name": "image"}}
    index = {"schemaVersion": 2, "manifests": [{**entry("manifest.v1+json", manifest), **name}]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder
