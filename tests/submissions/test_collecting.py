"""A collection without judgements takes runs, and the first judgements score them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderboard.importing.importer import import_dataset
from leaderboard.importing.options import ImportOptions
from leaderboard.models import Dataset, Entry
from submissions.queue import take_requests
from submissions.working import work_through
from tests.factories import make_user
from tests.leaderboard.tiny_collection import write_folder
from tests.submissions.conftest import Api

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def test_runs_wait_for_the_first_judgements_and_are_then_scored(tmp_path: Path) -> None:
    topics_only = write_folder(tmp_path / "1", {"qrels/test.tsv": None, "qrels/train.tsv": None})
    import_dataset(topics_only, ImportOptions(slug="tiny", collecting=True, hidden=False))
    api = Api(make_user())
    run = "".join(f"{query} Q0 d{n} {n} {9 - n} tag\n" for query in ("q1", "q2", "q3") for n in (1, 2, 3))
    sent = api.submit(run, dataset="tiny")
    assert sent.status == 201
    assert work_through("score", "worker") == 0
    assert api.get(f"submissions/{sent.body['id']}/").body["state"] == "queued"

    judged = write_folder(tmp_path / "2", {"qrels/train.tsv": None})
    import_dataset(judged, ImportOptions(slug="tiny"))
    take_requests()
    assert work_through("score", "worker") == 2  # the run, and what the board says of it
    assert work_through("cpu", "worker") == 2  # the baseline, and what the texts are like
    assert api.get(f"submissions/{sent.body['id']}/").body["state"] == "done"
    assert Dataset.objects.get(slug="tiny").state == Dataset.State.PUBLISHED
    assert Entry.objects.filter(dataset__slug="tiny", is_baseline=True).count() == 1
