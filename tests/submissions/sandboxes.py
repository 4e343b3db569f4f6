"""Programs of a stranger, run in the place of the child: the validator is out of the way, the sandbox is not."""

from __future__ import annotations

import atexit
import json
import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evaluation.execution.job import ExecutionJob
from submissions.sandbox import SandboxLimits, running
from submissions.sandbox.backends import Backend
from submissions.sandbox.processes import remove
from submissions.sandbox.running import SandboxOutcome

#: Functions of every hostile program: `tell` writes its results to the folder `out`.
TOOLS = """
import json, os, sys
def tell(**found):
    with open(out + "/found.json", "w") as file:
        json.dump(found, file)
def attempt(action):
    try:
        return {"did": str(action())[:200]}
    except BaseException as error:
        return {"refused": type(error).__name__}
"""
#: Start of every payload. `out` is its folder.
_PRELUDE = f"""{TOOLS}
job = json.load(open(sys.argv[2]))
out = job["out"]
"""

SMALL = SandboxLimits(
    memory_bytes=256 << 20,
    wall_clock_seconds=60,
    output_bytes=20 << 20,
    processes=48,
    files=500,
    scratch_bytes=8 << 20,
    reserve_bytes=0,
)


def make_deep(folder: Path, depth: int = 1500) -> Path:
    """A tree in the folder that is deeper than Python's own functions go, and than a path can be long."""
    atexit.register(remove, folder / "abyss")  # left behind by a test that fails, it would stop pytest's own cleaning
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("abyss", dir_fd=descriptor)
        below = os.open("abyss", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    return folder / "abyss"


@dataclass
class Stranger:
    """A team whose "model" is a program. `run` does it in a sandbox; `found` is what it told."""

    backend: Backend
    folder: Path
    patch: pytest.MonkeyPatch
    found: dict[str, Any] = field(default_factory=dict)
    count: int = 0

    def job(self, **changes: Any) -> ExecutionJob:
        """A job over a tiny collection, with a folder as its model."""
        model = self.folder / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text("{}")
        corpus, queries = self.folder / "corpus", self.folder / "queries"
        corpus.write_text("".join(json.dumps({"_id": f"d{n}", "text": f"text {n}"}) + "\n" for n in range(20)))
        queries.write_text(json.dumps({"_id": "q1", "text": "text 7"}) + "\n")
        self.count += 1
        made = {"task": "retrieve", "engine": "bm25", "checkpoint": model, "measure": False}
        return ExecutionJob(
            **{
                **made,
                "out": self.folder / f"out-{self.count}",
                "corpus": corpus,
                "queries": queries,
                **changes,
            }
        )

    def run(
        self,
        payload: str,
        limits: SandboxLimits = SMALL,
        on_progress: Callable[[str, float, str], None] = lambda stage, share, note: None,
        **changes: Any,
    ) -> SandboxOutcome:
        """Run the payload."""
        job = self.job(**changes)
        with self.patch.context() as patch:
            patch.setattr(running, "_BOOTSTRAP", _PRELUDE + textwrap.dedent(payload))
            outcome = running.run_job(self.backend, job, limits, on_progress)
        told = job.out / "found.json"
        self.found = json.loads(told.read_text()) if told.exists() else {}
        return outcome
