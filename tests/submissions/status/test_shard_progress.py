"""While workers encode a corpus in parts, its submitter sees how many are there, how fast, and what they cost."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.models import Dataset, HardwareClass, Price
from submissions.jobs.checkpoints.encodings import EncodingSetting, wait_for_shards
from submissions.models import Checkpoint, Job, Shard, State, Submission
from submissions.queue.queue import advance, claim
from tests.factories import make_dataset, make_job, make_model_submission, make_user, make_version, team_of

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def waiting(settings: Any, tmp_path: Path) -> Submission:
    """A submission whose corpus of 4,000 documents is encoded in four parts."""
    settings.SHARD_SIZE, settings.VAR = 1000, tmp_path
    dataset = make_dataset()
    version = make_version(dataset, corpus_sha256="c" * 64, statistics={"documents": 4000})
    Dataset.objects.filter(pk=dataset.pk).update(current_version=version)
    team = team_of(make_user())
    checkpoint = Checkpoint.objects.create(
        team=team, sha256="a" * 64, model_sha256="b" * 64, kind="static-embeddings", description={}, size=1
    )
    submission = make_model_submission(team, checkpoint=checkpoint)
    make_job(dataset, kind=Job.Kind.MODEL, queue="cpu", submission=submission)
    job = claim(["cpu"], "worker")
    assert job is not None
    assert advance(job.pk, State.RETRIEVING, fence=job.fence)
    wait_for_shards(job, EncodingSetting(checkpoint, version, "dense", {}, "a-machine", "cpu", 1))
    return submission


def encode(*numbers: int) -> None:
    """These parts are there, each 50 seconds after the one before."""
    start = timezone.now()
    for place, number in enumerate(numbers):
        Shard.objects.filter(number=number).update(
            done_at=start + timedelta(seconds=50 * place), documents=1000, seconds=45, hardware="a-machine"
        )


def seen(submission: Submission) -> tuple[Any, str]:
    """What the API answers of its parts, and its page."""
    client = Client()
    client.force_login(submission.submitter)
    answer = client.get(f"/api/v1/submissions/{submission.pk}/").json()
    page = " ".join(client.get(submission.get_absolute_url()).content.decode().split())
    return answer["jobs"][0]["shards"], page


def test_parts_are_counted_before_any_pace_is_known(waiting: Submission) -> None:
    encode(0)
    shards, page = seen(waiting)
    assert (shards["done"], shards["expected"]) == (1, 4)
    assert (shards["documents_per_second"], shards["seconds_left"], shards["cost"]) == (None, None, None)
    assert "The workers have encoded 1 of 4 parts of the corpus." in page


def test_pace_time_left_and_cost(waiting: Submission) -> None:
    """1,000 documents in 50 s are 20 a second; 1,000 more take 50 s; 3 × 45 s at 8 dollars an hour are 30 cents."""
    machine = HardwareClass.objects.create(slug="a-machine", name="A machine", details={})
    Price.objects.create(hardware=machine, per_hour=8, valid_from=date(2026, 1, 1))
    encode(0, 1, 2)
    shards, page = seen(waiting)
    assert shards == {
        "done": 3,
        "expected": 4,
        "documents_per_second": pytest.approx(20),
        "seconds_left": pytest.approx(50),
        "cost": pytest.approx(0.30),
        "currency": "USD",
    }
    assert "encoded 3 of 4 parts of the corpus. They encode 20 documents per second. Cost so far: 0.30 USD." in page
    assert "about 50 s left" in page


def test_nothing_is_said_of_cost_where_a_machine_has_no_price(waiting: Submission) -> None:
    encode(0, 1, 2)
    Shard.objects.filter(number=0).update(hardware="another")
    shards, page = seen(waiting)
    assert (shards["cost"], shards["currency"]) == (None, "")
    assert "Cost so far" not in page
