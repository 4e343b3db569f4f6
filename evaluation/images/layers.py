"""File system of an image, merged in memory from the headers of its layers and then written as one folder.

Names in all layers are merged before anything is written, so that whiteouts, links, and limits are resolved first.
Only files in the merged tree are written, into newly created folders. Symbolic links are written last, so that no
write follows one. Their targets may be arbitrary: the folder becomes a sandbox's root, which they cannot leave.
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from evaluation.archives.compression import ExpandedFile, FileLimits
from evaluation.archives.tar import DamagedTar, TarReader, pax_records, read_extended, read_header
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

#: Maximum bytes of the extended headers of a layer.
_MAX_EXTENDED_BYTES = 256 << 20
_MAX_LINKS_FOLLOWED = 40
#: Maximum bytes of a name in a folder, of a path from the root, and of a link's target. Linux allows paths of 4,096
#: bytes, which here include the folder of the root.
_MAX_NAME_BYTES, _MAX_PATH_BYTES, _MAX_TARGET_BYTES = 255, 3000, 4096
#: Files whose content is read together with the names.
ACCOUNT_FILES = ("etc/passwd", "etc/group")
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"


#: Headers that docker, podman, and buildah write before a member's own header, each at most once.
_EXTENDED = (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
#: Old sparse files, whose headers chain, and headers for all following members.
_REFUSED = (tarfile.GNUTYPE_SPARSE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


def iterate_members(reader: TarReader) -> Iterator[tarfile.TarInfo]:
    """Yield the members of a tar. The reader is then at the start of the member's content. Raises DamagedTar."""
    extended: dict[bytes, bytes] = {}
    total = 0
    while (info := read_header(reader.read)) is not None:
        if info.type in _EXTENDED:
            content = read_extended(info, reader.read)
            total += len(content)
            if info.type in extended or total > _MAX_EXTENDED_BYTES:
                raise DamagedTar("it has too many extended headers")
            extended[info.type] = content
            continue
        _apply(extended, info)
        extended = {}
        info.offset_data = end = reader.tell()
        if info.isreg() or info.type not in tarfile.SUPPORTED_TYPES:
            end += info.size + -info.size % tarfile.BLOCKSIZE
        yield info
        reader.seek(end)


def _apply(extended: Mapping[bytes, bytes], info: tarfile.TarInfo) -> None:
    """Apply the extended headers of a member. Raises DamagedTar if they are damaged, or the member is refused."""
    records = dict(pax_records(extended.get(tarfile.XHDTYPE, b"")))
    name, target = (
        records.get(key, extended.get(kind, b"").partition(b"\0")[0]).decode("utf-8", "surrogateescape")
        for key, kind in ((b"path", tarfile.GNUTYPE_LONGNAME), (b"linkpath", tarfile.GNUTYPE_LONGLINK))
    )
    info.name, info.linkname = name or info.name, target or info.linkname
    try:
        info.size, info.mtime = int(records.get(b"size", info.size)), float(records.get(b"mtime", info.mtime))
    except ValueError as error:
        raise DamagedTar("an extended header is damaged") from error
    if info.size < 0:
        raise DamagedTar("a header has a negative size")
    if info.type in _REFUSED or any(key.startswith(b"GNU.sparse.") for key in records):
        raise DamagedTar("it has a sparse file or a global header, which docker, podman, and buildah do not write")


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
    #: Last layer that hides the earlier content of the folder.
    opaque_layer: int = -1
    #: Content, only for ACCOUNT_FILES.
    content: bytes = b""
    children: dict[str, "Node"] = field(default_factory=dict)


class FileSystem:
    """Merged file system of an image. Members with invalid names are omitted and added to the findings."""

    def __init__(self, limits: ImageLimits, findings: ImageFindings) -> None:
        self.root = Node("folder", -1)
        self.expanded_bytes = self.members = self._name_bytes = 0
        self._limits, self._findings = limits, findings

    def add_layer(self, layer: int, reader: TarReader) -> None:
        """Apply the members of a layer. Raises DamagedTar, and ImageRefused if a limit is exceeded."""
        for number, member in enumerate(iterate_members(reader)):
            self._count_member()
            if member.isreg():
                self.expanded_bytes += member.size
                self._findings.require_size("layers", self.expanded_bytes, self._limits.expanded_bytes)
            self._add(layer, number, member, reader)

    def add_folder(self, name: str) -> bool:
        """Create a folder, following links, if it is missing. Return whether that is possible."""
        parts = self._split(name)
        return not self._fault(name, parts) and self._folder(parts, layer=-1) is not None

    def require_short_paths(self) -> None:
        """Report paths that are too long to unpack: a name may be below links to long paths."""
        for path, _ in self.walk():
            if len(os.fsencode(path)) > _MAX_PATH_BYTES:
                self._findings.add(IMAGE_PATH, "{} is too long or too deep", path)

    def find(self, name: str) -> Node | None:
        """Return what has this name, or None. Links in its parent folders are followed."""
        *parents, last = self._split(name) or [".."]
        folder = None if ".." in (*parents, last) else self._folder(parents, layer=None)
        return folder.children.get(last) if folder else None

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
        self._name_bytes += len(member.linkname)
        parts = self._split(member.name)
        if not parts:
            return
        fault = self._fault(member.name, parts)
        folder = None if fault else self._folder(parts[:-1], layer)
        if folder is None:
            fault = fault or "{} is below a file, a circle of links, or too many folders"
            self._findings.add(IMAGE_PATH, fault, member.name)
            return
        name = parts[-1]
        if name == _OPAQUE:
            if folder.opaque_layer != layer:  # all later children belong to this layer
                folder.children = {key: node for key, node in folder.children.items() if node.layer == layer}
            folder.opaque_layer = layer
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

    def _count_member(self) -> None:
        self.members += 1
        self._findings.require_size("files of all layers", self.members, self._limits.members, is_bytes=False)

    def _split(self, name: str) -> list[str]:
        """Return the parts of a name or of a link's target, and count its length, which bounds the time of reading."""
        self._name_bytes += len(name)
        self._findings.require_size("names of all files", self._name_bytes, self._limits.name_bytes)
        return [part for part in name.split("/") if part not in ("", ".")]

    def _fault(self, name: str, parts: list[str]) -> str:
        """Return why a name is invalid, with braces in its place, or an empty string."""
        if ".." in parts or "\0" in name:
            return "{} leaves the root file system"
        too_long = len(os.fsencode(name)) > _MAX_PATH_BYTES or any(len(os.fsencode(p)) > _MAX_NAME_BYTES for p in parts)
        return "{} is too long or too deep" if too_long or len(parts) > self._limits.depth else ""

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
            target = self.find(member.linkname)
            if target is not None and target.kind != "folder":
                return replace(target, layer=layer)
            self._findings.add(IMAGE_LINK, "the hard link {} leads to {}", member.name, member.linkname)
        elif member.isreg():
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
            if name == "..":  # only in targets of links; the root is its own parent
                path = path[:-1] or path
                continue
            child = path[-1].children.get(name)
            if child is None and layer is not None and len(path) <= 2 * self._limits.depth:
                self._count_member()
                child = path[-1].children[name] = Node("folder", layer)
            if child is None or child.kind == "file":
                return None
            if child.kind == "link":
                followed += 1
                if followed > _MAX_LINKS_FOLLOWED:
                    return None
                path = [self.root] if child.target.startswith("/") else path
                pending += self._split(child.target)[::-1]
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
        file_limits = FileLimits(
            max_stored_bytes=limits.archive_bytes,
            max_expanded_bytes=limits.expanded_bytes,
            max_ratio=limits.ratio,
            ratio_floor_bytes=limits.ratio_floor_bytes,
            may_be_tar=True,
        )
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


class Slice(io.RawIOBase):
    """File object for a byte range of an open file."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._file, self._offset, self._size, self._position = file, offset, size, 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + (self._size if whence == 2 else 0)
        return self._position

    def readinto(self, view: Any) -> int:
        self._file.seek(self._offset + self._position)
        content = self._file.read(max(0, min(len(view), self._size - self._position)))
        self._position += len(content)
        view[: len(content)] = content
        return len(content)

    def sha256(self) -> str:
        """Return the digest of the byte range in the format of manifests."""
        self.seek(0)
        return f"sha256:{hashlib.file_digest(self, 'sha256').hexdigest()}"


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
