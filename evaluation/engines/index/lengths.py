"""Document lengths in one byte, as Lucene keeps them (SmallFloat.intToByte4).

Lengths up to 40 are exact; above, what exceeds 24 keeps four significant bits and is otherwise rounded down. BM25
equals Lucene's only with lengths rounded in this way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Codes below this stand for themselves.
_EXACT = 24


def _decode(code: int) -> int:
    """SmallFloat.byte4ToInt."""
    if code < _EXACT:
        return code
    bits, shift = (code - _EXACT) & 7, ((code - _EXACT) >> 3) - 1
    return _EXACT + (bits if shift < 0 else (bits | 8) << shift)


#: Code → length: 256 ascending values.
DECODED_LENGTHS: NDArray[np.int64] = np.array([_decode(code) for code in range(256)], dtype=np.int64)


def encode_lengths(lengths: NDArray[np.integer]) -> NDArray[np.uint8]:
    """The codes of lengths ≥ 0, in the same shape: the greatest decoded length not above each."""
    return (np.searchsorted(DECODED_LENGTHS, lengths, side="right") - 1).astype(np.uint8)
