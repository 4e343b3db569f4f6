"""Values of records as people read them: lists joined by commas, numbers to four decimals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plain_text(value: Any) -> str:
    """A value as one line of text, without quotes and brackets of a programming language."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if 0 < abs(value) < 0.001 else f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain_text(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(plain_text(each) for each in value)
    return str(value)
