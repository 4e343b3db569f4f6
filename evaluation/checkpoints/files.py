"""Which files of a folder are looked at, which are left out, and which make it refused."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from evaluation.archives.compression import describe_bytes
from evaluation.archives.zip import is_clutter
from evaluation.checkpoints.allowance import CheckpointAllowance
from evaluation.checkpoints.findings import Findings, quoted
from evaluation.checkpoints.limits import MOST_WEIGHTS

_MOST_FILES = 1000
_MOST_DEPTH = 4
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+=() -]{0,120}", re.ASCII)

_PICKLES_TEXT = """
.bin .pt .pth .pkl .pickle .ckpt .joblib .npy .npz .model_state .mdl .t7 .dill
"""
_PICKLES = frozenset(_PICKLES_TEXT.split())
_DANGEROUS_TEXT = """
.py .pyc .pyd .so .dll .dylib .exe .sh .bat .js .jar .class .whl .ipynb .onnx .onnx_data .gguf .ggml
.msgpack .h5 .hdf5 .keras .pb .tflite .mlmodel .mlpackage .engine .plan .llamafile .pdparams .params .ot
.rst_state
"""
_DANGEROUS = frozenset(_DANGEROUS_TEXT.split())
_ARCHIVES_TEXT = """
.zip .tar .gz .tgz .zst .xz .bz2 .7z .rar .lzma .nemo .egg
"""
_ARCHIVES = frozenset(_ARCHIVES_TEXT.split())
_TAKEN = (".json", ".safetensors", ".metadata")
#: A chat template is read to be recognised, and never run.
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
    """A folder's usable files: names relative to `root`, with / between folders; messages begin with `prefix`.

    Its sub-folders share the `allowance`, which readers take from. `stored` says by whole name where a file lies, if
    not under its name: an archive's files lie under numbers, for their names are a stranger's.
    """

    root: Path
    names: frozenset[str]
    prefix: str = ""
    allowance: CheckpointAllowance = field(default_factory=CheckpointAllowance, compare=False)
    stored: Mapping[str, Path] = field(default_factory=dict, compare=False)

    def has(self, name: str) -> bool:
        """Whether there is such a file."""
        return name in self.names

    def path(self, name: str) -> Path:
        """Where a file of the folder lies."""
        return self.stored.get(self.prefix + name, self.root / name)

    def name_at(self, path: Path) -> str:
        """The name of the file that lies there."""
        return next((name for name in self.names if self.path(name) == path), path.name)

    def within(self, folder: str) -> ModelFiles:
        """The files of a sub-folder, or all of them for the empty name."""
        if not folder:
            return self
        start = folder.rstrip("/") + "/"
        names = frozenset(name.removeprefix(start) for name in self.names if name.startswith(start))
        return ModelFiles(self.root / folder, names, self.prefix + start, self.allowance, self.stored)

    def shown(self, name: str) -> str:
        """A file's name for messages, from the top of what was sent."""
        return self.prefix + name


def check_file_name(name: str, findings: Findings) -> bool:
    """Whether a file of this name is looked at; what is dangerous is refused, what is inert remarked on."""
    if is_clutter(name):
        return False
    path = PurePosixPath(name)
    ending, base = path.suffix.casefold(), path.name.casefold()
    if str(path) != name:
        findings.refuse("member_name", name, f"the plain form of this name is {quoted(path)}")
    elif (
        any(not _NAME.fullmatch(part) or part in (".", "..") for part in path.parts)
        or len(path.parts) > _MOST_DEPTH
    ):
        findings.refuse("member_name", name, "the name has other characters, or many folders")
    elif _ADAPTER_FOLDERS.intersection(path.parts[:-1]):
        findings.remark("left_out", path.parts[0], "an adapter beside whole weights is not used")
    elif base.startswith("adapter_"):
        findings.remark("adapter", name, "it belongs to an adapter, which is not used")
    elif ending in _PICKLES:
        findings.refuse("pickle_weights", name, f"{ending} files are pickles, which can run code")
    elif ending in _DANGEROUS:
        findings.refuse("dangerous_file", name, f"{ending} files are not taken")
    elif ending in _ARCHIVES:
        findings.refuse("nested_archive", name, "it is an archive itself")
    elif ending in _TAKEN or path.name == CHAT_TEMPLATE:
        return True
    elif ending in _INERT or base in _INERT_NAMES or path.stem.casefold() in _INERT_NAMES:
        if ending in (".jinja", ".model"):
            findings.remark("left_out", name, "SentencePiece files and other templates are not used")
    else:
        findings.refuse(
            "unknown_file", name, f"files that end in {quoted(ending or base)} are not known here"
        )
    return False


def walk(root: Path, findings: Findings) -> ModelFiles:
    """The folder's files, by `lstat`: links, devices and files with a second name are refused."""
    names: set[str] = set()
    folded: dict[str, str] = {}
    weights = 0
    for number, (name, facts) in enumerate(_entries(root, findings)):
        if number >= _MOST_FILES:
            findings.refuse("too_many_files", "", f"the folder holds more than {_MOST_FILES:,} files")
            break
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
            findings.refuse("file_kind", name, _kind_of(facts))
        elif other := folded.get(name.casefold()):
            findings.refuse("member_name", name, f"it differs from {other} only by capital letters")
        elif check_file_name(name, findings):
            names.add(name)
            weights += facts.st_size if name.endswith(".safetensors") else 0
        folded[name.casefold()] = name
    if weights > MOST_WEIGHTS:
        what = f"all weights have {describe_bytes(weights)}, over the limit of {describe_bytes(MOST_WEIGHTS)}"
        findings.refuse("file_too_large", "", what)
    if not names and not findings.refused:
        findings.refuse("empty_folder", "", "there is no file of a model")
    return ModelFiles(root, frozenset(names))


def _kind_of(facts: os.stat_result) -> str:
    if stat.S_ISLNK(facts.st_mode):
        return "it is a symbolic link"
    return "it has a second name (hard link)" if stat.S_ISREG(facts.st_mode) else "it is no regular file"


def _entries(root: Path, findings: Findings) -> Iterable[tuple[str, os.stat_result]]:
    """Every file below the root, and every folder that is a link, in a fixed order."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            name = f"{folder}/{entry.name}" if folder else entry.name
            facts = entry.stat(follow_symlinks=False)
            if not stat.S_ISDIR(facts.st_mode):
                yield name, facts
            elif entry.name in (".git", "__pycache__", ".cache", "__MACOSX"):
                continue
            elif name.count("/") >= _MOST_DEPTH or len(pending) > _MOST_FILES:
                findings.refuse("too_many_files", name, "the folders are nested too deep, or too many")
            else:
                pending.append(name)
