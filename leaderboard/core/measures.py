"""Which values of a measure are better, and where the measure is explained."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from django.utils.text import slugify

from evaluation.measures import UnknownMeasureError, parse_measure


@lru_cache(maxsize=1024)
def better(measure: str) -> Literal["higher", "lower"]:
    """Which way is good. A measure that only papers report (Answer@k) is better when higher."""
    try:
        return "higher" if parse_measure(measure).higher_is_better else "lower"
    except UnknownMeasureError:
        return "higher"


@lru_cache(maxsize=1024)
def anchor(name: str) -> str:
    """Where the page of measures explains this one: all cutoffs of a measure share a place."""
    base, _, rest = name.partition("@")[0].partition("(")
    parameter = "" if rest.startswith("rel") else rest
    return slugify(f"{base} {parameter}") or "measures"
