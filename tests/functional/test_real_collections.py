"""Real collections through the whole site: imported by command, retrieved and scored by a real worker."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import requests
from django.core.management import call_command

from leaderboard.models import Dataset, Entry
from submissions.accounts.access import make_token
from submissions.models import Job
from tests.factories import make_user

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def import_folder(folder: Path, *options: str) -> None:
    """The command as a curator types it."""
    call_command("import_dataset", str(folder), *options, verbosity=0, stdout=StringIO())


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """Return when the condition holds; fail with the jobs' states when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, list(Job.objects.values("kind", "state", "log", "error_code"))
        time.sleep(0.1)


def published(slug: str) -> bool:
    """Whether the dataset is shown."""
    return Dataset.objects.filter(slug=slug, state=Dataset.State.PUBLISHED).exists()


def expected(folder: Path, dataset: str) -> list[dict[str, str]]:
    """The published figures that Anserini's flat BM25 reaches."""
    with (folder / "reference" / "expected.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["dataset"] == dataset and "Anserini" in row["system"]]


@pytest.mark.long_on_postgresql
@pytest.mark.parametrize(
    "others", [(), pytest.param(("cranfield", "vaswani"), marks=pytest.mark.long)], ids=["one", "three"]
)
def test_collections_get_their_bm25(shared_folder: Path, worker: Any, others: tuple[str, ...]) -> None:
    collections = ("nfcorpus", *others)
    for slug in collections:
        import_folder(shared_folder / "data" / slug, "--slug", slug, "--open")
    wait_for(lambda: all(published(slug) for slug in collections))
    baselines = {entry.dataset.slug: entry for entry in Entry.objects.filter(is_baseline=True)}
    for row in expected(shared_folder, "nfcorpus"):
        value = baselines["nfcorpus"].scores[row["measure"]]
        assert value == pytest.approx(float(row["value"]), abs=0.0001), row["measure"]
    version = baselines["nfcorpus"].dataset.current_version
    assert version is not None
    assert (version.statistics["queries"], version.statistics["all_queries"]) == (323, 3237)
    assert version.files.get(kind="example_run").size < 2**20
    assert all(baselines[slug].scores["nDCG@10"] > 0.3 for slug in others)
    assert {entry.provenance for entry in baselines.values()} == {"measured"}


@pytest.mark.long_on_postgresql
def test_a_hidden_collection_shows_three_measures_of_three_decimals(shared_folder: Path, worker: Any) -> None:
    import_folder(shared_folder / "data" / "cranfield", "--slug", "cranfield")
    wait_for(lambda: published("cranfield"))
    scores = Entry.objects.get().scores
    assert len(scores) == 3
    assert all(value == round(value, 3) for value in scores.values())


@pytest.mark.long_on_postgresql
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)], ids=["a few", "all"])
def test_trec_covid_round_one_ranks_as_published(
    shared_folder: Path, worker: Any, live_server: Any, every: int
) -> None:
    """The runs of the track, or each so many-th of them in the order of the published table."""
    folder = shared_folder / "data" / "trec-covid-round1"
    measures = [option for name in ("nDCG@10", "P@5", "Bpref", "AP") for option in ("--measure", name)]
    import_folder(folder, "--slug", "trec-covid-round1", "--open", "--runs-only", *measures)
    assert published("trec-covid-round1")
    headers = {"Authorization": f"Bearer {make_token(make_user(), 'script')}"}
    with (folder / "published.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))[::every]
    assert len(rows) >= 3
    addresses = {}
    for row in rows:
        path = folder / "runs" / f"{row['run']}.txt.gz"
        with path.open("rb") as run:
            answer = requests.post(
                f"{live_server.url}/api/v1/submissions/",
                headers=headers,
                data={
                    "kind": "run",
                    "system": row["run"],
                    "architecture": "other",
                    "dataset": "trec-covid-round1",
                },
                files={"file": (path.name, run)},
                timeout=30,
            )
        assert answer.status_code == 201, answer.text
        addresses[row["run"]] = f"{live_server.url}/api/v1/submissions/{answer.json()['id']}/"
    wait_for(lambda: Job.objects.filter(kind="score", state="done").count() == len(rows))
    for row in rows:
        status = requests.get(addresses[row["run"]], headers=headers, timeout=30).json()
        assert status["state"] == "done"
        scores = status["jobs"][0]["scores"]
        ours = {
            "nDCG@10": scores["nDCG@10"],
            "P@5": scores["P@5"],
            "bpref": scores["Bpref"],
            "AP": scores["AP"],
        }
        assert {name: f"{value:.4f}" for name, value in ours.items()} == {name: row[name] for name in ours}
    board = requests.get(f"{live_server.url}/datasets/trec-covid-round1/board.json", timeout=30).json()
    assert [line["system"] for line in board["rows"]] == [row["run"] for row in rows]
