"""Formatting of numbers, and differences between scores."""

from math import floor, isfinite, log10

from leaderboard.core.measures import better

MINUS = "\u2212"
#: Decimals of scores and differences on pages; exports and the API have full precision.
DECIMALS = 3


def parse_number(text: str, digits: int = 18) -> int | None:
    """Parse a non-negative integer of at most `digits` ASCII digits; None for any other text.

    The default of eighteen digits fits a database key.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def format_value(value: float | None, decimals: int) -> str:
    """Format a value, or a dash if it is missing."""
    return "—" if value is None else f"{value:.{decimals}f}"


def signed(value: float | None, decimals: int, *, percent: bool = False) -> str:
    """Format a difference with its sign, or a dash if it is missing; `percent` multiplies it by 100.

    Rounding to `DIGITS` first removes floating-point noise, so that figures and tables show the same text.
    """
    if value is None:
        return "—"
    if (value := round(value, DIGITS)) == 0:
        return f"±{0:.{decimals}f}"
    return f"{value * (100 if percent else 1):+.{decimals}f}".replace("-", MINUS)


def signed_percent(ratio: float) -> str:
    """Format a relative difference: `+9.9%` for 0.099."""
    return f"{signed(ratio, 1, percent=True)}%"


def format_quantity(value: float, digits: int = 3) -> str:
    """Format a quantity with `digits` significant digits, thousands separators, and no exponent."""
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - floor(log10(abs(value)))
    return f"{value:,.{max(decimals, 0)}f}"


def lead(delta: float, baseline: str) -> str:
    """Describe the difference from the baseline: `+0.021 over BM25`, `0.021 below BM25`, or `level with BM25`."""
    if not round(delta, DECIMALS):
        return f"level with {baseline}"
    if delta > 0:
        return f"{signed(delta, DECIMALS)} over {baseline}"
    return f"{-delta:.{DECIMALS}f} below {baseline}"


def direction(value: float | None, measure: str) -> str:
    """Return the CSS class of a difference: `up` for better, `down` for worse, and empty for none.

    The direction of the measure decides which is better.
    """
    if not value:
        return ""
    return "up" if (value > 0) == (better(measure) == "higher") else "down"


#: Decimals of stored differences: far more than are published, and without binary rounding errors.
DIGITS = 10


def difference(value: float | None, baseline: float | None) -> float | None:
    """Return value − baseline, None if either is missing. Both must belong to one comparison group."""
    if value is None or baseline is None:
        return None
    return round(value - baseline, DIGITS)


def relative_difference(value: float | None, baseline: float | None) -> float | None:
    """Return (value − baseline) / baseline, or None if either is missing or the baseline is 0."""
    if value is None or not baseline:
        return None
    return round((value - baseline) / baseline, DIGITS)
