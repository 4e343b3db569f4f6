"""Runs as rankings: what a re-ranker starts from, and what a fusion joins."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluation.engines.base import Ranking
from evaluation.errors import InvalidRun
from evaluation.formats.compression import open_lines
from evaluation.ordering import trec_order
from evaluation.problems import Problem

#: Query, Q0, document, rank, score, tag.
_FIELDS = 6


def read_rankings(path: Path, depth: int) -> dict[str, Ranking]:
    """The best `depth` documents of each query of a TREC run, plain or compressed, in trec_eval's order.

    The run is one that was accepted before; lines of a query need not be together. A document that a query names
    again keeps its better place. Raises InvalidRun for a line that is none of a run's.
    """
    found: dict[str, Ranking] = {}
    query, ids, scores = "", list[str](), list[float]()
    for number, line in enumerate(open_lines(path), 1):
        fields = line.split()
        if not fields or fields[0].startswith(b"#"):
            continue
        try:
            name, document, score = str(fields[0], "utf-8"), str(fields[2], "utf-8"), float(fields[4])
        except (IndexError, ValueError):
            score = float("nan")
        if len(fields) != _FIELDS or not np.isfinite(np.float32(score)):
            raise _unreadable(path, number)
        if name != query:
            _keep(found, query, ids, scores, depth)
            query, ids, scores = name, [], []
        ids.append(document)
        scores.append(score)
    _keep(found, query, ids, scores, depth)
    return found


def _keep(found: dict[str, Ranking], query: str, ids: list[str], scores: list[float], depth: int) -> None:
    """Add lines of a query to what there is of it, and keep the best."""
    if not ids:
        return
    if query in found:
        ids, scores = found[query].document_ids + ids, found[query].scores.tolist() + scores
    best: dict[str, float] = {}
    for place in trec_order(ids, scores).tolist():
        best.setdefault(ids[place], scores[place])
        if len(best) == depth:
            break
    found[query] = Ranking(query, list(best), np.array(list(best.values()), np.float32))


def _unreadable(path: Path, line: int) -> InvalidRun:
    message = f"{path.name}: line {line:,} is not one of a run"
    hint = "Each line holds: query Q0 document rank score tag."
    return InvalidRun.of(Problem("error", "fields", 1, message, hint, (line,)))
