"""What was lost through our fault is tried again: without another upload, counted once, and its end is told again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.core.storage.runs import run_path
from leaderboard.models import Dataset, User
from leaderboard.templatetags.runboard import moment
from submissions.jobs.cleanup import remove_unreferenced
from submissions.jobs.kinds import score
from submissions.models import Job, Notice, QuotaUse, State, Submission
from submissions.notifications.events import notify_finished
from tests.factories import make_user
from tests.submissions.clients import Api
from tests.submissions.collections import make_collection, run_text
from tests.submissions.workers import work


@pytest.fixture
def secret(db: None, tmp_path: Path) -> Dataset:
    return make_collection(tmp_path, "secret", hidden=True)


def lose(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """Work while scoring fails, as often as a job is tried."""
    with monkeypatch.context() as broken:
        broken.setattr(score, "evaluate_run", lambda *_: 1 / 0)
        for _ in range(3):
            Job.objects.update(not_before=None)
            work()


def test_a_lost_run_is_scored_without_another_upload_and_counts_once(
    secret: Dataset, api: Api, alice: User, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    sent = api.submit(dataset="secret").body["id"]
    lose(monkeypatch, settings)
    notify_finished()
    assert Job.objects.get(submission=sent).state == State.FAILED
    assert QuotaUse.objects.get(submission=sent).refunded_at is not None
    remove_unreferenced(grace=0)
    person = Client()
    person.force_login(alice)
    failure_page = person.get(f"/submissions/{sent}/").content.decode()
    assert "Try again" in failure_page
    finished_at = Job.objects.get(submission=sent).finished_at
    assert finished_at is not None
    assert f"<b>Scoring failed</b> {moment(finished_at, 'seconds')}" in " ".join(failure_page.split())
    assert "The site does not try again by itself" in failure_page
    assert failure_page.count("notice is-error") == 1
    assert "on our side. We are sorry" in failure_page
    assert "The error was on our side." not in failure_page

    assert person.post(f"/submissions/{sent}/retry/").status_code == 302
    assert QuotaUse.objects.get(submission=sent).refunded_at is None
    work()
    notify_finished()
    page = person.get(f"/submissions/{sent}/").content.decode()
    assert "1st of 1 on Secret" in page
    assert "Try again" not in page
    assert [notice.subject.split(":")[0] for notice in Notice.objects.order_by("pk")] == ["Failed", "Scored"]
    assert QuotaUse.objects.get(submission=sent).refunded_at is None
    assert "No jobs can be retried" in person.post(f"/submissions/{sent}/retry/", follow=True).content.decode()


def test_a_unit_that_was_used_meanwhile_is_not_given_twice(
    secret: Dataset, api: Api, alice: User, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    Dataset.objects.update(daily_quota=1)
    sent = api.submit(dataset="secret").body["id"]
    lose(monkeypatch, settings)
    assert api.submit(run_text(skip=2), dataset="secret", system="Another").status == 201
    person = Client()
    person.force_login(alice)
    answer = person.post(f"/submissions/{sent}/retry/", follow=True).content.decode()
    assert "used 1 of 1 submissions to the hidden dataset Secret today" in answer
    assert Job.objects.get(submission=sent).state == State.FAILED


def test_others_and_what_is_no_fault_of_ours_are_not_tried_again(
    secret: Dataset, api: Api, alice: User, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    sent = Submission.objects.get(pk=api.submit(dataset="secret").body["id"])
    lose(monkeypatch, settings)
    stranger, person = Client(), Client()
    stranger.force_login(make_user("Bob"))
    person.force_login(alice)
    assert stranger.post(f"/submissions/{sent.pk}/retry/").status_code == 404
    job = sent.jobs.get()
    run_path(job.payload["run_sha256"]).unlink()
    assert "Try again" not in person.get(f"/submissions/{sent.pk}/").content.decode()
    cancelled = api.submit(run_text(skip=3), dataset="secret", system="Cancelled").body["id"]
    api.post(f"submissions/{cancelled}/cancel/")
    assert "No jobs can be retried" in person.post(f"/submissions/{cancelled}/retry/", follow=True).content.decode()
