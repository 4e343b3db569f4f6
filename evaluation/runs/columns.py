"""Names of table columns and JSON keys in the results of common tools."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: In order of preference (PyTerrier's `docid` is a number of its own, its `query` a text), as `_bare` writes them.
QUERY = ("qid", "queryid", "topicid", "queryno", "topic", "query", "q")
DOCUMENT = (
    "docno", "docid", "documentid", "corpusid", "passageid", "pid", "did", "doc", "document", "passage", "id"
)  # fmt: skip
RANK = ("rank", "position")
SCORE = ("score", "similarity", "sim", "docscore")
TAG = ("tag", "runid", "runtag", "runname", "run", "system")


def find_column(names: Iterable[str], known: tuple[str, ...]) -> int | None:
    """Return the index of the column with the first of the known names, ignoring case and punctuation."""
    bare = [_bare(name) for name in names]
    return next((bare.index(name) for name in known if name in bare), None)


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
