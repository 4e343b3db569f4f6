"""Entries with values by query, and a board of four, for tests of what is said of their differences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from django.test import Client

from leaderboard.boards.columns.significance import COLUMN_NAMES
from leaderboard.boards.model import Board, Row
from leaderboard.boards.pages import dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.models import BoardChange, Dataset, Entry, Run, System
from leaderboard.results.board_rows.rows import Revision, rows_at
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.records import record_evaluation, record_run
from leaderboard.results.significance.statements import read_certainty, statements_at
from leaderboard.results.significance.types import BoardCertainty
from tests.leaderboard.entries import make_system, scored_dataset

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
    run_type: str = "",
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
        Entry(
            provenance=Entry.Provenance.SCORED,
            public_wanted=public,
            submission_reference=f"certain{number}",
            run_type=run_type,
        ),
        evaluation,
        is_baseline=baseline,
    )


def make_board() -> Dataset:
    """A board of four: the best two cannot be told apart, the third is BM25, the last is far behind."""
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True)
    score_queries(dataset, "First", spread(0.601, 2))
    score_queries(dataset, "Second", spread(0.6, 3))
    score_queries(dataset, "Last", spread(0.2, 4))
    return dataset


def found_of(dataset: Dataset) -> BoardCertainty:
    """What is known of the board."""
    return read_certainty([dataset.pk])[dataset.pk]


def certainty_at(dataset: Dataset, number: int) -> BoardCertainty | None:
    """Return what was known of the board at a revision of that number."""
    change = BoardChange.objects.select_related("dataset").get(dataset=dataset, revision=number)
    revisions = {dataset.pk: Revision(number, change.at, {**change.facts, "hidden": change.dataset.hidden})}
    return statements_at(revisions, rows_at(revisions))[dataset.pk].certainty


def shown(dataset: Dataset, **state: Any) -> Board:
    """The dataset's board in a view."""
    page = dataset_page(dataset.slug, BoardState(**state))
    assert page is not None
    return page.board


def row_of(board: Board, system: str) -> Row:
    """The system's row."""
    return next(row for row in board.rows if row.entry.system == system)


def cells(board: Board, system: str) -> dict[str, Any]:
    """What a row says of certainty, as the page writes it."""
    row = row_of(board, system)
    keys = [column.key for column in board.columns if column.key in COLUMN_NAMES]
    return {key: row[key].text or row.value(key) for key in keys}


def page_text(client: Client, dataset: Dataset, query: str = "") -> str:
    """The board's page in a view."""
    return client.get(f"/datasets/{dataset.slug}/{query}").content.decode()
