"""The order of a ranking: one function for measures, the depth cut, warnings, exports and pages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def trec_order(
    document_ids: Sequence[str | bytes], scores: NDArray[np.number] | Sequence[float]
) -> NDArray[np.intp]:
    """The order in which documents are ranked, as indices, best first.

    That of trec_eval 9.0.8: scores rounded to float32, descending, then document ids descending by their bytes.
    Scores that are integers are compared as they are (the reader's `sortable` ones are float32 already).
    """
    values = np.asarray(scores)
    if not np.issubdtype(values.dtype, np.integer):
        values = values.astype(np.float64).astype(np.float32)
    ids = [name.encode() if isinstance(name, str) else name for name in document_ids]
    by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True), np.intp)
    return by_id[np.argsort(-values[by_id], kind="stable")]


def place_among_ties(document_id: bytes, sorted_ids: Sequence[bytes]) -> int:
    """How many of the documents of one score (their ids ascending) `trec_order` puts before one of them."""
    return len(sorted_ids) - bisect_right(sorted_ids, document_id)
