"""From an API to a row of a board: `submit` asks for nothing that the run of `retrieve` or `rerank` states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests

from leaderboard.models import Entry, Run, System
from runboard.cli import main
from submissions.accounts.access import make_token
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.client.loopback import playing
from tests.client.test_endpoints import COMMIT, Provider
from tests.factories import make_user
from tests.submissions.model_jobs import make_published

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def files(site: str, package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments for the downloaded collection, signed in to the site."""
    make_published(tmp_path / "collection")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("RUNBOARD_URL", site)
    monkeypatch.setenv("RUNBOARD_TOKEN", make_token(make_user(), "test"))
    assert main(["download", "small", "--to", str(tmp_path), "--kind", "corpus", "--kind", "queries"]) == 0
    return ["--corpus", str(tmp_path / "corpus.jsonl.gz"), "--queries", str(tmp_path / "queries.jsonl.gz")]


def test_a_served_model_with_open_weights_and_its_reranker(
    site: str, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dense, again = str(tmp_path / "dense.txt"), str(tmp_path / "again.txt")
    provider = Provider("tei")
    monkeypatch.setenv("TEI_API_KEY", "key of tei")
    open_weights = ["--open-weights", f"acme/small@{COMMIT}"]
    with playing(provider) as server:
        given = ["--endpoint", server.address, "--format", "tei", "--model", "acme-small", *files, "--price", "2"]
        assert main(["retrieve", *given, *open_weights, "--depth", "5", "--out", dense]) == 0
        assert main(["rerank", *given, "--run", dense, "--out", again]) == 0
    assert main(["submit", "small", dense, "--system", "Served"]) == 0
    assert main(["submit", "small", again, "--system", "Reranked", "--set", "training_datasets=none"]) == 0
    assert "architecture" not in capsys.readouterr().err
    create_requested_jobs()
    drain_queue("score", "test-worker")
    served, reranked = System.objects.get(name="Served"), System.objects.get(name="Reranked")
    assert (served.architecture, served.open_weights, served.closed_api, served.dimension) == ("dense", True, False, 5)
    assert (reranked.architecture, reranked.open_weights, reranked.closed_api) == ("re-ranking", None, False)
    assert {entry.provenance for entry in Entry.objects.filter(system__in=[served, reranked])} == {
        Entry.Provenance.SCORED
    }
    resources = Run.objects.get(system=served).metadata["resources"]
    assert float(resources["cost_usd_per_1000_queries"]) == pytest.approx(0.006), "3 tokens a query at 2 dollars"
    page = requests.get(f"{site}/systems/served/", timeout=30).text
    assert "0.006000 US dollars per 1,000 queries" in page
    assert f"https://huggingface.co/acme/small/tree/{COMMIT}" in page
    assert "Closed API" not in page
    capsys.readouterr()
    assert main(["board", "small", "--json"]) == 0
    ranks = {row["system"]: row["ranked_among"] for row in json.loads(capsys.readouterr().out)}
    assert ranks["Served"] == ranks["Reranked"], "neither is ranked apart"
