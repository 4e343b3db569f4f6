"""How often faults are repeated, and at which times of the queue."""

from __future__ import annotations

import os

import pytest

NEEDS_POSTGRESQL = "faults are tested on PostgreSQL: RUNBOARD_TEST_DATABASE=postgresql"


def full() -> bool:
    """Whether all repetitions are wanted (`make test-faults`), not the short cut of `make test`."""
    return os.environ.get("RUNBOARD_FAULTS") == "full"


def slower(scale: float) -> pytest.MarkDecorator:
    """Times of the queue for `queue_site`, in parts of production's."""
    return pytest.mark.parametrize("queue_site", [pytest.param(scale, id=f"times {scale}")], indirect=True)
