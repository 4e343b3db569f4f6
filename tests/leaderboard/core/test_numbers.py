"""Numbers in URLs and forms, and cells of spreadsheets."""

from __future__ import annotations

import pytest

from leaderboard.core.text.numbers import parse_number, signed
from leaderboard.core.text.plain import safe_cell


@pytest.mark.parametrize(("text", "number"), [
    ("0", 0), ("17", 17), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None), ("-1", None), ("+1", None),
    (" 1", None), ("1_0", None), ("1.0", None), ("٣", None), ("²", None), ("1\n", None), ("9" * 5000, None),
])  # fmt: skip
def test_a_number_is_ascii_digits_that_fit_a_key(text: str, number: int | None) -> None:
    assert parse_number(text) == number


def test_floating_point_noise_does_not_change_the_text_of_a_difference() -> None:
    assert signed(-0.0095, 3) == signed(-0.0095 - 1e-15, 3) == signed(-0.0095 + 1e-15, 3)


@pytest.mark.parametrize("text", ["=1+1", "+1+2", "-1-cmd", "+A1", "@sum", "\t1", "+0.1 to =1"])
def test_cells_that_may_be_formulas_start_with_an_apostrophe(text: str) -> None:
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-0.5", "+0.015 to +0.053", "-0.2 to +0.1", "BM25 + re-ranking", ""])
def test_numbers_and_intervals_have_no_apostrophe(text: str) -> None:
    assert safe_cell(text) == text
