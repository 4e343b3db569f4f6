"""Shared error messages about a collection as a whole."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaluation.core.problems import Problem

#: Maximum number of ids in an error message.
_IDS_NAMED = 5
#: Keys in the statistics of qrels: judged documents that are not in the corpus, and the relevant ones among them.
MISSING_DOCUMENTS, MISSING_RELEVANT = "documents_not_in_corpus", "relevant_not_in_corpus"


def problem(code: str, message: str, hint: str, count: int = 1) -> Problem:
    """Return an error that does not refer to lines."""
    return Problem(severity="error", code=code, count=count, message=message, hint=hint)


def missing_file(file_name: str, hint: str) -> Problem:
    return problem("missing_file", f"{file_name} is missing", hint)


def in_file(file_name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with the file name in their messages."""
    return [replace(item, message=f"{file_name}: {item.message}") for item in problems]


def name_some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:_IDS_NAMED]) + (" …" if len(ids) > _IDS_NAMED else "")


def unknown_ids(file_name: str, kind: str, source: str, ids: Sequence[str]) -> Problem:
    """Return an error about judgments of queries or documents that the collection lacks.

    `kind` is "query" or "document", and `source` describes where the `ids` are missing.
    """
    plural = {"query": "queries", "document": "documents"}[kind]
    return problem(
        f"unknown_{kind}",
        f"{file_name}: {len(ids):,} {kind if len(ids) == 1 else plural} not in {source}: {name_some(ids)}",
        f"Judge only {plural} that are in {source}. Check that the files belong to the same collection.",
        count=len(ids),
    )


def missing_documents(statistics: Mapping[str, Any]) -> list[str]:
    """Return a remark on judged documents that are not in the corpus, or no remark; only for readers of the qrels."""
    missing_count, relevant_count = (statistics.get(name, 0) for name in (MISSING_DOCUMENTS, MISSING_RELEVANT))
    if not missing_count:
        return []
    is_single = missing_count == 1
    text = "1 judged document is" if is_single else f"{missing_count:,} judged documents are"
    clause = (
        "it counts"
        if is_single
        else "they count"
        if relevant_count == missing_count
        else f"{relevant_count:,} of them count"
    )
    if not relevant_count:
        return [f"{text} not in the corpus; {'it counts' if is_single else 'they count'} as not relevant."]
    return [f"{text} not in the corpus; {clause} as relevant and no run can find {'it' if is_single else 'them'}."]
