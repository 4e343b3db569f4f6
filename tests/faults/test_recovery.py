"""With production's own times: whoever is killed, the job is done again within ninety seconds, at every stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.faults.conftest import NEEDS_POSTGRESQL, forked_site, full
from tests.faults.kills import Tally, recoveries_at
from tests.faults.test_kills import RUN_STAGES, WORKER
from tests.faults.work import Work, doubled, ended, lost, tell_everybody

pytestmark = [pytest.mark.database, pytest.mark.skipif(not full(), reason="of make test-faults")]

LONGEST = 90.0


def test_a_killed_job_is_done_again_in_time(
    transactional_db: None, tmp_path: Path, work: Work, settings: Any, tallied: Callable[[Tally], None]
) -> None:
    """All stages at once, since each waits for its lease."""
    if connection.vendor != "postgresql":
        pytest.skip(NEEDS_POSTGRESQL)
    site = forked_site(tmp_path / "site", 8, 1.0)
    try:
        for stage in RUN_STAGES:
            for victim in WORKER:
                site.orders.strike(stage, victim)
        usual = settings.VALIDATE_AT_ONCE_BYTES
        submissions = []
        for number in range(2 * len(WORKER) * len(RUN_STAGES)):
            settings.VALIDATE_AT_ONCE_BYTES = 0 if number % 5 == 0 else usual
            submissions.append(work.submit([work.open]))
        site.wait_for(lambda: site.orders.armed() == 0, "all to be struck")
        site.wait_for(lambda: ended(submissions), "all jobs to end", 300)
        tell_everybody()
        for stage in RUN_STAGES:
            found = recoveries_at(site, stage)
            tallied(Tally(f"production's times: {stage}", dict.fromkeys(WORKER, 1), lost(), doubled(), found))
            assert max(found) < LONGEST, stage
        assert lost() == doubled() == []
    finally:
        site.stop()
