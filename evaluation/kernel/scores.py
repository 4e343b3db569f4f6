"""Scores as trec_eval 9.0.8 reads them: decimal text to the nearest double, then to the nearest float32."""

from __future__ import annotations

import numpy as np

from evaluation.kernel.compilation import helper
from evaluation.kernel.memory import byte, double, single_bits

#: In place of a score: it is not a finite number in float32; it is too near a rounding boundary to be decided here.
NOT_A_SCORE, UNDECIDED = 1 << 40, 1 << 41

#: Decimal exponents of a value outside this range make it 0, or infinite, in float32 whatever its digits are.
_LOWEST, _HIGHEST = -46, 40
#: The reader's table of powers of ten, correctly rounded, as far as exponents of at most 18 digits can reach.
POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(70)], np.float64)
#: 10^22 is the last power of ten, and 2^53 the last whole number, below which doubles are exact.
_EXACT_POWER, _EXACT_WHOLE = 22, 1 << 53
#: Digits that fit a signed word; others only move the exponent.
_DIGITS = 18
#: More than twice the relative error of three roundings and of digits left out behind the eighteenth.
_SLACK = 2.0**-48
_INFINITY = 0x7F800000


def sortable(bits: int) -> int:
    """A float32's bits (signed) as an integer of the same order; -0 is 0."""
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


@helper
def read_score(position: int, end: int, powers: int) -> int:
    """The score in the text from `position` to `end` as a `sortable` integer, or NOT_A_SCORE, or UNDECIDED.

    Grammar: sign? (digits [. digits*] | . digits) ((e|E) sign? digits)?, ASCII only. Two exact operands give the
    nearest double by one division or product (Clinger's fast path). Otherwise the value is known within a few
    units in the last place of a double, which nearly always leaves one float32; where it does not, UNDECIDED.
    """
    sign = byte(position)
    if sign == 45 or sign == 43:
        position += 1
    whole, digits, seen, exponent, point, left_out = 0, 0, 0, 0, 0, 0
    while position < end:
        digit = byte(position) - 48
        if 0 <= digit <= 9:
            seen = 1
            if digits < _DIGITS:
                whole = whole * 10 + digit
                if whole > 0:
                    digits += 1
                exponent -= point
            else:
                left_out = 1
                exponent += 1 - point
        elif digit == -2 and point == 0:
            point = 1
        else:
            break
        position += 1
    if position < end and seen > 0 and byte(position) | 32 == 101:  # an exponent
        position += 1
        below = byte(position) == 45
        if below or byte(position) == 43:
            position += 1
        written, seen = 0, 0
        while position < end and 48 <= byte(position) <= 57:
            if written < 10_000:
                written = written * 10 + byte(position) - 48
            seen = 1
            position += 1
        exponent += -written if below else written
    if seen == 0 or position != end:
        return NOT_A_SCORE
    if whole == 0 or digits + exponent < _LOWEST:
        return 0
    if digits + exponent > _HIGHEST:
        return NOT_A_SCORE
    value, slack = float(whole), _SLACK
    if left_out == 0 and whole <= _EXACT_WHOLE and -_EXACT_POWER <= exponent <= _EXACT_POWER:
        slack = 0.0
    value = value / double(powers, -exponent) if exponent < 0 else value * double(powers, exponent)
    low = single_bits(value * (1 - slack))
    if low != single_bits(value * (1 + slack)):
        return UNDECIDED
    if low == _INFINITY:
        return NOT_A_SCORE
    return -low if sign == 45 else low
