"""What pages show of a board's differences, and what is kept of them for boards of the past."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import Target, score_run
from leaderboard.boards.state import Sort
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry
from leaderboard.results import significance
from leaderboard.results.significance import (
    compute_certainty,
)
from tests.leaderboard.entries import scored_dataset
from tests.leaderboard.entries_by_query import (
    cells,
    make_board,
    page_text,
    score_queries,
    shown,
    spread,
)

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def board() -> Dataset:
    """A board of four: the best two cannot be told apart, the third is BM25, the last is far behind."""
    return make_board()


def test_no_filter_moves_a_group_or_a_p_value(board: Dataset) -> None:
    compute_certainty(board)
    whole = shown(board)
    filtered = shown(board, text="Last")
    assert [row.entry.system for row in filtered.rows] == ["Last"]
    assert cells(filtered, "Last") == cells(whole, "Last")


def test_the_page_says_what_was_done(client: Client, board: Dataset) -> None:
    assert "being computed" in page_text(client, board)
    compute_certainty(board)
    page = page_text(client, board)
    for said in (
        "percentile bootstrap, 10,000 resamples",
        "two-sided paired randomisation test by query, 10,000 permutations, seed 1",
        "Holm-corrected over this board’s 3 comparisons with BM25",
        "Group a: the best system",
        "Filters move none of this.",
    ):
        assert said in page
    assert page.count('class="whisker"') == 4
    assert 'title="95 % interval 0.' in page
    assert cells(shown(board), "First")["wins"] == "40/0/0"
    assert cells(shown(board), "Last")["p-best"] == "<0.001"


def test_a_board_is_ordered_by_group_interval_and_p(board: Dataset) -> None:
    compute_certainty(board)

    def order(key: str) -> list[str]:
        return [row.entry.system for row in shown(board, sorts=(Sort(key),)).rows]

    assert order("group") == ["First", "Second", "BM25", "Last"]
    assert order("interval")[-1] == "Last"
    assert order("p-best")[-1] == "First"  # the best itself has none: missing is last
    assert order("wins")[-1] == "BM25"


def test_an_address_that_orders_by_a_group_holds_while_groups_are_found_anew(
    client: Client, board: Dataset
) -> None:
    asked = "?sort=group&min-p-best=0"
    said = "computed: order by group, bounds of p (best)."

    def page() -> str:
        answer = client.get(f"/datasets/{board.slug}/{asked}")
        assert answer.status_code == 200
        return answer.content.decode()

    assert said in page()  # nothing is found yet
    compute_certainty(board)
    assert said not in page()
    assert "BM25" in page()
    score_queries(board, "Newcomer", spread(0.5))
    assert said in page()
    assert "Newcomer" in page()
    assert "p (best): not applied, being computed" in page(), "the bound can be taken back"
    assert '<input type="hidden" name="min-p-best" value="0">' in page(), (
        "another choice in the form keeps it"
    )
    told = client.get(f"/api/v1/datasets/{board.slug}/board/{asked}").json()
    assert any(said in note for note in told["notes"])


@pytest.mark.parametrize("asked", ["?sort=group", "?min-p-best=0", "?sort=wins"])
def test_who_asks_for_what_a_board_never_has_is_told(client: Client, board: Dataset, asked: str) -> None:
    assert client.get(f"/datasets/{board.slug}/?sort=groups").status_code == 400
    Dataset.objects.filter(pk=board.pk).update(hidden=True)
    assert client.get(f"/datasets/{board.slug}/{asked}").status_code == 400
    benchmark = Benchmark.objects.create(slug="of-one", name="Of one")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=board)
    assert client.get("/benchmarks/of-one/").status_code == 200
    assert client.get(f"/benchmarks/of-one/{asked}").status_code == 400


def test_reported_boards_say_nothing_of_it(client: Client) -> None:
    from leaderboard.importing.reported.loader import load_reported

    load_reported()
    page = client.get("/datasets/nq/").content.decode()
    assert "interval" not in page
    assert "withheld" not in page


def test_reading_takes_four_queries_for_any_number_of_boards_and_one_where_they_are_known(
    board: Dataset, django_assert_num_queries: Any
) -> None:
    other = scored_dataset(measures=["nDCG@10"])
    score_queries(other, "Alone", spread(0.3))
    for dataset in (board, other):
        compute_certainty(dataset)
    with django_assert_num_queries(4):
        assert set(significance.read([board.pk, other.pk])) == {board.pk, other.pk}
    with django_assert_num_queries(1):
        significance.read([board.pk, other.pk])


def test_an_old_board_has_what_was_known_then(board: Dataset) -> None:
    first = compute_certainty(board)
    assert first is not None
    then = list(Entry.objects.values_list("pk", flat=True))
    score_queries(board, "Newcomer", spread(0.9))
    second = compute_certainty(board)
    assert second is not None
    old = significance.read_at(board.pk, second.from_revision - 1, then)
    assert old is not None
    assert old.current
    assert old.from_revision == first.from_revision
    assert significance.read_at(board.pk, first.from_revision - 1, then) is None
    between = significance.read_at(board.pk, second.from_revision - 1, [*then, 10**9])
    assert between is not None
    assert not between.current


def test_kept_content_fits_a_page(board: Dataset) -> None:
    kept = compute_certainty(board)
    assert kept is not None
    measure = kept.content["nDCG@10"]
    assert len(gzip.compress(repr(measure).encode())) < 1000
    assert np.isfinite(measure["low"]).all()


def test_json_says_all_that_was_found(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    data = client.get(f"/datasets/{board.slug}/board.json").json()
    assert data["certainty"]["test"] == "paired randomisation test"
    assert data["certainty"]["permutations"] == 10_000
    assert data["certainty"]["current"] is True
    first = next(row for row in data["rows"] if row["system"] == "First")["certainty"]
    assert first["group"] == "a"
    assert first["p_best"] is None
    assert first["raw_p_baseline"] < first["p_baseline"] < 0.01
    assert first["low"] < 0.601 < first["high"]


@pytest.mark.long_on_postgresql
def test_the_board_of_trec_covid_round_1_shows_its_groups(client: Client, shared_folder: Path) -> None:
    folder = shared_folder / "data" / "trec-covid-round1"
    qrels = read_qrels(folder / "qrels.txt")
    target = Target(qrels, qrels.query_ids, hidden=False)
    dataset = scored_dataset(measures=["nDCG@10"])
    for path in sorted((folder / "runs").glob("*.txt.gz")):
        name = path.name.removesuffix(".txt.gz")
        values = score_run(path, target, ["nDCG@10"]).per_query[:, 0]
        score_queries(dataset, name, values.tolist(), baseline=name == "PS-r1-bm25all")
    compute_certainty(dataset)
    board = shown(dataset)
    groups = {row.entry.system: cells(board, row.entry.system)["group"] for row in board.rows}
    assert list(groups)[:7] == [
        "run1", "OHSU_RUN2", "base.unipd.it", "UP-rrf5rnd1", "smith.rm3", "udel_fang_run1", "PS-r1-bm25all",
    ]  # fmt: skip
    assert list(groups.values()) == list("abbbb" + "c" * 7 + "ddd" + "ee" + "f")
    assert cells(board, "run1") == {
        "interval": "0.600–0.765",
        "group": "a",
        "p-best": None,
        "p-baseline": "0.001",
        "wins": "24/0/6",
    }
    assert "over the 30 judged queries" in page_text(client, dataset)


def test_a_board_without_a_baseline_speaks_of_no_comparison_with_one(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    for number, mean in enumerate((0.5, 0.4, 0.3)):
        score_queries(dataset, f"System {number}", spread(mean, number))
    compute_certainty(dataset)
    page = page_text(client, dataset)
    assert "Holm-corrected over this board’s 2 comparisons with the best." in page
    notes = " ".join(client.get(f"/datasets/{dataset.slug}/board.json").json()["notes"])
    assert not {"BM25", "W/T/L", "Δ"} & set(notes.replace(":", " ").split())


def test_a_named_baseline_is_called_by_its_name(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "smith.rm3", spread(0.4, 1), baseline=True)
    score_queries(dataset, "other", spread(0.6, 2))
    compute_certainty(dataset)
    page = page_text(client, dataset)
    assert "Δ to smith.rm3" in page
    assert "1 comparison with smith.rm3, and over its 1 comparison with the best." in page
    assert "W/T/L: queries won, tied and lost against smith.rm3." in page
    assert "Δ is taken to smith.rm3, the baseline here" in page
    assert "BM25" not in page[page.index("<thead") : page.index("</table>")]
    kept = client.get(f"/datasets/{dataset.slug}/?hide=delta").content.decode()
    assert "Δ to smith.rm3" not in kept[kept.index("<thead") : kept.index("</thead")]


def test_p_below_what_permutations_show_is_marked_as_a_bound(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    assert "below 1/10,001 is Hoeffding’s bound" in page_text(client, board)
    rows = client.get(f"/datasets/{board.slug}/board.json").json()["rows"]
    told = {row["system"]: row["certainty"] for row in rows}
    for found in told.values():
        for whom in ("best", "baseline"):
            raw = found[f"raw_p_{whom}"]
            assert found[f"p_{whom}_is_bound"] == (raw is not None and raw < 1 / 10_001)
    assert told["Last"]["p_best_is_bound"]
