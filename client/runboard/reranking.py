"""Runs that an API re-ranks, with cached scores."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runboard.embeddings import count_texts
from runboard.providers import PROVIDERS
from runboard.requesting import Requester, confirm, open_requester, request_fields
from runboard.run_header import Method, report_run, run_header, run_tag
from runboard.vectors import Group

if TYPE_CHECKING:
    from runboard_eval.collections.beir import Query
    from runboard_eval.engines.base import SearchResult


def rerank(arguments: argparse.Namespace) -> None:
    """Check the input, score the top documents of each query with the API, and write the run.

    Raises Refused and SiteUnavailable for errors of the API, and ValueError for wrong arguments, invalid files, or an
    unusable cache.
    """
    form = PROVIDERS[arguments.format].reranking
    assert form is not None  # --format accepts only APIs with a reranker.
    count_texts(arguments)
    extra = request_fields(form, {}, arguments.extra, None)
    queries = _read_queries(arguments)
    rankings = _read_candidates(arguments, queries)
    texts = _read_texts(arguments, rankings)
    query_texts = {query.id: query.text or " " for query in queries}
    groups = [
        Group([texts[name] for name in ranking.document_ids], {**extra, "query": query_texts[ranking.query_id]})
        for ranking in rankings
    ]
    with open_requester(arguments, form, sum(len(group.texts) for group in groups)) as requester:
        confirm(requester, groups, arguments)
        requester.fetch(groups)
        _write_run(arguments, requester, rankings, groups)


def _read_queries(arguments: argparse.Namespace) -> list[Query]:
    from runboard_eval.collections.beir import read_queries

    return list(read_queries(arguments.queries))


def _read_candidates(arguments: argparse.Namespace, queries: Sequence[Query]) -> list[SearchResult]:
    """Return the top documents of each query in the run. Raises ValueError for an invalid run."""
    from runboard_eval.core.problems import InvalidContent
    from runboard_eval.engines.first_stage import StoredRun

    try:
        with tempfile.TemporaryDirectory(prefix="runboard-") as name:
            run = StoredRun(arguments.candidates)
            run.build((), Path(name))
            rankings = list(run.search(queries, arguments.depth))
    except InvalidContent as error:
        raise ValueError(str(error)) from error
    if not (candidates := [ranking for ranking in rankings if ranking.document_ids]):
        raise ValueError(f"{arguments.candidates} ranks no query of {arguments.queries}. Use a run for these queries.")
    return candidates


def _read_texts(arguments: argparse.Namespace, rankings: Sequence[SearchResult]) -> dict[str, str]:
    """Return the texts of the ranked documents by id. Raises ValueError if one is not in the corpus."""
    from runboard_eval.collections.beir import read_corpus

    names = {name for ranking in rankings for name in ranking.document_ids}
    rows = (row for row in read_corpus(arguments.corpus) if row.id in names)
    texts = {row.id: f"{row.title} {row.text}".strip() or " " for row in rows}
    if unknown_names := sorted(names - texts.keys()):
        raise ValueError(
            f"{arguments.candidates} has documents that are not in {arguments.corpus}, such as {unknown_names[0]}. "
            "Use a run over this corpus."
        )
    return texts


def _write_run(
    arguments: argparse.Namespace, requester: Requester, rankings: Sequence[SearchResult], groups: Sequence[Group]
) -> None:
    """Write each query's documents, sorted by their stored scores."""
    from runboard_eval.engines.base import SearchResult
    from runboard_eval.engines.run_writing import run_lines
    from runboard_eval.runs.stored import first_tag

    uses, lines = Counter[int](), []
    for ranking, group in zip(rankings, groups, strict=True):
        scores = requester.vectors(group, uses)[:, 0]
        result = SearchResult.from_scores(ranking.query_id, ranking.document_ids, scores, arguments.depth)
        lines.append(run_lines(result, run_tag(arguments.model)))
    cost = requester.cost(uses)
    method: Method = {
        "name": "re-ranking", "first_stage": first_tag(arguments.candidates), "depth": arguments.depth,
        "fields": arguments.extra,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix=".runboard-", dir=arguments.out.parent) as name:
        run = Path(name) / "run"
        header = run_header(arguments, requester.endpoint, method, (cost, cost), len(rankings))
        run.write_text("".join([header, *lines]), "utf-8")
        run.replace(arguments.out)
    report_run(arguments, f"{len(rankings):,} queries", cost)
