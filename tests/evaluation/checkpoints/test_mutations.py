"""Mutations of good checkpoints end in a report, or are accepted and rebuilt; never in an exception."""

from __future__ import annotations

from tests.fuzz.spoilt_checkpoints import fuzz


def test_mutations_end_in_a_verdict() -> None:
    verdicts, failures = fuzz(150, seed=7)

    assert not failures, failures[0]
    assert verdicts["accepted"]
    assert len(verdicts) > 5
