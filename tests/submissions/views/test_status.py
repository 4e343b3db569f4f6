"""The status page for people."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.models import Dataset
from leaderboard.views import health
from submissions.models import Job, State, Worker
from submissions.views import status
from tests.leaderboard.entries import score, scored_dataset

pytestmark = pytest.mark.django_db


def test_the_footer_leads_to_parts_queues_workers_and_the_newest_result(client: Client) -> None:
    score(scored_dataset(name="Nuts"), "Newest", ndcg=0.5)
    score(scored_dataset(name="Kept back", state=Dataset.State.PREPARING), "Unseen", ndcg=0.5)
    Worker.objects.create(name="a", queues=["score"], started_at=timezone.now(), seen_at=timezone.now())
    assert '<a href="/status/">Status</a>' in client.get("/").content.decode()
    page = client.get("/status/").content.decode()
    assert "No worker is online for: " in page
    assert page.count("does not work") == 0
    assert "Newest</a>" in page
    assert "Unseen" not in page
    assert re.findall(r'data-label="Workers">\s*(\S.*?)\s*</td>', page) == ["1", "none online", "none online"]


def test_a_queue_without_a_worker_is_reported(client: Client) -> None:
    dataset = scored_dataset()
    Job.objects.create(kind=Job.Kind.SCORE, queue=Job.Queue.SCORE, dataset=dataset, state=State.QUEUED)
    page = client.get("/status/").content.decode()
    assert "Part of the site is not working." in page
    assert "No worker is online. Submissions wait until one is." in page
    assert re.search(r'<td class="n down" data-label="Workers">\s*none online', page)
    assert re.search(r'data-label="Longest wait">\s*\d+ s', page)


def test_a_full_disk_and_a_silent_broker_are_reported(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "broker_answers", lambda: False)
    monkeypatch.setattr(status, "disk_state", lambda: "full")
    page = client.get("/status/").content.decode()
    assert "Pages load and jobs start more slowly than usual." in page
    assert "The disk is full. Uploads are refused until there is space." in page
    assert health.disk_state() == "ok"
    assert client.get("/readyz").json()["status"] == "ok", "machines are answered as before"
