"""Runs from embeddings of an external API, which are cached and searched exactly by Runboard's engine."""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from runboard.endpoint import KEY_VARIABLE, Endpoint
from runboard.errors import missing_library
from runboard.vectors import Cost, Vectors, VectorStore

#: Number of documents whose vectors are in memory, and in one file of the index.
_SHARD = 10_000
_EXACT_SEARCH = {"search": "exact", "stored_dtype": "float32"}


def retrieve(arguments: argparse.Namespace) -> None:
    """Check corpus and queries, encode them with the API, search exactly, and write the run.

    Raises Refused and SiteUnavailable for errors of the API, and ValueError for wrong arguments, invalid files, or an
    unusable cache.
    """
    try:
        from runboard_eval.collections.check import check_corpus, check_queries
        from runboard_eval.core.problems import InvalidContent, at_lines
    except ImportError as error:
        raise missing_library(error) from error
    endpoint = Endpoint(arguments.endpoint, arguments.model, os.environ.get(KEY_VARIABLE, "").strip())
    try:
        texts = check_corpus(arguments.corpus).records + check_queries(arguments.queries).records
    except InvalidContent as error:
        messages = [
            f"{problem.message}{at_lines(problem.lines, problem.count)}. {problem.hint}"
            for problem in error.report.problems
        ]
        raise ValueError("\n".join(messages)) from error
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    cache = arguments.cache or arguments.out.with_name(f"{arguments.out.name}.vectors")
    try:
        with (
            closing(VectorStore(cache, endpoint.url, endpoint.model)) as store,
            tqdm(total=texts, desc="encoded", unit="text", disable=None) as bar,
        ):
            _make_run(arguments, endpoint, store, bar.update)
    except sqlite3.Error as error:
        raise ValueError(f"The vector cache {cache} cannot be used: {error}.") from error


def _make_run(
    arguments: argparse.Namespace, endpoint: Endpoint, store: VectorStore, advance: Callable[[int], Any]
) -> None:
    """Encode documents and queries, search with an exact index, and write the run with its metadata to `arguments.out`.

    `advance` is called with the number of texts encoded since the last call.
    """
    from runboard_eval.collections.beir import read_corpus, read_queries
    from runboard_eval.engines import Resources
    from runboard_eval.engines.base import SearchResult
    from runboard_eval.engines.index.vector_index import VectorIndex, build_index
    from runboard_eval.engines.run_writing import run_lines

    def encode(prefix: str, texts: Iterable[str]) -> Vectors:
        # Most APIs refuse an empty text.
        return _encode(endpoint, store, [prefix + text or " " for text in texts], arguments.batch, advance)

    threads = os.cpu_count() or 1
    documents = ((row.id, f"{row.title} {row.text}".strip()) for row in read_corpus(arguments.corpus))
    shards: list[Path] = []
    ids: list[str] = []
    # Next to the run, because vectors may need more space than the system's temporary folder has.
    with tempfile.TemporaryDirectory(prefix=".runboard-", dir=arguments.out.parent) as name:
        folder = Path(name)
        for group in _batched(documents, _SHARD):
            shards.append(folder / f"vectors-{len(shards):05d}.npy")
            np.save(shards[-1], encode(arguments.document_prefix, (text for _, text in group)))
            ids += [document for document, _ in group]
        document_cost, query_list = store.cost(), list(read_queries(arguments.queries))
        queries = encode(arguments.query_prefix, (query.text for query in query_list))
        build_index(shards, ids, folder, _EXACT_SEARCH, threads, folder)
        index, cost = VectorIndex(folder, _EXACT_SEARCH, Resources(threads=threads)), store.cost()
        run = folder / "run"
        with run.open("w", encoding="utf-8") as output:
            query_tokens = ((cost.tokens or 0) - (document_cost.tokens or 0)) / len(query_list)
            output.write(_header(arguments, endpoint, int(queries.shape[1]), cost, query_tokens))
            for query, (positions, scores) in zip(query_list, index.search(queries, arguments.depth), strict=True):
                ranking = SearchResult(query.id, index.identifiers(positions), scores)
                output.write(run_lines(ranking, re.sub(r"[/\s]+", "-", arguments.model)))
        run.replace(arguments.out)
    tokens = "an unknown number of" if cost.tokens is None else f"{cost.tokens:,}"
    print(
        f"{arguments.out}: {len(query_list):,} queries over {len(ids):,} documents, {tokens} tokens",
        file=sys.stderr,
    )
    if cost.tokens is None:
        print("The API does not report tokens, so the run states no cost.", file=sys.stderr)


def _encode(
    endpoint: Endpoint, store: VectorStore, texts: list[str], size: int, advance: Callable[[int], Any]
) -> Vectors:
    """Return the vectors of the texts, requesting and storing those that are not cached, `size` texts per request.

    Raises Refused if the dimension differs from that of stored vectors.
    """
    uncached = store.find_uncached(texts)
    advance(len(texts) - len(uncached))
    for group in _batched(uncached, size):
        encoded = endpoint.encode(group)
        dimension, stored_dimension = encoded.vectors.shape[1], store.dimension
        if stored_dimension not in (None, dimension):
            problem = f"answered vectors of {dimension} dimensions after {stored_dimension}"
            raise endpoint.refusal(f"{problem}; if its model has changed, delete {store.path}")
        store.store(group, encoded)
        advance(len(group))
    return store.vectors(texts)


def _batched(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """Yield batches, as itertools.batched does in Python 3.12."""
    iterator = iter(items)
    while group := tuple(islice(iterator, size)):
        yield group


def _header(arguments: argparse.Namespace, endpoint: Endpoint, dimension: int, cost: Cost, query_tokens: float) -> str:
    """Return the run's ir_metadata as comment lines: the method, and the seconds, tokens, and costs if known.

    `query_tokens` is the mean number of tokens of a query.
    """
    lines = [
        "ir_metadata.start", "method:", "  retrieval:", "    - name: dense",
        f"      model: {json.dumps(arguments.model)}",
        f"      endpoint: {json.dumps(endpoint.url)}", "      closed_interface: true", f"      dimension: {dimension}",
        "      search: exact", f"      query_prefix: {json.dumps(arguments.query_prefix)}",
        f"      document_prefix: {json.dumps(arguments.document_prefix)}", "resources:", "  self_reported: true",
        f"  seconds_waited: {cost.seconds:.1f}",
    ]  # fmt: skip
    if cost.tokens is not None:
        lines.append(f"  tokens: {cost.tokens}")
        if arguments.price is not None:
            lines.append(f"  cost_usd: {cost.tokens * arguments.price / 1e6:.6f}")
            lines.append(f"  cost_usd_per_1000_queries: {query_tokens * arguments.price / 1e3:.9f}")
    return "".join(f"# {line}\n" for line in [*lines, "ir_metadata.end"])
