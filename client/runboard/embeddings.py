"""Dense runs from an embedding API, with cached vectors and exact search by Runboard's engine."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from runboard.errors import missing_library
from runboard.providers import PROVIDERS, Fields
from runboard.requesting import Requester, batched, confirm, open_requester, request_fields
from runboard.run_header import Method, report_run, run_header, run_tag
from runboard.vectors import Group

#: Number of documents whose vectors are in memory, and in one file of the index.
_SHARD = 10_000
_EXACT_SEARCH = {"search": "exact", "stored_dtype": "float32"}


def retrieve(arguments: argparse.Namespace) -> None:
    """Check corpus and queries, encode them with the API, search exactly, and write the run.

    Raises Refused and SiteUnavailable for errors of the API, and ValueError for wrong arguments, invalid files, or an
    unusable cache.
    """
    form = PROVIDERS[arguments.format].embedding
    texts = count_texts(arguments)
    inputs = _Inputs(
        arguments,
        request_fields(form, form.document, arguments.document_extra, arguments.dimensions),
        request_fields(form, form.query, arguments.query_extra, arguments.dimensions),
    )
    with open_requester(arguments, form, texts) as requester:
        confirm(requester, (group for _, group in inputs.groups()), arguments)
        _make_run(arguments, requester, inputs)


def count_texts(arguments: argparse.Namespace) -> int:
    """Check the corpus and the queries, and return the total number of texts.

    Raises ValueError if runboard-eval is missing, or with all problems of invalid files.
    """
    try:
        import runboard_eval.engines  # noqa: F401 - Fail before the first paid request.
        from runboard_eval.collections.check import check_corpus, check_queries
        from runboard_eval.core.problems import InvalidContent, at_lines
    except ImportError as error:
        raise missing_library(error) from error
    try:
        count: int = check_corpus(arguments.corpus).records + check_queries(arguments.queries).records
    except InvalidContent as error:
        messages = [
            f"{problem.message}{at_lines(problem.lines, problem.count)}. {problem.hint}"
            for problem in error.report.problems
        ]
        raise ValueError("\n".join(messages)) from error
    return count


class _Inputs:
    """Texts of a corpus and its queries, with the request fields for each."""

    def __init__(self, arguments: argparse.Namespace, document_fields: Fields, query_fields: Fields) -> None:
        self._arguments, self.document_fields, self.query_fields = arguments, document_fields, query_fields

    def documents(self) -> Iterator[tuple[list[str], Group]]:
        """Yield the ids and texts of each shard of the corpus."""
        from runboard_eval.collections.beir import read_corpus

        for shard in batched(read_corpus(self._arguments.corpus), _SHARD):
            texts = [f"{row.title} {row.text}".strip() for row in shard]
            # Most APIs refuse an empty text.
            texts = [self._arguments.document_prefix + text or " " for text in texts]
            yield [row.id for row in shard], Group(texts, self.document_fields)

    def queries(self) -> tuple[list[str], Group]:
        from runboard_eval.collections.beir import read_queries

        rows = list(read_queries(self._arguments.queries))
        texts = [self._arguments.query_prefix + row.text or " " for row in rows]
        return [row.id for row in rows], Group(texts, self.query_fields)

    def groups(self) -> Iterator[tuple[list[str], Group]]:
        yield from self.documents()
        yield self.queries()


def _make_run(arguments: argparse.Namespace, requester: Requester, inputs: _Inputs) -> None:
    """Encode documents and queries, search with an exact index, and write the run to `arguments.out`."""
    from runboard_eval.engines import Resources
    from runboard_eval.engines.base import SearchResult
    from runboard_eval.engines.index.vector_index import VectorIndex, build_index
    from runboard_eval.engines.run_writing import run_lines

    threads = os.cpu_count() or 1
    shards: list[Path] = []
    ids: list[str] = []
    uses, query_uses = Counter[int](), Counter[int]()
    # Next to the run, because vectors may need more space than the system's temporary folder has.
    with tempfile.TemporaryDirectory(prefix=".runboard-", dir=arguments.out.parent) as name:
        folder = Path(name)
        for shard_ids, group in inputs.documents():
            requester.fetch([group])
            shards.append(folder / f"vectors-{len(shards):05d}.npy")
            np.save(shards[-1], requester.vectors(group, uses))
            ids += shard_ids
        query_ids, group = inputs.queries()
        requester.fetch([group])
        queries = requester.vectors(group, query_uses)
        build_index(shards, ids, folder, _EXACT_SEARCH, threads, folder)
        index = VectorIndex(folder, _EXACT_SEARCH, Resources(threads=threads))
        costs = requester.cost(uses + query_uses), requester.cost(query_uses)
        method: Method = {
            "name": "dense", "dimension": int(queries.shape[1]), "search": "exact",
            "query_prefix": arguments.query_prefix, "document_prefix": arguments.document_prefix,
            "query_fields": inputs.query_fields, "document_fields": inputs.document_fields,
        }  # fmt: skip
        run = folder / "run"
        with run.open("w", encoding="utf-8") as output:
            output.write(run_header(arguments, requester.endpoint, method, costs, len(query_ids)))
            for query, (positions, scores) in zip(query_ids, index.search(queries, arguments.depth), strict=True):
                ranking = SearchResult(query, index.identifiers(positions), scores)
                output.write(run_lines(ranking, run_tag(arguments.model)))
        run.replace(arguments.out)
    report_run(arguments, f"{len(query_ids):,} queries over {len(ids):,} documents", costs[0])
