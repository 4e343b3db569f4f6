"""BM25 beside a model is measured twice where that is quick: a shared core can be slow for a second or two."""

from __future__ import annotations

from typing import Any

import pytest

from submissions.jobs.models.baseline import _faster_measurement
from tests.leaderboard.entries import figures


def measured(mean: float, spread: float) -> dict[str, Any]:
    """What a child says that measured BM25."""
    return {"figures": figures(mean, spread_ms=spread)}


def test_the_quicker_of_two_measurements_counts_and_half_their_difference_is_in_its_spread() -> None:
    for one, other in (
        (measured(0.20, 0.001), measured(0.12, 0.001)),
        (measured(0.12, 0.001), measured(0.2, 0.001)),
    ):
        found = _faster_measurement(one, other)["figures"]
        assert found["latency_ms"]["mean"] == 0.12
        assert found["spread_ms"] == pytest.approx(0.04)
    assert _faster_measurement(measured(0.12, 0.01), measured(0.121, 0.001))["figures"]["spread_ms"] == 0.01
    assert (
        _faster_measurement({"figures": None}, measured(0.12, 0.01))["figures"]["latency_ms"]["mean"] == 0.12
    )
