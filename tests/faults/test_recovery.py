"""With production's own times: whoever is killed, the job is done again within ninety seconds, at every stage.

The controls: a job that comes late is measured as late, and without the reaper one does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from submissions.models import Job
from tests.faults.forked import forked_site
from tests.faults.kills import Tally, recoveries_at
from tests.faults.repetitions import NEEDS_POSTGRESQL, full
from tests.faults.site import Site
from tests.faults.test_kills import RUN_STAGES, WORKER
from tests.faults.work import Work, doubled, ended, idle, lost, tell_everybody

pytestmark = pytest.mark.database
of_test_faults = pytest.mark.skipif(not full(), reason="of make test-faults")

LONGEST = 90.0
#: All that a killed worker can be at, who reaps and who finds intervals included.
STAGES = (*RUN_STAGES, "reaping", "certainty")


@of_test_faults
def test_a_killed_job_is_done_again_in_time(
    transactional_db: None, tmp_path: Path, work: Work, settings: Any, tallied: Callable[[Tally], None]
) -> None:
    """All stages at once, since each waits for its lease."""
    if connection.vendor != "postgresql":
        pytest.skip(NEEDS_POSTGRESQL)
    site = forked_site(tmp_path / "site", 8, 1.0)
    try:
        for stage in STAGES:
            for victim in WORKER:
                site.orders.strike(stage, victim)
        usual = settings.VALIDATE_AT_ONCE_BYTES
        submissions = []
        for number in range(2 * len(WORKER) * len(RUN_STAGES)):
            settings.VALIDATE_AT_ONCE_BYTES = 0 if number % 5 == 0 else usual
            submissions.append(work.submit([work.open]))
        site.wait_for(lambda: site.orders.armed() == 0, "all to be struck", 300)
        site.wait_for(lambda: ended(submissions) and idle(), "all jobs to end", 300)
        tell_everybody()
        for stage in STAGES:
            found = recoveries_at(site, stage)
            kills, name = dict.fromkeys(WORKER, 1), f"production's times: {stage}"
            tallied(Tally(name, kills, lost(), doubled(), found, longest=LONGEST))
            assert max(found) < LONGEST, stage
        assert lost() == doubled() == []
    finally:
        site.stop()


def test_a_job_that_comes_late_is_measured_as_late(db: None, tmp_path: Path, work: Work) -> None:
    site = Site(tmp_path / "site")
    job = work.submit([work.open]).jobs.get()
    now = time.time()
    for ago in (LONGEST + 10, LONGEST - 10):
        (site.orders.folder / "fired" / f"stored~child~{ago}~{job.pk}~1~{now - ago}").touch()
    assert max(recoveries_at(site, "stored")) > LONGEST  # it has no result yet, which counts as now
    Job.objects.filter(pk=job.pk).update(finished_at=datetime.fromtimestamp(now, UTC) - timedelta(seconds=20))
    late, in_time = recoveries_at(site, "stored")
    assert (round(late), round(in_time)) == (LONGEST - 10, LONGEST - 30)


@of_test_faults
def test_without_the_reaper_it_comes_late(queue_site: Site, work: Work) -> None:
    site, longest = queue_site, LONGEST * queue_site.scale
    site.orders.do_without("reaper")
    site.orders.strike("claimed", "child")
    submission = work.submit([work.open])
    site.wait_for(lambda: site.orders.armed() == 0, "the worker to die")
    time.sleep(longest)
    assert not ended([submission])
    site.orders.do_without()
    site.wait_for(lambda: ended([submission]), "the job to be done, with the reaper")
    assert max(recoveries_at(site, "claimed")) > longest
