"""Scores as trec_eval 9.0.8 reads them: decimal text to the nearest double, then to the nearest float32."""

from __future__ import annotations

import numpy as np

from evaluation.kernel.compilation import helper
from evaluation.kernel.text import Bytes

#: What became of a score: read; not a number; not finite in float32; too near to a rounding boundary to tell here.
READ, NOT_A_NUMBER, NOT_FINITE, UNDECIDED = 0, 1, 2, 3

#: Decimal exponents outside this range are 0 or infinite in float32 whatever the (at most 19) digits are.
_LOWEST, _HIGHEST = -46, 40
_POWERS = np.array([float(f"1e{power}") for power in range(-70, 61)], np.float64)
_ZEROTH = 70
#: 10^22 is the last power of ten, and 2^53 the last whole number, below which doubles are exact.
_EXACT_POWER = 22
_EXACT_WHOLE = np.uint64(1 << 53)
#: More than twice the relative error of three roundings and of digits left out behind the nineteenth.
_SLACK = 2.0**-49


@helper
def read_score(text: Bytes, position: int, end: int) -> tuple[int, np.float32]:
    """The score in `text[position:end]` and what became of it.

    Grammar: sign? (digits [. digits] | . digits) ((e|E) sign? digits)?, ASCII only. Two exact operands give the
    nearest double by one division or product (Clinger's fast path). Otherwise the value is known within a few
    units in the last place of a double, which nearly always leaves one float32; where it does not, UNDECIDED.
    """
    negative = text[position] == 45
    if negative or text[position] == 43:
        position += 1
    whole = np.uint64(0)
    digits = 0  # significant ones kept in `whole`
    seen = 0
    exponent = 0
    left_out = False
    point = False
    while position < end:
        digit = np.int64(text[position]) - 48
        if 0 <= digit <= 9:
            seen += 1
            if digits < 19:
                whole = whole * np.uint64(10) + np.uint64(digit)
                if whole > 0:
                    digits += 1
                exponent -= point
            else:
                left_out |= digit > 0
                exponent += not point
        elif digit == -2 and not point:
            point = True
        else:
            break
        position += 1
    if seen == 0:
        return NOT_A_NUMBER, np.float32(0)
    if position < end and (text[position] | 32) == 101:
        position += 1
        below = position < end and text[position] == 45
        if position < end and (text[position] == 45 or text[position] == 43):
            position += 1
        if position == end:
            return NOT_A_NUMBER, np.float32(0)
        written = 0
        while position < end and 48 <= text[position] <= 57:
            written = min(written * 10 + np.int64(text[position]) - 48, 100_000)
            position += 1
        exponent += -written if below else written
    if position != end:
        return NOT_A_NUMBER, np.float32(0)
    if whole == 0 or digits + exponent < _LOWEST:
        return READ, np.float32(0)
    if digits + exponent > _HIGHEST:
        return NOT_FINITE, np.float32(0)
    value = np.float64(whole)
    if not left_out and whole <= _EXACT_WHOLE and -_EXACT_POWER <= exponent <= _EXACT_POWER:
        if exponent < 0:
            value = value / _POWERS[_ZEROTH - exponent]
        else:
            value = value * _POWERS[_ZEROTH + exponent]
        low = high = np.float32(value)
    else:
        value = value * _POWERS[_ZEROTH + exponent]
        low, high = np.float32(value * (1 - _SLACK)), np.float32(value * (1 + _SLACK))
    if low != high:
        return UNDECIDED, np.float32(0)
    if np.isinf(low):
        return NOT_FINITE, np.float32(0)
    return READ, -low if negative else low
