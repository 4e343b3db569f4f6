"""The search of the header: boards, systems, people, rounds, measures, and documentation, as page, list, and JSON."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.text import slugify

from leaderboard.models import Benchmark, Dataset, Entry, EntryQuerySet, Round, Source, System, Team
from leaderboard.rounds.lifecycle import save_round
from leaderboard.templatetags.runboard import excerpt
from tests.leaderboard.entries import make_source, make_system, record_boards, report, score, scored_dataset
from tests.pages import one_line

pytestmark = pytest.mark.django_db


def found(client: Client, query: str) -> list[tuple[str, str]]:
    """Kinds and names."""
    answer = client.get("/api/v1/search/", {"q": query})
    assert answer.status_code == 200
    return [(one["kind"], one["name"]) for one in answer.json()["found"]]


@pytest.fixture
def content() -> Dataset:
    dataset = scored_dataset(name="Quokka questions", domain="marsupials")
    Benchmark.objects.create(slug="quokka-suite", name="Quokka suite").members.create(dataset=dataset)
    team = Team.objects.create(slug="wombat-lab", name="Wombat Lab")
    score(dataset, make_system("Quokka ranker", team=team, authors="Ada Numbat and Grace Bilby"), ndcg=0.5)
    score(dataset, make_system("Big quokka", team=team, participant="Echidna group"), ndcg=0.4)
    score(dataset, "private quokka", ndcg=0.9, public=False)
    scored_dataset(name="Quokka in preparation", state=Dataset.State.PREPARING)
    return dataset


@pytest.mark.usefixtures("content")
def test_names_are_found_by_kind_and_what_begins_so_stands_first(client: Client) -> None:
    assert found(client, "QUOKKA") == [
        ("benchmark", "Quokka suite"),
        ("dataset", "Quokka questions"),
        ("system", "Quokka ranker"),
        ("system", "Big quokka"),
    ]
    assert found(client, "ranker  quokka") == [("system", "Quokka ranker")]
    assert found(client, "wombat") == [("system", "Quokka ranker"), ("team", "Wombat Lab")]
    assert ("system", "Big quokka") in found(client, "dense quokka")
    assert found(client, "numbat") == [("author", "Ada Numbat")]
    assert found(client, "echidna") == [("system", "Big quokka")]
    assert found(client, "marsupials") == [("dataset", "Quokka questions")]
    assert found(client, " ") == found(client, "%") == []


def test_models_are_found_by_their_name_own_results_first_then_by_number_of_datasets(client: Client) -> None:
    datasets, source = [scored_dataset(name=name) for name in ("One", "Two")], make_source("paper")
    for name, entered in (("quoll-a", 1), ("acme quoll-b", 2), ("my quoll", 2)):
        for dataset in datasets[:entered]:
            report(dataset, source, name, ndcg=0.5)
    System.objects.filter(name="acme quoll-b").update(name="acme/quoll-b")
    score(datasets[0], "quoll here", ndcg=0.4)
    names = [name for kind, name in found(client, "quoll") if kind == "system"]
    assert names == ["quoll here", "acme/quoll-b", "quoll-a", "my quoll"]


@pytest.mark.usefixtures("content")
def test_every_answer_leads_to_a_page_and_the_page_lists_the_same(client: Client) -> None:
    Source.objects.create(key="none", title="Unused", authors="Nobody Quokka", year=2020)
    answers = [
        one for q in ("quokka", "wombat", "numbat") for one in client.get(f"/api/v1/search/?q={q}").json()["found"]
    ]
    for one in answers:
        assert client.get(one["url"]).status_code == 200, one
    page = client.get("/search/?q=quokka").content.decode()
    assert all(one["name"] in page for one in answers[:4])
    assert "Nobody Quokka" not in page
    part = client.get("/search/?q=quokka", headers={"HX-Request": "true"}).content.decode()
    assert "Quokka ranker" in part
    assert "<html" not in part
    nothing = client.get("/search/?q=<b>").content.decode()
    assert "No results for “&lt;b&gt;”" in nothing
    assert all(f'href="{url}"' in nothing.partition("No results")[2] for url in ("/benchmarks/", "/compare/", "/docs/"))


def test_the_page_shows_the_best_standing_of_a_system_and_the_leader_of_a_board(client: Client) -> None:
    small, large = scored_dataset(name="Small pond"), scored_dataset(name="Large pond")
    heron = make_system("Heron")
    for dataset, place in ((small, 1), (large, 2)):
        score(dataset, heron, ndcg=0.5)
        for number in range(1, 8 * place - 5):
            score(dataset, f"duck {number} of {dataset.name}", ndcg=0.6 if number < place else 0.4 - number / 100)
    text = " ".join(re.sub(r"<[^>]+>", " ", client.get("/search/?q=pond").content.decode()).split())
    assert "3 systems, best: Heron with nDCG@10 0.500" in text
    assert "11 systems, best: duck 1 of Large pond with nDCG@10 0.600" in text
    text = " ".join(client.get("/search/?q=heron").content.decode().split())
    assert "1st of 3 on Small pond, nDCG@10 0.500 </small>" in text
    assert "1st of 3" not in client.get("/search/?q=heron", headers={"HX-Request": "true"}).content.decode()


def test_a_mistyped_name_or_address_leads_to_similar_ones(client: Client, content: Dataset) -> None:
    content.slug = "quokka-questions"
    content.save()
    page = client.get("/search/?q=zzzz").content.decode()
    assert "Did you mean" not in page
    for example in re.findall(r'<a href="(/search/[^"]+)"', page):
        assert "The search finds" not in client.get(example).content.decode(), example
    assert page.count('<a href="/search/?q=') == 2
    assert "Did you mean" not in client.get("/search/?q=quorum").content.decode()
    assert '<a href="/search/?q=Quokka">Quokka</a>' in client.get("/search/?q=qoukka").content.decode()
    score(content, make_system("Quokka +BM25"), ndcg=0.3)
    near = client.get("/search/?q=bm26").content.decode()
    assert '<a href="/search/?q=BM25">BM25</a>?' in near
    assert "+BM25</a>" not in near
    for path in ("/datasets/quokka-qestions/", "/dataset/quokka-questions/board"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert '<a href="/datasets/quokka-questions/">Quokka questions</a>' in answer.content.decode(), path
    page = client.get("/docs/read-board/").content.decode()
    assert "The documentation has no page “read-board”." in page
    assert '<a href="/docs/read-a-board/">Read a board</a>' in page
    assert "There is no dataset “quokka-qestions”." in client.get("/datasets/quokka-qestions/").content.decode()
    assert "There is no system “bm26”." in client.get("/systems/bm26/").content.decode()
    assert "There is no dataset" not in client.get("/datasets/quokka-questions/elsewhere/").content.decode()
    for path in ("/datasets/quokka-in-preparatio/", "/systems/private-quoka/"):
        assert not re.search("in-preparation/|private-quokka/", client.get(path).content.decode()), path
    scored_dataset(name="NQ-Open", slug="nq-open")
    assert "Did you mean" not in client.get("/datasets/nope/").content.decode()
    assert "Did you mean" not in client.get("/elsewhere/quokka-questions/").content.decode()


def test_systems_with_equal_names_are_told_apart_by_team_and_datasets(client: Client) -> None:
    datasets = [scored_dataset(name=name) for name in ("Alpha", "Beta", "Gamma")]
    team = Team.objects.create(slug="lab", name="Lab")
    other = Team.objects.create(slug="other", name="Other")
    systems = [make_system("same", team=owner, architecture="lexical") for owner in (team, other, None)]
    for system, entered in zip(systems, (datasets[:1], datasets[1:], datasets), strict=True):
        for dataset in entered:
            score(dataset, system, ndcg=0.5)
    score(datasets[2], systems[0], ndcg=0.9, public=False)
    System.objects.filter(pk=systems[2].pk).update(team=None)
    page = client.get("/search/?q=same").content.decode()
    assert re.findall(r">(same \(.*?\))<small>", page) == ["same (this site)", "same (Other)", "same (Lab)"]
    assert re.findall(r"same \(.*?\)<small>(.*?)</small>", page) == [
        "this site, lexical, Alpha and 2 more",
        "Other, lexical, Beta and 1 more",
        "Lab, lexical, Alpha",
    ]


def test_an_anonymous_system_is_found_by_its_own_name_alone(client: Client, content: Dataset) -> None:
    team = Team.objects.create(slug="potoroo", name="Potoroo Institute")
    hidden = make_system(
        "Double blind", team=team, authors="Eve Potoroo", participant="Potoroo people",
        anonymous_until=timezone.now() + timedelta(days=30),
    )  # fmt: skip
    score(content, hidden, ndcg=0.7)
    assert found(client, "potoroo") == []
    assert found(client, "anonymous") == []
    assert found(client, "double") == [("system", "Double blind")]
    assert "otoroo" not in client.get("/search/?q=double").content.decode()
    hidden.anonymous_until = None
    hidden.save()
    record_boards()
    assert found(client, "potoroo") == [
        ("system", "Double blind"), ("team", "Potoroo Institute"), ("author", "Eve Potoroo")
    ]  # fmt: skip


def test_a_search_takes_few_queries_however_much_there_is(client: Client, content: Dataset) -> None:
    for number in range(30):
        score(content, make_system(f"crowd {number}", authors=f"Person {number} Crowd"), ndcg=0.1)
    with CaptureQueriesContext(connection) as queries:
        answers = found(client, "crowd")
    assert len(queries) <= 9  # the site's revision, and eight
    assert len(answers) == 16
    assert 'href="/search/?q=crowd&amp;kind=system"' in (page := client.get("/search/?q=crowd").content.decode())
    assert "All 30</a>" in page
    every = client.get("/search/?q=crowd&kind=system").content.decode()
    assert every.count('href="/systems/') == 30
    assert "Person 1 Crowd" not in every
    assert "All 30" not in every
    listed = client.get("/search/?kind=system").content.decode()
    assert "systems have public results" in listed
    assert listed.count("<li>") >= 30
    assert client.get("/search/?q=").content.decode().count('href="/systems/') == 0
    assert found(client, "x" * 5000) == []


def test_all_systems_are_listed_on_pages_with_their_sizes(
    client: Client, content: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leaderboard.views.home.RESULTS_PER_PAGE", 4)
    for number in range(6):
        score(content, make_system(f"listed {number}", parameter_count=12_300_000), ndcg=0.1)
    first = client.get("/search/?kind=system&q=listed").content.decode()
    assert re.findall(r"listed \d", first) == [f"listed {number}" for number in range(4)]
    assert "12.3 M parameters" in first
    second = client.get("/search/?kind=system&q=listed&page=2").content.decode()
    assert re.findall(r"listed \d", second) == ["listed 4", "listed 5"]
    assert "Page 2 of 2" in second
    monkeypatch.setattr("leaderboard.comparison.search.MAX_RESULTS_OF_ONE_KIND", 5)
    listed = one_line(client.get("/search/?kind=system").content.decode())
    count = EntryQuerySet(Entry).public().order_by().values("system").distinct().count()
    assert f"{count} systems have public results" in listed, "all of them, not those on the pages"


def test_the_search_is_kept_and_still_sees_what_is_new(client: Client, content: Dataset) -> None:
    assert found(client, "latecomer") == []
    with CaptureQueriesContext(connection) as queries:
        assert found(client, "latecomer") == []
    assert len(queries) == 1
    score(content, "latecomer", ndcg=0.2)
    assert ("system", "latecomer") in found(client, "latecomer")


def test_measures_are_found_by_each_spelling_and_lead_to_their_formula(client: Client) -> None:
    for query, name in (("nDCG@10", "nDCG"), ("recall_100", "R@k"), ("mrr", "RR"), ("hit_rate@{k}", "Success@k")):
        assert ("measure", name) in found(client, query), query
    address = client.get("/api/v1/search/?q=recall@20").json()["found"][0]["url"]
    page, _, anchor = address.partition("#")
    assert f'<tr id="{anchor}">' in client.get(page).content.decode()
    assert re.search(r'<h2 id="found-measure">\s*Measures\s*</h2>', client.get("/search/?q=ndcg").content.decode())


def test_documentation_is_found_by_page_section_and_term(client: Client) -> None:
    assert found(client, "submit model")[0] == ("documentation", "Submit a model")
    assert found(client, "borda") == [("documentation", "Borda count and mean rank")]
    assert ("documentation", "Judgments, qrels") in found(client, "glossary qrels")
    sections = {one["name"]: one for one in client.get("/api/v1/search/?q=operations+backup").json()["found"]}
    assert sections["Backup and restore"]["about"] == "Operations"
    assert "Monitoring" not in sections  # only its page has one of the words
    for query in ("borda", "operations backup", "glossary qrels", "submit model", "prompts"):
        for one in client.get("/api/v1/search/", {"q": query}).json()["found"]:
            page, _, anchor = one["url"].partition("#")
            answer = client.get(page)
            assert answer.status_code == 200
            assert not anchor or f'id="{anchor}"' in answer.content.decode(), one
    suggestions = client.get("/search/?q=borda", headers={"HX-Request": "true"}).content.decode()
    assert 'href="/measures/#borda"' in suggestions
    every = client.get("/search/?q=run&kind=documentation").content.decode()
    assert every.count("<li>") > 8


def test_the_page_links_to_each_kind_with_its_count_and_marks_words_of_the_documentation(
    client: Client, content: Dataset
) -> None:
    for number in range(20):
        score(content, make_system(f"backup {number}"), ndcg=0.1)
    page = one_line(client.get("/search/?q=backup").content.decode())
    assert '<li><a href="#found-system">Systems<b>20</b></a></li>' in page
    assert re.search(r'<a href="#found-documentation">Documentation<b>\d+</b></a>', page)
    excerpts = re.findall(r"<small>Operations</small><small>(.*?)</small></a>", page)
    assert excerpts
    assert "<mark>" in "".join(excerpts)
    assert max(len(re.sub("<.*?>|&.*?;", "", text)) for text in excerpts) <= 180
    part = client.get("/search/?q=backup", headers={"HX-Request": "true"}).content.decode()
    assert "<mark>" not in part
    assert "#found-system" not in part
    assert "#found-" not in client.get("/search/?q=backup&kind=system").content.decode()
    assert excerpt("No words. A <B> & b of Bo.", "b") == (
        "A &lt;<mark>B</mark>&gt; &amp; <mark>b</mark> of <mark>B</mark>o."
    )


def test_rounds_are_found_unless_their_dataset_is_in_preparation(client: Client, content: Dataset) -> None:
    assert found(client, "autumn") == []
    draft = scored_dataset(name="Draft", state=Dataset.State.PREPARING)
    opens = timezone.now()
    for name, dataset in (("Autumn", content), ("Autumn draft", draft)):
        times = {"opens_at": opens, "closes_at": opens + timedelta(days=1), "reveals_at": opens + timedelta(days=2)}
        save_round(Round(slug=slugify(name), name=name, dataset=dataset, **times))
    assert found(client, "autumn") == [("round", "Autumn")]
    assert ("round", "Autumn") in found(client, "quokka autumn")
    assert 'href="/rounds/autumn/"' in client.get("/search/?q=autumn").content.decode()
