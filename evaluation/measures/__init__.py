"""Measures as data: each family is a formula over judged documents' ranks, named as ir_measures names it."""

from evaluation.measures.names import (
    DEFAULT_MEASURES,
    SPEC_VERSION,
    Measure,
    UnknownMeasureError,
    parse_measure,
)
from evaluation.measures.registry import FAMILIES, Family

__all__ = [
    "DEFAULT_MEASURES",
    "FAMILIES",
    "SPEC_VERSION",
    "Family",
    "Measure",
    "UnknownMeasureError",
    "parse_measure",
]
