"""What pages show of a board's differences, and what is kept of them for boards of the past."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client

from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import ScoringTarget, score_run
from leaderboard.api.board_answers import BoardSerializer
from leaderboard.boards.state import Sort
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry
from leaderboard.results.publishing.visibility import name_baseline
from leaderboard.results.significance.statements import read_certainty
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import scored_dataset
from tests.leaderboard.entries_by_query import (
    cells,
    certainty_at,
    found_of,
    make_board,
    page_text,
    score_queries,
    shown,
    spread,
)

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture
def board() -> Dataset:
    """A board of four: the best two cannot be told apart, the third is BM25, the last is far behind."""
    return make_board()


def test_no_filter_moves_a_rank_interval_or_a_p_value(board: Dataset) -> None:
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
        "Of 3 other systems, 2 are better and 1 worse than BM25 at 0.05 (Holm-corrected). As of ",
        "percentile bootstrap over the 40 judged queries, 10,000 resamples, seed 1; beside Δ, of the paired difference",
        "p vs BM25: two-sided paired randomization test by query, 10,000 permutations, seed 1, not corrected",
        "These values do not change when others submit.",
        "Rank range and p vs best come from tests of all pairs of the board, corrected together",
        "filters do not change them.",
    ):
        assert said in page
    assert page.count('class="whisker"') == 4
    assert 'title="95% interval 0.' in page
    assert cells(shown(board), "First")["wins"] == "40/0/0"
    assert cells(shown(board), "Last")["p-best"] == "<0.001"
    assert cells(shown(board), "Last")["delta-interval"].startswith("−0.2")


def test_few_queries_are_tested_with_all_sign_patterns(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "BM25", spread(0.4, 1, queries=7), baseline=True)
    score_queries(dataset, "First", spread(0.6, 2, queries=7))
    compute_certainty(dataset)
    page = page_text(client, dataset)
    assert "p vs BM25: two-sided paired randomization test by query, all 128 sign patterns, not corrected." in page
    assert "step-down, all 128 sign patterns, level 0.05" in page
    assert "Hoeffding" not in page
    data = client.get(f"/datasets/{dataset.slug}/board.json").json()
    assert (data["certainty"]["permutations"], data["certainty"]["pairs_permutations"]) == (128, 128)
    (certainty,) = (row["certainty"] for row in data["rows"] if row["system"] == "First")
    assert certainty["p_baseline"] == 2 / 2**7
    assert not certainty["p_baseline_is_bound"]


def test_no_two_columns_of_a_board_have_one_head(board: Dataset) -> None:
    compute_certainty(board)
    labels = [column.label for column in shown(board).columns]
    assert len(set(labels)) == len(labels)
    assert {"p vs BM25", "p vs best", "95% interval", "Δ 95% interval"} <= set(labels)


def test_the_menu_of_columns_names_what_other_columns_already_show(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    page = client.get(f"/datasets/{board.slug}/").content.decode()
    names = ["Rank range", "95% interval", "Δ %"]
    assert [page.count(f"<span>{name} as its own column</span>") for name in names] == [1, 1, 1]
    assert page.count("as its own column") == 3


def test_a_board_is_ordered_by_rank_interval_interval_and_p(board: Dataset) -> None:
    compute_certainty(board)

    def order(key: str) -> list[str]:
        return [row.entry.system for row in shown(board, sorts=(Sort(key),)).rows]

    assert order("ranks") == ["First", "Second", "BM25", "Last"]
    assert order("interval")[-1] == "Last"
    assert order("p-best")[-1] == "First"  # the best itself has none: missing is last
    assert order("delta-interval")[-1] == order("wins")[-1] == "BM25"


def test_an_address_that_orders_by_ranks_holds_while_they_are_found_anew(client: Client, board: Dataset) -> None:
    # `group` is what the column was called before.
    asked = "?sort=group&min-p-best=0"
    said = "computed: order by rank range, bounds of p vs best."

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
    assert "p vs best: not applied yet, still being computed" in page(), "the bound can be taken back"
    assert '<input type="hidden" name="min-p-best" value="0">' in page(), "another choice in the form keeps it"
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
    from tests.reported_boards import load_reported

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
        assert set(read_certainty([board.pk, other.pk])) == {board.pk, other.pk}
    with django_assert_num_queries(1):
        read_certainty([board.pk, other.pk])


def test_an_old_board_has_what_was_known_then(board: Dataset) -> None:
    first = compute_certainty(board)
    assert first is not None
    score_queries(board, "Newcomer", spread(0.9))
    second = compute_certainty(board)
    assert second is not None
    old = certainty_at(board, first.from_revision)
    assert old is not None
    assert old.current
    assert old.from_revision == first.from_revision
    assert certainty_at(board, first.from_revision - 1) is None
    between = certainty_at(board, second.from_revision - 1)
    assert between is not None
    assert not between.current


def test_an_old_board_with_another_baseline_than_was_tested_is_not_current(board: Dataset) -> None:
    compute_certainty(board)
    name_baseline(Entry.objects.get(system__name="Last"))
    board.refresh_from_db()
    present, then = found_of(board), certainty_at(board, board.board_revision)
    assert then is not None
    assert not present.current
    assert not then.current
    assert then.for_measure("nDCG@10") == present.for_measure("nDCG@10")


def test_kept_content_fits_a_page(board: Dataset) -> None:
    kept = compute_certainty(board)
    assert kept is not None
    measure = kept.content["nDCG@10"]
    assert len(gzip.compress(repr(measure).encode())) < 1000
    assert np.isfinite(measure["low"]).all()


def test_json_says_all_that_was_found(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    data = client.get(f"/datasets/{board.slug}/board.json").json()
    assert data["certainty"]["test"] == "paired randomization test"
    assert data["certainty"]["permutations"] == 10_000
    assert data["certainty"]["current"] is True
    first = next(row for row in data["rows"] if row["system"] == "First")["certainty"]
    assert (first["rank_low"], first["rank_high"]) == (1, 2)
    assert first["p_best"] is None
    assert first["p_baseline"] < first["p_baseline_corrected"] < 0.01
    assert first["low"] < 0.601 < first["high"]
    assert first["delta_low"] < first["delta"] < first["delta_high"]
    row = next(row for row in data["rows"] if row["system"] == "First")
    assert row["intervals"]["delta"] == {"low": first["delta_low"], "high": first["delta_high"]}
    assert row["values"]["ranks"] == "1–2"


def test_what_is_said_of_the_whole_board_is_said_once_with_its_revision_and_date(
    client: Client, board: Dataset
) -> None:
    found = compute_certainty(board)
    assert found is not None
    # A view of the last one alone: the verdict is of the whole board.
    told = client.get(f"/datasets/{board.slug}/board.json?q=Last").json()
    assert [row["system"] for row in told["rows"]] == ["Last"]
    verdict = told["verdict"]
    assert verdict["best"]["system"] == "First"
    assert [one["system"] for one in verdict["ties"]] == ["Second"]
    assert verdict["baseline"]["system"] == "BM25"
    assert (verdict["compared"], verdict["better"], verdict["worse"]) == (3, 2, 1)
    assert verdict["revision"] == found.from_revision
    assert verdict["at"] == f"{found.computed_at:%Y-%m-%dT%H:%M:%SZ}"
    answer = client.get(f"/api/v1/datasets/{board.slug}/board/").json()
    assert answer["verdict"] == verdict
    assert BoardSerializer(answer).data == answer
    score_queries(board, "Newcomer", spread(0.5))
    assert client.get(f"/datasets/{board.slug}/board.json").json()["verdict"] is None


def test_csv_has_the_ends_of_intervals_and_ranks_as_numbers(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    text = client.get(f"/datasets/{board.slug}/board.csv").content.decode()
    rows = {row["system"]: row for row in csv.DictReader(io.StringIO(text))}
    first, bm25 = rows["First"], rows["BM25"]
    assert (first["ranks"], first["rank low"], first["rank high"]) == ("1–2", "1", "2")
    assert float(first["delta interval low"]) < float(first["delta"]) < float(first["delta interval high"])
    assert float(first["nDCG@10 p-value"]) < float(first["nDCG@10 p-value corrected"])
    assert first["nDCG@10 reject"] == "True"
    assert (bm25["delta interval low"], bm25["nDCG@10 p-value"], bm25["rank low"]) == ("", "", "3")


@pytest.mark.parametrize("ending", ["md", "tex"])
def test_tables_for_papers_have_rank_intervals_and_no_letters(client: Client, board: Dataset, ending: str) -> None:
    compute_certainty(board)
    text = client.get(f"/datasets/{board.slug}/board.{ending}").content.decode()
    assert "Rank range" in text
    assert "1–2" in text or "1--2" in text
    assert "Letters" not in text
    assert "mathrm" not in text
    assert "<sup>" not in text


@pytest.mark.long_on_postgresql
def test_the_board_of_trec_covid_round_1_shows_its_rank_intervals(client: Client, shared_folder: Path) -> None:
    folder = shared_folder / "data" / "trec-covid-round1"
    qrels = read_qrels(folder / "qrels.txt")
    target = ScoringTarget(qrels, qrels.query_ids, hidden=False)
    dataset = scored_dataset(measures=["nDCG@10"])
    for path in sorted((folder / "runs").glob("*.txt.gz")):
        name = path.name.removesuffix(".txt.gz")
        values = score_run(path, target, ["nDCG@10"]).per_query[:, 0]
        score_queries(dataset, name, values.tolist(), baseline=name == "PS-r1-bm25all")
    compute_certainty(dataset)
    board = shown(dataset)
    ranks = {row.entry.system: cells(board, row.entry.system)["ranks"] for row in board.rows}
    assert list(ranks)[:7] == [
        "run1", "OHSU_RUN2", "base.unipd.it", "UP-rrf5rnd1", "smith.rm3", "udel_fang_run1", "PS-r1-bm25all",
    ]  # fmt: skip
    assert list(ranks.values())[:7] == ["1–5", "1–7", "1–9", "1–10", "1–12", "2–13", "2–13"]
    assert list(ranks.values())[-1] == "15–18"
    assert cells(board, "run1") == {
        "interval": "0.600–0.765",
        "ranks": "1–5",
        "p-best": None,
        "delta-interval": "+0.142 to +0.324",
        "p-baseline": "<0.001",
        "wins": "24/0/6",
    }
    page = page_text(client, dataset)
    assert "over the 30 judged queries" in page
    said = "Not separable from the best: OHSU_RUN2, base.unipd.it, UP-rrf5rnd1, smith.rm3 (all 153 pairs tested)."
    assert board.summary is not None
    assert said in board.summary.text
    assert "(all 153 pairs tested)" in page


def test_a_board_without_a_baseline_speaks_of_no_comparison_with_one(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    for number, mean in enumerate((0.5, 0.4, 0.3)):
        score_queries(dataset, f"System {number}", spread(mean, number))
    compute_certainty(dataset)
    page = page_text(client, dataset)
    assert "As of " in page
    notes = " ".join(client.get(f"/datasets/{dataset.slug}/board.json").json()["notes"])
    assert not {"BM25", "W/T/L", "Δ"} & set(notes.replace(":", " ").split())


def test_a_named_baseline_is_called_by_its_name(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score_queries(dataset, "smith.rm3", spread(0.4, 1), baseline=True)
    score_queries(dataset, "other", spread(0.6, 2))
    compute_certainty(dataset)
    page = page_text(client, dataset)
    assert "Δ vs smith.rm3" in page
    assert "Of 1 other system, 1 is better and 0 worse than smith.rm3 at 0.05" in page
    assert "W/T/L: queries won, tied, and lost against smith.rm3." in page
    assert "BM25" not in page[page.index('id="verdict"') : page.index("</table>")]
    page = client.get(f"/datasets/{dataset.slug}/?columns=effectiveness").content.decode()
    assert "p vs smith.rm3" in page[page.index("<thead") : page.index("</thead")]
    assert "Δ compares with smith.rm3, the baseline here" in page
    assert "BM25" not in page[page.index("<thead") : page.index("</table>")]
    kept = client.get(f"/datasets/{dataset.slug}/?hide=delta").content.decode()
    assert "Δ vs smith.rm3" not in kept[kept.index("<thead") : kept.index("</thead")]


def test_p_below_what_permutations_show_is_marked_as_a_bound(client: Client, board: Dataset) -> None:
    compute_certainty(board)
    assert "below 1/10,001 it is Hoeffding’s upper bound" in page_text(client, board)
    rows = client.get(f"/datasets/{board.slug}/board.json").json()["rows"]
    told = {row["system"]: row["certainty"] for row in rows}
    for found in told.values():
        for whom in ("best", "baseline"):
            raw = found[f"p_{whom}"]
            assert found[f"p_{whom}_is_bound"] == (raw is not None and raw < 1 / 10_001)
    assert told["Last"]["p_best_is_bound"]
