"""The first page, the list of all boards, the documentation, an operator's pages, and the pages of errors."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from leaderboard.core.checks import check_site_pages
from leaderboard.core.documents import names
from leaderboard.models import Benchmark, Dataset, Round
from tests.leaderboard.entries import score, scored_dataset
from tests.pages import clear_page_cache, one_line
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


def text(page: str) -> str:
    """What is read of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", page[page.index("<main") : page.index("</main>")]).split())


def test_a_card_names_the_leader_its_lead_and_the_last_change(client: Client) -> None:
    dataset = scored_dataset(name="Quokkas")
    Benchmark.objects.create(slug="all", name="All of them").members.create(dataset=dataset)
    score(dataset, "BM25", baseline=True, ndcg=0.4)
    score(dataset, "Leader", ndcg=0.5)
    score(dataset, "private", ndcg=0.9, public=False)
    page = text(client.get("/").content.decode())
    today = f"{timezone.now():%-d %b %Y}"
    verdict = "2 systems Best: Leader 0.500 nDCG@10 +25.0% vs BM25: not tested"
    assert f"Quokkas Open judgments · {verdict} Updated {today}" in page
    assert f"All of them 1 dataset · {verdict}" in page
    assert (
        f"Quokkas Leader leads BM25 by 25% (significance not known yet). Uploaded {today}, results for all queries. "
        "Δ nDCG@10 from BM25" in page
    )
    assert "private" not in page


def test_open_boards_come_before_hidden_ones_and_large_leads_are_factors(client: Client) -> None:
    for name, hidden in (("Open", False), ("Hidden", True)):
        dataset = scored_dataset(name=name, slug=name.lower(), hidden=hidden)
        score(dataset, "BM25", baseline=True, ndcg=0.05)
        score(dataset, "Leader", ndcg=0.6)
    Benchmark.objects.create(slug="all", name="All of them").members.create(dataset=dataset)
    page = client.get("/").content.decode()
    assert re.findall(r"<h3><a [^>]*>(.*?)</a></h3>", page) == ["All of them", "Open", "Hidden"]
    assert "0.600 nDCG@10 12× BM25" in text(page)


def test_the_board_with_most_systems_is_drawn_beside_the_headline(client: Client) -> None:
    for name, others in (("Small", 0), ("Large", 1)):
        dataset = scored_dataset(name=name)
        score(dataset, "BM25", baseline=True, ndcg=0.4)
        score(dataset, f"best on {name}", ndcg=0.5)
        for number in range(others):
            score(dataset, f"other {number}", ndcg=0.45)
    scored_dataset(name="Empty")
    hidden = scored_dataset(name="Large hidden", slug="hidden", hidden=True)  # As many systems, and newer.
    for name, value in (("BM25", 0.4), ("best on hidden", 0.5), ("third", 0.45)):
        score(hidden, name, baseline=name == "BM25", ndcg=value)
    page = client.get("/").content.decode()
    (plot,) = re.findall(r'<svg class="forest-plot".*?</figure>', page)
    assert re.findall('class="forest-name" title="(.*?)"', plot) == ["best on Large", "other 0", "BM25"]
    assert page.index("<h1>") < page.index(plot) < page.index("card-list")
    load_reported()
    clear_page_cache()
    assert '<section class="hero-board"><h2><a href="/benchmarks/' in client.get("/").content.decode()


def test_home_has_one_row_of_boards_changed_last(client: Client) -> None:
    for number in range(6):
        score(scored_dataset(name=f"Board {number}"), "BM25", baseline=True)
    page = client.get("/").content.decode()
    assert re.findall(r"<h3><a [^>]*>(.*?)</a></h3>", page) == [f"Board {number}" for number in (5, 4, 3, 2)]
    assert "All leaderboards (6)" in text(page)


def test_open_rounds_are_told_from_announced_ones(client: Client) -> None:
    now = timezone.now()
    for name, days in (("Autumn", -2), ("Winter", 8)):
        opens = now + timedelta(days=days, hours=1)
        Round.objects.create(
            slug=name.lower(), name=name, dataset=scored_dataset(), opens_at=opens, runs_per_team=3,
            closes_at=opens + timedelta(days=20), reveals_at=opens + timedelta(days=21),
        )  # fmt: skip
    page = text(client.get("/").content.decode())
    assert "Open now Autumn" in page
    assert "Opens in 8 days Winter" in page


def test_home_and_the_list_take_as_many_queries_for_many_boards_as_for_few(client: Client) -> None:
    def queries(address: str) -> int:
        clear_page_cache()
        with CaptureQueriesContext(connection) as found:
            assert client.get(address).status_code == 200
        return len(found)

    def add(number: int) -> None:
        for each in range(number):
            dataset = scored_dataset()
            Benchmark.objects.create(slug=f"b{dataset.pk}", name=f"B{each}").members.create(dataset=dataset)
            score(dataset, f"BM25 of {dataset}", baseline=True, ndcg=0.4)
            score(dataset, f"better on {dataset}", ndcg=0.5)

    add(2)
    few = [queries(address) for address in ("/", "/benchmarks/")]
    add(6)
    assert [queries(address) for address in ("/", "/benchmarks/")] == few
    assert max(few) <= 24


def test_boards_are_listed_by_facets_and_reported_ones_are_folded(client: Client) -> None:
    load_reported()
    scored_dataset(name="Open one", task="bug search", language="de")
    scored_dataset(name="Hidden one", hidden=True, task="bug search")
    page = client.get("/benchmarks/").content.decode()
    assert page.index("Open one") < page.index('<details class="reported-only">') < page.index(">TREC-COVID<")
    assert client.get("/datasets/").content.decode().count("<tr>") == page.count("<tr>")
    found = text(client.get("/benchmarks/?judgements=hidden&task=bug search").content.decode())
    assert "Hidden one" in found
    assert "Open one" not in found
    assert "Open one" in text(client.get("/benchmarks/?language=de").content.decode())
    german_hidden = client.get("/benchmarks/?language=de&judgements=hidden").content.decode()
    assert "No datasets match these filters" in german_hidden
    assert "Without the filter “Language: German”, 1 dataset matches." in one_line(german_hidden)
    assert '<a class="button" href="/benchmarks/?judgements=hidden">Remove this filter</a>' in one_line(german_hidden)
    page = one_line(client.get("/benchmarks/?language=&q=elsewhere").content.decode())
    assert "Without the filter “Words: elsewhere”, " in page
    assert '<a class="button" href="/benchmarks/">Remove this filter</a>' in page
    page = one_line(client.get("/benchmarks/?language=de&judgements=hidden&q=elsewhere").content.decode())
    assert '<a class="button" href="/benchmarks/">Remove all filters</a>' in page
    Benchmark.objects.create(slug="german", name="German").members.create(dataset=Dataset.objects.get(language="de"))
    clear_page_cache()
    assert 'href="/benchmarks/german/"' in client.get("/benchmarks/?language=de").content.decode()
    assert 'href="/benchmarks/german/"' not in client.get("/benchmarks/?judgements=hidden").content.decode()
    by_name = re.findall(r'<a href="/benchmarks/\w[^>]*>([^<]*)', client.get("/benchmarks/?sort=name").content.decode())
    assert len(by_name) > 2
    assert by_name == sorted(by_name, key=str.casefold)
    assert client.get("/benchmarks/?sort=results").status_code == 200
    refused = client.get("/benchmarks/?task=nonsense")
    assert refused.status_code == 400
    assert "bug search" in refused.content.decode()


def test_empty_pages_say_what_will_be_there_and_offer_one_step(client: Client) -> None:
    for address, text, step in (
        ("/", "Datasets that accept runs will be listed here", "/docs/datasets/"),
        ("/benchmarks/", "They will be listed here once a curator imports one", "/docs/datasets/"),
        ("/news/", "will be listed here by day", "/benchmarks/"),
        ("/rounds/", "Curators start a round on a dataset or a benchmark", "/datasets/"),
    ):
        page = client.get(address).content.decode()
        after = page.partition(text)[2]
        assert after, address
        assert re.findall(r'<a class="button" href="([^"]*)"', after) == [step], address
    for address in ("/search/?q=zzz", "/search/"):
        after = client.get(address).content.decode().partition("pages of the documentation by their headings")[2]
        steps = ["/benchmarks/", "/search/?kind=system", "/compare/", "/docs/"]
        assert re.findall(r'<li><a href="([^"]*)">', after)[:4] == steps, address


def test_boards_are_filtered_by_words(client: Client) -> None:
    load_reported()
    scored_dataset(name="Open one", task="Bug search", language="de")
    page = client.get("/benchmarks/").content.decode()
    table = page[page.index("<table") : page.index("</table>")]
    assert table.count('<th scope="row">') == 4
    assert '<th scope="row"><a href="/benchmarks/beir/">BEIR</a></th>' in table
    assert 'name="q" value="" maxlength="100" autocomplete="off" data-filter' in one_line(page)
    found = client.get("/benchmarks/?q=open+BUG").content.decode()
    assert "Open one" in found
    assert "TREC-COVID" not in found
    assert 'value="open BUG"' in found
    assert ">BEIR</a></th>" in client.get("/benchmarks/?q=beir").content.decode()
    assert '<details class="facets-fold"><summary>Filters</summary>' in one_line(page)
    assert '<details class="facets-fold" open>' in found
    assert '<details class="facets-fold" open>' in client.get("/benchmarks/?sort=name").content.decode()


def test_documents_are_pages_whose_links_and_anchors_lead_somewhere(client: Client) -> None:
    pages = {f"/docs/{name}/": client.get(f"/docs/{name}/").content.decode() for name in names()}
    pages["/docs/"] = client.get("/docs/").content.decode()
    assert "/docs/architecture/" not in "".join(pages.values())
    image = r'<img loading="lazy" src="/static/part-plot-light[^"]*\.png#only-light" alt="The plot'
    assert re.search(image, pages["/docs/read-a-board/"])
    assert '<a href="/api/v1/docs/"><code>/api/v1/docs/</code></a>' in pages["/docs/api/"]
    assert '<table class="table is-prose is-stacked">' in pages["/docs/api/"]
    source = r'<source media="[^"]+" srcset="/static/part-table-dark-phone[^"]*"><img'
    assert re.search(source, pages["/docs/read-a-board/"])
    for address, page in pages.items():
        assert page.index('href="#text"') < page.index('<nav class="docs-nav"') < page.index('id="text"')
        assert " style=" not in page
        for target in re.findall(r'href="([^"]*)"', page[page.index("<main") : page.index("</main>")]):
            path, _, anchor = target.partition("#")
            if path.startswith(("http", "mailto:")):
                continue
            path = path or address
            other = pages.get(path) or client.get(path, follow=True).content.decode()
            assert "Page not found" not in other, f"{target} on {address}"
            assert not anchor or f'id="{anchor}"' in other, f"{target} on {address}"
    for name in ("architecture", "security", "decisions", "nothing"):
        assert client.get(f"/docs/{name}/").status_code == 404


def test_a_page_links_to_the_previous_and_the_next_of_the_sidebar(client: Client) -> None:
    for address, neighbors in {
        "/docs/read-a-board/": ["/measures/"],
        "/measures/": ["/docs/read-a-board/", "/docs/worked-examples/"],
        "/docs/tutorial/": ["/docs/glossary/", "/docs/answer-runs/"],
        "/docs/scaling/": ["/docs/operations/"],
        "/docs/": [],
    }.items():
        page = client.get(address).content.decode()
        assert re.findall(r'<a rel="(?:prev|next)" href="([^"]+)">', page) == neighbors


def test_long_pages_have_a_table_of_contents_whose_anchors_exist(client: Client) -> None:
    long_pages = ["/formats/", "/measures/", "/models/", "/api/v1/docs/datasets/", "/docs/engines/"]
    for address in {*long_pages, *(f"/docs/{name}/" for name in names())}:
        page = client.get(address).content.decode()
        folded, _, rest = page.partition('<nav class="page-contents"')
        contents, _, text = rest.partition("</nav>")
        anchors = re.findall(r'href="#([^"]+)"', contents)
        assert anchors or address not in long_pages
        assert anchors == re.findall(r'href="#([^"]+)"', folded.partition('<details class="page-contents">')[2])
        for anchor in re.findall(r' id="(?:term-)?([^"]+)"', text):
            assert page.count(f' id="{anchor}"') <= 1, f"{anchor} on {address}"
        assert all(f' id="{anchor}"' in text for anchor in anchors), address
    for address in ("/docs/", "/docs/rounds/", "/figures/"):
        assert "page-contents" not in client.get(address).content.decode()


def test_the_documentation_begins_with_readers_and_submitters(client: Client) -> None:
    page = client.get("/docs/").content.decode()
    main = page[page.index("<main") :]
    links = ["read-a-board", "tutorial", "submit-a-model", "client", "datasets", "start-a-site"]
    places = [main.index(f'href="/docs/{name}/"') for name in links]
    assert places == sorted(places)
    start = main.partition('docs-start">')[2].partition("</section>")[0]
    assert re.findall(r'href="/docs/(.*?)/"', start) == ["tutorial", "submit-a-model", "read-a-board", "start-a-site"]


def test_the_documentation_has_a_search_field_whose_results_are_documentation(client: Client) -> None:
    page = client.get("/docs/").content.decode()
    form = page[page.index('<form class="row search-page docs-search"') :].partition("</form>")[0]
    fields = dict.fromkeys(re.findall(r'name="(\w+)"', form), "bm25") | {"kind": "documentation"}
    assert list(fields) == ["kind", "q"]
    assert 'value="documentation"' in form
    found = client.get("/search/", fields).content.decode()
    assert 'id="found-documentation"' in found
    assert 'href="/search/?q=bm25"' in found


def test_tutorials_do_not_mention_make(client: Client) -> None:
    assert "make run" not in client.get("/docs/tutorial/").content.decode()


def test_an_operator_writes_terms_and_contact_and_privacy_has_a_default(
    client: Client, settings: Any, tmp_path: Path
) -> None:
    home = client.get("/").content.decode()
    assert 'href="/privacy/"' in home
    assert 'href="/terms/"' not in home
    assert client.get("/terms/").status_code == client.get("/contact/").status_code == 404
    assert "What you submit" in client.get("/privacy/").content.decode()
    (tmp_path / "terms.md").write_text("Be **kind**.\n\n<script>no</script>")
    settings.SITE_PAGES = {"terms": tmp_path / "terms.md", "privacy": None}
    clear_page_cache()
    page = client.get("/terms/").content.decode()
    assert "Be <strong>kind</strong>." in page
    assert "<script>no" not in page
    assert 'href="/terms/"' in client.get("/").content.decode()
    assert check_site_pages(None) == []
    (tmp_path / "terms.md").unlink()
    assert client.get("/terms/").status_code == 404
    assert "terms.md is missing" in str(check_site_pages(None)[0])


def test_error_pages_offer_a_search_and_name_the_request(client: Client) -> None:
    missing = client.get("/nowhere/")
    page = missing.content.decode()
    assert missing.status_code == 404
    assert 'name="q"' in page[page.index("<main") :]
    assert f">{missing.headers['X-Request-ID']}</code>" in page


def test_crawlers_are_kept_off_views_without_end(client: Client) -> None:
    answer = client.get("/robots.txt")
    assert answer["Content-Type"].startswith("text/plain")
    rules = answer.content.decode().splitlines()
    assert {"Disallow: /*?", "Disallow: /search/", "Disallow: /*/board."} <= set(rules)
    assert "Disallow: /" not in rules, "boards are to be found"
