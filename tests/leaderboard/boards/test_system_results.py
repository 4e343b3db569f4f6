"""A system's results on its page and in the interface: how sure they are, all measures, and what stands beside."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from leaderboard.models import Benchmark, Dataset, Entry
from leaderboard.results.board_rows.rows import board_cache
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import make_source, make_system, record_boards, report, score, scored_dataset
from tests.leaderboard.entries_by_query import score_queries, spread
from tests.pages import clear_page_cache, one_line

pytestmark = pytest.mark.django_db


def cells(page: str, name: str) -> list[str]:
    """Return the texts of the first table row with a link of this name, after the link."""
    row = next(row for row in one_line(page).split("<tr")[1:] if f">{name}</a>" in row)
    row = row.partition(f">{name}</a>")[2].partition("</tr>")[0]
    return [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.split(r"</td>", row)]


def folded(page: str, heading: str) -> str:
    """Return the details element whose summary has the heading with this id."""
    details = next(part for part in one_line(page).split("<details")[1:] if f'<h2 id="{heading}">' in part)
    return details.partition("</details>")[0]


def board() -> tuple[Dataset, dict[str, str]]:
    """BM25, one that is better on every query, and one that is worse on every one; their slugs by name."""
    dataset = scored_dataset(name="Judged", measures=["nDCG@10"])
    means = {"BM25": 0.4, "First": 0.601, "Last": 0.2}
    entries = {
        name: score_queries(dataset, name, spread(mean, number), baseline=name == "BM25")
        for number, (name, mean) in enumerate(means.items())
    }
    compute_certainty(dataset)
    return dataset, {name: entry.system.slug for name, entry in entries.items()}


def test_a_result_has_what_its_datasets_board_says_of_it(client: Client) -> None:
    _, slugs = board()
    page = client.get(f"/systems/{slugs['Last']}/").content.decode()
    assert '<span class="unit">95% interval</span>' in page
    assert (
        "3rd of 3 with nDCG@10 0.200; −50.0% vs BM25 (significant: p &lt; 0.001 before and after "
        "Holm correction); separable from all others" in one_line(page)
    )
    assert any(re.search(r"0\.200 0\.\d{3}–0\.\d{3}$", cell) for cell in cells(page, "Judged"))
    found = cells(folded(page, "tests"), "Judged")
    assert found.count("&lt;0.001") == 2, "against BM25, and against the best"
    assert "0/0/40" in found
    (result,) = client.get(f"/api/v1/systems/{slugs['Last']}/").json()["results"]
    sure = result["certainty"]
    assert sure["low"] < result["value"] < sure["high"]
    assert (sure["wins"], sure["ties"], sure["losses"]) == (0, 0, 40)
    assert sure["p_best"] < 0.05
    assert sure["rank_low"] == 3
    for head in ("range", "p vs baseline", "p vs best"):
        assert head in page


def test_a_badge_states_the_range_of_ranks_that_the_tests_leave_open(client: Client) -> None:
    dataset = scored_dataset(name="Judged", measures=["nDCG@10"])
    entries = [
        score_queries(dataset, name, spread(mean, number), baseline=name == "BM25")
        for number, (name, mean) in enumerate({"BM25": 0.4, "First": 0.601, "Second": 0.6, "Last": 0.2}.items())
    ]
    compute_certainty(dataset)
    badges = (f"/systems/{entry.system.slug}/badge.json" for entry in entries[2:])
    assert [client.get(badge).json()["message"] for badge in badges] == ["0.600 · 2 (range 1–2) of 4", "0.200 · 4 of 4"]


def test_a_lower_score_on_hidden_judgments_was_not_tested(client: Client) -> None:
    dataset = scored_dataset(name="Judged", measures=["nDCG@10"], hidden=True)
    slugs = {}
    for number, (name, mean) in enumerate({"BM25": 0.4, "First": 0.6, "Little": 0.41, "Last": 0.2}.items()):
        entry = score_queries(dataset, name, spread(mean, number), baseline=name == "BM25")
        slugs[name] = entry.system.slug
    told = {
        "First": "+50.0% vs BM25 (significant); separable from all others",
        "Little": "+2.5% vs BM25 (not significant)",
        "Last": "−50.0% vs BM25 (lower; not tested on hidden judgments)",
    }
    for name, text in told.items():
        page = one_line(client.get(f"/systems/{slugs[name]}/").content.decode())
        assert text in page
        assert ("not significant" in page) == (name == "Little")
    (difference,) = re.findall(r'<td class="n ([a-z]*)"[^>]*>\s*<span>−0\.200', page)
    assert difference == "untested", "its style does not say that it was tested"
    assert "Italic differences are not tested." in page


def test_it_says_how_much_of_a_result_was_judged(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    slug = score(dataset, "Dense", ndcg=0.6, **{"Hole@10": 0.5, "Judged@10": 0.375}).system.slug
    (result,) = client.get(f"/api/v1/systems/{slug}/").json()["results"]
    assert result["scores"] == {"nDCG@10": 0.6, "Hole@10": 0.5, "Judged@10": 0.375}
    page = client.get(f"/systems/{slug}/").content.decode()
    assert "Judged@10" in page


def test_a_measure_about_judging_gives_no_rank(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    system = score(dataset, "BM25", baseline=True, ndcg=0.2).system
    Entry.objects.update(scores={"Judged@10": 0.2})
    record_boards()
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert cells(page, dataset.name)[2].endswith("—")
    assert "Judged@10 0.200" not in one_line(page)
    assert client.get(f"/api/v1/systems/{system.slug}/").json()["results"][0]["rank"] is None


def test_a_page_with_one_result_links_its_board_and_opens_its_tables(client: Client) -> None:
    first, second = scored_dataset(name="First"), scored_dataset(name="Second")
    system = score(first, "both", ndcg=0.5, recall=0.7).system
    page = one_line(client.get(f"/systems/{system.slug}/").content.decode())
    assert f'›<a href="/datasets/{first.slug}/">First</a>' in page
    assert page.count('<details class="fold" open>') == 2
    assert 'href="/benchmarks/" aria-current="true"' in page
    score(second, system, ndcg=0.4)
    clear_page_cache()
    page = one_line(client.get(f"/systems/{system.slug}/").content.decode())
    assert "›" not in page
    assert '<details class="fold" open>' not in page


def test_a_system_without_a_mean_is_part_of_its_benchmarks(client: Client) -> None:
    first, second = scored_dataset(name="First"), scored_dataset(name="Second")
    benchmark = Benchmark.objects.create(slug="both", name="Both")
    for dataset in (first, second):
        benchmark.members.create(dataset=dataset)
    system = score(first, "one", ndcg=0.5).system
    page = one_line(client.get(f"/systems/{system.slug}/").content.decode())
    assert 'too few datasets for a mean:<a href="/benchmarks/both/">Both</a> (1/2)' in page
    assert 'id="benchmarks"' not in page


def test_the_baseline_is_not_compared_with_itself(client: Client) -> None:
    _, slugs = board()
    page = client.get(f"/systems/{slugs['BM25']}/").content.decode()
    assert "±0.000 ±0.0%" in cells(page, "Judged")
    assert cells(folded(page, "tests"), "Judged")[:3] == ["—", "—", "—"]


def test_nothing_is_said_over_hidden_judgements_nor_of_reported_figures(client: Client) -> None:
    dataset, slugs = board()
    Dataset.objects.filter(pk=dataset.pk).update(hidden=True)
    board_cache.clear()
    page = client.get(f"/systems/{slugs['Last']}/").content.decode()
    assert "Judged" in page
    assert "95% interval" not in page
    assert client.get(f"/api/v1/systems/{slugs['Last']}/").json()["results"][0]["certainty"] is None
    report(dataset, make_source("paper"), "printed", ndcg=0.4)
    page = client.get("/systems/printed-paper/").content.decode()
    assert "95% interval" not in page
    assert "1 of 1" in page
    assert "r 1 of 1" not in page
    assert '<span class="unit">reported</span>' in page, "once, in the head"


def test_the_baseline_of_a_publication_has_the_name_that_boards_give_it(client: Client) -> None:
    dataset, paper = scored_dataset(), make_source("paper")
    report(dataset, paper, "mteb/baseline-bm25s", baseline=True, ndcg=0.4)
    report(dataset, paper, "model", ndcg=0.5)
    page = one_line(client.get("/systems/model-paper/").content.decode())
    assert page.count('data-label="Δ vs BM25"') == 1
    assert "Δ vs mteb" not in page


def test_all_measures_are_a_table_and_dashes_are_no_zeros(client: Client) -> None:
    first, second = scored_dataset(name="First"), scored_dataset(name="Second")
    system = score(first, "both", ndcg=0.5, recall=0.7).system
    score(second, system, ndcg=0.4)
    table = folded(client.get(f"/systems/{system.slug}/").content.decode(), "by-measure")
    assert re.findall(r'<a href="/measures/#[^"]*">([^<]+)</a>', table) == ["nDCG@10", "R@100"]
    assert [cell for cell in cells(table, "First") if cell] == ["0.500", "0.700"]
    assert [cell for cell in cells(table, "Second") if cell] == ["0.400", "—"]
    alone = score(first, "alone", ndcg=0.5).system
    assert 'id="by-measure"' not in client.get(f"/systems/{alone.slug}/").content.decode()


def test_facts_that_are_equal_on_all_datasets_are_listed_once(client: Client) -> None:
    system = make_system("both")
    for name, dimension in (("First", 256), ("Second", 512)):
        entry = score(scored_dataset(name=name), system, ndcg=0.5)
        Entry.objects.filter(pk=entry.pk).update(facts={"dimension": dimension, "similarity": "cosine"})
    facts = folded(client.get(f"/systems/{system.slug}/").content.decode(), "beside")
    assert facts.count("Similarity") == facts.count("On all datasets") == 1
    assert cells(facts, "First") == ["Dimension", "256", ""]
    assert cells(facts, "Second") == ["Dimension", "512", ""]
    alone = score(scored_dataset(name="Third"), "alone", ndcg=0.5)
    Entry.objects.filter(pk=alone.pk).update(facts={"dimension": 256})
    assert "On all datasets" not in client.get(f"/systems/{alone.system.slug}/").content.decode()


def test_one_table_of_results_is_visible_and_everything_else_is_folded(client: Client) -> None:
    system = make_system("both", licence="MIT", parameter_count=109_482_240, paper_url="https://example.org/paper")
    for name in ("First", "Second"):
        dataset = scored_dataset(name=name)
        score(dataset, "BM25", baseline=True, ndcg=0.4)
        score(dataset, system, ndcg=0.5, recall=0.7)
    page = one_line(client.get(f"/systems/{system.slug}/").content.decode())
    visible = re.sub(r"<details.*?</details>", "", page.partition("<main")[2])
    assert visible.count("<table") == 1
    assert 'href="https://example.org/paper"' in visible
    for fact in ("<dd>MIT</dd>", "109 M parameters", "0.500", "+0.100", "1 of 2"):
        assert fact in visible
    for unknown in ("Backbone", "Code"):
        assert f"<dt>{unknown}</dt>" not in page
    assert "R@100" not in visible
    assert "R@100" in folded(page, "by-measure")
