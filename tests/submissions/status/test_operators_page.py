"""What operators and submitters are told of workers: who is there, what waits, and why nobody takes it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.models import User, WorkRequest
from leaderboard.views import health
from submissions.models import AccountMail, Job, State, Worker
from submissions.status.description import describe_job
from tests.factories import make_dataset, make_job

pytestmark = pytest.mark.django_db

ADDRESS = "/admin/submissions/worker/"


def announce(name: str, *queues: str, refusal: str = "", ago: float = 1.0) -> Worker:
    now = timezone.now()
    return Worker.objects.create(
        name=name, queues=queues, version="0.1.0", refusal=refusal,
        started_at=now - timedelta(hours=2), seen_at=now - timedelta(seconds=ago),
    )  # fmt: skip


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("op@example.org", "a long passphrase"))
    return client


def test_a_submitter_is_told_why_nobody_takes_the_job() -> None:
    dataset = make_dataset()
    before = make_job(dataset, queue=Job.Queue.GPU, kind=Job.Kind.RETRIEVE)
    job = make_job(dataset, queue=Job.Queue.GPU, kind=Job.Kind.RETRIEVE)
    announce("cpu", "cpu")
    announce("dead", "gpu", ago=3600)
    assert describe_job(job, complete=True).no_worker == "No worker for GPU jobs is online"
    old = announce("old", "gpu", refusal="The database has submissions.0099, which this version does not know.")
    status = describe_job(job, complete=True)
    assert (status.workers_alive, status.workers_refusing) == (0, 1)
    assert "another version" in status.no_worker
    Worker.objects.filter(pk=old.pk).update(refusal="")
    status = describe_job(job, complete=True)
    assert (status.no_worker, status.workers_alive, status.queue_position) == ("", 1, 1)
    assert describe_job(before, complete=True).queue_position == 0


def test_operators_see_that_nothing_is_scored_before_anything_waits(staff: Client) -> None:
    missing = "No worker for scoring jobs is online: runs are accepted but must wait."
    assert missing in staff.get(ADDRESS).content.decode()
    announce("host:10", "score", "dispatch")
    assert missing not in staff.get(ADDRESS).content.decode()


def list_faults(staff: Client) -> list[str]:
    """Return the faults of the site on the index of the admin."""
    page = " ".join(staff.get("/admin/").content.decode().split())
    faults = re.findall(rf'<li><a href="{ADDRESS}">([^<]+)</a></li>', page)
    assert not faults or f"{len(faults)} problem" in page
    return faults


def test_the_index_begins_with_faults_and_remedies(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "broker_answers", lambda: False)
    monkeypatch.setattr(health, "disk_state", lambda: "full")
    assert list_faults(staff) == [
        "The disk is full, so uploads are refused. Free space under RUNBOARD_VAR.",
        "The message broker does not answer, so jobs start late. Start Valkey or Redis.",
        "No worker for scoring jobs is online: runs are accepted but must wait. Start the scorer.",
        "No worker for CPU jobs is online: baselines and models must wait. Start the retriever.",
        "No worker for requests is online: imports and rescores must wait. Start the dispatcher.",
    ]
    monkeypatch.undo()
    monkeypatch.setattr(health, "broker_answers", lambda: True)
    announce("host:10", "score", "cpu", "dispatch")
    assert list_faults(staff) == []


def test_the_index_counts_workers_and_jobs_beside_pending_decisions(staff: Client) -> None:
    announce("host:10", "score", "cpu", "dispatch")
    make_job(make_dataset(), queue=Job.Queue.CPU)
    make_job(make_dataset(), state=State.FAILED, error_code="worker_lost", finished_at=timezone.now())
    announce("stopped:10", "score", ago=7200)
    page = " ".join(staff.get("/admin/").content.decode().split())
    assert "Workers 2 rows seen in 24 hours" in " ".join(re.sub("<[^>]*>", " ", page).split()), "with the stopped one"
    figures = re.findall(rf'<a href="{ADDRESS}"><strong>(\d+)</strong> ([^<]+)</a>', page)
    assert figures == [
        ("1", "Workers online, all queues"), ("0", "Jobs running"), ("1", "Jobs waiting"),
        ("1", "Failed or rejected in 24 hours"),
    ]  # fmt: skip
    assert page.count('<li class="is-zero">') == 1, "zeros are muted"
    assert page.index("To review</h2>") < page.index("Nothing to review") < page.index("Status of the site</h2>")


def test_the_index_reports_jobs_that_no_worker_starts(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "broker_answers", lambda: True)
    announce("host:10", "score", "cpu", "dispatch")
    jobs = [make_job(make_dataset(), queue=Job.Queue.CPU) for _ in range(2)]
    assert list_faults(staff) == []
    Job.objects.filter(pk=jobs[0].pk).update(created_at=timezone.now() - timedelta(minutes=32, seconds=9))
    (fault,) = list_faults(staff)
    assert fault == "2 CPU jobs wait (longest wait: 32 minutes), but no worker starts them. See the workers’ logs."
    Job.objects.filter(pk=jobs[1].pk).update(
        worker="host:10:11", state=State.RETRIEVING, lease_expires_at=timezone.now() + timedelta(seconds=50)
    )
    assert list_faults(staff) == []


def test_operators_see_that_images_can_exceed_their_memory(staff: Client, settings: Any) -> None:
    missing = "Container images can exceed their memory on host:20: set SANDBOX_CGROUP."
    announce("host:10", "cpu")
    worker = announce("host:20", "cpu")
    for lacks_groups, enabled in ((False, True), (True, False), (True, True)):
        settings.CONTAINERS = enabled
        worker.sandbox = {"lacks_memory_groups": lacks_groups}
        worker.save()
        assert (missing in staff.get(ADDRESS).content.decode()) == (enabled and lacks_groups)


def test_operators_see_workers_queues_jobs_and_failures(staff: Client) -> None:
    dataset = make_dataset()
    announce("host:10", "score", "dispatch")
    announce(
        "host:20",
        "cpu",
        refusal="The database lacks submissions.0007: run manage.py migrate.",
    )
    make_job(dataset, queue=Job.Queue.GPU)
    make_job(
        dataset, state=State.SCORING, worker="host:10:11", attempts=2, stage="scoring",
        started_at=timezone.now(), lease_expires_at=timezone.now() + timedelta(seconds=50),
    )  # fmt: skip
    for _ in range(3):
        make_job(dataset, state=State.FAILED, error_code="worker_lost", finished_at=timezone.now())
    page = staff.get(ADDRESS).content.decode()
    for text in (
        "1 GPU job waits, and no worker for GPU jobs is online. Start the GPU retriever.",
        "manage.py migrate", "refuses work",
        "host:10:11", "worker_lost", "working",
    ):  # fmt: skip
        assert text in page, text


def test_operators_see_mail_that_piles_up_and_which_service_is_which(staff: Client) -> None:
    AccountMail.objects.create(address="a@example.org", sender="b@example.org", subject="x", text="x")
    later = timezone.now() + timedelta(minutes=5)
    AccountMail.objects.create(address="a@example.org", sender="b@x.org", subject="x", text="x", not_before=later)
    WorkRequest.objects.create(kind=WorkRequest.Kind.STATISTICS, dataset=make_dataset())
    announce("host:10", "score", "dispatch")
    announce("host:20", "notices", ago=3600)
    page = " ".join(staff.get(ADDRESS).content.decode().split())
    assert "1 message waits, and no worker for messages is online." in page
    assert "<b>1</b> message waiting" in page
    assert "<b>1</b> request waiting" in page
    assert "scorer, dispatcher" in page
    assert "notifier" in page


def test_only_staff_see_it(client: Client) -> None:
    assert client.get(ADDRESS).status_code == 302
    client.force_login(User.objects.create_user("p@example.org", "a long passphrase"))
    assert client.get(ADDRESS).status_code == 302
