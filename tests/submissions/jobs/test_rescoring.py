"""Every stored run of a dataset evaluated again on other judgements."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from leaderboard.core.audit import acting
from leaderboard.core.storage.runs import run_path
from leaderboard.judgements.comparing import adopt_qrels
from leaderboard.judgements.rescoring.campaigns import (
    CannotRescore,
    RescoreUnderWay,
    discard_rescore,
    resume_rescore,
    start_rescore,
)
from leaderboard.models import AuditRecord, Dataset, Entry, Evaluation, Qrels, Rescore, Run, User, WorkRequest
from submissions.jobs.kinds import datasets as job_module
from submissions.jobs.kinds.datasets import fail_lost_rescores, rescore_job
from submissions.models import Job, State
from submissions.queue.lease import hold_lease
from submissions.queue.queue import claim, create_requested_jobs, reap
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.rescores import more_judgements, rescored
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db


def test_one_rescore_at_a_time_and_each_act_is_recorded(demo: Dataset, api: Api, curator: User, tmp_path: Path) -> None:
    api.submit()
    work()
    second, third = (more_judgements(demo, tmp_path, extra) for extra in ("d2", "d4"))
    with acting(curator, "pool of October"):
        rescore = adopt_qrels(demo, second, "pool of October")
        assert rescore is not None
        with pytest.raises(RescoreUnderWay, match="already being rescored on qrels v2"):
            adopt_qrels(demo, third, "another pool")
        discard_rescore(rescore)
        assert rescore.state == Rescore.State.DISCARDED
        with pytest.raises(CannotRescore, match="discarded by Cora"):
            discard_rescore(rescore)
        start_rescore(demo, third, "another pool")
    demo.refresh_from_db()
    assert demo.current_qrels is not None
    assert demo.current_qrels.number == 1
    asked = WorkRequest.objects.filter(kind=WorkRequest.Kind.RESCORE)
    assert [request.payload for request in asked] == [{"rescore": each.pk} for each in Rescore.objects.order_by("pk")]
    acts = AuditRecord.objects.filter(action__startswith="rescore").order_by("pk")
    assert list(acts.values_list("action", "actor_name")) == [
        ("rescore started", "Cora"),
        ("rescore discarded", "Cora"),
        ("rescore started", "Cora"),
    ]


def test_first_judgements_are_taken_at_once(demo: Dataset, curator: User, tmp_path: Path) -> None:
    Dataset.objects.filter(pk=demo.pk).update(current_qrels=None, state=Dataset.State.COLLECTING)
    qrels = more_judgements(demo, tmp_path)
    with acting(curator, "the first pool"):
        assert adopt_qrels(demo, qrels, "the first pool") is None
    assert demo.current_qrels == qrels
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE, dataset=demo).count() == 1


def test_judgements_of_another_split_are_another_test(demo: Dataset, api: Api, curator: User, tmp_path: Path) -> None:
    api.submit()
    work()
    qrels = more_judgements(demo, tmp_path)
    Qrels.objects.filter(pk=qrels.pk).update(split="dev")
    qrels.refresh_from_db()
    with acting(curator, "dev"), pytest.raises(CannotRescore, match="not for the version and split"):
        start_rescore(demo, qrels, "dev")


def test_every_stored_run_is_evaluated_and_no_board_changes(
    demo: Dataset, baseline: None, api: Api, curator: User, tmp_path: Path
) -> None:
    api.submit(public="false")
    api.submit(run_text(skip=2), system="Other")
    work()
    create_requested_jobs()
    work()
    before = list(Entry.objects.order_by("pk").values("pk", "scores", "comparison_group", "evaluation"))
    revision = Dataset.objects.get(pk=demo.pk).board_revision
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    assert (rescore.state, rescore.done, rescore.total, rescore.lost) == (Rescore.State.READY, 3, 3, {})
    assert Evaluation.objects.filter(qrels=rescore.to_qrels).count() == 3
    assert list(Entry.objects.order_by("pk").values(*before[0])) == before
    assert Dataset.objects.get(pk=demo.pk).board_revision == revision


def test_a_run_that_is_gone_or_damaged_is_listed_and_keeps_no_other_from_its_numbers(
    demo: Dataset, api: Api, curator: User, tmp_path: Path
) -> None:
    for number in range(3):  # runs of no other test, since the store has them once
        api.submit(run_text(skip=number, tag="doomed"), system=f"System {number}")
    work()
    first, second, _ = Run.objects.order_by("pk")
    run_path(first.sha256).unlink()
    run_path(second.sha256).write_bytes(run_path(second.sha256).read_bytes()[:-20])
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    assert (rescore.state, rescore.done, rescore.total) == (Rescore.State.READY, 3, 3)
    assert rescore.lost[str(first.pk)] == "its file is no longer stored"
    assert "no longer passes validation" in rescore.lost[str(second.pk)]
    assert Evaluation.objects.filter(qrels=rescore.to_qrels).count() == 1


def test_a_submission_meanwhile_is_scored_as_ever_and_caught_up_with(
    demo: Dataset, api: Api, curator: User, tmp_path: Path
) -> None:
    api.submit()
    work()
    rescore = rescored(demo, more_judgements(demo, tmp_path), curator)
    api.submit(run_text(skip=1), system="Late")
    work()
    late = Entry.objects.get(system__name="Late")
    assert late.evaluation is not None
    assert late.evaluation.qrels == demo.current_qrels
    rescore.refresh_from_db()
    assert rescore.state == Rescore.State.EVALUATING
    create_requested_jobs()
    work()
    rescore.refresh_from_db()
    assert (rescore.state, rescore.done) == (Rescore.State.READY, 2)


class Killed(BaseException):
    """A worker that ends where it stands: nothing of its code runs any more."""


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """The worker is killed when it begins its run of this number, from 1."""
    evaluate, count = job_module.evaluate_run, 0

    def counted(*args: Any) -> Any:
        nonlocal count
        count += 1
        if count == number:
            raise Killed
        return evaluate(*args)

    with monkeypatch.context() as patch:
        patch.setattr(job_module, "evaluate_run", counted)
        try:
            yield
        except Killed:
            return
        raise AssertionError("the worker came to its end")


def lose_worker(monkeypatch: pytest.MonkeyPatch, number: int) -> Job:
    """A worker claims the rescore's job and is lost over its run of this number."""
    Job.objects.update(not_before=None)
    job = claim(["score"], "a worker")
    assert job is not None
    assert job.kind == Job.Kind.RESCORE
    with hold_lease(job) as lease, killed_at(monkeypatch, number):
        rescore_job(job, lease)
    Job.objects.filter(pk=job.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert reap() == 1
    job.refresh_from_db()
    return job


@pytest.fixture
def campaign(demo: Dataset, api: Api, curator: User, tmp_path: Path) -> Rescore:
    """A rescore of five runs whose job waits."""
    for number in range(5):
        api.submit(run_text(skip=number), system=f"System {number}")
    work()
    with acting(curator, "a pool"):
        rescore = start_rescore(demo, more_judgements(demo, tmp_path), "a pool")
    create_requested_jobs()
    return rescore


def test_a_campaign_may_lose_any_number_of_workers_while_it_gets_on(
    campaign: Rescore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for done in range(1, 5):
        assert lose_worker(monkeypatch, 2).state == State.QUEUED
        campaign.refresh_from_db()
        assert campaign.done == done
    Job.objects.update(not_before=None)
    work()
    campaign.refresh_from_db()
    assert (campaign.state, campaign.done, campaign.lost) == (Rescore.State.READY, 5, {})


def test_a_run_over_which_workers_are_lost_keeps_no_other_from_its_numbers(
    campaign: Rescore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_worker(monkeypatch, 1)
    lose_worker(monkeypatch, 1)
    Job.objects.update(not_before=None)
    work()
    campaign.refresh_from_db()
    assert (campaign.state, campaign.done) == (Rescore.State.READY, 5)
    assert list(campaign.lost.values()) == ["it was started twice, and the worker crashed each time"]


def test_a_campaign_that_failed_goes_on_where_it_was(campaign: Rescore, curator: User) -> None:
    Job.objects.filter(kind=Job.Kind.RESCORE).update(state=State.FAILED)
    assert fail_lost_rescores() == 1
    campaign.refresh_from_db()
    assert campaign.state == Rescore.State.FAILED
    with acting(curator, "the disk was full"):
        resume_rescore(campaign)
    create_requested_jobs()
    work()
    campaign.refresh_from_db()
    assert (campaign.state, campaign.done) == (Rescore.State.READY, 5)


def test_what_people_wait_for_comes_between(campaign: Rescore, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "SLICE", -1.0)
    job = claim(["score"], "a worker")
    assert job is not None
    with hold_lease(job) as lease:
        rescore_job(job, lease)
    job.refresh_from_db()
    assert (job.state, job.attempts) == (State.QUEUED, 0)
    api.submit(run_text(skip=7), system="Impatient")
    following = claim(["score"], "a worker")
    assert following is not None
    assert following.kind == Job.Kind.SCORE


def test_a_rescore_that_was_thrown_away_is_worked_on_no_further(campaign: Rescore, curator: User) -> None:
    with acting(curator, "the wrong file"):
        discard_rescore(campaign)
    work()
    assert not Evaluation.objects.filter(qrels=campaign.to_qrels).exists()
    assert Job.objects.get(kind=Job.Kind.RESCORE).state == State.CANCELLED


def test_the_commands_do_what_the_pages_do(demo: Dataset, api: Api, curator: User, tmp_path: Path) -> None:
    api.submit()
    work()
    more_judgements(demo, tmp_path)
    who = {"by": curator.email, "why": "the pool of October"}
    out = StringIO()
    call_command("rescore", "demo", here=True, stdout=out, **who)
    assert "1 of 1 runs, 0 cannot be evaluated: awaiting a curator's decision." in out.getvalue()
    with pytest.raises(CommandError, match="already being rescored on qrels v2"):
        call_command("rescore", "demo", **who)
    call_command("discard_rescore", "demo", stdout=out, **who)
    call_command("rescore", "demo", here=True, stdout=out, **who)
    call_command("switch_board", "demo", stdout=out, **who)
    assert "The board of Demo now uses qrels v2: 1 results changed, 0 are unchanged." in out.getvalue()
    with pytest.raises(CommandError, match="Demo is not being rescored"):
        call_command("switch_board", "demo", **who)


@pytest.mark.django_db(transaction=True)
def test_a_worker_that_is_killed_half_way_is_made_good_by_the_next(campaign: Rescore) -> None:
    """A real process that is killed with SIGKILL over its third run."""
    Job.objects.update(not_before=None)
    kill = (
        "import os, signal, django; django.setup()\n"
        "from submissions.jobs import runner\nfrom submissions.jobs.kinds import datasets as rescore\n"
        "evaluate, count = rescore.evaluate_run, []\n"
        "def third(*arguments):\n"
        "    count.append(1)\n"
        "    if len(count) == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return evaluate(*arguments)\n"
        "rescore.evaluate_run = third\n"
        "runner.drain_queue('score', 'the killed one')\n"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "leaderboard.settings"}
    if url := os.environ.get("DATABASE_URL", ""):
        name = connection.settings_dict["NAME"]
        environment["DATABASE_URL"] = re.sub(r"/[^/?]*(\?|$)", rf"/{name}\1", url, count=1)
    killed = subprocess.run([sys.executable, "-c", kill], env=environment, check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert Evaluation.objects.filter(qrels=campaign.to_qrels).count() == 2
    Job.objects.filter(kind=Job.Kind.RESCORE).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert reap() == 1
    before = dict(Evaluation.objects.filter(qrels=campaign.to_qrels).values_list("pk", "created_at"))
    work()
    campaign.refresh_from_db()
    assert (campaign.state, campaign.done, campaign.lost) == (Rescore.State.READY, 5, {})
    after = dict(Evaluation.objects.filter(qrels=campaign.to_qrels).values_list("pk", "created_at"))
    assert before.items() <= after.items()
