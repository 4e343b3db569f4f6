"""The order of a ranking: one function for measures, the depth cut, warnings, exports and pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def trec_order(
    document_ids: Sequence[str | bytes] | NDArray[np.bytes_], scores: NDArray[np.number] | Sequence[float]
) -> NDArray[np.intp]:
    """The order in which documents are ranked, as indices, best first.

    That of trec_eval 9.0.8: scores rounded to float32, descending, then document ids descending by their bytes.
    Scores that are integers are compared as they are (the reader's `sortable` ones are float32 already).
    """
    values = np.asarray(scores)
    if not np.issubdtype(values.dtype, np.integer):
        values = values.astype(np.float64).astype(np.float32)
    if not isinstance(document_ids, np.ndarray):
        encoded = [name.encode() if isinstance(name, str) else name for name in document_ids]
        document_ids = np.array(encoded, np.bytes_)
    by_id = np.argsort(document_ids, kind="stable")[::-1]
    return by_id[np.argsort(-values[by_id], kind="stable")]
