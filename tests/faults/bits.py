"""Numbers to the last bit, as a text that can be compared between processes and databases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def digest(per_query: NDArray[np.float64], means: Mapping[str, float]) -> str:
    """SHA-256 of the values, shape (queries, measures), and of the means by measure, all unrounded."""
    told = "".join(f"{name}={float(value).hex()};" for name, value in sorted(means.items()))
    return hashlib.sha256(np.ascontiguousarray(per_query, "<f8").tobytes() + told.encode()).hexdigest()
