"""What the load test stands on: nginx takes what is made of the template, and a broken promise is seen."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from django.test import Client

from leaderboard.core.cache.memory import TTLCache
from leaderboard.core.cache.pages import CachedPage
from leaderboard.importing.reported.loader import load_reported
from tests.load import filling, proxy, report, runs, served_site, site
from tests.load.memory import Sample
from tests.load.usage import Usage
from tests.load.walk import HTMX, rare_view, read_page


def test_nginx_takes_the_template_as_it_is_used_here(tmp_path: Path) -> None:
    """Were the template changed beyond what is replaced, nothing would be measured unnoticed."""
    path = proxy.write_configuration(tmp_path / "nginx", 8080, dict.fromkeys(proxy.upstreams(), 8000), tmp_path)
    text = path.read_text()
    assert "limit_req zone=readers" in text
    assert " ssl" not in text
    try:
        nginx = proxy.find_nginx()
    except SystemExit:
        pytest.skip("there is no nginx on PATH")
    tried = subprocess.run([*proxy.command(nginx, path), "-t"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr


def samples(group: str, first: float, last: float) -> list[Sample]:
    """A process whose anonymous memory grows evenly for a hundred seconds, beside 100 MiB of files."""
    return [
        Sample(at, group, 7, 100 + size, size)
        for at in map(float, range(0, 101, 5))
        for size in [first + (last - first) * at / 100]
    ]


def findings(**changes: object) -> report.Findings:
    """A load test of a hundred pages in which all went well, but for the changes."""
    pages = [report.Request(float(n), "home", 200, 20.0, 1000, "/") for n in range(100)]
    upload = {"number": 0, "status": 201, "detail": "", "began": 10.0, "sent": 30.0, "answered": 31.0}
    found = {
        "seconds": 100.0,
        "readers": 1,
        "requests": pages,
        "uploads": [upload],
        "upload_bytes": 10**8,
        "uploading": (10.0, 40.0),
        "scored": {"done": 1},
        "usage": Usage({"web": 5.0}, samples("web", 200.0, 210.0)),
        "machine": "a machine",
        **changes,
    }
    return report.Findings(**found)  # type: ignore[arg-type]


def test_a_kept_promise() -> None:
    """Nothing is said to be broken, and the table has the figures."""
    found = findings()
    assert found.broken() == []
    table = report.as_markdown(found)
    assert "| home | 100 | 1.0 | 0% | 20 | 20 | 20 | 20 | 0 |" in table
    assert "| web | 5 | 5% | 1 → 1 → 1 | 302 → 305 → 309 | 202 → 205 → 209 | +6.0 |" in table
    assert "| web, process 1 |  |  |  | 302 → 305 → 309 |" in table


def test_memory_that_has_an_end_breaks_no_promise() -> None:
    """Shared buffers grow as they are touched, connections as they are opened; what makes the load keeps a record."""
    touched = [replace(each, anonymous=200.0) for each in samples("PostgreSQL", 200.0, 300.0)]
    touched += [replace(each, process=8) for each in touched if each.at > 50]
    record = samples("load generator: readers", 50.0, 100.0)
    found = findings(usage=Usage({"PostgreSQL": 1.0, "load generator: readers": 1.0}, touched + record))
    assert found.broken() == []


def test_a_process_that_ended_has_no_line_of_its_own() -> None:
    """Nor one that came after the warm-up: neither says how memory went."""
    every = samples("workers", 200.0, 200.0)
    assert findings(usage=Usage({"workers": 1.0}, every)).largest()
    assert not findings(usage=Usage({"workers": 1.0}, every[:10])).largest()
    assert not findings(usage=Usage({"workers": 1.0}, every[10:])).largest()


def two_later(every: list[Sample]) -> list[Sample]:
    """The same, with a second process in the second half."""
    return every + [replace(each, process=8) for each in every if each.at > 50]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": [report.Request(15.0, "home", 503, 20.0, 0, "/")]}, "status 503"),
        ({"requests": [report.Request(15.0, "home", 0, 20.0, 0, "/")]}, "status 0"),
        ({"requests": [report.Request(15.0, "home", 200, 501.0, 0, "/")]}, "p95"),
        ({"scored": {"done": 0, "failed": 1}}, "failed"),
        ({"usage": Usage({"web": 5.0}, samples("web", 200.0, 230.0))}, "memory of web"),
        ({"usage": Usage({"web": 5.0}, two_later(samples("web", 100.0, 100.0)))}, "memory of web"),
        ({"usage": Usage({"web": 5.0, "workers": 5.0}, samples("web", 200.0, 209.0))}, "memory of workers"),
    ],
)
def test_a_broken_promise(changes: dict[str, object], said: str) -> None:
    """Each is named."""
    assert any(said in each for each in findings(**changes).broken())


def test_runs_differ_and_have_one_length(tmp_path: Path) -> None:
    """So a request can say how long it will be."""
    blocks = runs.write_blocks(tmp_path, 5)
    texts = {b"".join(blocks.run(number)) for number in range(3)}
    assert len(texts) == 3
    assert {len(text) for text in texts} == {blocks.run_bytes}


def test_links_and_files_of_a_page() -> None:
    """Readers go on by what a page links to, and fetch what it needs."""
    page = b"""<link rel="stylesheet" href="/static/css/base.1.css"><script src="/static/js/board.2.js" defer></script>
    <a href="?sort=AP">AP</a> <a class="name" href="/systems/bm25/">BM25</a> <a href="https://elsewhere.example/">x</a>
    <input type="checkbox" name="weights" value="open">"""
    seen = read_page("/datasets/demo/?rows=all", page)
    assert seen.assets == ["/static/css/base.1.css", "/static/js/board.2.js"]
    assert seen.links == {
        "board view": ["/datasets/demo/?sort=AP", "/datasets/demo/?weights=open"],
        "system": ["/systems/bm25/"],
    }


def test_the_room_for_kept_pages_is_full_from_the_start() -> None:
    """And what is kept then takes the place of what filled it."""
    kept: TTLCache[CachedPage] = TTLCache(2**20)
    served_site.fill(kept, 2**20)
    assert 2**20 - 2 * served_site.PAGE_BYTES < kept._values.currsize <= 2**20
    page = CachedPage("", "text/html", b"page", "")
    kept.put("new", page, page.size)
    assert kept.get("new") == page
    assert kept.get(f"{0:032x}") is None
    assert site.SERVED in site.web_command(8000).arguments


@pytest.mark.django_db
def test_every_address_that_readers_begin_with_is_there(client: Client) -> None:
    """On a site with reported boards; a system and a dataset stand for the others."""
    assert filling.work_is_done()
    load_reported()
    assert not filling.work_is_done(), "tests of reported benchmarks are requested"
    addresses, systems = filling.sitemap()
    assert len(systems) > 2
    for kind, found in addresses.items():
        assert client.get(found[0]).status_code == 200, kind
    for board in (*addresses["benchmark board"], addresses["dataset board"][0]):
        bounds = read_page(board, client.get(board).content).links["bound"]
        view = client.get(rare_view(board, bounds, Random(1)), headers=HTMX)
        assert view.status_code == 200, board
        # Some views have more columns, because they include systems without all datasets.
        assert set(bounds) <= set(read_page(board, view.content).links["bound"])
    assert filling.states(["none"]) == {}
    assert not filling.under_way(["none"])
