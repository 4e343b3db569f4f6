"""Problems of a collection as a whole, worded once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaluation.core.problems import Problem

#: How many ids a problem names.
_IDS_NAMED = 5
#: In the statistics of qrels: judged documents that the corpus lacks, and the relevant ones among them.
MISSING_DOCUMENTS, MISSING_RELEVANT = "documents_not_in_corpus", "relevant_not_in_corpus"


def problem(code: str, message: str, hint: str, count: int = 1) -> Problem:
    """Return an error without lines."""
    return Problem(severity="error", code=code, count=count, message=message, hint=hint)


def missing(file_name: str, hint: str) -> Problem:
    """Return a file that should be there."""
    return problem("missing_file", f"{file_name} is missing", hint)


def in_file(file_name: str, problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems, each saying which file it is in."""
    return [replace(each, message=f"{file_name}: {each.message}") for each in problems]


def name_some(ids: Sequence[str]) -> str:
    """Return the first ids for a message, with an ellipsis if there are more."""
    return ", ".join(ids[:_IDS_NAMED]) + (" …" if len(ids) > _IDS_NAMED else "")


def unknown_ids(file_name: str, what: str, where: str, ids: Sequence[str]) -> Problem:
    """Judgements that name queries or documents which the collection does not have."""
    plural = {"query": "queries", "document": "documents"}[what]
    return problem(
        f"unknown_{what}",
        f"{file_name}: {len(ids):,} {what if len(ids) == 1 else plural} not in {where}: {name_some(ids)}",
        f"Judge only {plural} that {where} holds; check that the files belong to the same collection.",
        count=len(ids),
    )


def missing_documents(statistics: Mapping[str, Any]) -> list[str]:
    """Return the remark on judged documents that the corpus lacks, if any. Show it only to readers of the judgments."""
    missing, relevant = (statistics.get(name, 0) for name in (MISSING_DOCUMENTS, MISSING_RELEVANT))
    if not missing:
        return []
    one = missing == 1
    text = "1 judged document is" if one else f"{missing:,} judged documents are"
    counted = "it counts" if one else "they count" if relevant == missing else f"{relevant:,} of them count"
    if not relevant:
        return [f"{text} not in the corpus; {'it counts' if one else 'they count'} as not relevant."]
    return [f"{text} not in the corpus; {counted} as relevant and no run can find {'it' if one else 'them'}."]
