"""A run by vectors of somebody's interface: encoded there, kept here, searched exactly by Runboard's engine."""

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

from runboard.endpoint import KEY, Endpoint
from runboard.errors import library_missing
from runboard.vectors import Cost, KeptVectors, Vectors

#: Documents whose vectors are held in memory, and are one file of the index.
_SHARD = 10_000
_EXACT = {"search": "exact", "stored_dtype": "float32"}


def retrieve(arguments: argparse.Namespace) -> None:
    """Check the files, encode, search and write the run.

    Raises Refused and SiteUnavailable for what the interface does, and ValueError for what is given wrong.
    """
    try:
        from runboard_eval.collections.check import check_corpus, check_queries
        from runboard_eval.core.problems import InvalidContent, at_lines
    except ImportError as error:
        raise library_missing(error) from error
    endpoint = Endpoint(arguments.endpoint, arguments.model, os.environ.get(KEY, "").strip())
    try:
        texts = check_corpus(arguments.corpus).records + check_queries(arguments.queries).records
    except InvalidContent as error:
        found = [
            f"{each.message}{at_lines(each.lines, each.count)}. {each.hint}" for each in error.report.problems
        ]
        raise ValueError("\n".join(found)) from error
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    cache = arguments.cache or arguments.out.with_name(f"{arguments.out.name}.vectors")
    try:
        with (
            closing(KeptVectors(cache, endpoint.url, endpoint.model)) as kept,
            tqdm(total=texts, desc="encoded", unit="text", disable=None) as bar,
        ):
            _make_run(arguments, endpoint, kept, bar.update)
    except sqlite3.Error as error:
        raise ValueError(f"{cache}, where vectors are kept, cannot be used: {error}.") from error


def _make_run(
    arguments: argparse.Namespace, endpoint: Endpoint, kept: KeptVectors, done: Callable[[int], Any]
) -> None:
    from runboard_eval.collections.beir import read_corpus, read_queries
    from runboard_eval.engines import Resources
    from runboard_eval.engines.base import SearchResult
    from runboard_eval.engines.index.vector_index import VectorIndex, build_index
    from runboard_eval.engines.run_writing import run_lines

    def encoded(prefix: str, texts: Iterable[str]) -> Vectors:
        # Most interfaces refuse an empty text.
        return _encoded(endpoint, kept, [prefix + text or " " for text in texts], arguments.batch, done)

    threads = os.cpu_count() or 1
    documents = ((each.id, f"{each.title} {each.text}".strip()) for each in read_corpus(arguments.corpus))
    shards: list[Path] = []
    ids: list[str] = []
    # Beside the run: vectors may need more room than a folder of temporary files has.
    with tempfile.TemporaryDirectory(prefix=".runboard-", dir=arguments.out.parent) as folder:
        place = Path(folder)
        for group in _batched(documents, _SHARD):
            shards.append(place / f"vectors-{len(shards):05d}.npy")
            np.save(shards[-1], encoded(arguments.document_prefix, (text for _, text in group)))
            ids += [name for name, _ in group]
        asked = list(read_queries(arguments.queries))
        queries = encoded(arguments.query_prefix, (query.text for query in asked))
        build_index(shards, ids, place, _EXACT, threads, place)
        index, cost = VectorIndex(place, _EXACT, Resources(threads=threads)), kept.cost()
        run = place / "run"
        with run.open("w", encoding="utf-8") as out:
            out.write(_header(arguments, endpoint, int(queries.shape[1]), cost))
            for query, (found, scores) in zip(asked, index.search(queries, arguments.depth), strict=True):
                ranking = SearchResult(query.id, index.identifiers(found), scores)
                out.write(run_lines(ranking, re.sub(r"[/\s]+", "-", arguments.model)))
        run.replace(arguments.out)
    told = "an unknown number of" if cost.tokens is None else f"{cost.tokens:,}"
    print(
        f"{arguments.out}: {len(asked):,} queries over {len(ids):,} documents, {told} tokens", file=sys.stderr
    )
    if cost.tokens is None:
        print(
            "The interface does not say how many tokens it took, so the run states no cost.", file=sys.stderr
        )


def _encoded(
    endpoint: Endpoint, kept: KeptVectors, texts: list[str], size: int, done: Callable[[int], Any]
) -> Vectors:
    """Vectors of the texts; those that are not kept are asked for, and kept after each request."""
    missing = kept.missing(texts)
    done(len(texts) - len(missing))
    for group in _batched(missing, size):
        found = endpoint.encode(group)
        dimension, before = found.vectors.shape[1], kept.dimension
        if before not in (None, dimension):
            told = f"answered vectors of {dimension} dimensions after {before}"
            raise endpoint.refusal(f"{told}; where its model is another one by now, remove {kept.path}")
        kept.keep(group, found)
        done(len(group))
    return kept.vectors(texts)


def _batched(items: Iterable[Any], size: int) -> Iterator[tuple[Any, ...]]:
    """As itertools.batched, which Python 3.11 lacks."""
    waiting = iter(items)
    while group := tuple(islice(waiting, size)):
        yield group


def _header(arguments: argparse.Namespace, endpoint: Endpoint, dimension: int, cost: Cost) -> str:
    """What the run says of itself, as ir_metadata."""
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
    return "".join(f"# {line}\n" for line in [*lines, "ir_metadata.end"])
