"""The rows that a new site begins with say what they cost as soon as they are there."""

from __future__ import annotations

import pytest
from django.test import Client

from leaderboard.core.work_requests import request_work
from leaderboard.models import Dataset, Entry, WorkRequest
from leaderboard.systems.baselines import DEMO_ROWS
from submissions.queue.queue import create_requested_jobs
from tests.submissions.model_jobs import run_waiting

pytestmark = pytest.mark.django_db


def test_a_variant_of_bm25_is_timed_beside_bm25_before_it_is_shown(small: Dataset, client: Client) -> None:
    configuration = DEMO_ROWS[0].slug
    request_work(WorkRequest.Kind.RETRIEVE, small, {"configuration": configuration})
    create_requested_jobs()
    run_waiting()
    entry = Entry.objects.public().get(dataset=small, system__slug=configuration)
    measured = entry.measurements.get()
    assert measured.figures["latency_ms"]["mean"] > 0
    assert measured.baseline
    page = client.get(f"/systems/{configuration}/").content.decode()
    assert "run by runboard" in page.lower()
