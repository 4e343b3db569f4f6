"""Clocks that jump by an hour, of a worker or of the dispatcher: nothing is lost, nothing done twice, all at once.

The control: where leases are judged by the dispatcher's own clock, work is taken from the living.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from leaderboard.core.work_requests import request_work
from leaderboard.models import WorkRequest
from submissions.models import Job
from submissions.queue.queue import claim, extend_lease
from tests.faults.forked import ForkedService
from tests.faults.repetitions import NEEDS_POSTGRESQL, full, slower
from tests.faults.site import Site
from tests.faults.work import Work, doubled, ended, lost, tell_everybody

pytestmark = pytest.mark.database

HOUR = 3600.0


@slower(0.05)
@pytest.mark.parametrize("service", ["scorer-1", "dispatcher"] if full() else ["dispatcher"])
@pytest.mark.parametrize("jumps", [(-HOUR,), pytest.param((HOUR, -HOUR), marks=pytest.mark.long)], ids=len)
def test_a_clock_that_jumps_harms_nobody(service: str, jumps: tuple[float, ...], queue_site: Site, work: Work) -> None:
    for jump in jumps:
        submissions = [work.submit([work.open])]
        queue_site.orders.set_clock(service, jump)
        # One job is under way in each worker, and one of these is killed: its lease is what clocks are for.
        queue_site.orders.strike("stored", "child")
        submissions += [work.submit([work.open]) for _ in range(4)]
        queue_site.wait_for(lambda: queue_site.orders.armed() == 0, "somebody to die")
        queue_site.wait_for(lambda those=submissions: ended(those), "all to end")
    tell_everybody()
    assert lost() == []
    assert doubled() == []
    attempts = list(Job.objects.exclude(submission=None).values_list("attempts", flat=True))
    assert max(attempts) == 2, "only what was killed is done again"
    assert sum(attempts) == len(attempts) + len(jumps)


def test_by_its_own_clock_a_dispatcher_takes_work_from_the_living(
    transactional_db: None, tmp_path: Path, work: Work, settings: Any
) -> None:
    """Who says all the time that it is alive keeps its claim while leases are judged; unprotected it does not."""
    if connection.vendor != "postgresql":
        pytest.skip(NEEDS_POSTGRESQL)
    scale = 0.1
    settings.QUEUE_TIMES = replace(settings.QUEUE_TIMES, lease=60.0 * scale)
    site = Site(tmp_path / "site", scale=scale)
    site.orders.set_clock("dispatcher", HOUR)
    site.add(ForkedService("dispatcher", ["dispatch"], site.orders, site.folder / "dispatcher.log", scale))
    try:
        work.submit([work.open])
        held = claim(["score"], "living:1:2")
        assert held is not None

        def lives() -> bool:
            return extend_lease(held, 0.0, "")

        for _ in range(2):  # leases are judged after the one request was taken up, and before the next is
            asked = WorkRequest.objects.filter(pk=request_work(WorkRequest.Kind.CERTAINTY, work.open).pk)
            site.wait_for(lambda asked=asked: not lives() or asked.get().taken_at, "a turn of the dispatcher")
        assert lives()
        site.orders.do_without("clock")
        site.wait_for(lambda: not lives(), "it to be taken away")
    finally:
        site.stop()
