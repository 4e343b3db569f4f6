"""Tests over a whole benchmark: over queries with open judgments, over datasets with published means alone."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

import numpy as np
import pytest
from django.test import Client

from evaluation.statistics import randomisation
from evaluation.statistics.benchmark import subset_intervals
from leaderboard.boards.benchmark import significance
from leaderboard.boards.benchmark.significance import OVER_DATASETS, UNTESTED_NOTE, store_tests
from leaderboard.boards.pages import analyse_benchmarks
from leaderboard.boards.state import Sort
from leaderboard.models import Benchmark, Dataset, System, WorkRequest
from leaderboard.results.board_rows.revisions import record_present
from leaderboard.results.significance.computing import request_missing_certainty
from submissions.jobs.runner import drain_queue
from submissions.tasks import dispatch
from tests.factories import make_dataset
from tests.leaderboard.boards.test_boards_benchmark import benchmark_of, board_of
from tests.leaderboard.boards.test_permalinks import pass_time, permalink_of
from tests.leaderboard.entries import make_source, make_system, report, scored_dataset
from tests.leaderboard.entries_by_query import row_of, score_queries, spread
from tests.pages import one_line

pytestmark = pytest.mark.django_db

#: Mean values of the systems by query; the first is the baseline.
MEANS = {"BM25": 0.4, "Best": 0.6, "Second": 0.597, "Last": 0.3}


def _analyse(dataset: Dataset) -> int:
    """Run the tests over the dataset's benchmarks as the worker does, and return the number of new results."""
    return store_tests(dataset, analyse_benchmarks(dataset))


def _score_all(datasets: Sequence[Dataset]) -> None:
    systems = {name: System.objects.filter(name=name).first() or make_system(name) for name in MEANS}
    for number, dataset in enumerate(datasets):
        for seed, (name, mean) in enumerate(MEANS.items()):
            values = spread(mean, 10 * number + seed, queries=20 * (number + 1))
            score_queries(dataset, name, values, baseline=name == "BM25", system=systems[name])


def _report_all(
    datasets: Sequence[Dataset], gains: Sequence[float], *, paper: str = "paper", system: str = "Better"
) -> None:
    """Report a baseline, and a system with these gains over it."""
    source = make_source(paper)
    for dataset, gain in zip(datasets, gains, strict=True):
        report(dataset, source, f"BM25 of {paper}", baseline=True, ndcg=0.4)
        report(dataset, source, system, ndcg=round(0.4 + gain, 4))


@pytest.fixture(name="scored")
def _scored() -> list[Dataset]:
    """Return three datasets of 20, 40, and 60 queries in a benchmark with four systems."""
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(3)]
    _score_all(datasets)
    benchmark_of(*datasets)
    return datasets


def test_open_results_are_tested_over_queries_and_every_dataset_has_the_same_weight(scored: list[Dataset]) -> None:
    assert UNTESTED_NOTE in board_of().notes
    assert _analyse(scored[0]) == 1
    board = board_of()
    best = row_of(board, "Best")
    assert best.certainty is not None
    assert best.certainty.delta == pytest.approx(best.value("mean") - row_of(board, "BM25").value("mean"), abs=1e-4)
    assert best.certainty.delta_low is not None
    assert best.certainty.delta_high is not None
    assert 0.18 < best.certainty.delta_low < best.certainty.delta < best.certainty.delta_high < 0.22
    ranges = {row.entry.system: row["ranks"].text for row in board.rows}
    assert ranges == {"Best": "1–2", "Second": "1–2", "BM25": "3", "Last": "4"}
    assert [row.certainty and row.certainty.is_separable_from_next for row in board.rows] == [False, True, True, False]
    assert board.summary is not None
    assert "one system cannot be separated from it" in board.summary.headline
    assert "Not separable from the best: Second (all 6 pairs tested, over queries of these datasets)." in (
        board.summary.text
    )
    assert "95% CI" in board.summary.headline
    assert any("would hold for other queries on these datasets" in note for note in board.notes)


def test_reference_rows_are_not_tested_as_a_ranking() -> None:
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(6)]
    _score_all(datasets)
    benchmark_of(*datasets)
    for name, run_type in (("Closed book", "closed"), ("Gold evidence", "gold")):
        system = make_system(name)
        for number, dataset in enumerate(datasets):
            values = spread(0.5, number, queries=20 * (number + 1))
            score_queries(dataset, name, values, system=system, run_type=run_type)
    assert _analyse(datasets[0]) == 1
    board = board_of()
    assert row_of(board, "Best").certainty is not None
    assert row_of(board, "Gold evidence").certainty is None
    assert board.summary is not None
    assert "gold evidence 0.500" in board.summary.text.lower()


def test_the_same_results_are_tested_once_and_new_ones_again(scored: list[Dataset]) -> None:
    assert _analyse(scored[0]) == 1
    assert _analyse(scored[1]) == 0
    newcomer = make_system("Newcomer")
    for dataset in scored:
        assert _analyse(dataset) == 0  # It lacks datasets, so it is not compared yet.
        score_queries(dataset, "Newcomer", spread(0.5, 9, queries=20 * (scored.index(dataset) + 1)), system=newcomer)
    assert UNTESTED_NOTE in board_of().notes
    assert _analyse(scored[2]) == 1
    assert row_of(board_of(), "Newcomer")["ranks"].text == "3"


def test_reported_results_are_tested_over_datasets_with_means_alone() -> None:
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(7)]
    benchmark_of(*datasets)
    gains = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, -0.005]
    _report_all(datasets, gains)
    assert _analyse(datasets[0]) == 1
    board = board_of()
    certainty = row_of(board, "Better").certainty
    assert certainty is not None
    low, high = (ends[0] for ends in subset_intervals(np.array(gains)[:, None]))
    assert certainty.delta_interval == pytest.approx((low, high), abs=1e-6)
    assert certainty.p_baseline == pytest.approx(4 / 2**7)  # All gains, or all but the last with the other sign.
    assert (certainty.wins, certainty.losses) == (6, 1)
    assert board.summary is not None
    assert "over datasets" in board.summary.text
    assert "not tested" not in board.summary.text
    assert any("would hold on other datasets like these" in note for note in board.notes)


def test_every_ranking_is_tested_among_its_own_rows(client: Client) -> None:
    """The second source has fewer rows; the scored rows are tested over queries and lead."""
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(7)]
    benchmark_of(*datasets)
    gains = [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, -0.005]
    _report_all(datasets, gains)
    _report_all(datasets, [0.3, 0.2, 0.3, 0.2, 0.3, 0.2, 0.3], paper="other", system="Far better")
    assert _analyse(datasets[0]) == 2
    assert _analyse(datasets[0]) == 0
    board = board_of()
    better, far_better = (row_of(board, name).certainty for name in ("Better", "Far better"))
    assert better is not None
    assert far_better is not None
    assert better.p_baseline == pytest.approx(4 / 2**7)
    assert far_better.p_baseline == pytest.approx(2 / 2**7)
    assert (better.rank_low, far_better.rank_low) == (1, 1)
    assert board.compared == 2
    assert board.statements.for_entry(row_of(board, "Far better").first_entry, "nDCG@10").comparisons == 1
    _score_all(datasets)
    board = board_of()
    assert UNTESTED_NOTE in board.notes
    assert row_of(board, "Far better").certainty == far_better
    assert _analyse(datasets[0]) == 1
    board = board_of()
    assert board.tested_over == "over queries of these datasets"
    assert row_of(board, "Best").differs
    assert row_of(board, "Far better").certainty == far_better
    notes = " ".join(board.notes)
    assert "over queries test" in notes
    assert "over datasets test" in notes
    rows = client.get("/benchmarks/all/board.json").json()["rows"]
    assert {row["system"] for row in rows if row["better_than_baseline"]} >= {"Best", "Better", "Far better"}


def test_pages_and_exports_say_how_each_ranking_was_tested(client: Client) -> None:
    """Scored rows are tested over 560 queries, and those of each of two papers over seven datasets."""
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(7)]
    benchmark_of(*datasets)
    _score_all(datasets)
    for paper, system in (("paper", "Better"), ("other", "Other")):
        _report_all(datasets, [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, -0.005], paper=paper, system=system)
    assert _analyse(datasets[0]) == 3
    data = client.get("/benchmarks/all/board.json").json()
    rows = {row["system"]: row["certainty"] for row in data["rows"]}
    assert (rows["Best"]["tested_over"], rows["Best"]["wins"] > 7) == ("queries", True)
    assert (rows["Better"]["tested_over"], rows["Better"]["wins"]) == ("datasets", 6)
    assert rows["Better"]["test"] == "sign-flip test over datasets"
    assert not rows["Better"]["p_baseline_is_bound"]
    notes = " ".join(data["notes"])
    assert "tests of all pairs of the ranking" in notes
    assert "1,000 permutations, seed 1 or all 128 sign patterns" in notes
    assert "this board" not in notes
    page = one_line(client.get("/benchmarks/all/").content.decode())
    assert "significant after Holm correction for all comparisons with BM25 in the same ranking" in page
    names, *lines = csv.reader(client.get("/benchmarks/all/board.csv").content.decode().splitlines())
    tested_over = {line[names.index("system")]: line[names.index("tested over")] for line in lines}
    assert (tested_over["Best"], tested_over["Other"]) == ("queries", "datasets")
    latex = client.get("/benchmarks/all/board.tex?columns=delta-interval&columns=ranks&columns=p-baseline")
    latex = latex.content.decode()
    assert "over queries (rows scored by Runboard) or interval of subset means, over datasets (reported rows)." in latex
    assert "sign-flip test over datasets, all 128 sign patterns (reported rows), not corrected" in latex
    assert "all pairs of the ranking" in latex
    assert "ranks, marks, and tests are within each part of the table" in latex
    heads = [line for line in latex.splitlines() if line.startswith(r"\multicolumn")]
    assert [head.partition("emph{")[2].partition("}")[0] for head in heads] == [
        "Scored by Runboard",
        *["Reported by Lovelace and Hopper 2020: ranked separately"] * 2,
    ]
    assert latex.count(r"\midrule") == 3


def test_few_datasets_are_tested_with_all_sign_patterns_and_permalinks_keep_earlier_tests(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier results of the same rows have another key."""
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(7)]
    benchmark_of(*datasets)
    _report_all(datasets, [0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.005])
    record_present()
    with monkeypatch.context() as patch:
        patch.setattr(significance, "settings_over_datasets", lambda count: OVER_DATASETS)
        patch.setattr(randomisation, "MAX_EXACT", 0)
        assert _analyse(datasets[0]) == 1
    pass_time()
    earlier_link = permalink_of(client, "/benchmarks/all/")
    earlier = client.get(f"{earlier_link}board.json").json()
    assert earlier["certainty"]["permutations"] == 10_000
    WorkRequest.objects.all().delete()
    assert request_missing_certainty() == 7
    assert request_missing_certainty() == 0
    assert _analyse(datasets[0]) == 1
    assert _analyse(datasets[0]) == 0
    assert client.get(f"{earlier_link}board.json").json() == earlier
    data = client.get("/benchmarks/all/board.json").json()
    assert (data["certainty"]["permutations"], data["certainty"]["pairs_permutations"]) == (128, 128)
    (certainty,) = (row["certainty"] for row in data["rows"] if row["system"] != "Better")
    assert certainty["p_best"] == certainty["p_best_corrected"] == 2 / 2**7
    notes = " ".join(data["notes"])
    assert "two-sided sign-flip test over datasets, all 128 sign patterns." in notes
    assert "seed" not in notes


def test_a_hidden_dataset_prevents_tests_over_queries(scored: list[Dataset]) -> None:
    Dataset.objects.filter(pk=scored[0].pk).update(hidden=True)
    assert _analyse(scored[0]) == 0  # There are too few datasets for the other test.
    others = [scored_dataset(measures=["nDCG@10"]) for _ in range(3)]
    _score_all(others)
    benchmark = Benchmark.objects.get(slug="all")
    for position, dataset in enumerate(others, 3):
        benchmark.members.create(dataset=dataset, position=position)
    assert _analyse(scored[0]) == 1
    board = board_of()
    assert board.tested_over == "over datasets"
    results = board.statements.tests("nDCG@10")
    assert results is not None
    assert results.queries == 6


def test_pages_say_where_the_correction_removes_significance(client: Client) -> None:
    """With six datasets, p is at least 2 / 64 = 0.031, and 0.062 after correction for two comparisons."""
    datasets = [make_dataset(state=Dataset.State.REPORTED) for _ in range(6)]
    source = make_source("paper")
    for dataset in datasets:
        for name, ndcg in {"Reported BM25": 0.4, "Better": 0.5, "Also better": 0.45}.items():
            report(dataset, source, name, baseline=name == "Reported BM25", ndcg=ndcg)
    benchmark_of(*datasets)
    _analyse(datasets[0])
    (note,) = [note for note in board_of().notes if "p is at least" in note]
    assert "With 6 datasets, p is at least 0.031" in note
    assert "no difference from BM25 is significant after Holm correction for 2 comparisons" in note
    assert "Tests of all pairs use Westfall–Young step-down, which may separate a system from BM25." in note
    card = client.get("/").content.decode().partition('href="/benchmarks/all/"')[2].partition("</article>")[0]
    assert "significant only before correction" not in card, "the tests of all pairs are corrected too"
    assert "Not separable from the best: none" in " ".join(card.split())


def test_boards_state_the_smallest_p_that_few_datasets_can_have(client: Client) -> None:
    """With six datasets and four comparisons, it is 4 × 2 / 64 = 0.125."""
    datasets = [make_dataset(state=Dataset.State.REPORTED) for _ in range(6)]
    source, scores = make_source("paper"), {"Reported BM25": 0.4, "A": 0.5, "B": 0.5, "C": 0.5, "D": 0.5}
    for number, dataset in enumerate(datasets):
        for name, ndcg in scores.items():
            gain = number / 1000 if name != "Reported BM25" else 0.0
            report(dataset, source, name, baseline=name == "Reported BM25", ndcg=ndcg + gain)
    benchmark_of(*datasets)
    _analyse(datasets[0])
    least = "the smallest possible with 6 datasets"
    board = board_of()
    assert board.summary is not None
    assert f"p = 0.031, Holm-corrected p = 0.125; {least}" in board.summary.text
    for address in ("/", "/benchmarks/"):
        page = " ".join(client.get(address).content.decode().split())
        assert "significant only before correction" in page
        assert "p =" not in page, "details are on the board"


def test_five_datasets_of_reported_results_are_too_few() -> None:
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(5)]
    benchmark_of(*datasets)
    _report_all(datasets, [0.1] * 5)
    assert _analyse(datasets[0]) == 0
    board = board_of()
    assert board.certainty is None
    assert any("A test over datasets needs at least six" in note for note in board.notes)


def test_parts_of_a_composite_dataset_share_its_weight(scored: list[Dataset]) -> None:
    whole = make_dataset(name="Whole", hidden=False, measures=["nDCG@10"])
    Dataset.objects.filter(pk__in=[scored[1].pk, scored[2].pk]).update(part_of=whole)
    members = Benchmark.objects.get(slug="all").members
    members.filter(position=1).update(dataset=whole)
    members.filter(position=2).delete()
    assert _analyse(Dataset.objects.get(pk=scored[1].pk)) == 1
    board = board_of()
    best, bm25 = row_of(board, "Best"), row_of(board, "BM25")
    assert best.certainty is not None
    assert best.certainty.delta == pytest.approx(best.value("mean") - bm25.value("mean"), abs=1e-4)


def test_views_of_other_measures_and_filtered_datasets_have_no_tests(scored: list[Dataset]) -> None:
    Dataset.objects.update(measures=["nDCG@10", "AP"])
    system = make_system("By AP")
    for dataset in scored:
        score_queries(dataset, "By AP", spread(0.4, 9), measure="AP", system=system)
    _analyse(scored[0])
    assert board_of().certainty is not None
    assert board_of(zero_shot=True).certainty is None
    Dataset.objects.filter(pk=scored[0].pk).update(domain="Finance")
    assert board_of(facets=(("domain", ("Finance",)),)).certainty is None
    assert board_of(measure="AP").certainty is None


def test_page_and_exports_show_the_tests(client: Client, scored: list[Dataset]) -> None:
    _analyse(scored[0])
    page = client.get("/benchmarks/all/").content.decode()
    assert page.count('<span class="visually-hidden">, separable from the next rank</span>') == 2
    assert "1–2</small>" in page
    assert 'class="whisker"' in page
    assert "css/whiskers" in page
    data = client.get("/benchmarks/all/board.json").json()
    assert data["certainty"]["test"] == "paired randomization test over the queries of all datasets"
    row = next(row for row in data["rows"] if row["system"] == "Second")
    assert row["tied_with_best"] is True
    assert row["better_than_baseline"] is True
    assert (row["certainty"]["rank_low"], row["certainty"]["rank_high"]) == (1, 2)
    assert row["certainty"]["p_next"] < 0.05
    assert row["intervals"]["delta"]["low"] > 0
    lines = client.get("/benchmarks/all/board.csv").content.decode().splitlines()
    assert "rank low,rank high,separable from next" in lines[0]
    rows = {row["system"]: row for row in csv.DictReader(lines)}
    assert re.fullmatch(r"\+0\.\d+ to \+0\.\d+", rows["Second"]["delta-interval"]), "no formula, and no apostrophe"
    assert client.get("/benchmarks/all/?sort=ranks").status_code == 200
    latex = client.get("/benchmarks/all/board.tex?columns=delta-interval").content.decode()
    assert "percentile bootstrap, stratified by dataset, over queries." in latex


def test_views_that_sort_by_a_pending_column_are_valid(client: Client, scored: list[Dataset]) -> None:
    assert client.get("/benchmarks/all/?sort=ranks").status_code == 200
    assert any(note.startswith("Not applied yet") for note in board_of(sorts=(Sort("ranks"),)).notes)


def test_a_permalink_keeps_the_tests_of_its_time(client: Client, scored: list[Dataset]) -> None:
    record_present()
    pass_time(2)  # The tests must be later than the time of the first link.
    untested_link = permalink_of(client, "/benchmarks/all/")
    _analyse(scored[0])
    pass_time()
    tested_link = permalink_of(client, "/benchmarks/all/")
    tested = client.get("/benchmarks/all/board.json").json()
    assert tested["certainty"]["current"] is True
    score_queries(scored[0], "Best", spread(0.1, 5, queries=20))
    untested = client.get(f"{untested_link}board.json").json()
    assert untested["rows"][0]["certainty"] is None
    assert UNTESTED_NOTE in untested["notes"]
    assert client.get(f"{tested_link}board.json").json() == tested


def test_the_job_of_a_dataset_tests_its_benchmarks_also_for_reported_results() -> None:
    datasets = [scored_dataset(measures=["nDCG@10"]) for _ in range(6)]
    benchmark_of(*datasets)
    _report_all(datasets, [0.02, 0.03, 0.01, 0.05, 0.04, 0.02])
    dispatch()
    assert drain_queue("score", "worker") >= 1
    assert row_of(board_of(), "Better").differs
