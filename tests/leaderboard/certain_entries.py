"""Entries with values by query, for tests of what is said of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np

from leaderboard.models import Dataset, Entry, Run, System
from leaderboard.publishing import publish_entry
from leaderboard.results import record_evaluation, record_run
from tests.leaderboard.entries import make_system

_numbers = count(500_000)
QUERIES = 40


def spread(mean: float, seed: int = 0, queries: int = QUERIES) -> list[float]:
    """Values by query about a mean: hard and easy queries are the same for all, noise is the system's own."""
    difficulty = np.linspace(-0.1, 0.1, queries)
    noise = np.random.default_rng(seed).normal(0, 0.02, queries)
    return list(mean + difficulty + noise - noise.mean())


def score_queries(
    dataset: Dataset,
    name: str,
    values: Sequence[float],
    *,
    baseline: bool = False,
    public: bool = True,
    measure: str = "nDCG@10",
    system: System | None = None,
) -> Entry:
    """A scored entry that has these values of one measure, query by query."""
    assert dataset.current_version is not None
    assert dataset.current_qrels is not None
    number = next(_numbers)
    system = system or make_system(name)
    run = record_run(
        version=dataset.current_version,
        system=system,
        sha256=f"{number:064x}",
        origin=Run.Origin.UPLOADED,
        size=1,
        lines=1,
    )
    evaluation = record_evaluation(
        run=run,
        qrels=dataset.current_qrels,
        specification="1",
        measures=[measure],
        means={measure: float(np.mean(values))},
        per_query=np.asarray(values, dtype=np.float64)[:, None],
        missing_queries=0,
    )
    return publish_entry(
        evaluation=evaluation,
        provenance=Entry.Provenance.SCORED,
        public=public,
        submission_reference=f"certain{number}",
        is_baseline=baseline,
    )
