"""Order of a ranking, shared by measures, depth cuts, warnings, exports, and pages."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def trec_order(document_ids: Sequence[str | bytes], scores: NDArray[np.number] | Sequence[float]) -> NDArray[np.intp]:
    """Return the indices that sort documents into their ranking, best first.

    The order is that of trec_eval 9.0.8: scores rounded to float32, descending; ties by document id, descending by
    bytes. The compiled reader implements the same rule, and tests compare it with this function.
    """
    values = np.asarray(scores, np.float64).astype(np.float32)
    ids = [name.encode() if isinstance(name, str) else name for name in document_ids]
    by_id = np.array(sorted(range(len(ids)), key=ids.__getitem__, reverse=True), np.intp)
    return by_id[np.argsort(-values[by_id], kind="stable")]
