"""What a Dockerfile says, step by step, as far as ours use it."""

from __future__ import annotations

import fnmatch
import json
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction, in capitals, and the rest of its line."""

    instruction: str
    text: str


@dataclass(slots=True)
class Stage:
    """What one FROM begins: the image or stage it stands on, and its steps."""

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)


def read_stages(path: Path) -> dict[str, Stage]:
    """The stages of a Dockerfile by name, in its order. Raises ValueError where one has none."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for line in _logical_lines(path.read_text()):
        instruction, _, text = line.partition(" ")
        if instruction == "FROM":
            base, keyword, name = [*text.split(), "", ""][:3]
            if keyword != "AS":
                raise ValueError(f"FROM {text}: every stage here has a name")
            stage = stages[name] = Stage(name, base)
        elif stage is not None:
            stage.steps.append(Step(instruction, text.strip()))
    return stages


def steps_of(stages: dict[str, Stage], target: str) -> tuple[str, list[Step]]:
    """The outside image that a target stands on, and all steps from there to it."""
    steps: list[Step] = []
    base = target
    while base in stages:
        steps = [*stages[base].steps, *steps]
        base = stages[base].base
    return base, steps


def copied(step: Step) -> tuple[str, Sequence[str], str]:
    """Of a COPY: the stage it copies from ("" for the context), the sources, the destination."""
    words = shlex.split(step.text)
    stage = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else ""
    return stage, words[:-1], words[-1]


def words_of(text: str) -> list[str]:
    """A command in its form of a list."""
    return [str(word) for word in json.loads(text)]


def healthcheck(steps: Sequence[Step]) -> list[str]:
    """The command of the last HEALTHCHECK."""
    text = [step.text for step in steps if step.instruction == "HEALTHCHECK"][-1]
    return words_of(text.partition("CMD ")[2])


class Context:
    """The files that the builder gets: a folder less what its .dockerignore names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (folder / ".dockerignore").read_text().splitlines()
        self.ignored = [line.strip() for line in lines if line.strip() and not line.startswith("#")]

    def leaves_out(self, name: str) -> bool:
        """Whether the file or folder of this name (relative to the context) stays behind."""
        parts = PurePosixPath(name).parts
        heads = ["/".join(parts[: count + 1]) for count in range(len(parts))]
        return any(_matches(head, pattern) for head in heads for pattern in self.ignored)

    def copy(self, source: str, target: Path) -> None:
        """Copy as COPY does: a folder's content, or a file. Raises FileNotFoundError for what is not in the context."""
        origin = self.folder / source
        if not origin.exists() or self.leaves_out(source):
            raise FileNotFoundError(f"COPY {source}: not in the context")
        if origin.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, target)
            return
        for file in origin.rglob("*"):
            name = file.relative_to(self.folder).as_posix()
            if file.is_file() and not self.leaves_out(name):
                self.copy(name, target / file.relative_to(origin))


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatch(PurePosixPath(name).name, pattern[3:])
    return fnmatch.fnmatch(name, pattern)


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts.append(line.rstrip().removesuffix("\\").strip())
        if not line.rstrip().endswith("\\"):
            yield " ".join(parts)
            parts = []
