"""What the cells of a benchmark's board show: scores, differences, ranks; which datasets and values are chosen."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from leaderboard.boards.pages import benchmark_page
from leaderboard.boards.state import GROUPS, BoardState, Range, Sort
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Dataset, Entry, System
from tests.leaderboard.boards.test_boards_benchmark import benchmark_of, board_of, values
from tests.leaderboard.entries import make_source, make_system, record_boards, report, score, scored_dataset
from tests.pages import one_line
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


@pytest.fixture(name="pair")
def _pair() -> tuple[Dataset, Dataset]:
    """Two datasets in a benchmark, with BM25 and two systems on both and one on the first only."""
    first = scored_dataset(name="First", language="en", domain="Finance", task="Search")
    second = scored_dataset(name="Second", language="de", domain="Medicine", task="Search")
    benchmark_of(first, second)
    bm25 = make_system("BM25")
    for dataset, base, good, bad in ((first, 0.4, 0.6, 0.3), (second, 0.2, 0.5, 0.2)):
        score(dataset, bm25, baseline=True, ndcg=base)
        score(dataset, _named("good"), ndcg=good)
        score(dataset, _named("bad"), ndcg=bad)
    score(first, _named("partial"), ndcg=0.7)
    return first, second


def _named(name: str) -> System:
    return System.objects.filter(name=name).first() or make_system(name)


@pytest.mark.parametrize(
    ("view", "good", "bad"),
    [("", 0.6, 0.3), ("delta", 0.2, -0.1), ("relative", 0.5, -0.25), ("rank", 2.0, 4.0)],
)
def test_cells_show_what_the_view_names(pair: tuple[Dataset, Dataset], view: str, good: float, bad: float) -> None:
    board = board_of(view=view)
    slug = pair[0].slug
    assert values(board, "good")[slug] == pytest.approx(good)
    assert values(board, "bad")[slug] == pytest.approx(bad)
    assert values(board, "good")["mean"] == pytest.approx(0.55)


@pytest.mark.parametrize("view", ["", "delta", "relative", "rank"])
def test_best_comes_first_and_is_marked_in_every_view(pair: tuple[Dataset, Dataset], view: str) -> None:
    board = board_of(view=view, sorts=(Sort(pair[0].slug),))
    key = pair[0].slug
    assert [row.entry.system for row in board.rows] == ["partial", "good", "BM25", "bad"]
    assert [row.rank for row in board.rows] == [1, 2, 3, 4]
    assert board.best[key, "scored"] == board.rows[0].value(key)
    assert board.second[key, "scored"] == board.rows[1].value(key)


def test_views_reach_the_page_and_its_exports(client: Client, pair: tuple[Dataset, Dataset]) -> None:
    page = client.get("/benchmarks/all/?view=delta&exact=1").content.decode()
    assert '<td class="ns"><b>+0.3000</b></td>' in page, "nothing was tested: no colour"
    lines = client.get("/benchmarks/all/board.csv?view=rank&sort=" + pair[0].slug).content.decode().splitlines()
    column = lines[0].split(",").index(f"{pair[0].slug} rank")
    assert [line.split(",")[column] for line in lines[1:]] == ["1.0", "2.0", "3.0", "4.0"]


def test_ranks_on_a_dataset_are_within_a_kind(pair: tuple[Dataset, Dataset]) -> None:
    report(pair[0], make_source("paper"), "reported", ndcg=0.99)
    board = board_of(view="rank")
    assert values(board, "reported")[pair[0].slug] == 1
    assert values(board, "partial")[pair[0].slug] == 1


def test_aggregates_stand_beside_each_other(pair: tuple[Dataset, Dataset]) -> None:
    good = values(board_of(), "good")
    assert good["average-relative"] == pytest.approx(0.55 / 0.3 - 1)
    assert good["mean-relative"] == pytest.approx((0.5 + 1.5) / 2)
    assert good["wins"] == "2/0/0"
    # Among the three complete rows: first on both datasets.
    assert (good["borda"], good["mean-rank"]) == (4.0, 1.0)
    bad, bm25 = values(board_of(), "bad"), values(board_of(), "BM25")
    assert (bad["borda"], bad["mean-rank"]) == (0.5, 2.75)
    assert (bm25["borda"], bm25["mean-rank"]) == (1.5, 2.25)
    assert bm25["wins"] is None, "nothing is compared with itself"
    assert values(board_of(), "partial")["borda"] is None


def test_the_common_mean_says_which_datasets_it_is_over_and_follows_the_view(
    pair: tuple[Dataset, Dataset],
) -> None:
    board = board_of()
    column = board.column("common-mean")
    assert (column.unit, values(board, "partial")["common-mean"]) == ("1 of 2", 0.7)
    assert column.note.endswith("First")
    some = board_of(text="good")
    assert some.column("common-mean").unit == "2 of 2"
    assert values(some, "good")["common-mean"] == pytest.approx(0.55)
    limited = board_of(ranges=(Range("common-mean", 0.65, None),))
    assert [row.entry.system for row in limited.rows] == ["partial"]


def test_where_every_row_is_complete_the_mean_is_the_common_one() -> None:
    load_reported()
    keys = [column.key for column in board_of("beir").columns]
    assert "common-mean" not in keys
    sorted_by = board_of("beir", sorts=(Sort("common-mean"),))
    assert values(sorted_by, "BM25")["common-mean"] == values(sorted_by, "BM25")["mean"]


def test_facets_of_datasets_choose_what_is_shown_and_counted(client: Client, pair: tuple[Dataset, Dataset]) -> None:
    board = board_of(facets=(("domain", ("Finance",)),))
    keys = [column.key for column in board.columns]
    assert pair[0].slug in keys
    assert pair[1].slug not in keys
    assert values(board, "partial")["mean"] == 0.7
    assert values(board, "partial")["coverage"] == "1/1"
    assert board.column("mean").unit == "1 of 2"
    assert any("1 of 2 datasets" in note for note in board.notes)
    assert client.get(f"/benchmarks/all/?domain=Finance&sort={pair[1].slug}").status_code == 200
    assert client.get("/benchmarks/all/?domain=Finance&language=de").status_code == 200


def test_a_facet_that_no_dataset_has_is_refused(pair: tuple[Dataset, Dataset]) -> None:
    with pytest.raises(UnknownChoice, match="Finance, Medicine"):
        board_of(facets=(("domain", ("Law",)),))


def test_zero_shot_leaves_out_single_values_and_says_so(client: Client) -> None:
    load_reported()
    page = benchmark_page("beir", BoardState(zero_shot=True))
    assert page is not None
    dpr, genq = values(page.board, "DPR"), values(page.board, "GenQ")
    assert (dpr["nq"], dpr["coverage"], dpr["mean"]) == (None, "17/18", None)
    assert dpr["fiqa"] is not None
    assert genq["mean"] is not None
    assert genq["msmarco"] is None
    assert values(page.board, "BM25")["msmarco"] == 0.228
    assert len(page.board.rows) == 10
    row = next(row for row in page.board.rows if row.entry.system == "DPR")
    assert (row["nq"].mark, row["nq"].title) == ("‡", "omitted: in-domain")
    assert any(note.startswith("Zero-shot only") for note in page.board.notes)
    assert row["coverage"].title == "omitted: NQ"
    assert 'title="omitted: NQ"' in client.get("/benchmarks/beir/?zero-shot=1&columns=effectiveness").content.decode()
    assert "omitted: in-domain" in client.get("/benchmarks/beir/?zero-shot=1&columns=all").content.decode()


def test_whoever_declared_nothing_is_not_zero_shot(pair: tuple[Dataset, Dataset]) -> None:
    assert board_of(zero_shot=True).rows == []
    Entry.objects.filter(dataset=pair[0], system__name="good").update(training="zero-shot")
    record_boards()
    board = board_of(zero_shot=True)
    assert [row.entry.system for row in board.rows] == ["good"]
    assert values(board, "good")["coverage"] == "1/2"
    # What is compared with stays: the baseline is left out of sight, not out of the difference.
    assert values(board, "good")["wins"] == "1/0/0"


def test_a_row_of_mixed_provenance_says_it_in_each_cell(client: Client, pair: tuple[Dataset, Dataset]) -> None:
    Entry.objects.filter(dataset=pair[0], system__name="good").update(provenance="measured")
    record_boards()
    board = board_of()
    row = next(row for row in board.rows if row.entry.system == "good")
    assert [row[dataset.slug].title for dataset in pair] == ["measured", "scored"]
    assert 'title="measured"' in client.get("/benchmarks/all/").content.decode()


def test_closed_interfaces_are_ranked_apart(pair: tuple[Dataset, Dataset]) -> None:
    closed = make_system("closed", closed_api=True)
    for dataset in pair:
        score(dataset, closed, ndcg=0.99)
    board = board_of()
    assert {row.entry.system: row.rank_label for row in board.rows} == {
        "closed": "c 1",
        "good": "1",
        "BM25": "2",
        "bad": "3",
        "partial": "",
    }
    assert values(board, "good")["borda"] == 4.0
    assert any(note.startswith("c: ") for note in board.notes)


def test_heads_tell_the_two_relative_differences_apart_and_the_switch_says_what_it_leaves(
    client: Client, pair: tuple[Dataset, Dataset]
) -> None:
    page = client.get("/benchmarks/all/").content.decode()
    assert "Δ mean (%)" in page
    assert "Mean of Δ (%)" in page
    assert "zero-shot values" in page
    assert "zero-shot values" not in client.get(f"/datasets/{pair[0].slug}/").content.decode()


def test_a_baseline_that_is_no_bm25_is_called_by_its_name(pair: tuple[Dataset, Dataset]) -> None:
    System.objects.filter(name="BM25").update(name="smith.rm3")
    score(pair[1], _named("newer"), ndcg=0.1)
    record_boards()
    board = board_of(view="delta")
    assert {column.group for column in board.columns} >= {"Δ vs smith.rm3"}
    assert any(note.startswith("On First, Second, Δ compares with smith.rm3.") for note in board.notes)


@pytest.mark.parametrize("query", ["hide=bogus", "hide=About"])
def test_a_group_that_no_board_has_is_refused_with_those_there_are(client: Client, query: str) -> None:
    scored_dataset(slug="demo")
    answer = client.get(f"/datasets/demo/?{query}")
    assert answer.status_code == 400
    assert "ranks-over-all" in answer.content.decode()


def test_every_group_of_columns_may_be_named(pair: tuple[Dataset, Dataset]) -> None:
    load_reported()
    for slug in ("all", "beir"):
        assert {column.group_slug for column in board_of(slug).unhidden} - {""} <= set(GROUPS)


def test_page_and_card_count_the_same_datasets_and_the_page_says_how_they_are_judged(client: Client) -> None:
    first, second, third = (scored_dataset(name=name, hidden=name == "Secret") for name in ("A", "Secret", "B"))
    benchmark_of(first, second, shown=(third,))
    Dataset.objects.update(current_version=None, reported_statistics={"queries": 1200})
    page, home = (one_line(client.get(address).content.decode()) for address in ("/benchmarks/all/", "/"))
    for text in (page, home):
        assert "Mean of 2 datasets (without B)" in " ".join(re.sub("<[^>]+>", "", text).split())
    for chip in (
        "2,400 queries",
        "2 of 3 datasets scored by Runboard (open judgments)",
        "Secret scored by Runboard (hidden judgments)",
    ):
        assert chip in page
