"""Systems side by side: within a comparison group alone, tested where judgements are open and nowhere else."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote_plus

import numpy as np
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from evaluation.statistics.comparison import PairedResult
from evaluation.statistics.randomisation import holm, randomisation_test
from leaderboard.comparison.pairs import BASELINE_COMPARISONS, CorrectedP, PairComparison, PairTest
from leaderboard.comparison.selection import MAX_SYSTEMS, SystemChoice, entries_of_systems, resolve_systems
from leaderboard.comparison.table import ComparedCell, compare
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry, System
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.comparison.test_queries import GOOD, POOR, text_of
from tests.leaderboard.entries import (
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.entries_by_query import found_of, score_queries, spread
from tests.leaderboard.figure_checks import column, drawn
from tests.leaderboard.open_runs import open_dataset, run_for, seeds_for
from tests.pages import clear_page_cache, one_line
from tests.reported_boards import load_reported

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def address(*slugs: str, **more: str) -> str:
    """The comparison of these systems."""
    parts = [f"system={slug}" for slug in slugs] + [f"{name}={value}" for name, value in more.items()]
    return "/compare/?" + "&".join(parts)


@pytest.fixture
def slugs(tmp_path: Path) -> tuple[str, str]:
    """BM25 and a better system with real runs on the tiny dataset."""
    dataset = open_dataset(tmp_path)
    first = run_for(dataset, "BM25", POOR, baseline=True).system
    second = run_for(dataset, "newcomer", GOOD).system
    return first.slug, second.slug


def test_nothing_chosen_is_a_form_and_what_it_sends_leads_to_the_comparison(
    client: Client, slugs: tuple[str, str]
) -> None:
    page = client.get("/compare/").content.decode()
    assert "Choose two to six systems" in page
    assert f'<option value="{slugs[1]}">newcomer' in page
    placeholders = re.findall(r'placeholder="For example ([^"]+)"', page)
    assert [text.partition(" ")[0] for text in placeholders] == ["BM25", "newcomer"], "each box has its own example"
    assert '<input type="hidden" name="system" value="">' in page, "the reference is not chosen yet"
    sent = client.get(f"/compare/?system=&system={slugs[1]}&system=BM25&measure=")
    assert sent.status_code == 302
    assert sent["Location"] == address(*slugs), "the baseline is the reference"
    chosen = client.get(f"/compare/?system={slugs[1]}&system=BM25&system=&measure=")
    assert chosen["Location"] == address(slugs[1], slugs[0]), "a chosen reference is kept"


def test_unknown_systems_are_refused_with_similar_ones(client: Client, slugs: tuple[str, str]) -> None:
    answer = client.get(address("newcomr", slugs[0]))
    assert answer.status_code == 400
    assert f'value="{slugs[0]}"' in answer.content.decode()
    assert re.findall(
        r'<div class="field has-errors">.*?value="(\w+)" aria-invalid="true"', answer.content.decode(), re.DOTALL
    ) == ["newcomr"]
    assert re.search(r">newcomer \([^)]+\)</a>", answer.content.decode())
    assert client.get(address(*slugs, measure="nonsense")).status_code == 400
    page = client.get(address(*slugs, dataset="nowhere")).content.decode()
    assert "A per-query comparison on nowhere is not possible" in page
    assert client.get(address(*slugs, **{"with": "nobody"})).status_code == 400
    assert client.get(address(*"abcdefg")).status_code == 400


def renamed(name: str, slug: str) -> System:
    """Return a system with this slug."""
    system = make_system(name)
    system.slug = slug
    system.save()
    return system


def boxes(page: str) -> list[str]:
    """Return what the form's boxes for systems hold."""
    return re.findall(r'<input\s+id="system-\d"[^>]*\svalue="([^"]*)"', page)


def suggestions(page: str) -> dict[str, str]:
    """Return the addresses of suggested systems by their text, without the escapes of addresses."""
    chips = page.partition('role="alert"')[2].partition("<form")[0]
    return {label: unquote_plus(unescape(href)) for href, label in re.findall(r'<a href="([^"]+)">([^<]+)</a>', chips)}


def test_an_exact_name_wins_over_others_that_are_spelled_alike(client: Client) -> None:
    dataset, paper = scored_dataset(hidden=True), make_source("paper")
    ours = score(dataset, renamed("BM25", "bm25"), baseline=True, ndcg=0.4).system
    other = score(dataset, "smith.rm3", ndcg=0.5).system
    report(dataset, paper, "BM25", ndcg=0.3)
    report(dataset, paper, "bm25 (tuned)", ndcg=0.3)
    for name in ("BM25", "bm25", "Bm25"):
        answer = client.get(address(name, "Smith.RM3"))
        assert answer.status_code == 302
        assert answer["Location"] == address(ours.slug, other.slug)
    page = client.get(address("bm25 tune", other.slug)).content.decode()
    assert any(text.startswith("bm25 (tuned) (") for text in suggestions(page))


def test_suggestions_name_each_system_once_with_its_source_and_boxes_keep_what_was_entered(
    client: Client,
) -> None:
    dataset = scored_dataset(hidden=True)
    first = score(dataset, renamed("smith.rm3", "smith-rm3"), ndcg=0.5).system
    twins = [score(dataset, renamed("Dense", f"dense-{n}"), ndcg=0.1 * n).system for n in (1, 2)]
    page = client.get(address("smith", "Nothing like it", measure="nDCG@10")).content.decode()
    assert boxes(page) == ["smith", "Nothing like it"]
    assert suggestions(page) == {f"smith.rm3 ({first.team})": address(first.slug, "Nothing like it", measure="nDCG@10")}
    assert "There is no system “smith”. Choose one of these or correct the name below:" in text_of(page)
    assert '<input type="hidden" name="measure" value="nDCG@10">' in page
    page = client.get(address(first.slug, "dense")).content.decode()
    assert "Several systems are called “dense”. Choose one:" in text_of(page)
    assert suggestions(page) == {f"Dense ({each.team})": address(first.slug, each.slug) for each in twins}
    assert boxes(page) == [first.slug, "dense"]
    label = next(iter(suggestions(page)))
    assert client.get(address(first.slug, label))["Location"] == address(first.slug, twins[0].slug)
    page = client.get(address(*"abcdefg")).content.decode()
    assert "7 systems are too many. Choose two to six." in text_of(page)
    assert boxes(page) == list("abcdef")


def test_a_pair_on_open_judgements_is_tested_and_shown_by_query(client: Client, slugs: tuple[str, str]) -> None:
    page = client.get(address(*slugs)).content.decode()
    text = text_of(page)
    assert "p is from an exact two-sided paired randomization test of this pair alone." in text
    assert re.search(
        r"newcomer is ahead of BM25 on tiny: nDCG@10 \+0\.\d{3} \(95% CI \+0\.\d{3} to \+0\.\d{3}\), not significant\. "
        r"p = 0\.500 for this pair\.",
        text,
    )
    assert text.count("p = 0.500") == 1, "the section by query does not repeat it"
    assert "All systems are compared" not in text
    assert "newcomer won 2, tied 0, and lost 0 queries." in text
    assert "2/0/0" in text
    assert "By query on tiny" in text
    assert "newcomer is ahead" in text
    assert 'href="/datasets/tiny/queries/q1/?system=' in page
    # q1: d1 d2 d3 and d3 d4 d2 share two of four, q2: d3 d4 and d5 d4 d3 share two of three.
    assert "BM25, newcomer 2.0 0.58" in text
    assert f"/figures/query-differences.json?dataset=tiny&amp;system={slugs[0]}" in page


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (-0.05, -0.0123, ["−0.031", "−0.050", "−0.012"]),
        (-0.0612, 0.0002, ["−0.0312", "−0.0612", "+0.0002"]),
        (-0.06, 0.0, ["−0.031", "−0.060", "±0.000"]),
    ],
)
def test_an_interval_that_ends_close_to_0_has_four_decimals(low: float, high: float, texts: list[str]) -> None:
    result = PairedResult(-0.0312, low, high, p=0.04, wins=1, ties=0, losses=2)
    assert PairComparison(result, np.zeros(3), [], []).interval == texts


def test_tests_are_those_of_the_values_by_query_corrected_over_the_page(client: Client, tmp_path: Path) -> None:
    queries = [f"q{number}" for number in range(12)]
    changes = {
        "queries.jsonl": "".join(f'{{"_id": "{name}", "text": "x"}}\n' for name in queries),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n" + "".join(f"{name}\td1\t1\n" for name in queries),
        "qrels/train.tsv": None,
    }
    dataset = open_dataset(tmp_path, changes)
    places = {"BM25": [3] * 12, "b": [1] * 9 + [4] * 3, "c": [2] * 6 + [4] * 6}
    systems, values = [], []
    for name, ranks in places.items():
        rankings = {
            query: [*(f"d{n}" for n in range(2, rank + 1)), "d1"] for query, rank in zip(queries, ranks, strict=True)
        }
        systems.append(run_for(dataset, name, rankings, baseline=name == "BM25").system.slug)
        values.append([1 / np.log2(rank + 1) for rank in ranks])
    alone = randomisation_test(np.array(values).T, 0)[1:]
    text = text_of(client.get(address(*systems)).content.decode())
    for value, corrected in zip(alone, holm(alone), strict=True):
        assert f"{value:.3f} {corrected:.3f} (Holm, 2 here)" in text
    assert "p is from an exact two-sided paired randomization test of this pair alone." in text
    assert "10,000 permutations" not in text, "12 queries have fewer sign patterns"
    assert "9/0/3" in text
    assert "6/0/6" in text


def test_a_pair_has_the_p_value_of_its_board() -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    baseline = score_queries(dataset, "BM25", spread(0.4, 1), baseline=True)
    near = score_queries(dataset, "Near", spread(0.405, 2))
    compute_certainty(dataset)
    found = found_of(dataset).for_measure("nDCG@10")
    slugs = [baseline.system.slug, near.system.slug]
    [row] = compare(slugs, entries_of_systems(slugs), "").rows
    assert found is not None
    assert row.cells[1].tested is not None
    assert row.cells[1].tested.p == pytest.approx(found.entries[near.pk].p_baseline, rel=1e-4)


def test_a_pair_has_both_p_values_of_its_board() -> None:
    dataset = scored_dataset(slug="board", measures=["nDCG@10"])
    means = {"BM25": 0.4, "First": 0.4085, "Second": 0.404, "Third": 0.403, "Fourth": 0.402}
    entries = {
        name: score_queries(dataset, name, spread(mean, number), baseline=name == "BM25")
        for number, (name, mean) in enumerate(means.items(), 1)
    }
    compute_certainty(dataset)
    found = found_of(dataset).for_measure("nDCG@10")
    assert found is not None
    slugs = {name: entry.system.slug for name, entry in entries.items()}
    bm25, third = found.entries[entries["BM25"].pk], found.entries[entries["Third"].pk]
    first = found.entries[entries["First"].pk]
    alone, corrected_alone, of_first = first.p_baseline, first.p_baseline_corrected, bm25.p_best_corrected
    assert alone is not None
    assert corrected_alone is not None
    assert of_first is not None
    assert alone < 0.05 < of_first, "significant alone, and not separable on the board"

    def texts(*names: str) -> tuple[str, str, str]:
        chosen = [slugs[name] for name in names]
        [row] = compare(chosen, entries_of_systems(chosen), "").rows
        return row.cells[1].text["p"], row.cells[1].text["corrected"], row.cells[1].p_values_text

    told = (
        f"p = {alone:.3f} for this pair; Holm-corrected p = {corrected_alone:.3f} for the board’s 4 comparisons with "
        "its baseline."
    )
    for order in (("First", "BM25"), ("BM25", "First")):
        assert texts(*order) == (f"{alone:.3f}", f"{corrected_alone:.3f} (Holm, 4 vs baseline)", told)
    assert texts("BM25", "Third")[:2] == (
        f"{third.p_baseline:.3f}",
        f"{third.p_baseline_corrected:.3f} (Holm, 4 vs baseline)",
    )
    of_third = found.entries[entries["Third"].pk].p_best_corrected
    assert texts("First", "Third")[1] == f"{of_third:.3f} (Westfall–Young, 10 pairs)"
    _, corrected, told = texts("Second", "Third")
    assert not corrected, "a single pair that is on no board needs no correction"
    assert re.fullmatch(r"p = 0\.\d{3} for this pair\.", told)


def test_hidden_judgements_give_published_scores_and_differences_and_nothing_else(client: Client) -> None:
    dataset = scored_dataset(hidden=True)
    first = score(dataset, "BM25", baseline=True, ndcg=0.41234).system
    second = score(dataset, "newcomer", ndcg=0.51234).system
    page = client.get(address(first.slug, second.slug)).content.decode()
    assert '<td class="n untested" data-label="Δ"><span>+0.100</span></td>' in page
    text = text_of(page)
    assert "in italics if it is not tested" in text
    assert "0.412" in text
    assert "+0.100" in text
    assert "0.1000" not in text
    assert "the judgments are hidden, so only" in text
    assert "Holm" not in text
    assert "By query" not in text
    asked = text_of(client.get(address(first.slug, second.slug, dataset=dataset.slug)).content.decode())
    assert f"A per-query comparison on {dataset.name} is not possible" in asked
    assert "Jaccard" not in asked


def test_results_of_other_groups_are_never_compared(client: Client) -> None:
    dataset = scored_dataset()
    old = score(dataset, "old", ndcg=0.3).system
    renew_judgements(dataset)
    new = score(dataset, "new", ndcg=0.5).system
    source = make_source("paper")
    report(dataset, source, "printed", ndcg=0.4)
    text = text_of(client.get(address(new.slug, old.slug, "printed-paper")).content.decode())
    assert text.count("not comparable") == 2
    assert "Not comparable: source, dataset version, or judgments differ" in text
    assert "+0." not in text
    assert "\u22120." not in text


def test_reported_figures_are_compared_within_their_source_with_common_means(client: Client) -> None:
    load_reported()
    text = text_of(client.get(address("bm25-beir-2021", "docT5query-beir-2021".lower())).content.decode())
    assert "Publications report means only" in text
    assert "Not comparable" not in text, "no cell says so"
    assert "of several results" not in text
    assert "Mean over 18 datasets of BEIR" in text
    won = re.search(r"Datasets won, tied, lost docT5query (\d+)/(\d+)/(\d+)", text)
    assert won is not None
    verdict = "docT5query is ahead of BM25 on the mean of 18 datasets: nDCG@10 \\+0\\.\\d{3}, not tested; "
    assert re.search(f"{verdict}datasets: {won[1]} won, {won[2]} tied, {won[3]} lost\\.", text)


def test_means_are_those_of_the_board_for_every_system_of_every_benchmark(client: Client) -> None:
    load_reported()
    compared = 0
    for benchmark in Benchmark.objects.all():
        board = client.get(f"/api/v1/benchmarks/{benchmark.slug}/board/").json()
        means = {row["slug"]: row["values"].get("mean") for row in board["rows"]}
        systems = [slug for slug, mean in means.items() if mean is not None]
        for number in range(0, len(systems) - 1, MAX_SYSTEMS - 1):
            chosen = systems[number : number + MAX_SYSTEMS]
            for wanted in ("", benchmark.slug):
                found = compare(chosen, entries_of_systems(chosen), "", wanted)
                assert found.means is not None
                assert [cell.value for cell in found.means] == [means[slug] for slug in chosen]
                assert found.whole
            compared += len(chosen)
    assert compared >= 10


def test_means_over_fewer_datasets_say_so_and_leave_out_what_does_not_count(client: Client) -> None:
    datasets = [
        scored_dataset(slug=slug, name=slug, hidden=True) for slug in ("one", "two", "three", "shown", "elsewhere")
    ]
    benchmark = Benchmark.objects.create(slug="all", name="All four")
    for position, dataset in enumerate(datasets[:4]):
        BenchmarkMember.objects.create(
            benchmark=benchmark, dataset=dataset, position=position, counted=dataset.slug != "shown"
        )
    first, second, third = (make_system(name) for name in ("first", "second", "third"))
    for number, dataset in enumerate(datasets[:4]):
        score(dataset, first, ndcg=0.1 * (number + 1))
        score(dataset, second, ndcg=0.5)
        if dataset.slug != "three":
            score(dataset, third, ndcg=0.5)
    whole = text_of(client.get(address(first.slug, second.slug)).content.decode())
    assert "Mean over 3 datasets of All four nDCG@10 first 0.200 second 0.500 +0.300" in whole
    assert "Datasets won, tied, lost second 3/0/0" in whole, "over the datasets of the mean"
    part = text_of(client.get(address(first.slug, third.slug)).content.decode())
    assert "Mean over 2 common datasets of All four nDCG@10 first 0.150 third 0.500 +0.350" in part
    assert "Datasets won, tied, lost" not in part, "two datasets are too few to count"
    for system in (first, second):
        score(datasets[4], system, ndcg=0.9)
    clear_page_cache()
    beyond = text_of(client.get(address(first.slug, second.slug)).content.decode())
    assert "Mean over 5 common datasets nDCG@10 first 0.380 second 0.580 +0.200" in beyond
    assert "Datasets won, tied, lost second 4/1/0" in beyond
    Dataset.objects.filter(pk=datasets[0].pk).update(part_of=datasets[4])
    clear_page_cache()
    without_part = text_of(client.get(address(first.slug, second.slug)).content.decode())
    assert "Mean over 4 common datasets nDCG@10 first 0.450 second 0.600 +0.150" in without_part
    assert "Datasets won, tied, lost second 3/1/0" in without_part
    Dataset.objects.filter(pk=datasets[0].pk).update(part_of=None)
    clear_page_cache()
    asked = client.get(address(first.slug, second.slug, benchmark="all")).content.decode()
    assert "Mean over 3 datasets of All four nDCG@10 first 0.200 second 0.500 +0.300" in text_of(asked)
    assert 'name="benchmark" value="all"' in asked
    assert client.get(address(first.slug, second.slug, benchmark="none")).status_code == 400
    pinned = client.get(f"/benchmarks/all/?pin={first.slug}&pin={second.slug}").content.decode()
    assert f'href="{address(first.slug, second.slug, benchmark="all")}"'.replace("&", "&amp;") in pinned


def test_names_are_found_without_case_and_punctuation_if_exactly_one_matches() -> None:
    choices = {
        slug: SystemChoice(slug, name, "") for slug, name in {"a": "OHSU_RUN2", "b": "Run 3", "c": "run3"}.items()
    }
    assert resolve_systems(["ohsu-run2", "run3"], choices) == ("a", "c")
    with pytest.raises(UnknownChoice) as error:
        resolve_systems(["run-3"], choices)
    assert error.value.choices == ["b", "c"]


def test_tested_pairs_precede_newer_reported_ones(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    for number, (name, mean) in enumerate({"First": 0.6, "Second": 0.5}.items()):
        score_queries(dataset, name, spread(mean, number))
    compute_certainty(dataset)
    newer, paper = scored_dataset(), make_source("paper")
    for name, ndcg in (("printed", 0.9), ("weaker", 0.8)):
        report(newer, paper, name, ndcg=ndcg)
    page = text_of(client.get("/compare/").content.decode())
    assert page.index("First and Second") < page.index("printed and weaker")


def test_reported_figures_say_so_once_mark_training_and_tie_at_the_shown_precision(client: Client) -> None:
    paper = make_source("paper")
    for number, dataset in enumerate([scored_dataset(name="One"), scored_dataset(name="Two")]):
        report(dataset, paper, "first", ndcg=0.50004)
        report(dataset, paper, "second", ndcg=0.5 + 0.1 * number, training=Entry.Training.IN_DOMAIN)
    page = text_of(client.get(address("first-paper", "second-paper")).content.decode())
    assert "r: all values are reported." in page
    assert "‡: trained on that dataset (in-domain)." in page
    assert "‡ r ±0.000" in page
    assert "won, tied, lost" not in page, "two datasets are too few to count"
    report(scored_dataset(name="Three"), paper, "first", ndcg=0.5)
    report(Dataset.objects.get(name="Three"), paper, "second", ndcg=0.4)
    page = text_of(client.get(address("first-paper", "second-paper")).content.decode())
    assert "won, tied, lost second 1/1/1" in page


def test_the_first_system_can_be_another_and_any_can_go(client: Client, slugs: tuple[str, str]) -> None:
    page = client.get(address(*slugs)).content.decode()
    turned_link = f'<a href="{address(slugs[1], slugs[0])}">'.replace("&", "&amp;")
    note = "Δ is the difference from BM25, in italics if it is not tested."
    assert f"{note}{turned_link}Use newcomer as the first system instead</a>" in one_line(page)
    assert f'href="{address(slugs[1])}"' in page
    turned = text_of(client.get(address(slugs[1], slugs[0])).content.decode())
    assert "0/0/2" in turned


def test_private_results_are_in_no_comparison(client: Client, slugs: tuple[str, str]) -> None:
    dataset = Dataset.objects.get()
    kept_back = run_for(dataset, "kept back", GOOD | {"q1": ["d2"]}, public=False).system
    clear_page_cache()
    assert client.get(address(slugs[0], kept_back.slug)).status_code == 400
    assert "kept back" not in client.get("/compare/").content.decode()


def test_as_many_queries_for_six_systems_and_many_datasets_as_for_two(
    client: Client, tmp_path: Path, slugs: tuple[str, str]
) -> None:
    from django.core.cache import cache

    def queries(*systems: str) -> int:
        clear_page_cache()
        cache.clear()
        with CaptureQueriesContext(connection) as captured:
            assert client.get(address(*systems)).status_code == 200
        return len(captured)

    few = queries(*slugs)
    dataset = Dataset.objects.get()
    other = open_dataset(tmp_path, slug="other")
    more = []
    for number in range(4):
        system = make_system(f"system {number}")
        for where in (dataset, other):
            run_for(where, system, GOOD | {"q2": [f"d{number + 1}"]})
        more.append(system.slug)
    assert queries(*slugs, *more) == few


def test_the_figure_states_how_many_bars_have_a_label(slugs: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    query = f"dataset=tiny&system={slugs[0]}&system={slugs[1]}"
    assert drawn("query-differences", query).notes == []
    monkeypatch.setattr("leaderboard.figures.queries.MAX_NAMES", 1)
    plot = drawn("query-differences", query)
    assert plot.notes == ["1 of the 2 bars have a label."]
    assert len(plot.layout["yaxis"]["ticktext"]) == 1


def test_the_figure_draws_the_differences_from_the_largest_down(slugs: tuple[str, str]) -> None:
    plot = drawn("query-differences", f"dataset=tiny&system={slugs[0]}&system={slugs[1]}")
    differences = column(plot, "Δ nDCG@10")
    assert differences == sorted(differences, reverse=True)
    assert len(differences) == 2
    assert sorted(plot.layout["yaxis"]["ticktext"]) == ["query number 1", "query number 2"]
    assert plot.layout["xaxis"]["title"]["text"] == "Δ nDCG@10 (better →)"
    links = plot.data[0]["meta"]["links"]
    assert links == list(plot.table.links) == [f"/datasets/tiny/queries/{name}/" for name in column(plot, "Query")]
    assert "2 won by newcomer (blue), 0 tied, 0 lost (purple)" in plot.caption
    Dataset.objects.update(hidden=True)
    hidden = drawn("query-differences", f"dataset=tiny&system={slugs[0]}&system={slugs[1]}")
    assert hidden.data == []
    assert "only shown for open judgments" in hidden.caption


def test_the_axis_names_queries_and_ties_are_counted_but_not_drawn(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    first = run_for(dataset, "BM25", POOR, baseline=True).system
    second = run_for(dataset, "newcomer", POOR | {"q1": GOOD["q1"]}).system
    plot = drawn("query-differences", f"dataset=tiny&system={first.slug}&system={second.slug}")
    assert plot.layout["yaxis"]["ticktext"] == ["query number 1"]
    assert plot.notes == ["Not drawn: 1 tied query."]
    same = run_for(dataset, "copy", POOR).system
    plot = drawn("query-differences", f"dataset=tiny&system={first.slug}&system={same.slug}")
    assert column(plot, "Δ nDCG@10") == [0, 0]


def test_the_landing_page_suggests_the_best_pair_of_each_board_once(
    client: Client, slugs: tuple[str, str], tmp_path: Path
) -> None:
    hidden = scored_dataset(slug="hidden", hidden=True)
    for name in ("secret", "other secret"):
        score(hidden, name, ndcg=0.5)
    for number, dataset in enumerate((scored_dataset(slug="one"), scored_dataset(slug="two"))):
        paper = make_source(f"paper{number}")
        report(dataset, make_source(f"lonely{number}"), "lonely best", ndcg=0.9)
        for system, value in (("strong", 0.6), ("weak", 0.5), ("weakest", 0.4)):
            report(dataset, paper, f"{system} {number}", ndcg=value)
    other = open_dataset(tmp_path, slug="other")
    for slug, rankings in zip(slugs, (POOR, GOOD), strict=True):
        run_for(other, System.objects.get(slug=slug), rankings)
    page = client.get("/compare/").content.decode()
    cards = page.partition("Ready-made comparisons")[2].partition("</ul>")[0]
    titles = [" ".join(title.split()) for title in re.findall(r"<h3><a[^>]*>([^<]+)<", cards)]
    assert titles == ["newcomer and BM25", "strong 1 and weak 1", "strong 0 and weak 0"]
    for href in re.findall(r'href="([^"]+)"', cards):
        answer = client.get(unescape(href))
        assert answer.status_code == 200
        assert "No two of these systems" not in answer.content.decode()
    assert "Ready-made" not in client.get(address(*slugs)).content.decode()
    assert "Ready-made" not in client.get(address(slugs[0])).content.decode()
    unknown = client.get("/compare/?system=zzzz")
    assert unknown.status_code == 400
    assert "newcomer and BM25" in text_of(unknown.content.decode())


def test_at_most_six_comparisons_are_suggested_newest_boards_first(client: Client) -> None:
    for number in range(8):
        dataset = scored_dataset(slug=f"board-{number}")
        paper = make_source(f"paper{number}")
        for system, value in (("strong", 0.6), ("weak", 0.5)):
            report(dataset, paper, f"{system} {number}", ndcg=value)
    page = client.get("/compare/").content.decode()
    assert re.findall(r"strong (\d) and", page) == list("765432")


def test_an_unknown_name_says_what_would_be_right_and_a_source_finds_its_systems(client: Client) -> None:
    dataset = scored_dataset()
    entry = score(dataset, "splade", ndcg=0.5)
    page = client.get(address("zzzz", "kept")).content.decode()
    choice = f"{entry.system.name} ({entry.system.team})"
    placeholders = re.findall(r'placeholder="For example ([^"]*)"', page)
    assert placeholders == [choice], "the only system is an example of the first field alone"
    assert f"Enter a name as on the boards, for example “{choice}”." in text_of(page)
    assert boxes(page) == ["zzzz", "kept"]
    page = client.get(address(str(entry.system.team), "kept")).content.decode()
    assert list(suggestions(page)) == [choice]


def test_the_heat_map_has_systems_in_rank_order_and_queries_from_the_hardest(
    client: Client, slugs: tuple[str, str]
) -> None:
    third = run_for(Dataset.objects.get(slug="tiny"), "copy", GOOD).system.slug
    plot = drawn("query-heatmap", "dataset=tiny&sort=nDCG@10:asc")
    assert plot.layout["yaxis"]["ticktext"] == ["newcomer", "copy", "BM25"]
    assert plot.table.heads == ["Query", "newcomer", "copy", "BM25"]
    medians = [sorted(row[1:])[1] for row in plot.table.rows]
    assert medians == sorted(medians)
    links = plot.data[0]["meta"]["links"]
    assert len(links) == 6
    assert all(client.get(link).status_code == 200 for link in [*links, *plot.table.links])
    assert links[0].endswith(f"/?system={slugs[1]}")
    pair = drawn("query-heatmap", f"dataset=tiny&system={slugs[0]}&system={slugs[1]}")
    assert pair.table.heads == ["Query", "newcomer", "BM25"]
    page = client.get("/figures/query-heatmap/?dataset=tiny").content.decode()
    assert f'<th scope="row"><a href="{plot.table.links[0]}">' in page
    assert 'id="figure-query-heatmap"' in client.get("/datasets/tiny/").content.decode()
    assert 'id="figure-query-heatmap"' in client.get(address(*slugs, third)).content.decode()
    assert "figure-query-heatmap" not in client.get(address(*slugs)).content.decode(), "bars show more of two systems"
    clear_page_cache()
    Dataset.objects.update(hidden=True)
    assert drawn("query-heatmap", "dataset=tiny").data == []
    assert "figure-query-heatmap" not in client.get("/datasets/tiny/").content.decode()


def test_the_heat_map_shows_twenty_systems_and_fifty_queries(tmp_path: Path) -> None:
    queries = [f"q{number}" for number in range(60)]
    changes: dict[str, str | None] = {
        "queries.jsonl": "".join(f'{{"_id": "{name}", "text": "x"}}\n' for name in queries),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n" + "".join(f"{name}\td1\t1\n" for name in queries),
    }
    dataset = open_dataset(tmp_path, changes)
    for number in range(22):
        rankings = {query: ["d1"] for query in queries[: 2 * number + 3]}
        run_for(dataset, f"system {number}", rankings, baseline=not number)
    plot = drawn("query-heatmap", "dataset=tiny")
    assert plot.table.heads[1:] == [f"system {number}" for number in range(21, 1, -1)]
    assert len(plot.table.rows) == 50
    assert plot.notes == ["The first 20 of the 22 systems scored on the current judgments."]
    axes = plot.layout["xaxis"], plot.layout["meta"]["narrow"]["xaxis"]
    assert [axis["title"]["text"] for axis in axes] == [f"{n} of 60 queries, hardest to easiest" for n in (50, 16)]
    assert "mean correlation of 0." in plot.caption
    (cells,) = plot.data
    narrow = cells["meta"]["narrow"]
    assert (len(cells["x"]), len(narrow["x"])) == (1000, 320)
    assert len(narrow["meta"]["links"]) == len(narrow["marker"]["color"]) == 320
    assert [list(axis["tickvals"]) for axis in axes] == [[], []], "so many queries have no labels"


def test_a_seed_set_is_compared_by_its_means_and_its_first_seed(client: Client, slugs: tuple[str, str]) -> None:
    dataset, seeded = Dataset.objects.get(), make_system("seeded")
    seeds_for(dataset, seeded, {"1": GOOD, "2": GOOD | {"q1": ["d1", "d3", "d4"]}})
    text = text_of(client.get(address(slugs[0], seeded.slug)).content.decode())
    assert "2/0/0" in text
    assert "seeded: a seed set" in text
    (seeds,) = Entry.objects.filter(seed_count=2)
    assert f"± {seeds.deviations[dataset.primary_measure]:.3f} (2)" in text
    assert "±: sample standard deviation" in text
    assert "BM25, seeded 2.0 0.58" in text
    clear_page_cache()
    query = text_of(client.get("/datasets/tiny/queries/q1/").content.decode())
    assert "seeded is a set of 2 seeds" in query
    mean = (1 + 2 / (2 + 1 / np.log2(3))) / 2
    assert f"nDCG@10 {mean:.3f}" in query


def test_runs_whose_only_document_is_the_query_itself_are_compared(client: Client, tmp_path: Path) -> None:
    queries = '{"_id": "q1", "text": "one"}\n{"_id": "d3", "text": "three"}\n'
    judged = "query-id\tcorpus-id\tscore\nq1\td1\t2\nd3\td4\t1\n"
    changes = {"queries.jsonl": queries, "qrels/test.tsv": judged, "qrels/train.tsv": None}
    dataset = open_dataset(tmp_path, changes, drop_self_matches=True)
    first, second = (run_for(dataset, name, {"q1": ["d1", "d2"], "d3": ["d3"]}).system for name in ("one", "two"))
    page = text_of(client.get(address(first.slug, second.slug, dataset=dataset.slug)).content.decode())
    assert "one, two 1.0 0.50" in page, "the documents of q1 are the same; d3 has none"


@pytest.mark.parametrize(("ranks", "direction"), [((1, 2), "up is-lost"), (None, "up is-lost"), ((2, 2), "up")])
def test_a_difference_is_outlined_as_on_the_board(ranks: tuple[int, int] | None, direction: str) -> None:
    corrected = CorrectedP(0.08, 4, BASELINE_COMPARISONS, ranks)
    cell = ComparedCell(delta=0.1, tested=PairTest(0.02, 9, 1, 2), corrected=corrected, measure="nDCG@10")
    assert cell.text["direction"] == direction, "the tests of all pairs separate a system with a single possible rank"
    is_lost = direction.endswith("is-lost")
    assert cell.relation == ("is ahead of" if is_lost else "is better than")
    verdict = "significant only before correction" if is_lost else "significant in the tests of all pairs"
    assert cell.text["verdict"] == verdict
