"""Which files are opened: what reads hidden judgements is found whatever it makes of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from leaderboard.core.storage.store import Area
from leaderboard.datasets import qrels

#: Folders that are watched, each with what was opened there. A hook cannot be taken away again.
_watched: dict[str, list[Path]] = {}


def _notice(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _watched or not isinstance(arguments[0], (str, bytes, os.PathLike)):
        return
    path = os.fsdecode(arguments[0])
    for folder, opened in _watched.items():
        if path.startswith(folder):
            opened.append(Path(path))


sys.addaudithook(_notice)


@contextmanager
def opened_below(folder: Path) -> Iterator[list[Path]]:
    """The files below the folder that Python opens inside."""
    opened = _watched.setdefault(f"{folder}{os.sep}", [])
    try:
        yield opened
    finally:
        del _watched[f"{folder}{os.sep}"]


def private_judgements() -> Path:
    """Where hidden judgements lie."""
    return Path(settings.VAR) / Area.QRELS.value


def clear_kept_judgements() -> None:
    """Forget the judgements that this process keeps, so that whoever wants them opens them."""
    for kept in (qrels._judgements, qrels._target, qrels._parts, qrels._answers):
        kept.cache_clear()
