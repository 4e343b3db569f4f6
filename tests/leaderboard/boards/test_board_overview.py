"""What a page shows of a board at first: few columns, rows in blocks, colour where a difference is sure."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from leaderboard.models import Benchmark, Dataset, Entry
from leaderboard.results.board_rows.revisions import Kind, board_changed
from leaderboard.templatetags.runboard import breakable, formula, whole
from tests.leaderboard.boards.test_boards_benchmark import benchmark_of
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import (
    cost,
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.entries_by_query import make_board, score_queries, spread
from tests.pages import one_line
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


@pytest.fixture
def demo() -> Dataset:
    """A board with costs, and three measures."""
    dataset = scored_dataset(slug="demo", measures=["nDCG@10", "R@100", "AP"])
    for name, value in (("BM25", 0.4), ("dense", 0.5)):
        system = make_system(name, open_weights=True, licence="MIT")
        entry = score(dataset, system, ndcg=value, recall=0.5, AP=0.12345, baseline=name == "BM25")
        cost(entry, 2.0)
    return dataset


def text(client: Client, address: str) -> str:
    return client.get(address).content.decode()


def heads(page: str) -> list[str]:
    """The keys of the columns of a page."""
    return re.findall(r'id="by-([^"]+)"', page)


def tabs(page: str) -> dict[str, str]:
    """The presets' addresses, by name; the chosen one's name ends with a star."""
    nav = page.partition('class="presets"')[2].partition("</nav>")[0]
    found = re.findall(r'<a href="([^"]*)"( aria-current="true")?>([^<]*)</a>', nav)
    return {label + "*" * bool(chosen): href for href, chosen, label in found}


def blocks(page: str) -> dict[str, list[str]]:
    """The systems of each block by its head; of rows before any head the head is empty."""
    found, head, page = {}, "", page.partition("</thead>")[2].partition("</table>")[0]
    for kind, body in re.findall(r"<tbody([^>]*)>(.*?)</tbody>", page, re.DOTALL):
        if 'class="block"' in kind:
            head = re.sub("<[^>]+>", "", body.partition("<label")[0]).strip()
        else:
            found[head] = re.findall(r'<th scope="row" class="name"><a [^>]*>([^<]*)<', body)
    return found


# --- columns


@pytest.mark.usefixtures("demo")
def test_presets_are_tabs_whose_choice_is_in_the_address_with_all_other_choices(client: Client) -> None:
    page = text(client, "/datasets/demo/?sort=R@100:asc")
    assert tabs(page) == {
        "Overview*": "/datasets/demo/?sort=R@100:asc",
        **{
            label: f"/datasets/demo/?sort=R@100:asc&amp;columns={name}"
            for label, name in (
                ("Effectiveness", "effectiveness"),
                ("Efficiency", "efficiency"),
                ("Training data", "training"),
                ("All", "all"),
            )
        },
    }
    efficiency = text(client, "/datasets/demo/?columns=efficiency")
    assert "Efficiency*" in tabs(efficiency)
    assert '<input type="hidden" name="columns" value="efficiency">' in efficiency, "the filters keep it"


def test_an_overview_omits_costs_of_folded_rows_only(client: Client) -> None:
    first, second = scored_dataset(slug="first"), scored_dataset(slug="second")
    benchmark_of(first, second)
    for name, datasets in (("complete", (first, second)), ("partial", (first,))):
        system = make_system(name)
        entries = [score(dataset, system, ndcg=0.5) for dataset in datasets]
    cost(entries[0], 2.0)
    page = text(client, "/benchmarks/all/")
    assert not {"mean-latency", "index-bytes"} & set(heads(page))
    assert "mean-latency" in heads(text(client, "/benchmarks/all/?columns=efficiency"))
    cost(Entry.objects.get(system__name="complete", dataset=first), 3.0)
    assert "mean-latency" in heads(text(client, "/benchmarks/all/"))
    card = one_line(text(client, "/").partition('class="card board-card"')[2].partition("</li>")[0])
    assert "2 datasets · 2 systems, 1 on all datasets" in card


def test_names_break_after_separators_and_formulas_leave_names_as_they_are() -> None:
    assert breakable("Qwen/Qwen3-Embedding_8B") == (
        '<small class="owner">Qwen/</small><wbr>Qwen3-<wbr>Embedding_<wbr>8B'
    )
    assert breakable("<BM25>") == "&lt;BM25&gt;"
    assert formula("rel_i as in trec_eval, R_{cap}") == "rel<sub>i</sub> as in trec_eval, R<sub>cap</sub>"


def test_an_overview_omits_measures_that_few_rows_have(client: Client) -> None:
    dataset = scored_dataset(slug="sparse", measures=["nDCG@10", "R@100"])
    for number in range(5):
        score(dataset, f"system {number}", ndcg=0.5)
    score(dataset, "other", ndcg=0.5, recall=0.5)
    assert "R@100" not in heads(text(client, "/datasets/sparse/"))
    assert "R@100" in heads(text(client, "/datasets/sparse/?columns=nDCG@10&columns=R@100"))


@pytest.mark.usefixtures("demo")
def test_each_preset_has_the_score_and_its_own_columns(client: Client) -> None:
    shown = {
        name: set(heads(text(client, f"/datasets/demo/?columns={name}")))
        for name in ("overview", "effectiveness", "efficiency", "training", "all")
    }
    assert all({"system", "nDCG@10", "delta"} <= keys for keys in shown.values())
    assert len(shown["overview"]) <= 10
    assert "mean-latency" in shown["overview"]
    assert not {"relative", "published"} & shown["overview"], "below the difference; one date is said once"
    assert "All results are from" in text(client, "/datasets/demo/")
    assert "architecture" not in shown["overview"]
    assert {"R@100", "AP"} <= shown["effectiveness"]
    assert "mean-latency" not in shown["effectiveness"]
    assert {"mean-latency", "peak-memory", "index-bytes"} <= shown["efficiency"]
    assert {"training-data", "weights", "licence"} <= shown["training"]
    assert shown["all"] == set().union(*shown.values())
    assert heads(text(client, "/datasets/demo/?columns=overview")) == heads(text(client, "/datasets/demo/"))


def test_a_preset_that_a_board_has_nothing_for_is_not_offered(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "first", ndcg=0.5)
    assert "Efficiency" not in tabs(text(client, f"/datasets/{dataset.slug}/"))


@pytest.mark.usefixtures("demo")
def test_single_columns_are_chosen_and_those_unknown_are_ignored(client: Client) -> None:
    page = text(client, "/datasets/demo/?columns=AP&columns=licence&columns=no-such-column")
    assert heads(page) == ["system", "nDCG@10", "AP", "licence"], "the order explains itself"
    assert not any(name.endswith("*") for name in tabs(page))
    checked = re.findall(r'name="columns" value="([^"]+)" checked', page)
    assert checked == ["nDCG@10", "AP", "licence"]
    sorted_by = text(client, "/datasets/demo/?columns=licence&sort=peak-memory")
    assert heads(sorted_by) == ["system", "peak-memory", "licence"]
    unknown, usual = text(client, "/datasets/demo/?columns=no-such-column"), text(client, "/datasets/demo/")
    assert heads(unknown) == heads(usual), "an overview, where nothing of what is asked for is here"


@pytest.mark.usefixtures("demo")
def test_exports_and_api_have_every_column_unless_some_are_chosen(client: Client) -> None:
    def keys(query: str, address: str = "/datasets/demo/board.json") -> list[str]:
        return [column["key"] for column in client.get(address + query).json()["columns"]]

    api = "/api/v1/datasets/demo/board/"
    shown = heads(text(client, "/datasets/demo/?columns=all"))
    assert keys("") == keys("?columns=all") == keys("", api)
    assert [key for key in keys("") if key in shown] == shown
    assert keys("?columns=AP") == keys("?columns=AP", api) == ["system", "nDCG@10", "AP"]
    assert client.get("/datasets/demo/board.csv?columns=AP").content.decode().count("licence") == 0
    assert "MIT" not in text(client, "/datasets/demo/board.tex")
    assert "MIT" in text(client, "/datasets/demo/board.tex?columns=licence")


@pytest.mark.usefixtures("demo")
def test_pages_have_three_decimals_and_all_on_demand(client: Client) -> None:
    assert ">0.123</td>" in text(client, "/datasets/demo/?columns=AP").replace("</b>", "").replace("<b>", "")
    exact = text(client, "/datasets/demo/?columns=AP&exact=1")
    assert "0.1235" in exact
    assert 'name="exact" value="1" checked' in exact
    assert client.get("/datasets/demo/board.json").json()["rows"][0]["values"]["AP"] == 0.12345


# --- rows


def test_reported_rows_stand_in_a_block_of_their_own_and_unranked_ones_last(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "old", ndcg=0.99)
    renew_judgements(dataset)
    report(dataset, make_source("paper"), "printed", ndcg=0.9)
    score(dataset, "here", ndcg=0.5)
    for query in ("", "?sort=nDCG@10:asc", "?sort=system"):
        page = text(client, f"/datasets/{dataset.slug}/{query}")
        assert list(blocks(page).values()) == [["here"], ["printed"], ["old"]]
        assert list(blocks(page))[1:] == [
            "Reported: ranked separately",
            "Not ranked",
        ]
    assert re.search(r'</button>1</td><th scope="row" class="name"><a [^>]*>printed<', page)
    assert "r 1" in text(client, f"/datasets/{dataset.slug}/board.md")


def test_a_board_of_one_kind_has_no_heads_of_blocks(client: Client) -> None:
    load_reported()
    page = text(client, "/datasets/nq/")
    assert list(blocks(page)) == [""]
    paper = make_source("another paper")
    first, second = scored_dataset(slug="one"), scored_dataset(slug="two")
    benchmark_of(first, second)
    report(first, paper, "whole", ndcg=0.3)
    report(second, paper, "whole", ndcg=0.4)
    report(first, paper, "part", ndcg=0.5)
    incomplete = "1 incomplete row: no comparable result on some of the datasets"
    assert blocks(text(client, "/benchmarks/all/")) == {"": ["whole"], incomplete: ["part"]}


def test_incomplete_rows_are_folded_unless_the_order_or_a_filter_asks_for_them(client: Client) -> None:
    first, second = scored_dataset(slug="one"), scored_dataset(slug="two")
    benchmark = benchmark_of(first, second)
    whole, part = make_system("whole"), make_system("part")
    score(first, whole, ndcg=0.3)
    score(second, whole, ndcg=0.4)
    score(first, part, ndcg=0.9)
    address = f"/benchmarks/{Benchmark.objects.get(pk=benchmark.pk).slug}/"
    page = text(client, address)
    folded = "1 incomplete row: no comparable result on some of the datasets"
    assert blocks(page) == {"": ["whole"], folded: ["part"]}
    assert '<input type="checkbox" class="visually-hidden"><span>Show all 1</span>' in page
    assert '<tbody class="is-incomplete">' in page
    found = text(client, address + "?q=part")
    assert '<input type="checkbox" class="visually-hidden" checked>' in found, "who searches sees what is found"
    for query in ("?sort=one", "?sort=common-mean"):
        assert blocks(text(client, address + query)) == {"": ["part", "whole"]}
    assert blocks(text(client, address + "?sort=two")) == {"": ["whole"], folded: ["part"]}
    assert len(client.get(f"{address}board.json").json()["rows"]) == 2


def test_long_sections_of_reported_rows_show_ten_rows_until_all_are_asked_for(client: Client) -> None:
    dataset = scored_dataset(slug="long")
    score(dataset, "scored", ndcg=0.5)
    for name, count in (("short", 10), ("long", 11)):
        source = make_source(name)
        for number in range(count):
            report(dataset, source, f"{name} {number}", ndcg=0.1 + number / 100)
    page = text(client, f"/datasets/{dataset.slug}/")
    assert page.count('<input type="checkbox" class="visually-hidden">') == 1
    assert "Show all 11" in page
    assert page.count('class="is-reported is-long"') == 1
    assert "Show all 1" not in text(client, f"/datasets/{dataset.slug}/?q=short")


def test_an_empty_board_names_the_filters_whose_removal_would_fill_it(client: Client) -> None:
    dataset, paper = scored_dataset(slug="few"), make_source("paper")
    for number in range(3):
        report(dataset, paper, f"org/model_{number}", ndcg=0.1)
    assert ">org/<wbr>model_<wbr>0</a>" in text(client, "/datasets/few/")
    page = text(client, "/datasets/few/?q=nothing&architecture=lexical")
    assert "The filter “nothing” excludes 3 rows." in page
    assert '<a href="/datasets/few/?architecture=lexical">Remove it</a>' in page
    assert page.count("Remove it") == 1, "without the other filter, the board is empty, too"
    assert "Show all 3" in page
    page = text(client, "/datasets/few/?q=nothing")
    assert '<a href="/datasets/few/">Remove it</a>' in page
    assert "Show all 3" not in page


def test_what_no_column_shows_stands_under_the_name(client: Client, demo: Dataset) -> None:
    page = text(client, "/datasets/demo/")
    assert re.search(r'<small><span class="by">Team \d+</span><span class="kind">\s· dense</span></small>', page)
    page = text(client, "/datasets/demo/?columns=all")
    assert not re.search(r'<small>(<span class="by">)?Team \d+', page)


@pytest.mark.usefixtures("demo")
def test_bars_are_as_long_as_the_scores_to_a_thousandth_of_the_best(client: Client) -> None:
    scored = make_system("close")
    score(Dataset.objects.get(slug="demo"), scored, ndcg=0.4983)
    found = re.findall(r'<td[^>]* class="b(\d+) c(\d) d(\d)"', text(client, "/datasets/demo/"))
    assert [int(b) / 10 + int(c) / 100 + int(d) / 1000 for b, c, d in found] == pytest.approx([1, 0.997, 0.8])


@pytest.mark.parametrize(
    ("said", "html"),
    [
        ("a, UP-rrf5, b", 'a, <span class="nowrap">UP-rrf5,</span> b'),
        ("nDCG@10 0.684", '<span class="nowrap">nDCG@10 0.684</span>'),
        (
            "<b>x-y (a & b)",
            '<span class="nowrap">&lt;b&gt;x-y</span> <span class="nowrap">(a &amp; b)</span>',
        ),
        (f"{'x' * 40}-{'y' * 40}", f"{'x' * 40}-{'y' * 40}"),
    ],
)
def test_names_with_hyphens_stay_on_a_line_unless_they_are_long(said: str, html: str) -> None:
    assert whole(said) == html


def test_a_remark_that_all_rows_share_is_a_chip_of_the_board(client: Client) -> None:
    dataset = scored_dataset(slug="lacking")
    for number, name in enumerate(("BM25", "Dense", "Sparse"), 1):
        score(dataset, name, ndcg=number / 10, baseline=name == "BM25")
    report(dataset, make_source("paper"), "printed", ndcg=0.9)

    def lack(**numbers: int) -> str:
        for name, number in numbers.items():
            Entry.objects.filter(system__name=name).update(missing_queries=number)
        board_changed(dataset, Kind.MEASURES)
        return one_line(text(client, "/datasets/lacking/"))

    page = lack(BM25=15, Dense=15, Sparse=15)
    said = '>The best and most others lack</span> <span class="stacked-only">The best lacks</span> 15 queries'
    assert page.count(f"{said}, scored as 0") == 1
    assert re.search(rf'<li class="is-warning" title="[^"]*scores 0\."> ?<span class="is-wide"{said}', page)
    at = client.get("/api/v1/datasets/lacking/board/").json()["as_of"]
    past = one_line(text(client, f"/datasets/lacking/at/{at}/"))
    assert past.count(said) == 1
    page = lack(Sparse=20)
    assert page.count("15 queries, scored as 0") == 1
    assert re.search(r">Sparse</a><small>.*?no results for 20 queries</span></small>", page)
    page = lack(BM25=0)
    assert "Most results lack" not in page
    assert page.count("no results for 15 queries</span></small>") == 1
    assert page.count("no results for 20 queries</span></small>") == 1


# --- colour


def differences(page: str) -> dict[str, str]:
    """The class of each row's Δ."""
    rows = re.findall(r'class="name"><a [^>]*>([^<]*)<.*?<td class="(up|down|ns|untested|none)">', page)
    return dict(rows)


def test_an_open_board_colours_what_its_intervals_show(client: Client) -> None:
    dataset = make_board()
    score_queries(dataset, "Little", spread(0.401, 5))
    page = text(client, f"/datasets/{dataset.slug}/?columns=delta")
    assert set(differences(page).values()) == {"ns"}, "nothing is tested yet"
    assert "Green: " not in page
    compute_certainty(dataset)
    page = text(client, f"/datasets/{dataset.slug}/?columns=delta")
    told = differences(page)
    assert {name: told[name] for name in ("First", "Second", "Little", "Last")} == {
        "First": "up", "Second": "up", "Little": "ns", "Last": "down",
    }  # fmt: skip
    key = re.sub(r"<[^>]+>", "", page[page.index('class="board-key"') : page.index("</dl>")])
    assert "green significantly better than BM25, after correction." in one_line(key)
    assert "gray not significant." in one_line(key)
    assert "outlined" not in key
    assert "* significant after Holm correction for all 4 comparisons with BM25." in one_line(key)
    assert "‡" not in key, "only marks that occur"
    marked = re.findall(r'<td class="(up|down|ns)">[^<]*<sup>\*</sup>', page)
    board = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()
    for row in board["rows"]:
        if row["baseline"]:
            continue
        low, high = (row["intervals"]["delta"][end] for end in ("low", "high"))
        assert told[row["system"]] == ("up" if low > 0 else "down" if high < 0 else "ns")
    assert len(marked) == board["verdict"]["better"] + board["verdict"]["worse"]


def test_a_hidden_board_colours_what_published_values_show(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"], hidden=True)
    score_queries(dataset, "BM25", spread(0.4, 1), baseline=True)
    for number, (name, mean) in enumerate({"First": 0.6, "Little": 0.405, "Last": 0.2}.items(), 2):
        score_queries(dataset, name, spread(mean, number))
    source = make_source("paper")
    report(dataset, source, "Printed BM25", baseline=True, ndcg=0.4)
    report(dataset, source, "Printed", ndcg=0.9)
    page = text(client, f"/datasets/{dataset.slug}/?columns=delta")
    told = differences(page)
    assert (told["First"], told["Little"]) == ("up", "ns")
    assert told["Printed"] == "untested", "reported scores are never tested"
    assert told["Last"] == "untested", "a lower score is not tested"
    assert re.search(r"Green: better than BM25 by at least \+0\.0\d\d, which is significant at 0\.05\.", page)


def test_reported_differences_are_marked_as_not_tested(client: Client) -> None:
    load_reported()
    page = text(client, "/datasets/nq/")
    assert set(differences(page).values()) == {"ns", "untested"}
    assert differences(page)["BM25"] == "ns", "the baseline itself"
    assert '<dt class="untested">italic</dt>' in page
    assert "not tested." in page
    assert "Green: " not in page
