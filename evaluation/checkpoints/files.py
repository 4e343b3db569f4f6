"""Files of a checkpoint, each of which is read, omitted, or refused.

Untrusted JSON is bounded before parsing and parsed strictly.
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
    MAX_JSON_FILE,
    MAX_WEIGHTS,
    AllowanceSpent,
    CheckpointAllowance,
    FileFindings,
    Findings,
    attempt,
    quoted,
)
from evaluation.core.files import open_regular

_MAX_FILES = 1000
_MAX_DEPTH = 4
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+=() -]{0,120}", re.ASCII)

#: Refused file name extensions, by problem code, with the message.
_REFUSED_ENDINGS: tuple[tuple[str, str, str], ...] = (
    ("pickle_weights", "{} files are pickles, which can run code",
     ".bin .pt .pth .pkl .pickle .ckpt .joblib .npy .npz .model_state .mdl .t7 .dill"),
    ("dangerous_file", "{} files are not accepted",
     ".py .pyc .pyd .so .dll .dylib .exe .sh .bat .js .jar .class .whl .ipynb .onnx .onnx_data .gguf .ggml .msgpack "
     ".h5 .hdf5 .keras .pb .tflite .mlmodel .mlpackage .engine .plan .llamafile .pdparams .params .ot .rst_state"),
    ("nested_archive", "it is an archive within the archive",
     ".zip .tar .gz .tgz .zst .xz .bz2 .7z .rar .lzma .nemo .egg"),
)  # fmt: skip
_REFUSALS = {ending: (code, message) for code, message, endings in _REFUSED_ENDINGS for ending in endings.split()}
_READ_EXTENSIONS = (".json", ".safetensors", ".metadata")
#: A chat template is read to recognize it, and is never run.
CHAT_TEMPLATE = "chat_template.jinja"
#: Folders with an adapter next to the complete model into which it was merged.
_ADAPTER_FOLDERS = frozenset({"lora", "adapter", "adapters"})
_INERT_TEXT = """
.md .txt .rst .png .jpg .jpeg .gif .svg .webp .pdf .csv .tsv .yaml .yml .jinja .model .html .cff .bib .log
.jsonl .toml .lock
"""
_INERT_EXTENSIONS = frozenset(_INERT_TEXT.split())
_INERT_NAMES = frozenset(("license", "notice", "readme"))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Usable files of a folder, and the findings about them.

    Attributes:
        root: The folder.
        names: Names relative to `root`, with / between folders.
        findings: Receiver of the problems of the files.
        prefix: Prefix of the names in messages: the folder's path in the upload.
        allowance: Amount that may still be read, shared with the checkpoint's other folders.
        stored: Paths of files by full name, if they differ: extracted files have numbers as names.
    """

    root: Path
    names: frozenset[str]
    findings: Findings
    prefix: str = ""
    allowance: CheckpointAllowance = field(default_factory=CheckpointAllowance, compare=False)
    stored: Mapping[str, Path] = field(default_factory=dict, compare=False)

    def path(self, name: str) -> Path:
        return self.stored.get(self.prefix + name, self.root / name)

    def has(self, name: str) -> bool:
        return name in self.names

    def subfolder(self, folder: str) -> ModelFiles:
        """Return the files of a subfolder, or all files for an empty name."""
        if not folder:
            return self
        start = folder.rstrip("/") + "/"
        names = frozenset(name.removeprefix(start) for name in self.names if name.startswith(start))
        return replace(self, root=self.root / folder, names=names, prefix=self.prefix + start)

    def silent(self) -> ModelFiles:
        """Return a copy with empty findings, so that reading the files again does not report findings twice."""
        return replace(self, findings=Findings())

    def at(self, name: str = "") -> FileFindings:
        """Return the findings about a file, or about the folder."""
        return self.findings.at(self.prefix + name)

    def read_json(self, name: str, max_bytes: int = MAX_JSON_FILE) -> Any:
        """Return the value in a JSON file.

        Adds an error and raises Refused if the file is too large, is not valid JSON, contains only null, or exceeds the
        allowance.
        """
        try:
            data = read_file(self.path(name), max_bytes)
            self.allowance.take(len(data))
            value = parse_json(data)
        except (FileTooLarge, AllowanceSpent) as error:
            self.at(name).stop("file_too_large", str(error))
        except NotJson as error:
            self.at(name).stop("json_damaged", str(error))
        if value is None:
            self.at(name).stop("json_damaged", "it contains only null")
        return value

    def read_object(self, name: str, max_bytes: int = MAX_JSON_FILE) -> dict[str, Any]:
        """Return the object in a JSON file.

        Adds an error and raises Refused like `read_json`, and for any other value.
        """
        value = self.read_json(name, max_bytes)
        if not isinstance(value, dict):
            self.at(name).stop("json_damaged", "it is not an object { … }")
        return value

    def read_settings(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file, empty if the file is missing or refused."""
        return (attempt(lambda: self.read_object(name)) if self.has(name) else None) or {}


def check_file_name(name: str, findings: Findings) -> bool:
    """Return whether to read a file of this name.

    Adds an error for an unsafe name or an unsupported type of file, and a remark for some files that are omitted.
    """
    if is_clutter(name):
        return False
    path, file = PurePosixPath(name), findings.at(name)
    ending, base = path.suffix.casefold(), path.name.casefold()
    is_unsafe = any(not _NAME.fullmatch(part) or part in (".", "..") for part in path.parts)
    if str(path) != name:
        file.refuse("member_name", f"the plain form of this name is {quoted(path)}")
    elif is_unsafe or len(path.parts) > _MAX_DEPTH:
        file.refuse("member_name", "the name has unsupported characters or too many folders")
    elif _ADAPTER_FOLDERS.intersection(path.parts[:-1]):
        findings.at(path.parts[0]).remark("left_out", "an adapter next to complete weights is not used")
    elif base.startswith("adapter_"):
        file.remark("adapter", "it belongs to an adapter, which is not used")
    elif ending in _REFUSALS:
        code, message = _REFUSALS[ending]
        file.refuse(code, message.format(ending))
    elif ending in _READ_EXTENSIONS or path.name == CHAT_TEMPLATE:
        return True
    elif ending in (".jinja", ".model"):
        file.remark("left_out", "SentencePiece files and other templates are not used")
    elif ending not in _INERT_EXTENSIONS and _INERT_NAMES.isdisjoint((base, path.stem.casefold())):
        file.refuse("unknown_file", f"{quoted(ending or base)} files are not supported")
    return False


def list_model_files(root: Path, findings: Findings) -> ModelFiles:
    """Return the files below a folder that are read, without opening them.

    Links, devices, hard links, unsupported names, too many files, and too many bytes of weights are added to the
    findings as errors, and so is a folder without files of a model.
    """
    names: set[str] = set()
    names_by_folded: dict[str, str] = {}
    weights = 0
    for number, (name, facts) in enumerate(_iterate_entries(root, findings)):
        if number >= _MAX_FILES:
            message = f"the folder has more than {_MAX_FILES:,} files"
            findings.at("").refuse("too_many_files", message)
            break
        if not stat.S_ISREG(facts.st_mode):
            message = "it is a symbolic link" if stat.S_ISLNK(facts.st_mode) else "it is not a regular file"
            findings.at(name).refuse("file_kind", message)
        elif facts.st_nlink != 1:
            findings.at(name).refuse("file_kind", "it has a second name (hard link)")
        elif same_name := names_by_folded.get(name.casefold()):
            findings.at(name).refuse("member_name", f"it differs from {same_name} only by capital letters")
        elif check_file_name(name, findings):
            names.add(name)
            weights += facts.st_size if name.endswith(".safetensors") else 0
        names_by_folded[name.casefold()] = name
    if weights > MAX_WEIGHTS:
        limit = describe_bytes(MAX_WEIGHTS)
        message = f"all weights have {describe_bytes(weights)}, over the limit of {limit}"
        findings.at("").refuse("file_too_large", message)
    if not names and not findings.has_errors:
        findings.at("").refuse("empty_folder", "there are no files of a model")
    return ModelFiles(root, frozenset(names), findings)


def _iterate_entries(root: Path, findings: Findings) -> Iterable[tuple[str, os.stat_result]]:
    """Yield the name and the `lstat` result of every file below the root, and of links to folders, in a fixed order.

    Skips folders of version control and caches. Adds an error for folders that are too many or nested too deeply.
    """
    pending_folders = [""]
    while pending_folders:
        folder = pending_folders.pop()
        with os.scandir(root / folder) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
        for entry in sorted_entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            facts = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                yield name, facts
            elif entry.name in (".git", "__pycache__", ".cache", "__MACOSX"):
                continue
            elif name.count("/") >= _MAX_DEPTH or len(pending_folders) > _MAX_FILES:
                findings.at(name).refuse("too_many_files", "there are too many folders, or they are nested too deeply")
            else:
                pending_folders.append(name)


#: Maximum number of brackets and commas. Each may become an object in memory, up to 300 MB in all.
_MAX_VALUES = 3_000_000
_MAX_DIGITS = 18


class NotJson(ValueError):
    """Error for unacceptable JSON, with the reason in the message."""


class FileTooLarge(NotJson):
    pass


def read_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes` bytes. Raises FileTooLarge and OSError."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise FileTooLarge(f"it has {describe_bytes(size)}, over the limit of {describe_bytes(max_bytes)}")
        return file.read(max_bytes)


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text in UTF-8.

    Raises NotJson for invalid JSON, repeated keys, NaN, numbers that are too large, unpaired surrogates, deep nesting,
    or more than `_MAX_VALUES` brackets and commas.
    """
    if sum(data.count(mark) for mark in (b"[", b"{", b",")) > _MAX_VALUES:
        raise NotJson(f"it has more than {_MAX_VALUES:,} values")
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_build_object,
            parse_constant=_parse_finite,
            parse_int=_parse_integer,
            parse_float=_parse_finite,
        )
        if "\\u" in text:  # An escape may be a lone surrogate, which cannot be written again.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise NotJson("it is nested too deeply") from error
    except UnicodeEncodeError as error:
        raise NotJson("it has an unpaired surrogate") from error
    except ValueError as error:
        raise NotJson(str(error)[:200]) from error
    return value


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of an object's pairs. Raises NotJson for a repeated key."""
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotJson("it repeats a key")
    return result


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise NotJson("it has a number with too many digits")
    return int(digits)


def _parse_finite(digits: str) -> float:
    """Return a number with a fraction or an exponent.

    Raises NotJson for NaN, infinity, and numbers that are too large.
    """
    value = float(digits)
    if not math.isfinite(value):
        raise NotJson("it has a number that is too large" if digits[-1].isdigit() else f"it has {digits}")
    return value
