"""SQLite cache of vectors or scores and their cost, so that no text is paid for twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
    """Result of one request.

    Attributes:
        vectors: Vectors of shape (texts, dimensions), or scores of shape (texts, 1).
        tokens: Number of tokens, or None if the API does not report them.
        seconds: Response time in seconds.
    """

    vectors: Vectors
    tokens: int | None
    seconds: float


class Group(NamedTuple):
    """Texts that share the same additional request fields."""

    texts: Sequence[str]
    fields: Mapping[str, Any] = {}


class Cost(NamedTuple):
    """Cost of vectors or scores; `tokens` is None if a request did not report them."""

    tokens: int | None
    seconds: float


class VectorStore:
    """Vectors or scores of one model of one API. Methods raise sqlite3.Error if the file cannot be used.

    `configuration` identifies the API, the model, and the number of dimensions if one was requested.
    """

    def __init__(self, folder: Path, configuration: Sequence[str | int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{_key(json.dumps(configuration)).hex()[:16]}.sqlite"
        self._rows = sqlite3.connect(self.path)
        self._rows.executescript(_TABLES)

    def close(self) -> None:
        self._rows.close()

    @property
    def dimension(self) -> int | None:
        """Dimension of the stored vectors, or None if there are none."""
        row = self._rows.execute("SELECT length(numbers) FROM vector LIMIT 1").fetchone()
        return row and int(row[0]) // np.dtype(np.float32).itemsize

    def find_uncached(self, group: Group) -> list[str]:
        """Return the distinct texts without stored vectors, in order."""
        lookup = "SELECT 1 FROM vector WHERE text = ?"
        texts = dict.fromkeys(group.texts)
        keys = zip(texts, _text_keys(group._replace(texts=list(texts))), strict=True)
        return [text for text, key in keys if self._rows.execute(lookup, (key,)).fetchone() is None]

    def store(self, group: Group, result: EncodedTexts) -> None:
        """Store the result of a request atomically."""
        with self._rows as rows:
            request = rows.execute(
                "INSERT INTO request (tokens, seconds) VALUES (?, ?)", (result.tokens, result.seconds)
            ).lastrowid
            rows_to_insert = [
                (key, request, vector.astype("<f4").tobytes())
                for key, vector in zip(_text_keys(group), result.vectors, strict=True)
            ]
            rows.executemany("INSERT OR IGNORE INTO vector VALUES (?, ?, ?)", rows_to_insert)

    def vectors(self, group: Group, uses: Counter[int]) -> Vectors:
        """Return the stored vectors of the texts, of shape (texts, dimensions), and count the uses of each request.

        Raises KeyError for a text without a stored vector.
        """
        numbers = []
        for text, key in zip(group.texts, _text_keys(group), strict=True):
            row = self._rows.execute("SELECT request, numbers FROM vector WHERE text = ?", (key,)).fetchone()
            if row is None:
                raise KeyError(text)
            request, vector = row
            uses[request] += 1
            numbers.append(np.frombuffer(vector, "<f4"))
        return np.stack(numbers).astype(np.float32)

    def cost(self, uses: Counter[int]) -> Cost:
        """Return the cost of the used vectors. Each request contributes in proportion to its used vectors."""
        rows = self._rows.execute(
            "SELECT id, tokens, seconds, count(*) FROM request JOIN vector ON request = id GROUP BY id"
        )
        tokens, seconds, has_tokens = 0.0, 0.0, True
        for request, request_tokens, request_seconds, texts in rows:
            if share := min(uses[request] / texts, 1.0):
                has_tokens = has_tokens and request_tokens is not None
                tokens += share * (request_tokens or 0)
                seconds += share * request_seconds
        return Cost(round(tokens) if has_tokens else None, seconds)


def _text_keys(group: Group) -> list[bytes]:
    """Return the cache keys of the texts, which depend on their request fields."""
    if not group.fields:
        return [_key(text) for text in group.texts]
    prefix = json.dumps(group.fields, sort_keys=True)
    return [_key(f"{prefix}\n{text}") for text in group.texts]


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
