"""What the BEIR paper prints over its eighteen datasets, beside what its own table gives."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.boards.benchmark.published_means import PublishedMeans
from leaderboard.boards.pages import benchmark_page
from leaderboard.boards.state import BoardState
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


def _printed(slug: str = "beir", **state: object) -> PublishedMeans | None:
    load_reported()
    page = benchmark_page(slug, BoardState(**state))  # type: ignore[arg-type]
    assert page is not None
    return page.printed


def test_wins_against_bm25_are_the_printed_ones_but_for_doct5query() -> None:
    printed = _printed()
    assert printed is not None
    wins = {row.system: (row.wins, row.printed.wins, row.odd) for row in printed.rows}
    assert wins["docT5query"] == (12, 11, True)
    assert wins["BM25+CE"] == (16, 16, False)
    assert wins["ColBERT"] == (9, 9, False)
    assert wins["TAS-B"][1] is None


def test_neither_reading_of_the_average_reproduces_the_printed_line() -> None:
    printed = _printed()
    assert printed is not None
    assert printed.counted == 18
    rows = {row.system: row for row in printed.rows}
    assert len(rows) == 9
    assert rows["docT5query"].text["average"] == "+1.6"
    assert rows["DPR"].text["average"] == "−47.7"
    for reading in ("ratio_of_means", "mean_of_ratios"):
        assert any(row.text[reading] != row.text["average"] for row in printed.rows)
    assert printed.sentence.startswith("Neither reading")
    assert (
        "docT5query wins against BM25 on 12 of 18 datasets according to the paper's own table, not on the printed 11"
        in (printed.sentence)
    )


def test_the_page_says_so_whatever_is_filtered(client: Client) -> None:
    load_reported()
    for query in ("", "?domain=Finance", "?zero-shot=1&view=rank", "?measure=R@100"):
        page = client.get(f"/benchmarks/beir/{query}").content.decode()
        assert "Comparison with the paper's printed figures" in page
        assert "not on the printed 11" in page


def test_no_such_section_where_nothing_is_printed_over_all_datasets() -> None:
    assert _printed("query-augmentation") is None
