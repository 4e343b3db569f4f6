"""Problems of a collection as a whole, worded once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from evaluation.core.problems import Problem

#: How many unknown ids a problem names.
IDS_NAMED = 5


def problem(code: str, message: str, hint: str, count: int = 1) -> Problem:
    """An error without lines."""
    return Problem(severity="error", code=code, count=count, message=message, hint=hint)


def missing(file_name: str, hint: str) -> Problem:
    """A file that should be there."""
    return problem("missing_file", f"{file_name} is missing", hint)


def in_file(file_name: str, problems: Iterable[Problem]) -> list[Problem]:
    """The problems, each saying which file it is in."""
    return [replace(each, message=f"{file_name}: {each.message}") for each in problems]


def unknown_ids(file_name: str, what: str, where: str, ids: Sequence[str]) -> Problem:
    """Judgements that name queries or documents which the collection does not have."""
    named = ", ".join(ids[:IDS_NAMED]) + (" …" if len(ids) > IDS_NAMED else "")
    plural = {"query": "queries", "document": "documents"}[what]
    return problem(
        f"unknown_{what}",
        f"{file_name}: {len(ids):,} {what if len(ids) == 1 else plural} not in {where}: {named}",
        f"Judge only {plural} that {where} holds; check that the files belong to the same collection.",
        count=len(ids),
    )
