"""The order of a ranking: one function for measures, the depth cut, warnings, exports and pages."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def trec_order(
    document_ids: Sequence[str | bytes], scores: NDArray[np.number] | Sequence[float]
) -> NDArray[np.intp]:
    """The order in which documents are ranked, as indices, best first.

    That of trec_eval 9.0.8: scores rounded to float32, descending, then document ids descending by their bytes.
    The compiled reader ranks by the same rule, and tests hold it to this function.
    """
    values = np.asarray(scores, np.float64).astype(np.float32)
    ids = [name.encode() if isinstance(name, str) else name for name in document_ids]
    by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True), np.intp)
    return by_id[np.argsort(-values[by_id], kind="stable")]
