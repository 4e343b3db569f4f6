"""What a link to a page shows elsewhere: descriptions, pictures of boards, feeds of one board."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from PIL import Image

from leaderboard.models import Benchmark
from leaderboard.views.share_image import draw_board
from tests.leaderboard.entries import make_system, score, scored_dataset

pytestmark = pytest.mark.django_db
ATOM = "{http://www.w3.org/2005/Atom}"


def tags(page: str) -> dict[str, str]:
    """The content of the head's tags by property or name."""
    found = re.findall(r'<meta (?:property|name)="([^"]+)" content="([^"]*)"', page)
    return dict(found)


def test_a_board_is_described_by_its_verdict_and_has_a_picture(client: Client) -> None:
    dataset = scored_dataset(name='Quotes "& more"')
    Benchmark.objects.create(slug="all", name="All").members.create(dataset=dataset)
    score(dataset, "BM25", baseline=True, ndcg=0.4)
    score(dataset, "Größter <b>Ranker", ndcg=0.5)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    found = tags(page)
    assert found["og:title"].startswith("Quotes &quot;&amp; more&quot;")
    assert re.search(
        r"Größter &lt;b&gt;Ranker \(Team \d+\), nDCG@10 0\.500 \(uploaded \d+ \w+ \d+, results for all queries\)\. "
        r"vs BM25: \+25\.0%, significance not known yet\.",
        found["description"],
    )
    assert found["og:description"] == found["description"]
    assert found["twitter:card"] == "summary_large_image"
    pictures = [found["og:image"], tags(client.get("/benchmarks/all/").content.decode())["og:image"]]
    shares = (f"/datasets/{dataset.slug}/share.png", "/benchmarks/all/share.png")
    assert pictures == [f"http://testserver{path}" for path in shares]
    for address in pictures:
        answer = client.get(address)
        assert answer.headers["Content-Type"] == "image/png"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
        assert Image.open(io.BytesIO(answer.content)).size == (1200, 630)
    assert client.get("/datasets/nothing/share.png").status_code == 404


def test_a_picture_is_drawn_once_for_each_revision(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(
        "leaderboard.views.share_image.draw_board",
        lambda board: drawn.append(board.title) or draw_board(board),
    )
    dataset = scored_dataset()
    score(dataset, "first", ndcg=0.4)
    address = f"/datasets/{dataset.slug}/share.png"
    first = client.get(address).content
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).content == first
    assert (len(drawn), len(queries)) == (1, 1)
    score(dataset, "second", ndcg=0.6)
    assert client.get(address).content != first
    assert len(drawn) == 2


def test_every_page_is_described(client: Client) -> None:
    for address in ("/", "/benchmarks/", "/docs/", "/nowhere/", "/account/login/"):
        found = tags(client.get(address).content.decode())
        assert found["description"], address
        assert found["og:title"], address
        assert found["twitter:card"] == "summary", address


def test_a_board_has_a_feed_of_its_own(client: Client) -> None:
    one, other = scored_dataset(name="One"), scored_dataset(name="Other")
    Benchmark.objects.create(slug="both", name="Both").members.create(dataset=other)
    system = make_system("Newcomer")
    score(one, system, ndcg=0.5)
    score(other, make_system("Elsewhere"), ndcg=0.5)

    def titles(address: str) -> str:
        feed = ElementTree.fromstring(client.get(address).content)
        return " ".join(str(title.text) for title in feed.iter(f"{ATOM}title"))

    feed = re.search(r'type="application/atom\+xml" title="[^"]*" href="([^"]+)"',
                     client.get(f"/datasets/{one.slug}/").content.decode())  # fmt: skip
    assert feed is not None
    assert "Newcomer" in titles(feed[1])
    assert "Elsewhere" not in titles(feed[1])
    assert "Elsewhere" in titles("/benchmarks/both/atom.xml")
    assert "Newcomer" not in titles("/benchmarks/both/atom.xml")
    assert client.get("/datasets/nothing/atom.xml").status_code == 404
