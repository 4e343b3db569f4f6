"""File system of an image, merged in memory from the headers of its layers and then written as one folder.

Names in all layers are merged before anything is written, so that whiteouts, links, and limits are resolved first.
Only files in the merged tree are written, into newly created folders. Symbolic links are written last, so that no
write follows one. Their targets may be arbitrary: the folder becomes a sandbox's root, which they cannot leave.

The standard library's tarfile reads layers through a forward-only reader.
"""

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, cast

from evaluation.archives.compression import ExpandedFile, FileLimits
from evaluation.archives.tar import DamagedTar, TarReader
from evaluation.core.problems import InvalidContent
from evaluation.images.findings import (
    IMAGE_DEVICE,
    IMAGE_DIGEST,
    IMAGE_FORMAT,
    IMAGE_LINK,
    IMAGE_PATH,
    IMAGE_SETUID,
    ImageFindings,
    ImageLimits,
)

_BLOCK = 1 << 20
_MAX_LINKS_FOLLOWED = 40
_MAX_NAME_BYTES, _MAX_TARGET_BYTES = 255, 4096
#: Files whose content is read together with the names.
ACCOUNT_FILES = ("etc/passwd", "etc/group")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


def iterate_members(reader: TarReader) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar. The reader is then at the start of the member's content. Raises DamagedTar."""
    try:
        archive = tarfile.TarFile(fileobj=cast("BinaryIO", reader), mode="r", encoding="utf-8")
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # tarfile keeps every member otherwise
            yield member
    except (tarfile.TarError, ValueError, OverflowError, IndexError, EOFError) as error:
        message = str(error) if isinstance(error, DamagedTar) else "it is not a valid tar"
        raise DamagedTar(message) from error


@dataclass(slots=True)
class Node:
    """A file, folder, or symbolic link of the merged file system.

    `source` is the layer and the number of the member with a file's content. Hard links share a source.
    """

    kind: Literal["file", "folder", "link"]
    layer: int
    mode: int = 0o755
    mtime: float = 0.0
    source: tuple[int, int] = (-1, -1)
    size: int = 0
    target: str = ""
    #: Content, only for ACCOUNT_FILES.
    content: bytes = b""
    children: dict[str, "Node"] = field(default_factory=dict)


class FileSystem:
    """Merged file system of an image. Members with invalid names are omitted and added to the findings."""

    def __init__(self, limits: ImageLimits, findings: ImageFindings) -> None:
        self.root = Node("folder", -1)
        self.expanded_bytes = self.members = 0
        self._limits, self._findings = limits, findings

    def add_layer(self, layer: int, reader: TarReader) -> None:
        """Apply the members of a layer. Raises DamagedTar, and ImageRefused if a limit is exceeded."""
        for number, member in enumerate(iterate_members(reader)):
            self.members += 1
            self._findings.require_size("files of all layers", self.members, self._limits.members, is_bytes=False)
            if member.isreg():
                self.expanded_bytes += member.size
                self._findings.require_size("layers", self.expanded_bytes, self._limits.expanded_bytes)
            self._add(layer, number, member, reader)

    def find(self, name: str) -> Node | None:
        """Return the file or folder with an absolute name, following links, or None if it is missing."""
        for _ in range(_MAX_LINKS_FOLLOWED):
            *parents, last = [part for part in name.split("/") if part] or ["."]
            folder = self._folder(parents, layer=None)
            node = folder.children.get(last) if folder else None
            if node is None or node.kind != "link":
                return node
            name = node.target if node.target.startswith("/") else "/".join([*parents, node.target])
        return None

    def make_folder(self, name: str) -> Node:
        """Return the folder with this path, replacing files and links on the way."""
        node = self.root
        for part in filter(None, name.split("/")):
            child = node.children.get(part)
            if child is None or child.kind != "folder":
                child = node.children[part] = Node("folder", -1)
            node = child
        return node

    def _add(self, layer: int, number: int, member: tarfile.TarInfo, reader: TarReader) -> None:
        """Apply one member: a whiteout, file, folder, or link."""
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        folder, fault = None, ""
        if ".." in parts or "\0" in member.name:
            fault = "{} leaves the root file system"
        elif len(parts) > self._limits.depth or any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in parts):
            fault = "{} is too long or too deep"
        elif parts:
            folder = self._folder(parts[:-1], layer)
            fault = "" if folder else "{} is below a file or a circle of links"
        if fault:
            self._findings.add(IMAGE_PATH, fault, member.name)
        if folder is None:
            return
        name = parts[-1]
        if name == _OPAQUE:
            folder.children = {key: node for key, node in folder.children.items() if node.layer == layer}
        elif name.startswith(_WHITEOUT):
            folder.children.pop(name.removeprefix(_WHITEOUT), None)
        elif (node := self._node(layer, number, member, parts)) is not None:
            if "/".join(parts) in ACCOUNT_FILES and node.size <= self._limits.json_bytes and member.isreg():
                node.content = b"".join(reader.blocks(member.size))
            present = folder.children.get(name)
            if present is not None and present.kind == node.kind == "folder":
                present.mode, present.mtime = node.mode, node.mtime
            else:
                folder.children[name] = node

    def _node(self, layer: int, number: int, member: tarfile.TarInfo, parts: list[str]) -> Node | None:
        """Return the node of a member, or None if it is omitted."""
        mode, mtime = member.mode & 0o777, max(0.0, min(float(member.mtime), 2.0**32))
        if member.mode & (stat.S_ISUID | stat.S_ISGID) and member.isreg():
            self._findings.add(IMAGE_SETUID, "{}", member.name)
        if member.isdir():
            return Node("folder", layer, mode, mtime)
        if member.issym():
            if "\0" not in member.linkname and 0 < len(os.fsencode(member.linkname)) < _MAX_TARGET_BYTES:
                return Node("link", layer, mode, mtime, target=member.linkname)
            self._findings.add(IMAGE_LINK, "the symbolic link {} has no valid target", member.name)
        elif member.islnk():
            target_parts = [part for part in member.linkname.split("/") if part not in ("", ".")]
            folder = None if ".." in target_parts or not target_parts else self._folder(target_parts[:-1], layer=None)
            target = folder.children.get(target_parts[-1]) if folder else None
            if target is not None and target.kind != "folder":
                return replace(target, layer=layer)
            self._findings.add(IMAGE_LINK, "the hard link {} leads to {}", member.name, member.linkname)
        elif member.isreg() and not member.issparse():
            return Node("file", layer, mode, mtime, (layer, number), member.size)
        elif parts[0] != "dev":
            self._findings.add(IMAGE_DEVICE, "{}", member.name)
        return None

    def _folder(self, parts: list[str], layer: int | None) -> Node | None:
        """Return the folder with this path, following links within the file system.

        Create missing folders if `layer` is given. Return None for a missing folder, a file, or too many links.
        """
        path, pending, followed = [self.root], parts[::-1], 0
        while pending:
            name = pending.pop()
            if name in ("", "."):
                continue
            if name == "..":  # only in targets of links; the root is its own parent
                path = path[:-1] or path
                continue
            child = path[-1].children.get(name)
            if child is None and layer is not None:
                child = path[-1].children[name] = Node("folder", layer)
            if child is None or child.kind == "file":
                return None
            if child.kind == "link":
                followed += 1
                if followed > _MAX_LINKS_FOLLOWED:
                    return None
                path = [self.root] if child.target.startswith("/") else path
                pending += child.target.split("/")[::-1]
            else:
                path.append(child)
        return path[-1]

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Yield the relative path and node of everything, folders before their content."""
        pending = [("", self.root)]
        while pending:
            path, folder = pending.pop()
            for name, node in folder.children.items():
                child_path = f"{path}/{name}" if path else name
                yield child_path, node
                if node.kind == "folder":
                    pending.append((child_path, node))


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer in the archive: the byte range of its blob, and the digest of the decompressed tar."""

    archive: Path
    offset: int
    size: int
    diff_id: str
    #: Digest of the stored blob, if the archive states one.
    blob_digest: str = ""

    def read(self, use: Callable[[TarReader], None], limits: ImageLimits, findings: ImageFindings) -> None:
        """Pass the decompressed layer to `use`, and verify its digests. Raises ImageRefused if it is damaged."""
        name, digest = f"the layer {self.diff_id[:19]}", hashlib.sha256()
        file_limits = FileLimits(max_stored_bytes=limits.archive_bytes, max_expanded_bytes=limits.expanded_bytes,
                                 max_ratio=limits.ratio, ratio_floor_bytes=limits.ratio_floor_bytes,
                                 may_be_tar=True)  # fmt: skip
        with self.archive.open("rb") as file:
            blob = Slice(file, self.offset, self.size)
            try:
                expanded = ExpandedFile(cast("BinaryIO", blob), file_limits)
                reader = TarReader(expanded.readinto, digest)
                use(reader)
                reader.drain()
            except InvalidContent as error:
                raise findings.stop(IMAGE_FORMAT, f"{name}: {error.report.problems[0].message}") from error
            except DamagedTar as error:
                raise findings.stop(IMAGE_FORMAT, f"{name}: {error}") from error
            if f"sha256:{digest.hexdigest()}" != self.diff_id:
                findings.add(IMAGE_DIGEST, f"{name} has other content than its digest states")
            if self.blob_digest and blob.sha256() != self.blob_digest:
                findings.add(IMAGE_DIGEST, f"the stored blob of {name} has other content than its digest states")


class Slice:
    """File object for a byte range of an open file."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._file, self._offset, self._size, self._position = file, offset, size, 0

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + (self._size if whence == 2 else 0)
        return self._position

    def read(self, size: int) -> bytes:
        self._file.seek(self._offset + self._position)
        content = self._file.read(max(0, min(size, self._size - self._position)))
        self._position += len(content)
        return content

    def readinto(self, view: memoryview) -> int:
        content = self.read(len(view))
        view[: len(content)] = content
        return len(content)

    def sha256(self) -> str:
        """Return the digest of the byte range in the format of manifests."""
        digest = hashlib.sha256()
        self.seek(0)
        while block := self.read(_BLOCK):
            digest.update(block)
        return f"sha256:{digest.hexdigest()}"


def write_file_system(
    file_system: FileSystem, layers: list[Layer], target: Path, limits: ImageLimits, findings: ImageFindings
) -> None:
    """Write the merged file system into the new folder `target`, readable by everyone and writable by the owner.

    Raises OSError for errors of the disk, and ImageRefused if a layer has changed.
    """
    target.mkdir()
    files: dict[tuple[int, int], tuple[Node, list[str]]] = {}
    folders, links = [], []
    for path, node in file_system.walk():
        if node.kind == "folder":
            (target / path).mkdir()
            folders.append((path, node))
        elif node.kind == "link":
            links.append((path, node))
        else:
            files.setdefault(node.source, (node, []))[1].append(path)

    def write_layer(number: int, reader: TarReader) -> None:
        for index, member in enumerate(iterate_members(reader)):
            if (number, index) in files:
                _write_file(target, *files[number, index], reader.blocks(member.size))

    for number, layer in enumerate(layers):
        if any(source[0] == number for source in files):
            layer.read(partial(write_layer, number), limits, findings)
    for path, node in links:
        (target / path).symlink_to(node.target)
    target.chmod(0o755)
    for path, node in reversed(folders):
        (target / path).chmod(0o755)
        os.utime(target / path, (node.mtime, node.mtime))


def _write_file(target: Path, node: Node, paths: list[str], blocks: Iterator[bytes]) -> None:
    """Write a file and its hard links."""
    first = target / paths[0]
    with first.open("xb") as file:
        for block in blocks:
            file.write(block)
    first.chmod(0o755 if node.mode & 0o111 else 0o644)
    os.utime(first, (node.mtime, node.mtime))
    for path in paths[1:]:
        (target / path).hardlink_to(first)
