"""Scores that cannot be confirmed are a fault of ours: nothing is published, nothing is charged, no value is told."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from evaluation.measures.formulas import JudgedRankings, Values
from evaluation.measures.registry import Measure
from leaderboard.core.audit import acting
from leaderboard.judgements.rescoring.campaigns import start_rescore
from leaderboard.models import Dataset, Entry, Evaluation, Rescore, Run, User
from submissions.jobs.kinds import score
from submissions.models import Job, QuotaUse, State
from submissions.queue.queue import create_requested_jobs
from tests.submissions.clients import Api
from tests.submissions.jobs.test_baseline import make_baseline
from tests.submissions.rescores import more_judgements
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

RIGHT = Measure.values


def wrong_by_a_little(measure: Measure, ranking: JudgedRankings) -> Values:
    """A formula with a fault that no reader of a board would see."""
    return RIGHT(measure, ranking) + (2e-9 if measure.name == "AP" else 0)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measure, "values", wrong_by_a_little)


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize("checked_before", [True, False])
def test_a_run_whose_scores_are_wrong_fails_as_our_fault(
    checked_before: bool, secret: Dataset, api: Api, caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    """Over hidden judgements, with the file checked at once and with it left to the worker."""
    if not checked_before:
        settings.VALIDATE_AT_ONCE_BYTES = 10
    sent = api.submit(dataset=secret.slug)
    with caplog.at_level(logging.ERROR):
        work()
    job = Job.objects.get()
    assert (job.validated, job.state, job.error_code, job.attempts) == (
        checked_before,
        State.FAILED,
        "scores_differ",
        1,
    )
    assert not Evaluation.objects.exists()
    assert not Entry.objects.filter(system__name="My system").exists()
    assert all(use.refunded_at is not None for use in QuotaUse.objects.all())
    values = re.findall(r"AP of judged query 1 of \d+: (\S+) was scored, (\S+) is correct", caplog.text)
    assert len(values) == 1
    told = str(api.get(f"submissions/{sent.body['id']}/").body) + job.log + str(job.report)
    told += api.client.get(f"/submissions/{sent.body['id']}/").content.decode()
    assert "could not be verified" in job.log
    for secret_word in (*values[0], "was scored", "is correct", "judged query"):
        assert secret_word not in told


@pytest.mark.usefixtures("faulty")
def test_a_rescore_whose_scores_are_wrong_fails(
    demo: Dataset, curator: User, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Measure, "values", RIGHT)
        api.submit()
        work()
    assert Evaluation.objects.count() == 1
    before = Entry.objects.get().evaluation_id
    with acting(curator, "a pool"):
        rescore = start_rescore(demo, more_judgements(demo, tmp_path), "a pool")
    create_requested_jobs()
    work()
    assert Job.objects.get(kind=Job.Kind.RESCORE).error_code == "scores_differ"
    assert (Evaluation.objects.count(), Entry.objects.get().evaluation_id) == (1, before)
    rescore.refresh_from_db()
    assert rescore.state != Rescore.State.READY
    assert not rescore.lost


@pytest.mark.usefixtures("faulty")
def test_a_baseline_whose_scores_are_wrong_publishes_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        make_baseline(tmp_path / "small")
    assert Job.objects.get(kind=Job.Kind.BASELINE).error_code == "scores_differ"
    assert Dataset.objects.get().state != Dataset.State.PUBLISHED
    assert not Run.objects.exists()
    assert not Evaluation.objects.exists()


def test_what_is_right_is_verified_once_and_published(demo: Dataset, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same with right formulas; and every evaluation has gone through the verification."""
    seen = []
    real = score.verify

    def counted(*arguments: Any) -> None:
        seen.append(arguments[4])
        real(*arguments)

    monkeypatch.setattr(score, "verify", counted)
    api.submit()
    work()
    assert Job.objects.get().state == State.DONE
    assert seen == [Run.objects.get().sha256]
