"""Numbers as text, and differences of numbers."""

from math import floor, isfinite, log10

from leaderboard.core.measures import better

MINUS = "\u2212"
#: So many have scores on pages, and differences of two; exports and the API have them in full.
DECIMALS = 3


def parse_number(text: str, digits: int = 18) -> int | None:
    """The number from 0 on that the text is, in ASCII digits, at most so many; None for anything else.

    Eighteen digits fit a key of the database.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def format_value(value: float | None, decimals: int) -> str:
    """A value as text, a dash where there is none."""
    return "—" if value is None else f"{value:.{decimals}f}"


def signed(value: float | None, decimals: int, *, percent: bool = False) -> str:
    """A difference as text, with its sign."""
    if value is None:
        return "—"
    if value == 0:
        return f"±{0:.{decimals}f}"
    return f"{value * 100 if percent else value:+.{decimals}f}".replace("-", MINUS)


def signed_percent(ratio: float) -> str:
    """A relative difference as people read it: `+9.9%` for 0.099."""
    return f"{signed(ratio, 1, percent=True)}%"


def format_quantity(value: float, digits: int = 3) -> str:
    """A quantity as people read it: three significant digits, whole numbers in full with commas, never an exponent."""
    if value == 0 or not isfinite(value):
        return f"{value:g}"
    decimals = digits - 1 - floor(log10(abs(value)))
    return f"{value:,.{max(decimals, 0)}f}"


def lead(delta: float, baseline: str) -> str:
    """How far a score is from the baseline's: `+0.021 over BM25`, `0.021 below BM25`, `level with BM25`."""
    if not round(delta, DECIMALS):
        return f"level with {baseline}"
    if delta > 0:
        return f"{signed(delta, DECIMALS)} over {baseline}"
    return f"{-delta:.{DECIMALS}f} below {baseline}"


def direction(value: float | None, measure: str) -> str:
    """The class of a difference: `up` is better and `down` worse, whichever way the measure goes."""
    if not value:
        return ""
    return "up" if (value > 0) == (better(measure) == "higher") else "down"


#: Decimals of differences: far more than are published, and without the errors of binary fractions.
DIGITS = 10


def difference(value: float | None, baseline: float | None) -> float | None:
    """Return value − baseline, None if either is missing. Both must be of one comparison group."""
    if value is None or baseline is None:
        return None
    return round(value - baseline, DIGITS)


def relative_difference(value: float | None, baseline: float | None) -> float | None:
    """Return (value − baseline) / baseline, None if either is missing or the baseline is 0."""
    if value is None or not baseline:
        return None
    return round((value - baseline) / baseline, DIGITS)
