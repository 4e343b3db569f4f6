"""Vectors of texts and their cost, stored in a file to avoid encoding a text twice."""

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


class EncodedTexts(NamedTuple):
    """Result of one request: vectors of shape (texts, dimensions), tokens (None if not reported), and seconds."""

    vectors: Vectors
    tokens: int | None
    seconds: float


class Cost(NamedTuple):
    """Cost of the vectors in use; `tokens` is None if a request did not report them."""

    tokens: int | None
    seconds: float


class VectorStore:
    """Vector store of one model of one API. Methods raise sqlite3.Error if the file cannot be used."""

    def __init__(self, folder: Path, interface: str, model: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{_key(json.dumps([interface, model])).hex()[:16]}.sqlite"
        self._rows = sqlite3.connect(self.path)
        self._rows.executescript(_TABLES)
        self._used_requests: set[int] = set()

    def close(self) -> None:
        self._rows.close()

    @property
    def dimension(self) -> int | None:
        """Dimension of the stored vectors, or None if there are none."""
        row = self._rows.execute("SELECT length(numbers) FROM vector LIMIT 1").fetchone()
        return row and int(row[0]) // np.dtype(np.float32).itemsize

    def find_uncached(self, texts: Iterable[str]) -> list[str]:
        """Return the distinct texts without stored vectors, in order."""
        lookup = "SELECT 1 FROM vector WHERE text = ?"
        return [text for text in dict.fromkeys(texts) if self._rows.execute(lookup, (_key(text),)).fetchone() is None]

    def store(self, texts: Sequence[str], result: EncodedTexts) -> None:
        """Store the result of a request atomically."""
        with self._rows as rows:
            request = rows.execute(
                "INSERT INTO request (tokens, seconds) VALUES (?, ?)", (result.tokens, result.seconds)
            ).lastrowid
            rows_to_insert = [
                (_key(text), request, vector.astype("<f4").tobytes())
                for text, vector in zip(texts, result.vectors, strict=True)
            ]
            rows.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?)", rows_to_insert)

    def vectors(self, texts: Iterable[str]) -> Vectors:
        """Return the stored vectors of the texts, of shape (texts, dimensions), and include their requests in `cost`.

        Raises KeyError for a text without a stored vector.
        """
        numbers = []
        for text in texts:
            row = self._rows.execute("SELECT request, numbers FROM vector WHERE text = ?", (_key(text),)).fetchone()
            if row is None:
                raise KeyError(text)
            request, vector = row
            self._used_requests.add(request)
            numbers.append(np.frombuffer(vector, "<f4"))
        return np.stack(numbers).astype(np.float32)

    def cost(self) -> Cost:
        """Return the cost of the requests that returned the vectors in use."""
        rows = self._rows.execute("SELECT id, tokens, seconds FROM request")
        used_rows = [row[1:] for row in rows if row[0] in self._used_requests]
        tokens = None if any(count is None for count, _ in used_rows) else sum(count for count, _ in used_rows)
        return Cost(tokens, sum(seconds for _, seconds in used_rows))


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
