"""What computing in fewer bits than float32 loses, over the best documents of some queries."""

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

#: Documents of a query that count as its best ones.
_BEST = 10
#: Characters of all of these documents, some million word pieces: minutes on a processor too.
_MOST_CHARACTERS = 4_000_000
_WHOLE = "float32"


def computed_in(parameters: Mapping[str, Any], device: str) -> str:
    """Return what a model computes in with these parameters; empty for an engine that leaves no choice."""
    name: str = parameters.get("compute_dtype", "")
    if name == AUTO:
        return "bfloat16" if device.startswith("cuda") else _WHOLE
    return name


def precision_loss(
    engine: Engine,
    task: EncodingTask,
    queries: Sequence[Query],
    rankings: Sequence[SearchResult],
    folder: Path,
) -> float | None:
    """Return the share of float32's ten best documents that are not among the engine's, in the mean over the rankings.

    The rankings are of the first queries, and only their documents are ranked: of a re-ranker each query's own
    documents, else all of them together, by both engines. None where there is no document, or no room for the model in
    float32. The engine has another index afterwards, in the empty `folder`.
    """
    description = describe(task.engine)
    asked = {
        ranking.query_id: ranking.document_ids[:SAMPLED_DOCUMENTS] for ranking in rankings[:SAMPLED_QUERIES]
    }
    named = {identifier for identifiers in asked.values() for identifier in identifiers}
    documents = [document for document in read_corpus(task.corpus) if document.id in named]
    asked = _affordable(asked, documents)
    named = {identifier for identifiers in asked.values() for identifier in identifiers}
    documents = [document for document in documents if document.id in named]
    some = [query for query in queries[:SAMPLED_QUERIES] if asked.get(query.id)]
    if not some:
        return None
    values = {**description.complete(task.parameters), **description.main_alone, "compute_dtype": _WHOLE}
    resources = task.resources
    if description.runs[1]:
        run = folder / "run.txt"
        run.write_text("".join(run_lines(each, "x") for each in rankings if each.query_id in asked), "utf-8")
        resources = replace(resources, runs=(run,))
        values |= {"mode": "candidates"} if "mode" in values else {}
    else:
        asked = _best(engine, documents, some, folder / "own")
    try:
        found = _best(description.create(values, resources), documents, some, folder / "reference")
    except ModelFailure:
        return None
    except Exception as error:
        if is_out_of_memory(error):
            return None
        raise
    lost = []
    for ours, theirs in ((asked[query.id], found[query.id]) for query in some):
        if ours:
            best = min(_BEST, -(-len(ours) // 2))  # of fewer than twenty documents half
            lost.append(1 - len({*ours[:best]}.intersection(theirs[:best])) / best)
    return sum(lost) / len(lost) if lost else None


def _best(
    engine: Engine, documents: Sequence[Document], queries: Sequence[Query], folder: Path
) -> dict[str, list[str]]:
    """Index the documents in the new folder, and return the best ones of each query."""
    folder.mkdir()
    engine.build(documents, folder)
    return {each.query_id: each.document_ids for each in engine.search(queries, SAMPLED_DOCUMENTS)}


def _affordable(asked: Mapping[str, list[str]], documents: Sequence[Document]) -> dict[str, list[str]]:
    """Return the first of these queries, one at least, whose documents have no more than _MOST_CHARACTERS together."""
    sizes = {document.id: len(document.text) for document in documents}
    kept: dict[str, list[str]] = {}
    counted: set[str] = set()
    spent = 0
    for query, identifiers in asked.items():
        spent += sum(sizes.get(each, 0) for each in {*identifiers} - counted)
        if kept and spent > _MOST_CHARACTERS:
            break
        counted.update(identifiers)
        kept[query] = identifiers
    return kept
