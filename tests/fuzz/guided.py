"""One target under coverage-guided fuzzing: `PYTHONPATH=. python tests/fuzz/guided.py TARGET CORPUS [libFuzzer's own]`.

Branches of the parsers' Python, and of zipfile, guide what is tried. The kernel's C is run as it is everywhere; for its
memory there is `make sanitize`.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import tempfile
from pathlib import Path

import atheris

#: What is imported late elsewhere has to be imported here to be seen.
_LATE = ("evaluation.runs.trec_run", "evaluation.runs.json_runs", "evaluation.kernel.library")

with atheris.instrument_imports(include=["evaluation", "zipfile"]):
    for name in _LATE:
        importlib.import_module(name)
    from tests.fuzz.targets import judge

from tests.fuzz.spoilt_checkpoints import changed_value  # noqa: E402


def main() -> None:
    """Fuzz until libFuzzer's limits are reached, or something is found."""
    target = sys.argv.pop(1)
    memory = Path("/dev/shm")  # files in memory are ten times quicker, and wear out nothing
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None, prefix="fuzz-") as folder:
        mutator = {"custom_mutator": _mutated} if target == "checkpoints" else {}
        atheris.Setup(sys.argv, lambda data: _once(target, data, Path(folder)), **mutator)
        atheris.Fuzz()


def _once(target: str, data: bytes, folder: Path) -> None:
    judge(target, data, folder)


def _mutated(data: bytes, most: int, seed: int) -> bytes:
    """Another value in JSON behind the first byte, every other time; else what libFuzzer does to any bytes."""
    generator = random.Random(seed)
    if generator.random() < 0.5:
        try:
            value = changed_value(json.loads(data[1:]), generator)
            return (data[:1] + json.dumps(value).encode())[:most]
        except (ValueError, RecursionError):
            pass
    return bytes(atheris.Mutate(data, most))


if __name__ == "__main__":
    main()
