"""Cells of CSV files that no spreadsheet runs as formulas."""

from __future__ import annotations

from evaluation.judgements.import_file import FORMULA_STARTS


def harmless(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text
