"""Loss of effectiveness from computing in lower precision than float32."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.collections.beir import Document, Query, read_corpus
from evaluation.core.problems import ModelFailure, is_out_of_memory
from evaluation.engines.base import AUTO, Engine, SearchResult
from evaluation.engines.corpus_encoding import EncodingTask
from evaluation.engines.registry import describe
from evaluation.engines.run_writing import SAMPLED_DOCUMENTS, SAMPLED_QUERIES, run_lines

#: Number of top documents that are compared.
_COMPARED_DOCUMENTS = 10
#: Maximum characters of all compared documents. About a million word pieces take minutes even on a CPU.
_MAX_CHARACTERS = 4_000_000
_REFERENCE = "float32"


def get_compute_dtype(parameters: Mapping[str, Any], device: str) -> str:
    """Return the data type in which a model computes, or "" for engines without this parameter."""
    dtype: str = parameters.get("compute_dtype", "")
    if dtype == AUTO:
        return "bfloat16" if device.startswith("cuda") else _REFERENCE
    return dtype


def precision_loss(
    engine: Engine,
    task: EncodingTask,
    queries: Sequence[Query],
    rankings: Sequence[SearchResult],
    folder: Path,
) -> float | None:
    """Return the mean share of float32's ten best documents that are missing from the engine's.

    Only the documents of the given rankings are ranked again by both engines: the query's own documents for a
    re-ranker, otherwise the documents of all queries. Unless the engine re-ranks, its index is replaced.

    Args:
        engine: Engine in lower precision.
        task: Task of the engine.
        queries: All queries, in the order of the rankings.
        rankings: Rankings of the first queries.
        folder: Empty folder for temporary indexes.

    Returns:
        A value from 0 to 1, or None if no documents were retrieved or the model does not fit into memory in float32.
    """
    description = describe(task.engine)
    candidates = {ranking.query_id: ranking.document_ids[:SAMPLED_DOCUMENTS] for ranking in rankings[:SAMPLED_QUERIES]}
    document_ids = {identifier for identifiers in candidates.values() for identifier in identifiers}
    documents = [document for document in read_corpus(task.corpus) if document.id in document_ids]
    candidates = _limit_characters(candidates, documents)
    document_ids = {identifier for identifiers in candidates.values() for identifier in identifiers}
    documents = [document for document in documents if document.id in document_ids]
    sample = [query for query in queries[:SAMPLED_QUERIES] if candidates.get(query.id)]
    if not sample:
        return None
    values = {**description.complete(task.parameters), **description.main_alone, "compute_dtype": _REFERENCE}
    resources = task.resources
    if description.runs[1]:
        run = folder / "run.txt"
        run.write_text("".join(run_lines(row, "x") for row in rankings if row.query_id in candidates), "utf-8")
        resources = replace(resources, runs=(run,))
        values |= {"mode": "candidates"} if "mode" in values else {}
    else:
        candidates = _rank(engine, documents, sample, folder / "own")
    try:
        exact_rankings = _rank(description.create(values, resources), documents, sample, folder / "reference")
    except ModelFailure:
        return None
    except Exception as error:
        if is_out_of_memory(error):
            return None
        raise
    losses = []
    for actual, expected in ((candidates[query.id], exact_rankings[query.id]) for query in sample):
        if actual:
            top_count = min(_COMPARED_DOCUMENTS, -(-len(actual) // 2))  # half of fewer than twenty documents
            losses.append(1 - len({*actual[:top_count]}.intersection(expected[:top_count])) / top_count)
    return sum(losses) / len(losses) if losses else None


def _rank(
    engine: Engine, documents: Sequence[Document], queries: Sequence[Query], folder: Path
) -> dict[str, list[str]]:
    """Index the documents in a new folder, and return the best ones for each query."""
    folder.mkdir()
    engine.build(documents, folder)
    return {ranking.query_id: ranking.document_ids for ranking in engine.search(queries, SAMPLED_DOCUMENTS)}


def _limit_characters(candidates: Mapping[str, list[str]], documents: Sequence[Document]) -> dict[str, list[str]]:
    """Return the candidates of the first queries, as long as all documents together have few enough characters.

    The limit is _MAX_CHARACTERS. At least one query is returned, even if it exceeds the limit.
    """
    sizes = {document.id: len(document.text) for document in documents}
    selection: dict[str, list[str]] = {}
    seen_ids: set[str] = set()
    characters = 0
    for query, identifiers in candidates.items():
        characters += sum(sizes.get(identifier, 0) for identifier in {*identifiers} - seen_ids)
        if selection and characters > _MAX_CHARACTERS:
            break
        seen_ids.update(identifiers)
        selection[query] = identifiers
    return selection
