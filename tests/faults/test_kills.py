"""kill -9 of workers and of their children at every stage: nothing is lost, nothing is done twice."""

from __future__ import annotations

import pytest

from tests.faults.site import Site
from tests.faults.work import Work, doubled, ended, lost, tell_everybody

pytestmark = pytest.mark.database


@pytest.mark.parametrize("stage", ["claimed", "publishing"])
def test_stage(stage: str, scoring_site: Site, work: Work) -> None:
    site = scoring_site
    for victim in ("child", "worker"):
        site.orders.strike(stage, victim)
        submission = work.submit()
        site.wait_for(lambda: not site.orders.armed(), "somebody to die")
        site.wait_for(lambda s=submission: ended([s]), "the job to end")
    tell_everybody()
    assert lost() == []
    assert doubled() == []
