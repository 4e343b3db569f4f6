"""A collection without judgements takes runs, and the first judgements score them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, Entry, Run
from submissions.jobs.runner import drain_queue
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user
from tests.leaderboard.tiny_collection import write_folder
from tests.submissions.clients import Api

# Committed: the heartbeat of a job that takes long looks from a connection of its own.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def test_runs_wait_for_the_first_judgements_and_are_then_scored(tmp_path: Path) -> None:
    topics_only = write_folder(tmp_path / "1", {"qrels/test.tsv": None, "qrels/train.tsv": None})
    import_dataset(topics_only, ImportOptions(slug="tiny", collecting=True, hidden=False))
    api = Api(make_user())
    run = "".join(f"{query} Q0 d{n} {n} {9 - n} tag\n" for query in ("q1", "q2", "q3") for n in (1, 2, 3))
    sent = api.submit(run, dataset="tiny")
    assert sent.status == 201
    assert drain_queue("score", "worker") == 0
    assert api.get(f"submissions/{sent.body['id']}/").body["state"] == "queued"

    judged = write_folder(tmp_path / "2", {"qrels/train.tsv": None})
    import_dataset(judged, ImportOptions(slug="tiny"))
    create_requested_jobs()
    assert drain_queue("score", "worker") == 2  # the run, and what the board says of it
    assert drain_queue("cpu", "worker") == 2  # the baseline, and what the texts are like
    assert api.get(f"submissions/{sent.body['id']}/").body["state"] == "done"
    assert Dataset.objects.get(slug="tiny").state == Dataset.State.PUBLISHED
    assert Entry.objects.filter(dataset__slug="tiny", is_baseline=True).count() == 1


RUN = "".join(f"{query} Q0 d{n} {n} {9 - n} mine\n" for query in ("q1", "q2", "q3") for n in (1, 2, 3))


def collect(folder: Path, *, hidden: bool) -> Dataset:
    """The tiny collection with topics and no judgements."""
    topics = write_folder(folder / "topics", {"qrels/test.tsv": None, "qrels/train.tsv": None})
    return import_dataset(topics, ImportOptions(slug="tiny", collecting=True, hidden=hidden)).dataset


def judge(folder: Path) -> None:
    """Its first judgements come."""
    import_dataset(write_folder(folder / "judged", {"qrels/train.tsv": None}), ImportOptions(slug="tiny"))
    create_requested_jobs()


@pytest.mark.parametrize("hidden", [False, True])
def test_while_it_collects_runs_and_bm25_are_kept_and_then_all_are_scored(
    tmp_path: Path, hidden: bool, client: Client
) -> None:
    collect(tmp_path, hidden=hidden)
    api, other = Api(make_user("Ann")), Api(make_user("Ben"))
    public = api.submit(RUN, dataset="tiny", system="Open one", run_type="manual", tag="ann-1")
    private = other.submit(RUN, dataset="tiny", system="Quiet one", public="no")
    assert (public.status, private.status) == (201, 201), public.body
    create_requested_jobs()
    drain_queue("cpu", "worker")
    drain_queue("score", "worker")
    kept = {run.system.name: run for run in Run.objects.all()}
    assert set(kept) == {"BM25", "Open one", "Quiet one"}  # pools are drawn from all of them
    assert (kept["Open one"].tag, kept["Open one"].run_type) == ("ann-1", "manual")
    assert not Entry.objects.filter(dataset__slug="tiny").exists()

    page = client.get("/datasets/tiny/").content.decode()
    assert "Awaiting judgments" in page
    assert "Open one" in page
    assert "Quiet one" not in page
    for part in ("Submit the first run", "Permalink", "board.csv", "/systems/"):
        assert part not in page, part
    (told,) = client.get("/api/v1/datasets/tiny/").json()["awaiting_judgements"]
    assert (told["system"], told["tag"], told["run_type"]) == ("Open one", "ann-1", "manual")
    (job,) = api.get(f"submissions/{public.body['id']}/").body["jobs"]
    assert (job["awaiting_judgements"], job["scores"], job["queue_position"]) == (True, {}, None)
    assert "Awaiting judgments" in api.get(f"submissions/{public.body['id']}/").body["jobs"][0]["meaning"]

    judge(tmp_path)
    drain_queue("cpu", "worker")
    drain_queue("score", "worker")
    bm25 = Entry.objects.get(dataset__slug="tiny", is_baseline=True)
    assert bm25.evaluation is not None
    assert bm25.evaluation.run == kept["BM25"]  # the very run that was kept
    assert Dataset.objects.get(slug="tiny").state == Dataset.State.PUBLISHED
    assert Entry.objects.filter(dataset__slug="tiny").count() == 3
    assert Run.objects.count() == 3
    page = client.get("/datasets/tiny/").content.decode()
    assert "Awaiting judgments" not in page
    assert "Open one" in page


def test_a_large_file_is_checked_while_the_dataset_collects(tmp_path: Path, settings: Any) -> None:
    collect(tmp_path, hidden=True)
    settings.VALIDATE_AT_ONCE_BYTES = 10
    api = Api(make_user())
    good = api.submit(RUN, dataset="tiny")
    bad = api.submit(RUN + "broken\n", dataset="tiny", system="Another")
    assert drain_queue("score", "worker") == 2
    assert api.get(f"submissions/{bad.body['id']}/").body["state"] == "rejected"
    told = api.get(f"submissions/{good.body['id']}/").body
    assert (told["state"], told["jobs"][0]["awaiting_judgements"]) == ("queued", True)
    assert [run.tag for run in Run.objects.all()] == ["mine"]
    assert drain_queue("score", "worker") == 0
    judge(tmp_path)
    drain_queue("score", "worker")
    assert api.get(f"submissions/{good.body['id']}/").body["state"] == "done"


def test_what_is_taken_back_while_it_waits_feeds_no_pool_and_is_named_nowhere(tmp_path: Path, client: Client) -> None:
    collect(tmp_path, hidden=False)
    api = Api(make_user())
    one = api.submit(RUN, dataset="tiny", system="First").body["id"]
    two = api.submit(RUN, dataset="tiny", system="Second").body["id"]
    api.post(f"submissions/{one}/withdraw/", reason="wrong index")
    api.post(f"submissions/{two}/visibility/", public="false")
    assert [run.system.name for run in Run.objects.all()] == ["Second"]
    page = client.get("/datasets/tiny/").content.decode()
    assert "First" not in page
    assert "Second" not in page
    api.post(f"submissions/{two}/visibility/", public="true")
    assert "Second" in client.get("/datasets/tiny/").content.decode()
    judge(tmp_path)
    drain_queue("score", "worker")
    assert api.get(f"submissions/{one}/").body["state"] == "withdrawn"
