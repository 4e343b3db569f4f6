"""A worker that stood still past its lease and goes on: it writes nothing, unless its protections are taken out."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from leaderboard.models import BoardChange, Entry, Evaluation, Run
from submissions.models import Job, QuotaUse
from tests.faults.repetitions import full
from tests.faults.service import Service
from tests.faults.site import Site
from tests.faults.work import Work, doubled, ended, lost, tell_everybody

pytestmark = pytest.mark.database


def overtake(site: Site, work: Work, stage: str) -> tuple[Service, Job]:
    """Freeze a worker at the stage until another has done its job; the zombie, and the job as the other left it."""
    site.orders.strike(stage, "frozen")
    submission = work.submit([work.open])
    site.wait_for(lambda: site.orders.armed() == 0, "the worker to stand still")
    fired = site.orders.fired()[-1]
    zombie = next(each for each in site.services.values() if each.alive and each.pid == os.getpgid(fired.pid))
    site.wait_for(lambda: ended([submission]), "another worker to do the job")
    return zombie, Job.objects.get(submission=submission)


def let_go_on(site: Site, zombie: Service, line: str) -> None:
    """Thaw it, and wait until its log says this once more."""
    before = zombie.said().count(line)
    zombie.thaw()
    site.wait_for(lambda: zombie.said().count(line) > before, f"the zombie to say “{line}”")


def everything() -> list[Any]:
    """All that the job of a submission writes. Other jobs follow from it, in their own time: how sure the board is."""
    tables: tuple[Any, ...] = (Run, Evaluation, Entry, QuotaUse)
    jobs = Job.objects.exclude(submission=None)
    changes = BoardChange.objects.exclude(kind=BoardChange.Kind.CERTAINTY)
    written = (jobs, changes, *(table.objects.all() for table in tables))
    return [list(rows.order_by("pk").values()) for rows in written]


@pytest.mark.parametrize("stage", ["claimed", "stored"] if full() else ["stored"])
def test_a_zombie_writes_nothing(stage: str, queue_site: Site, work: Work) -> None:
    zombie, job = overtake(queue_site, work, stage)
    assert (job.state, job.attempts > 1) == ("done", True)
    before = everything()
    let_go_on(queue_site, zombie, f"Job {job.pk}: another worker has claimed it; nothing was written.")
    assert everything() == before
    tell_everybody()
    assert lost() == []
    assert doubled() == []


def test_who_stands_still_in_a_transaction_holds_up_nobody(queue_site: Site, work: Work) -> None:
    """Frozen with the locks of a job and of its board: the server ends its session, and another goes on."""
    zombie, job = overtake(queue_site, work, "publishing")
    assert (job.state, job.attempts > 1) == ("done", True)
    before = everything()
    let_go_on(queue_site, zombie, f"Job {job.pk}: ")
    assert everything() == before
    tell_everybody()
    assert lost() == []
    assert doubled() == []


@pytest.mark.long
def test_without_the_servers_limit_all_wait_for_it(queue_site: Site, work: Work) -> None:
    with transactions_may_stand_still(queue_site):
        queue_site.orders.strike("publishing", "frozen")
        submission = work.submit([work.open])
        queue_site.wait_for(lambda: queue_site.orders.armed() == 0, "the worker to stand still")
        time.sleep(3 * 60 * queue_site.scale)
        assert not ended([submission])
        fired = queue_site.orders.fired()[-1]
        os.killpg(os.getpgid(fired.pid), signal.SIGKILL)
        queue_site.wait_for(lambda: ended([submission]), "the job to be done once the server sees it gone")


@pytest.mark.long
def test_without_the_fence_a_stale_result_goes_through(queue_site: Site, work: Work) -> None:
    queue_site.orders.do_without("fence", "states")
    zombie, job = overtake(queue_site, work, "stored")
    zombie.thaw()
    queue_site.wait_for(lambda: published(job) == 2, "the zombie to publish")


def test_without_fence_and_unique_rows_everything_is_there_twice(queue_site: Site, work: Work) -> None:
    queue_site.orders.do_without("fence", "states", "unique")
    with nothing_is_unique(queue_site):
        zombie, _ = overtake(queue_site, work, "stored")
        zombie.thaw()
        queue_site.wait_for(lambda: Evaluation.objects.count() == 2, "the zombie to publish")
        tell_everybody()
        assert any("evaluations" in each for each in doubled())


def published(job: Job) -> int:
    """How often the job's log says that it was."""
    return Job.objects.values_list("log", flat=True).get(pk=job.pk).count("Scored and published.")


@contextmanager
def transactions_may_stand_still(site: Site) -> Iterator[None]:
    """For as long as they like, in workers that are started while the block runs."""
    site.orders.do_without("standstill")
    for service in site.services.values():
        service.kill()
    site.keep_up()
    site.wait_until_ready()
    yield


@contextmanager
def nothing_is_unique(site: Site) -> Iterator[None]:
    """Runs and evaluations may be there twice while the block runs. Nobody works when it ends."""
    constraints = [(model, each) for model in (Run, Evaluation) for each in model._meta.constraints]
    with connection.schema_editor() as editor:
        for model, constraint in constraints:
            editor.remove_constraint(model, constraint)
    try:
        yield
    finally:
        for service in site.services.values():
            service.kill()
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE leaderboard_run CASCADE")
        with connection.schema_editor() as editor:
            for model, constraint in constraints:
                editor.add_constraint(model, constraint)
