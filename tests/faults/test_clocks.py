"""Clocks that jump by an hour, of a worker or of the dispatcher: nothing is lost, nothing done twice, all at once."""

from __future__ import annotations

import pytest

from submissions.models import Job
from tests.faults.conftest import full
from tests.faults.site import Site
from tests.faults.work import Work, doubled, ended, lost, tell_everybody

pytestmark = pytest.mark.database

HOUR = 3600.0


@pytest.mark.parametrize("service", ["scorer-1", "dispatcher"] if full() else ["dispatcher"])
def test_a_clock_that_jumps_harms_nobody(service: str, queue_site: Site, work: Work) -> None:
    for jump in (HOUR, -HOUR):
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
    assert sorted(attempts)[-2:] == [2, 2], "only what was killed is done again"
    assert sum(attempts) == len(attempts) + 2
