"""How measures are named in addresses, which values of one are better, and where it is explained."""

from functools import lru_cache
from typing import Literal

from django.utils.text import slugify

from evaluation.measures.registry import UnknownMeasureError, parse_measure


@lru_cache(maxsize=1024)
def canonical_name(text: str) -> str:
    """The measure's own name for any accepted spelling (`Recall@100`, `ndcg_cut_10`); other text as it is."""
    try:
        return parse_measure(text).name
    except UnknownMeasureError:
        return text


@lru_cache(maxsize=1024)
def better(measure: str) -> Literal["higher", "lower"]:
    """Which way is good. A measure that only papers report is better when higher."""
    try:
        return "higher" if parse_measure(measure).family.higher_is_better else "lower"
    except UnknownMeasureError:
        return "higher"


@lru_cache(maxsize=1024)
def measure_anchor(name: str) -> str:
    """Where the page of measures explains this one: all cutoffs of a measure share a place."""
    base, _, rest = name.partition("@")[0].partition("(")
    parameter = "" if rest.startswith(("rel", "p=")) else rest
    parameter += " kt" if name.endswith("kt") else ""  # cut by tokens: another measure than its name without
    return slugify(f"{base} {parameter}") or "measures"
