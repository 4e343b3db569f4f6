"""What stands around a system: links, history, authors, badges; and the pages of teams and authors."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from leaderboard.boards.system.history import authors_in
from leaderboard.boards.system.standing import Badge, as_svg, text_width
from leaderboard.models import Benchmark, Team
from leaderboard.results.publishing.visibility import set_visibility, withdraw_entries
from tests.factories import make_user
from tests.leaderboard.comparison.test_queries import text_of
from tests.leaderboard.entries import (
    make_source,
    make_system,
    renew_judgements,
    report,
    score,
    score_seeds,
    scored_dataset,
)
from tests.pages import clear_page_cache, one_line
from tests.reported_boards import load_reported

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


def test_the_crumbs_of_a_system_lead_to_its_benchmark_or_to_its_dataset(client: Client) -> None:
    dataset = scored_dataset(name="Open")
    score(dataset, "BM25", baseline=True, ndcg=0.4)
    system = score(dataset, "best", ndcg=0.9).system
    for address, name in ((dataset.get_absolute_url(), "Open"), ("/benchmarks/all/", "All")):
        page = one_line(client.get(system.get_absolute_url()).content.decode())
        assert re.search(rf'Leaderboards</a> ?› ?<a href="{address}">{name}</a> ?</p>', page)
        Benchmark.objects.get_or_create(slug="all", name="All")[0].members.get_or_create(dataset=dataset)
        clear_page_cache()


def test_a_system_leads_to_comparisons_and_queries_where_judgements_are_open(client: Client) -> None:
    opened, hidden = scored_dataset(name="Open"), scored_dataset(name="Secret", hidden=True)
    system = make_system("newcomer")
    for dataset in (hidden, opened):
        bm25 = score(dataset, "BM25", baseline=True, ndcg=0.4).system
        best = score(dataset, "best", ndcg=0.9).system
        score(dataset, system, ndcg=0.5)
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert f"/datasets/{opened.slug}/queries/" in page
    assert f"/datasets/{hidden.slug}/queries/" not in page
    assert f"/compare/?system={bm25.slug}&amp;system={system.slug}" in page
    assert f"/compare/?system={best.slug}&amp;system={system.slug}" in page
    report(opened, make_source("paper"), "printed", ndcg=0.4)
    assert f"/datasets/{opened.slug}/queries/" not in client.get("/systems/printed-paper/").content.decode()
    own = client.get(f"/systems/{bm25.slug}/").content.decode()
    assert f"system={bm25.slug}&amp;system={bm25.slug}" not in own


def test_a_system_has_its_mean_rank_and_datasets_on_each_benchmark(client: Client) -> None:
    datasets, system = [scored_dataset(name="One"), scored_dataset(name="Two")], make_system("newcomer")
    benchmark, bm25 = Benchmark.objects.create(slug="both", name="Both"), make_system("BM25")
    for dataset in datasets:
        benchmark.members.create(dataset=dataset)
        score(dataset, bm25, baseline=True, ndcg=0.6)
        score(dataset, system, ndcg=0.5)
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert 'href="/benchmarks/both/"' in page
    assert "Datasets Both 0.500 nDCG@10 2 of 2 2/2" in text_of(page)


def test_the_history_has_dates_and_reasons_and_nothing_private(client: Client) -> None:
    first, second, third = (
        scored_dataset(name="First"),
        scored_dataset(name="Second"),
        scored_dataset(name="Third"),
    )
    system = make_system("newcomer")
    score(first, system, ndcg=0.5)
    withdrawn = score(second, system, ndcg=0.6)
    score(third, system, ndcg=0.7, public=False)
    withdraw_entries(withdrawn.submission_reference, "the wrong file")
    page = text_of(client.get(f"/systems/{system.slug}/").content.decode())
    history = page[page.index("History") : page.index("Cite and export")]
    assert "Published on First , Second" in history
    assert "Withdrawn on Second : the wrong file" in history
    assert "Third" not in page
    assert re.search(r"\d{1,2} [A-Z][a-z]{2} 20\d\d", history)


def test_variants_and_authors_are_linked_and_authors_have_pages(client: Client) -> None:
    dataset = scored_dataset()
    parent = make_system("parent", authors="Nils Müller and Hopper, Grace")
    child, unseen = make_system("child", variant_of=parent), make_system("unseen", variant_of=parent)
    for system in (parent, child):
        score(dataset, system, ndcg=0.5)
    score(dataset, unseen, ndcg=0.5, public=False)
    report(dataset, make_source("paper"), "printed", ndcg=0.4)
    page = one_line(client.get(f"/systems/{parent.slug}/").content.decode())
    assert '<a href="/authors/nils-muller/">Nils Müller</a>' in page
    assert f'Variants</dt><dd><a href="/systems/{child.slug}/">child</a></dd>' in page
    assert "unseen" not in page
    assert f'Variant of</dt><dd><a href="/systems/{parent.slug}/">' in one_line(
        client.get(f"/systems/{child.slug}/").content.decode()
    )
    printed = one_line(client.get("/systems/printed-paper/").content.decode())
    assert 'Scores reported by</dt><dd><a href="/authors/ada-lovelace/">Ada Lovelace</a>' in printed
    both = text_of(client.get("/authors/grace-hopper/").content.decode())
    assert "Grace Hopper" in both
    assert "parent" in both
    assert "On paper" in both
    assert client.get("/authors/nobody/").status_code == 404


def test_names_are_read_as_bibtex_joins_them() -> None:
    assert [name for name, _ in authors_in("Nandan Thakur and Reimers, Nils and others")] == [
        "Nandan Thakur",
        "Nils Reimers",
    ]
    assert authors_in("") == []
    assert authors_in("王 小明")[0].slug == "王-小明"
    assert authors_in("& and ???")[0].slug == ""


@pytest.mark.parametrize(
    ("written", "said", "slugs"),
    [
        (r"""{\"O}zg\"ur & Co O'Brien""", ["Özgür & Co O'Brien"], ["ozgur-co-obrien"]),
        (r"J{\o}rgensen, S{\o}ren and {\L}ukasz Kaiser", ["Søren Jørgensen", "Łukasz Kaiser"],
         ["soren-jorgensen", "lukasz-kaiser"]),
        (r"Pa\v{s}k\'{\i}n, V. and \c{C}a\u{g}lar Stra\ss e~M.", ["V. Paškín", "Çağlar Straße M."],
         ["v-paskin", "caglar-strasse-m"]),
        ("{van der} Berg, Jan and G\\\"{o}del, Jr, Kurt", ["Jan van der Berg", "Kurt Gödel Jr"],
         ["jan-van-der-berg", "kurt-godel-jr"]),
        (r"{Barnes and Noble} AND AT\&T and others", ["Barnes and Noble", "AT&T"],
         ["barnes-and-noble", "att"]),
        ("{ and a and }{", ["a"], ["a"]),
    ],
)  # fmt: skip
def test_latex_in_names_is_shown_as_characters(written: str, said: list[str], slugs: list[str]) -> None:
    found = authors_in(written)
    assert [author.name for author in found] == said
    assert [author.slug for author in found] == slugs


def test_an_authors_page_is_found_under_the_name_as_it_is_read(client: Client) -> None:
    system = make_system("Mine", authors=r"{\"O}zg\"ur, Ada")
    score(scored_dataset(), system, ndcg=0.5)
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert '<a href="/authors/ada-ozgur/">Ada Özgür</a>' in page
    assert "Ada Özgür" in client.get("/authors/ada-ozgur/").content.decode()


def test_no_link_of_a_withdrawn_systems_page_is_dead(client: Client) -> None:
    dataset = scored_dataset()
    score(dataset, "BM25", baseline=True, ndcg=0.25)
    entry = score(dataset, make_system("Mine", authors="Ada Lovelace", bibtex="@misc{a, b={c}}"), ndcg=0.5)
    withdraw_entries(entry.submission_reference, "a bug")
    page = client.get(f"/systems/{entry.system.slug}/").content.decode()
    assert "All results were withdrawn." in page
    assert "Ada Lovelace" in page
    assert "Take it away" not in page
    for address in set(re.findall(r'(?:href|src)="(/(?!static|accounts)[^"#]*)', page)):
        assert client.get(address, follow=True).status_code == 200, address


def test_a_badge_has_the_published_score_and_the_rank(client: Client) -> None:
    dataset = scored_dataset(name="Tiny <1>", hidden=True)
    score(dataset, "BM25", baseline=True, ndcg=0.41234)
    system = score(dataset, "newcomer", ndcg=0.51234).system
    svg = client.get(f"/systems/{system.slug}/badge.svg?dataset={dataset.slug}")
    assert svg["Content-Type"] == "image/svg+xml"
    picture = ElementTree.fromstring(svg.content.decode())
    assert picture[0].text == "nDCG@10 on Tiny <1>: 0.512 · 1 of 2"
    assert "style" not in svg.content.decode()
    data = client.get(f"/systems/{system.slug}/badge.json").json()
    assert data == {
        "schemaVersion": 1,
        "label": "nDCG@10 on Tiny <1>",
        "message": "0.512 · 1 of 2",
        "color": "blue",
    }
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert f"http://testserver/systems/{system.slug}/badge.svg?dataset={dataset.slug}" in page
    for wrong in (
        f"/systems/nobody/badge.svg?dataset={dataset.slug}",
        f"/systems/{system.slug}/badge.json?dataset=nowhere",
        f"/systems/{system.slug}/badge.json?dataset={dataset.slug}&measure=nonsense",
    ):
        assert client.get(wrong).status_code == 404


def test_a_badge_says_what_is_reported_stale_or_gone(client: Client) -> None:
    dataset = scored_dataset(name="Tiny")
    entry = score(dataset, "newcomer", ndcg=0.5)
    report(dataset, make_source("paper"), "printed", ndcg=0.4)
    address = f"/systems/{entry.system.slug}/badge.json?dataset={dataset.slug}"
    reported = client.get(f"/systems/printed-paper/badge.json?dataset={dataset.slug}").json()
    assert reported["message"] == "0.400 · 1 of 1 reported"
    renew_judgements(dataset)
    clear_page_cache()
    assert client.get(address).json()["message"] == "0.500, earlier judgments"
    withdraw_entries(entry.submission_reference, "")
    assert client.get(address).json()["message"] == "no result"


def test_a_badge_is_as_wide_as_its_words() -> None:
    narrow, wide = (as_svg(Badge(label, "0.5", "blue")) for label in ("iii", "MMMMMMMMM"))
    sizes = [int(re.findall(r'width="(\d+)"', svg)[0]) for svg in (narrow, wide)]
    assert sizes[1] > sizes[0] + 50
    assert text_width("中文") == 22
    assert text_width("") == 0


def test_a_team_has_systems_and_results_and_no_members(client: Client) -> None:
    dataset = scored_dataset(name="Tiny")
    score(dataset, "BM25", baseline=True, ndcg=0.4)
    team = Team.objects.create(slug="team", name="The <b>team</b>")
    person = make_user("Zora")
    team.members.add(person)
    score(dataset, make_system("newcomer", team=team), ndcg=0.5)
    score(dataset, make_system("kept back", team=team), ndcg=0.6, public=False)
    page = client.get("/teams/team/").content.decode()
    assert "+0.100" in page
    assert "+25.0" in page
    assert "newcomer" in page
    assert "kept back" not in page
    assert "<b>team" not in page
    assert "Zora" not in page
    assert person.email not in page


def test_pages_of_systems_and_teams_take_as_many_queries_for_more_results(client: Client) -> None:
    load_reported()
    team = Team.objects.create(slug="team", name="Team")
    system = make_system("newcomer", team=team)

    def queries(address: str) -> int:
        clear_page_cache()
        with CaptureQueriesContext(connection) as captured:
            assert client.get(address).status_code == 200
        return len(captured)

    addresses = (f"/systems/{system.slug}/", "/teams/team/", "/authors/nandan-thakur/")
    score(scored_dataset(), system, ndcg=0.5)

    def read() -> list[int]:
        """Return the numbers of queries once all boards are computed."""
        return [[queries(address) for address in addresses] for _ in range(2)][-1]

    few = read()
    for number in range(4):
        dataset = scored_dataset()
        score(dataset, "BM25", baseline=True, ndcg=0.4)
        score(dataset, system, ndcg=0.5)
        score(dataset, make_system(f"other {number}", team=team, variant_of=system), ndcg=0.6)
    assert read() == few


def test_badge_and_system_page_rank_as_the_board_does(client: Client) -> None:
    dataset = scored_dataset(name="Tiny")
    score(dataset, "BM25", baseline=True, ndcg=0.1)
    ours = [score(dataset, "open best", ndcg=0.5).system, score(dataset, "open last", ndcg=0.05).system]
    shut = score(dataset, make_system("closed", closed_api=True), ndcg=0.9).system
    report(dataset, make_source("paper"), "printed", ndcg=0.95)
    board = {row["slug"]: row for row in client.get(f"/datasets/{dataset.slug}/board.json").json()["rows"]}

    def said(slug: str) -> tuple[str, dict[str, object]]:
        badge = client.get(f"/systems/{slug}/badge.json").json()["message"]
        (result,) = client.get(f"/api/v1/systems/{slug}/").json()["results"]
        assert (result["rank"], result["ranked_in"]) == (board[slug]["rank"], board[slug]["ranked_among"])
        return badge, result

    badge, result = said(ours[0].slug)
    assert badge == "0.500 · 1 of 3"
    assert (result["best_system"], result["of"]) == ("open best", 3)
    assert said(ours[1].slug)[0] == "0.050 · 3 of 3"
    badge, result = said(shut.slug)
    assert badge == "0.900 · 1 of 1 closed"
    assert result["baseline"] == 0.1
    assert said("printed-paper")[0] == "0.950 · 1 of 1 reported"
    page = client.get(f"/systems/{shut.slug}/").content.decode()
    assert '1 of 1<small class="below">closed APIs</small>' in one_line(page)
    assert "1st of 1 with nDCG@10 0.900" in page, "what the page says first"

    renew_judgements(dataset)
    clear_page_cache()
    board = {row["slug"]: row for row in client.get(f"/datasets/{dataset.slug}/board.json").json()["rows"]}
    badge, result = said(ours[1].slug)
    assert badge == "0.050, earlier judgments"
    assert (result["rank"], result["baseline"]) == (None, 0.1)
    assert re.search(
        r"<td class=\"n\" data-label=\"Rank\">\s*stale\s*<", client.get(f"/systems/{ours[1].slug}/").content.decode()
    )


def test_a_seed_set_says_what_it_was_made_with_and_what_of(client: Client) -> None:
    dataset = scored_dataset(name="Tiny")
    first_stage = score_seeds(dataset, make_system("first stage"), {"ndcg": 0.3}, {"ndcg": 0.4})
    kept_back = score(dataset, "kept back", ndcg=0.3, public=False)
    made = score_seeds(dataset, make_system("re-ranker"), {"ndcg": 0.5}, {"ndcg": 0.6})
    sources = [first_stage.seeds.get(label="1").evaluation.run, kept_back.evaluation.run]  # type: ignore[union-attr]
    for seed in made.seeds.all():
        run = seed.evaluation.run
        run.metadata = {"made_by": {"engine": "fusion", "parameters": {"method": "rrf"}}}
        run.save()
        run.built_from.set(sources)
    page = text_of(client.get(f"/systems/{made.system.slug}/").content.decode())
    assert "method = rrf" in page
    assert "Uses runs of first stage" in page
    assert "kept back" not in page
    set_visibility(made.submission_reference, public=False)
    score(dataset, made.system, ndcg=0.5)
    assert "method = rrf" not in client.get(f"/systems/{made.system.slug}/").content.decode()
