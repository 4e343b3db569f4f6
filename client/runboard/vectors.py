"""Vectors of texts, kept in a file as they come, with what they cost: nothing is asked for twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

_TABLES = """
CREATE TABLE IF NOT EXISTS request (id INTEGER PRIMARY KEY, tokens INTEGER, seconds REAL NOT NULL);
CREATE TABLE IF NOT EXISTS vector (
    text BLOB PRIMARY KEY, request INTEGER NOT NULL REFERENCES request (id), numbers BLOB NOT NULL
);
"""


class Encoded(NamedTuple):
    """What one request brought: vectors (texts × dimensions), and what it took; `tokens` is None where not said."""

    vectors: Vectors
    tokens: int | None
    seconds: float


class Cost(NamedTuple):
    """What the vectors in use took, whenever they were asked for; `tokens` is None where a request did not say."""

    tokens: int | None
    seconds: float


class KeptVectors:
    """The file of one model of one interface. Methods raise sqlite3.Error where it cannot be used."""

    def __init__(self, folder: Path, interface: str, model: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{_key(json.dumps([interface, model])).hex()[:16]}.sqlite"
        self._rows = sqlite3.connect(self.path)
        self._rows.executescript(_TABLES)
        self._used: set[int] = set()

    def close(self) -> None:
        """Close the file."""
        self._rows.close()

    @property
    def dimension(self) -> int | None:
        """Of the vectors that are there."""
        row = self._rows.execute("SELECT length(numbers) FROM vector LIMIT 1").fetchone()
        return row and int(row[0]) // np.dtype(np.float32).itemsize

    def missing(self, texts: Iterable[str]) -> list[str]:
        """Those whose vectors are not there, each once, in their order."""
        known = "SELECT 1 FROM vector WHERE text = ?"
        return [
            text
            for text in dict.fromkeys(texts)
            if self._rows.execute(known, (_key(text),)).fetchone() is None
        ]

    def keep(self, texts: Sequence[str], found: Encoded) -> None:
        """Write what a request brought: all of it, or nothing where the process is killed meanwhile."""
        with self._rows as rows:
            request = rows.execute(
                "INSERT INTO request (tokens, seconds) VALUES (?, ?)", (found.tokens, found.seconds)
            ).lastrowid
            kept = [
                (_key(text), request, vector.astype("<f4").tobytes())
                for text, vector in zip(texts, found.vectors, strict=True)
            ]
            rows.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?)", kept)

    def vectors(self, texts: Iterable[str]) -> Vectors:
        """Vectors of texts that are there, from now on counted in `cost`."""
        numbers = []
        for text in texts:
            row = self._rows.execute(
                "SELECT request, numbers FROM vector WHERE text = ?", (_key(text),)
            ).fetchone()
            if row is None:
                raise KeyError(text)
            request, vector = row
            self._used.add(request)
            numbers.append(np.frombuffer(vector, "<f4"))
        return np.stack(numbers).astype(np.float32)

    def cost(self) -> Cost:
        """What the requests took that brought the vectors in use."""
        rows = self._rows.execute("SELECT id, tokens, seconds FROM request")
        used = [row[1:] for row in rows if row[0] in self._used]
        tokens = None if any(said is None for said, _ in used) else sum(said for said, _ in used)
        return Cost(tokens, sum(seconds for _, seconds in used))


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
