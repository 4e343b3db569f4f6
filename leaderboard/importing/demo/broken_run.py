"""A run with mistakes, to download, to look at, and to upload: every error is told with its lines."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

#: Lines that the run has.
LINES = 40

#: What is wrong: line → (code of the problem, what becomes of the fields, given those of the line before).
_MISTAKES: dict[int, tuple[str, Callable[[list[str], list[str]], str]]] = {
    3: ("fields", lambda fields, before: " ".join(fields[:5])),
    7: ("score", lambda fields, before: " ".join([*fields[:4], "nan", fields[5]])),
    8: ("score", lambda fields, before: " ".join([*fields[:4], fields[4].replace(".", ","), fields[5]])),
    12: ("duplicate", lambda fields, before: " ".join([*fields[:2], before[2], *fields[3:]])),
    16: ("encoding", lambda fields, before: " ".join([*fields[:5], "caf\u00e9"])),
    20: ("fields", lambda fields, before: f"{fields[0]},{fields[2]},{fields[4]}"),
}


def write_broken_run(run: Path, target: Path) -> dict[str, tuple[int, ...]]:
    """Write the first lines of a good run to `target`, with mistakes in some, and say which: code of the validation
    report → 1-based lines."""
    with run.open(encoding="utf-8") as file:
        good = [[*line.split()[:5], "broken"] for line in islice(file, LINES)]
    lines = [" ".join(fields) for fields in good]
    mistakes: dict[str, tuple[int, ...]] = {}
    for number, (code, spoil) in _MISTAKES.items():
        if number > len(lines):
            break
        lines[number - 1] = spoil(good[number - 1], good[number - 2])
        mistakes[code] = (*mistakes.get(code, ()), number)
    target.write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
    return mistakes
