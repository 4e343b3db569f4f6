"""A run by vectors of somebody's interface: encoded there, kept here, searched exactly by Runboard's engine."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import requests
from numpy.typing import NDArray
from tqdm import tqdm

from runboard.errors import Refused, SiteUnavailable, seconds_to_wait

#: The key of the interface is taken from the environment, since everybody on a machine can read a command's words.
KEY = "OPENAI_API_KEY"
_WAITS = (1, 2, 4, 8, 16, 30, 60)
_TIMEOUT = (10.0, 300.0)
#: Documents whose vectors are one file.
_SHARD = 10_000
_EXACT = {"search": "exact", "stored_dtype": "float32"}

Vectors = NDArray[np.float32]


class Endpoint:
    """An interface like OpenAI's `/v1/embeddings`, and what it was asked for."""

    def __init__(self, address: str, model: str, key: str) -> None:
        self.url = f"{address.rstrip('/').removesuffix('/v1/embeddings').removesuffix('/v1')}/v1/embeddings"
        self.model, self.tokens, self.seconds = model, 0, 0.0
        self._session = requests.Session()
        if key:
            self._session.headers["Authorization"] = f"Bearer {key}"
        self._dimension: int | None = None

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Vectors of the texts, of length 1: texts × dimension. Raises Refused and SiteUnavailable."""
        answer = self._ask({"model": self.model, "input": list(texts), "encoding_format": "float"})
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in rows], np.float32)
            self.tokens += int((answer.get("usage") or {}).get("total_tokens", 0))
        except (KeyError, TypeError, ValueError) as error:
            raise self._refusal("answered without vectors of one length for the texts") from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise self._refusal(f"answered {len(rows)} vectors for {len(texts)} texts")
        if self._dimension not in (None, vectors.shape[1]):
            raise self._refusal(f"answered vectors of {vectors.shape[1]} dimensions after {self._dimension}")
        if not np.isfinite(vectors).all():
            raise self._refusal("answered vectors that are no numbers (NaN or infinite)")
        self._dimension = vectors.shape[1]
        found: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return found

    def _ask(self, body: dict[str, Any]) -> Any:
        said = ""
        for pause in (*_WAITS, 0):
            wait: float = pause
            started = time.monotonic()
            try:
                answer = self._session.post(self.url, json=body, timeout=_TIMEOUT)
            except requests.RequestException as error:
                said = type(error).__name__
            else:
                self.seconds += time.monotonic() - started
                if answer.ok:
                    try:
                        return answer.json()
                    except ValueError as error:
                        raise self._refusal(
                            "answered no JSON: is this the address before /v1/embeddings?"
                        ) from error
                said = f"{answer.status_code} {answer.text[:200]}"
                if answer.status_code not in (408, 429) and answer.status_code < 500:
                    raise self._refusal(f"answered {said}")
                wait = wait and max(wait, min(seconds_to_wait(answer, 0.0), 120.0))
            if wait:
                time.sleep(wait)
        raise SiteUnavailable(
            f"{self.url} cannot be used: {said}, {len(_WAITS) + 1} times. What was encoded is kept."
        )

    def _refusal(self, what: str) -> Refused:
        return Refused(0, "endpoint", f"{self.url} {what}.", [])


def retrieve(arguments: argparse.Namespace) -> None:
    """Encode, search and write the run. Raises Refused, SiteUnavailable, and ValueError without runboard-eval."""
    try:
        from runboard_eval.collections.beir import read_corpus, read_queries
        from runboard_eval.engines import Resources
        from runboard_eval.engines.base import SearchResult
        from runboard_eval.engines.index.vector_index import VectorIndex, build_index
        from runboard_eval.engines.run_writing import run_lines
    except ImportError as error:
        raise ValueError(
            f"This command needs another package: pip install runboard[retrieve] ({error})."
        ) from error
    endpoint = Endpoint(arguments.endpoint, arguments.model, os.environ.get(KEY, ""))
    cache = arguments.cache or arguments.out.with_name(f"{arguments.out.name}.vectors")
    threads = os.cpu_count() or 1
    documents = ((each.id, f"{each.title} {each.text}".strip()) for each in read_corpus(arguments.corpus))
    shards, ids = [], []
    for number, group in enumerate(_batched(documents, _SHARD)):
        texts = [arguments.document_prefix + text for _, text in group]
        shards.append(_kept(endpoint, cache, f"{number:05d}", texts, arguments.batch, "documents"))
        ids += [name for name, _ in group]
    asked = list(read_queries(arguments.queries))
    texts = [arguments.query_prefix + query.text for query in asked]
    queries = np.load(_kept(endpoint, cache, "queries", texts, arguments.batch, "queries"))
    with tempfile.TemporaryDirectory(prefix="runboard-") as folder:
        place = Path(folder)
        build_index(shards, ids, place, _EXACT, threads, place)
        index = VectorIndex(place, _EXACT, Resources(threads=threads))
        partial = arguments.out.with_name(f".{arguments.out.name}.partial")
        with partial.open("w", encoding="utf-8") as out:
            out.write(_header(arguments, endpoint, int(queries.shape[1])))
            for query, (found, scores) in zip(asked, index.search(queries, arguments.depth), strict=True):
                ranking = SearchResult(query.id, index.identifiers(found), scores)
                out.write(run_lines(ranking, arguments.model.replace("/", "-").replace(" ", "-")))
        partial.replace(arguments.out)
    print(
        f"{arguments.out}: {len(asked):,} queries over {len(ids):,} documents, {endpoint.tokens:,} tokens",
        file=sys.stderr,
    )


def _kept(endpoint: Endpoint, cache: Path, name: str, texts: list[str], size: int, unit: str) -> Path:
    """The file of the texts' vectors; encoded where these very texts were not, by this model."""
    cache.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(json.dumps([endpoint.url, endpoint.model, texts]).encode()).hexdigest()[:16]
    path = cache / f"{name}-{digest}.npy"
    if not path.exists():
        groups = tqdm(_groups(texts, size), total=-(-len(texts) // size), desc=unit, unit="request")
        parts = [endpoint.encode(group) for group in groups]
        with tempfile.NamedTemporaryFile(dir=cache, suffix=".partial", delete=False) as file:
            np.save(file, np.concatenate(parts))
        Path(file.name).replace(path)
    return path


def _batched(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """As itertools.batched, which Python 3.11 lacks."""
    waiting = iter(items)
    while group := tuple(islice(waiting, size)):
        yield group


def _groups(texts: Iterable[str], size: int) -> Iterator[tuple[str, ...]]:
    # Most interfaces refuse an empty text.
    yield from _batched((text or " " for text in texts), max(1, size))


def _header(arguments: argparse.Namespace, endpoint: Endpoint, dimension: int) -> str:
    """What the run says of itself, as ir_metadata."""
    lines = [
        "ir_metadata.start", "method:", "  retrieval:", "    - name: dense",
        f"      model: {json.dumps(arguments.model)}",
        f"      endpoint: {json.dumps(endpoint.url)}", "      closed_interface: true", f"      dimension: {dimension}",
        "      search: exact", f"      query_prefix: {json.dumps(arguments.query_prefix)}",
        f"      document_prefix: {json.dumps(arguments.document_prefix)}", "resources:", "  self_reported: true",
        f"  tokens: {endpoint.tokens}", f"  seconds_waited: {endpoint.seconds:.1f}",
    ]  # fmt: skip
    if arguments.price is not None:
        lines.append(f"  cost_usd: {endpoint.tokens * arguments.price / 1e6:.6f}")
    return "".join(f"# {line}\n" for line in [*lines, "ir_metadata.end"])
