"""What the load test stands on: nginx takes what is made of the template, and a broken promise is seen."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest
from django.test import Client

from leaderboard.reported.loader import load_reported
from tests.load import filling, proxy, report, runs
from tests.load.usage import Usage
from tests.load.walk import rare_view, read_page


def test_nginx_takes_the_template_as_it_is_used_here(tmp_path: Path) -> None:
    """Were the template changed beyond what is replaced, nothing would be measured unnoticed."""
    path = proxy.write_configuration(
        tmp_path / "nginx", 8080, dict.fromkeys(proxy.upstreams(), 8000), tmp_path
    )
    text = path.read_text()
    assert "limit_req zone=readers" in text
    assert " ssl" not in text
    try:
        nginx = proxy.find_nginx()
    except SystemExit:
        pytest.skip("there is no nginx on PATH")
    tried = subprocess.run([*proxy.command(nginx, path), "-t"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr


def findings(**changes: object) -> report.Findings:
    """A load test of a hundred pages in which all went well, but for the changes."""
    pages = [report.Request(float(n), "home", 200, 20.0, 1000, "/") for n in range(100)]
    upload = {"number": 0, "status": 201, "detail": "", "began": 10.0, "sent": 30.0, "answered": 31.0}
    memory = {1.0: {"web": 200.0}, 99.0: {"web": 210.0}}
    found = {
        "seconds": 100.0,
        "readers": 1,
        "requests": pages,
        "uploads": [upload],
        "upload_bytes": 10**8,
        "uploading": (10.0, 40.0),
        "scored": {"done": 1},
        "usage": Usage({"web": 5.0}, memory),
        "moments": [1.0, 99.0],
        "machine": "a machine",
        **changes,
    }
    return report.Findings(**found)  # type: ignore[arg-type]


def test_a_kept_promise() -> None:
    """Nothing is said to be broken, and the table has the figures."""
    found = findings()
    assert found.broken() == []
    assert "| home | 100 | 1.0 | 0% | 20 | 20 | 20 | 20 | 0 |" in report.as_markdown(found)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": [report.Request(15.0, "home", 503, 20.0, 0, "/")]}, "status 503"),
        ({"requests": [report.Request(15.0, "home", 0, 20.0, 0, "/")]}, "status 0"),
        ({"requests": [report.Request(15.0, "home", 200, 501.0, 0, "/")]}, "p95"),
        ({"scored": {"done": 0, "failed": 1}}, "failed"),
        ({"usage": Usage({}, {1.0: {"web": 200.0}, 99.0: {"web": 221.0}})}, "memory of web"),
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


@pytest.mark.django_db
def test_every_address_that_readers_begin_with_is_there(client: Client) -> None:
    """On a site with reported boards; a board and a system stand for the others."""
    load_reported()
    addresses, systems = filling.sitemap()
    assert len(systems) > 2
    for kind, found in addresses.items():
        assert client.get(found[0]).status_code == 200, kind
    for kind in ("benchmark board", "dataset board"):
        assert client.get(rare_view(addresses[kind][0], Random(1))).status_code == 200, kind
    assert filling.work_is_done()
    assert filling.states(["none"]) == {}
    assert not filling.under_way(["none"])
