"""Numbers out of addresses and forms."""

from __future__ import annotations

import pytest

from leaderboard.core.text.numbers import parse_number


@pytest.mark.parametrize(("text", "number"), [
    ("0", 0), ("17", 17), ("007", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None), ("-1", None), ("+1", None),
    (" 1", None), ("1_0", None), ("1.0", None), ("٣", None), ("²", None), ("1\n", None), ("9" * 5000, None),
])  # fmt: skip
def test_a_number_is_ascii_digits_that_fit_a_key(text: str, number: int | None) -> None:
    assert parse_number(text) == number
