"""The broker is stopped, emptied, killed and frozen under jobs: all finish once, and no page waits for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
import redis
from django.conf import settings

from leaderboard.settings.services import cache_location
from submissions.models import Job, State
from tests.faults.clients import Reader, Submitter, ask, meanwhile, serve, submit
from tests.faults.repetitions import full
from tests.faults.site import Site
from tests.faults.work import Work, doubled, ended, idle, lost, tell_everybody
from tests.submissions.collections import run_text

pytestmark = pytest.mark.database

#: How often each happens, and how many submissions of two jobs each are under way meanwhile.
TIMES = 20 if full() else 1
SUBMISSIONS = 100 if full() else 4
#: Seconds for which the broker is away.
MINUTE = 60.0
#: No page and no upload may take longer than this because the broker does not answer, in seconds: the least of two
#: questions to it, each of which is given up after one.
PATIENCE = 5.0


@pytest.fixture
def killable(site: Site) -> Site:
    """The site, on a broker of this session."""
    if site.broker is None:
        pytest.skip("REDIS_URL names a server that is not ours to kill")
    return site


def client() -> redis.Redis:
    return redis.Redis.from_url(cache_location(settings.REDIS_URL))


def empty(site: Site) -> None:
    with client() as server:
        server.flushall()


def restart(site: Site) -> None:
    site.broker.kill()
    time.sleep(0.1)
    site.broker.start()


def restart_empty(site: Site) -> None:
    """The machine came back with a new disk."""
    empty(site)
    restart(site)


def pause(site: Site) -> None:
    """Away for a minute, in the time of these tests."""
    site.broker.kill()
    time.sleep(MINUTE * site.scale)
    site.broker.start()


def pause_for_a_minute(site: Site) -> None:
    """Away for a minute by the clock on the wall: twenty of theirs."""
    site.broker.kill()
    time.sleep(MINUTE)
    site.broker.start()


def under_work(
    site: Site, work: Work, act: Callable[[Site], None], times: int, noted: Callable[[str], None]
) -> list[str]:
    """Do something to the broker while jobs arrive; what was lost or done twice in the end."""
    submissions = []
    for number in range(SUBMISSIONS):
        submissions.append(work.submit())
        if number * times // SUBMISSIONS != (number + 1) * times // SUBMISSIONS:
            act(site)
    began = time.monotonic()
    site.wait_for(lambda: ended(submissions), "all jobs to end", 300)
    seconds = time.monotonic() - began
    noted(f"broker: {act.__name__} x {times}: {Job.objects.count()} jobs, the last {seconds:.0f} s later")
    tell_everybody()
    return lost() + doubled()


@pytest.mark.parametrize(
    "act", [empty, restart, restart_empty, pause, pause_for_a_minute] if full() else [restart_empty]
)
def test_all_jobs_finish_once(
    act: Callable[[Site], None],
    killable: Site,
    queue_site: Site,
    work: Work,
    noted: Callable[[str], None],
) -> None:
    assert under_work(queue_site, work, act, 1 if act is pause_for_a_minute else TIMES, noted) == []


def test_without_anybody_who_looks_a_lost_wakeup_is_lost(killable: Site, queue_site: Site, work: Work) -> None:
    """The control: no dispatcher that sends wakeups again, no worker that polls, and the wakeups are gone."""
    site = queue_site
    site.orders.do_without("looking")
    time.sleep(1 if full() else 0.3)  # who is looking just now looks to the end
    site.broker.kill()
    submission = work.submit()
    site.broker.start()
    # Celery's look every so often; forked ones ten times a second.
    time.sleep(2 * settings.QUEUE_TIMES.idle_poll * site.scale + 1 if full() else 0.5)
    assert set(Job.objects.values_list("state", flat=True)) == {State.QUEUED}
    site.orders.clear()
    site.wait_for(lambda: ended([submission]), "the job to end once somebody looks")
    assert lost() == []
    site.wait_for(idle, "what follows the result")


def test_nobody_waits_for_a_broker_that_stands_still(killable: Site, work: Work, noted: Callable[[str], None]) -> None:
    """Frozen, it takes connections and never answers: pages and uploads go on without it."""
    site = killable
    serve(site)
    board = f"/datasets/{work.open.slug}/"
    paths = ["/", board, f"{board}board.csv", "/news/", f"/api/v1{board}board/"]
    reader = Reader(site.address, paths)
    submitter = Submitter(site.address, work.person, work.open.slug, 1)
    assert all(ask(site.address, path).status == 200 for path in paths)
    pid = site.broker._process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(redis.TimeoutError):  # the control: whoever waits for it, waits in vain
            redis.Redis.from_url(cache_location(settings.REDIS_URL), socket_timeout=0.5).ping()
        meanwhile([reader, submitter], lambda: time.sleep(20 if full() else 1.5))
        answer = submit(site.address, submitter.token, "In between", work.open.slug, run_text(tag="b").encode())
    finally:
        os.kill(pid, signal.SIGCONT)
    slowest = max(each.seconds for each in [answer, *submitter.answers])
    noted(
        f"broker frozen: pages {dict(reader.seen)}, the slowest {reader.slowest:.2f} s; uploads at most {slowest:.2f} s"
    )
    assert reader.unexpected == submitter.unexpected == []
    assert set(reader.seen) == {200}
    assert {each.status for each in [answer, *submitter.answers]} == {201}
    assert max(slowest, reader.slowest) < PATIENCE
    Job.objects.update(state=State.CANCELLED)
