"""The files of a checkpoint: which are read, which are left out, and which make it refused.

Untrusted JSON is bounded before it is parsed, and parsed strictly.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from evaluation.archives.compression import describe_bytes
from evaluation.archives.zip import is_clutter
from evaluation.checkpoints.findings import (
    MOST_JSON_FILE,
    MOST_WEIGHTS,
    AllowanceSpent,
    CheckpointAllowance,
    FileFindings,
    Findings,
    attempt,
    quoted,
)
from evaluation.core.files import open_regular

_MOST_FILES = 1000
_MOST_DEPTH = 4
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+=() -]{0,120}", re.ASCII)

#: Endings of files that are refused, by code, with the message.
_REFUSED_ENDINGS: tuple[tuple[str, str, str], ...] = (
    ("pickle_weights", "{} files are pickles, which can run code",
     ".bin .pt .pth .pkl .pickle .ckpt .joblib .npy .npz .model_state .mdl .t7 .dill"),
    ("dangerous_file", "{} files are not taken",
     ".py .pyc .pyd .so .dll .dylib .exe .sh .bat .js .jar .class .whl .ipynb .onnx .onnx_data .gguf .ggml .msgpack "
     ".h5 .hdf5 .keras .pb .tflite .mlmodel .mlpackage .engine .plan .llamafile .pdparams .params .ot .rst_state"),
    ("nested_archive", "it is an archive itself",
     ".zip .tar .gz .tgz .zst .xz .bz2 .7z .rar .lzma .nemo .egg"),
)  # fmt: skip
_REFUSALS = {
    ending: (code, message) for code, message, endings in _REFUSED_ENDINGS for ending in endings.split()
}
_READ = (".json", ".safetensors", ".metadata")
#: A chat template is read to be recognized, and never run.
CHAT_TEMPLATE = "chat_template.jinja"
#: Folders with an adapter beside the whole model that it was merged into.
_ADAPTER_FOLDERS = frozenset({"lora", "adapter", "adapters"})
_INERT_TEXT = """
.md .txt .rst .png .jpg .jpeg .gif .svg .webp .pdf .csv .tsv .yaml .yml .jinja .model .html .cff .bib .log
.jsonl .toml .lock
"""
_INERT = frozenset(_INERT_TEXT.split())
_INERT_NAMES = frozenset(("license", "notice", "readme"))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The usable files of a folder, and the findings about them.

    Attributes:
        root: The folder.
        names: Names relative to `root`, with / between folders.
        findings: Receives the problems of the files.
        prefix: Start of the names in messages: the folder's place in what was sent.
        allowance: The amount that may still be read, shared with the other folders of the checkpoint.
        stored: The path of a file by its whole name, if it differs: files of archives have numbers as names on disk.
    """

    root: Path
    names: frozenset[str]
    findings: Findings
    prefix: str = ""
    allowance: CheckpointAllowance = field(default_factory=CheckpointAllowance, compare=False)
    stored: Mapping[str, Path] = field(default_factory=dict, compare=False)

    def path(self, name: str) -> Path:
        """Return the path of a file of the folder."""
        return self.stored.get(self.prefix + name, self.root / name)

    def has(self, name: str) -> bool:
        """Return whether there is such a file."""
        return name in self.names

    def within(self, folder: str) -> ModelFiles:
        """Return the files of a sub-folder, or all of them for the empty name."""
        if not folder:
            return self
        start = folder.rstrip("/") + "/"
        names = frozenset(name.removeprefix(start) for name in self.names if name.startswith(start))
        return replace(self, root=self.root / folder, names=names, prefix=self.prefix + start)

    def silent(self) -> ModelFiles:
        """Return the same files with findings of their own, to be read again."""
        return replace(self, findings=Findings())

    def at(self, name: str = "") -> FileFindings:
        """Return the findings about a file, or about the folder."""
        return self.findings.at(self.prefix + name)

    def read_json(self, name: str, most: int = MOST_JSON_FILE) -> Any:
        """Return the value in a file. Raises Refused."""
        try:
            data = read_file(self.path(name), most)
            self.allowance.take(len(data))
            value = parse(data)
        except (FileTooLarge, AllowanceSpent) as error:
            self.at(name).stop("file_too_large", str(error))
        except NotJson as error:
            self.at(name).stop("json_damaged", str(error))
        if value is None:
            self.at(name).stop("json_damaged", "it holds nothing but null")
        return value

    def read_object(self, name: str, most: int = MOST_JSON_FILE) -> dict[str, Any]:
        """Return the object in a file. Raises Refused."""
        value = self.read_json(name, most)
        if not isinstance(value, dict):
            self.at(name).stop("json_damaged", "it holds no object { … }")
        return value

    def read_settings(self, name: str) -> dict[str, Any]:
        """Return the object in a file, empty if there is no such file or if it is refused."""
        return (attempt(lambda: self.read_object(name)) if self.has(name) else None) or {}


def check_file_name(name: str, findings: Findings) -> bool:
    """Return whether a file of this name is read. Refuse a dangerous one, and remark on some that are left out."""
    if is_clutter(name):
        return False
    path, file = PurePosixPath(name), findings.at(name)
    ending, base = path.suffix.casefold(), path.name.casefold()
    doubtful = any(not _NAME.fullmatch(part) or part in (".", "..") for part in path.parts)
    if str(path) != name:
        file.refuse("member_name", f"the plain form of this name is {quoted(path)}")
    elif doubtful or len(path.parts) > _MOST_DEPTH:
        file.refuse("member_name", "the name has other characters, or many folders")
    elif _ADAPTER_FOLDERS.intersection(path.parts[:-1]):
        findings.at(path.parts[0]).remark("left_out", "an adapter beside whole weights is not used")
    elif base.startswith("adapter_"):
        file.remark("adapter", "it belongs to an adapter, which is not used")
    elif ending in _REFUSALS:
        code, message = _REFUSALS[ending]
        file.refuse(code, message.format(ending))
    elif ending in _READ or path.name == CHAT_TEMPLATE:
        return True
    elif ending in (".jinja", ".model"):
        file.remark("left_out", "SentencePiece files and other templates are not used")
    elif ending not in _INERT and _INERT_NAMES.isdisjoint((base, path.stem.casefold())):
        file.refuse("unknown_file", f"files that end in {quoted(ending or base)} are not known here")
    return False


def walk(root: Path, findings: Findings) -> ModelFiles:
    """Return the folder's files. Refuse links, devices, and files with a second name, as `lstat` tells them."""
    names: set[str] = set()
    folded: dict[str, str] = {}
    weights = 0
    for number, (name, facts) in enumerate(_entries(root, findings)):
        if number >= _MOST_FILES:
            message = f"the folder holds more than {_MOST_FILES:,} files"
            findings.at("").refuse("too_many_files", message)
            break
        if not stat.S_ISREG(facts.st_mode):
            link = stat.S_ISLNK(facts.st_mode)
            message = "it is a symbolic link" if link else "it is no regular file"
            findings.at(name).refuse("file_kind", message)
        elif facts.st_nlink != 1:
            findings.at(name).refuse("file_kind", "it has a second name (hard link)")
        elif other := folded.get(name.casefold()):
            findings.at(name).refuse("member_name", f"it differs from {other} only by capital letters")
        elif check_file_name(name, findings):
            names.add(name)
            weights += facts.st_size if name.endswith(".safetensors") else 0
        folded[name.casefold()] = name
    if weights > MOST_WEIGHTS:
        limit = describe_bytes(MOST_WEIGHTS)
        message = f"all weights have {describe_bytes(weights)}, over the limit of {limit}"
        findings.at("").refuse("file_too_large", message)
    if not names and not findings.refused:
        findings.at("").refuse("empty_folder", "there is no file of a model")
    return ModelFiles(root, frozenset(names), findings)


def _entries(root: Path, findings: Findings) -> Iterable[tuple[str, os.stat_result]]:
    """Yield every file below the root, and every folder that is a link, in a fixed order."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            name = f"{folder}/{entry.name}" if folder else entry.name
            facts = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                yield name, facts
            elif entry.name in (".git", "__pycache__", ".cache", "__MACOSX"):
                continue
            elif name.count("/") >= _MOST_DEPTH or len(pending) > _MOST_FILES:
                findings.at(name).refuse("too_many_files", "the folders are nested too deep, or too many")
            else:
                pending.append(name)


#: Brackets and commas, each of which may become an object in memory: this many take up to 300 MB.
_MOST_VALUES = 3_000_000
_MOST_DIGITS = 18


class NotJson(ValueError):
    """A text is not acceptable JSON, for the reason in the message."""


class FileTooLarge(NotJson):
    """A file is over its limit."""


def read_file(path: Path, most: int) -> bytes:
    """Return at most `most` bytes of a regular file. Raises FileTooLarge, and OSError for other files."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileTooLarge(f"it has {describe_bytes(size)}, over the limit of {describe_bytes(most)}")
        return file.read(most)


def parse(data: bytes) -> Any:
    """Return the value of a JSON text. Raises NotJson."""
    if sum(data.count(mark) for mark in (b"[", b"{", b",")) > _MOST_VALUES:
        raise NotJson(f"it has more than {_MOST_VALUES:,} values")
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_finite,
            parse_int=_integer,
            parse_float=_finite,
        )
        if "\\u" in text:  # an escape may hide half a character, which cannot be written again
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise NotJson("it is nested too deep") from error
    except UnicodeEncodeError as error:
        raise NotJson("it has half of a surrogate pair") from error
    except ValueError as error:
        raise NotJson(str(error)[:200]) from error
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotJson("it has a key twice")
    return result


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise NotJson("it holds a number of many digits")
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson("it holds a number too large" if digits[-1].isdigit() else f"it holds {digits}")
    return value
