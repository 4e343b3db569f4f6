"""Checkpoints that must be refused, by name: valid ones with one change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.evaluation.small_checkpoint import files, safetensors, zipped

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class HostileCheckpoint:
    """Builder of a checkpoint, the code of its refusal, and the kind that its submitter states.

    `deep`: its files are typed values within bounds, and only the library can say what is wrong.
    """

    make: Callable[[Path], Path]
    code: str
    kind: str = "sentence-encoder"
    deep: bool = False


HOSTILE: dict[str, HostileCheckpoint] = {}


def zip_of(edit: Callable[[Files], None], base: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        content = files(base)  # type: ignore[arg-type]
        edit(content)
        return zipped(content, folder / "checkpoint.zip")

    return make


def add_checkpoint(
    name: str,
    code: str,
    edit: Callable[[Files], None],
    kind: str = "sentence-encoder",
    base: str = "base",
    deep: bool = False,
) -> None:
    HOSTILE[name] = HostileCheckpoint(zip_of(edit, base), code, kind, deep)


def add_with_json(name: str, code: str, file: str, change: Mapping[str, Any], *, deep: bool = False) -> None:
    """A good checkpoint with keys of a JSON file changed."""

    def edit(content: Files) -> None:
        content[file] = json.dumps({**json.loads(content.get(file, b"{}")), **change}).encode()

    add_checkpoint(name, code, edit, deep=deep)


def add_with_file(name: str, code: str, file: str, data: bytes | None, *, deep: bool = False) -> None:
    """A good checkpoint with other bytes in a file, or without it."""

    def edit(content: Files) -> None:
        content.pop(file)
        if data is not None:
            content[file] = data

    add_checkpoint(name, code, edit, deep=deep)


def split_on(expression: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Removed", "invert": False}


def replace_what(expression: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": expression}, "content": ""}


def module_edit(place: int, key: str, value: object) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        modules = json.loads(content["modules.json"])
        modules[place][key] = value
        content["modules.json"] = json.dumps(modules).encode()

    return edit


def dense_edit(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        modules = json.loads(content["modules.json"])
        modules.append({"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"})
        content["modules.json"] = json.dumps(modules).encode()
        content["3_Dense/config.json"] = json.dumps(config).encode()
        content["3_Dense/model.safetensors"] = safetensors(tensors)

    return edit
