"""Names of measures in URLs, their direction, and their anchors in the documentation."""

from functools import lru_cache
from typing import Literal

from django.utils.text import slugify

from evaluation.measures.registry import UnknownMeasureError, parse_measure


@lru_cache(maxsize=1024)
def canonical_name(text: str) -> str:
    """Return the canonical name for any accepted spelling (`Recall@100`, `ndcg_cut_10`), or unknown names unchanged."""
    try:
        return parse_measure(text).name
    except UnknownMeasureError:
        return text


@lru_cache(maxsize=1024)
def better(measure: str) -> Literal["higher", "lower"]:
    """Return whether higher or lower values are better; measures known only from papers default to higher."""
    try:
        return "higher" if parse_measure(measure).family.higher_is_better else "lower"
    except UnknownMeasureError:
        return "higher"


def reads_responses(measure: str) -> bool:
    """Return whether the measure requires an answer run, so that rankings have no value."""
    try:
        return parse_measure(measure).family.reads_responses
    except UnknownMeasureError:
        return False


@lru_cache(maxsize=1024)
def measure_anchor(name: str) -> str:
    """Return the anchor of a measure on the methodology page; all cutoffs of a measure share one."""
    base, _, rest = name.partition("@")[0].partition("(")
    parameter = "" if rest.startswith(("rel", "p=", "judge=")) else rest
    parameter += (
        " kt" if name.endswith("kt") else ""
    )  # Cut by tokens: a different measure from the one without the suffix.
    return slugify(f"{base} {parameter}") or "measures"
