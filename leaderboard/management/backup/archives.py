"""Folders as tar files, and encryption with age: what goes out of a backup and comes back."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import pyrage

from evaluation.core.files import sha256_of

Writer = Callable[[BinaryIO], object]


class BackupProblem(Exception):
    """The backup cannot be made or restored; the message says what is wrong and what would be right."""


def recipients_of(texts: Iterable[str]) -> list[Any]:
    """age public keys (`age1…`), parsed. Raises BackupProblem."""
    try:
        return [pyrage.x25519.Recipient.from_str(text.strip()) for text in texts]
    except pyrage.RecipientError as error:
        raise BackupProblem("A recipient is an age public key: age1 and 58 more characters.") from error


def identities_in(path: Path) -> list[Any]:
    """The secret keys in a file as `age-keygen` writes it. Raises BackupProblem, without repeating any of it."""
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
        keys = [pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
        if not keys:
            raise ValueError
    except (OSError, ValueError, pyrage.IdentityError) as error:
        raise BackupProblem(f"{path} has no age identity (a line AGE-SECRET-KEY-1…).") from error
    return keys


def write_file(target: Path, write: Writer, recipients: Sequence[Any]) -> None:
    """What `write` writes into the stream, encrypted for the recipients where there are any; readable by us alone."""
    with _new_file(target) as file:
        if recipients:
            _through_pipe(write, lambda reader: pyrage.encrypt_io(reader, file, recipients))
        else:
            write(file)
        file.flush()
        os.fsync(file.fileno())


def decrypt(source: Path, target: Path, identities: Sequence[Any]) -> None:
    """The content of an encrypted file. Raises BackupProblem where no key fits or it was changed."""
    with source.open("rb") as reader, _new_file(target) as writer:
        try:
            pyrage.decrypt_io(reader, writer, identities)
        except (pyrage.DecryptError, OSError) as error:
            raise BackupProblem(
                f"{source.name} cannot be decrypted: it was made for other keys, or is damaged."
            ) from error


def _new_file(target: Path) -> BinaryIO:
    return os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


class FolderArchive:
    """Folders and files below a root, written as a tar; `hashes` has the sha256 of each file that went into it.

    Unfinished files, and what is left out, are not in it; nor is what vanishes while we look, since no row names it
    any more. A file below one of the `cut` folders that becomes shorter while it is read has zeros in place of its end.
    """

    def __init__(
        self, root: Path, names: Iterable[str], leave_out: Iterable[str] = (), cut: Iterable[str] = ()
    ) -> None:
        self.hashes: dict[str, str] = {}
        self._root, self._names, self._left_out = root, tuple(names), frozenset(leave_out)
        self._cut = frozenset(PurePosixPath(each) for each in cut)
        self._seen: set[Path] = set()

    def write(self, stream: BinaryIO) -> None:
        """The tar, into the stream."""
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for name in self._names:
                self._add(archive, self._root / name)

    def _add(self, archive: tarfile.TarFile, path: Path) -> None:
        name = path.relative_to(self._root).as_posix()
        if name in self._left_out or path.name.startswith(".partial-"):
            return
        try:
            # A folder on a larger disk is linked from here; a file's second name is a file like its first.
            if path.is_file():
                with path.open("rb") as file:
                    member = archive.gettarinfo(arcname=name, fileobj=file)
                    member.type, member.linkname = tarfile.REGTYPE, ""
                    member.size = os.fstat(file.fileno()).st_size
                    reader = _HashingReader(file, fill=not self._cut.isdisjoint(PurePosixPath(name).parents))
                    archive.addfile(member, reader)
                self.hashes[name] = reader.digest.hexdigest()
            elif path.is_dir():
                if (place := path.resolve()) in self._seen:
                    raise BackupProblem(f"{path} leads to a folder that is in the backup already.")
                self._seen.add(place)
                folder = tarfile.TarInfo(name)
                folder.type, folder.mode = tarfile.DIRTYPE, 0o700
                archive.addfile(folder)
                for child in sorted(path.iterdir()):
                    self._add(archive, child)
            elif os.path.lexists(path):
                raise BackupProblem(
                    f"{path} is neither a file nor a folder: a link that leads nowhere, or a device."
                )
        except FileNotFoundError:
            return


class _HashingReader:
    """A file whose sha256 is taken as it is read; `fill`: with zeros beyond its end, as many as are asked for."""

    def __init__(self, file: BinaryIO, *, fill: bool) -> None:
        self._file, self._fill, self.digest = file, fill, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        content = self._file.read(size)
        if self._fill:  # a tar says a member's size before its bytes
            content = content.ljust(size, b"\0")
        self.digest.update(content)
        return content


def unpack(source: Path, root: Path) -> None:
    """Write the regular files of a tar that we made below `root`, for us alone. Raises BackupProblem."""
    with tarfile.open(source, mode="r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name)
            if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
                raise BackupProblem(f"{source.name} has a member that no backup of ours has.")
            target = root.joinpath(*name.parts)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True, mode=0o700)
                continue
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            content = archive.extractfile(member)
            if content is None:
                raise BackupProblem(f"{source.name} is damaged.")
            with content, target.open("xb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            target.chmod(member.mode & 0o700)
            os.utime(target, (member.mtime, member.mtime))


def hashes_of(root: Path, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of those of these files that are there, by path relative to `root`."""
    return {name: sha256_of(root / name) for name in names if (root / name).is_file()}


def _through_pipe(write: Writer, read: Callable[[BinaryIO], object]) -> None:
    """What one writes, the other reads, without a file between them. Raises what either raises."""
    reading, writing = os.pipe()
    faults: list[BaseException] = []

    def produce() -> None:
        try:
            with os.fdopen(writing, "wb") as stream:
                write(stream)
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=produce, daemon=True, name="backup")
    thread.start()
    with os.fdopen(reading, "rb") as stream:
        read(stream)
    thread.join()
    if faults:
        raise faults[0]
