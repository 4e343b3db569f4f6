"""Measures as data: each family is a formula over judged documents' ranks, named as ir_measures names it."""

from evaluation.measures.registry import (
    DEFAULT_MEASURES,
    FAMILIES,
    SPEC_VERSION,
    Family,
    Measure,
    UnknownMeasureError,
    parse_measure,
)

__all__ = [
    "DEFAULT_MEASURES",
    "FAMILIES",
    "SPEC_VERSION",
    "Family",
    "Measure",
    "UnknownMeasureError",
    "parse_measure",
]
