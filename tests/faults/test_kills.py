"""kill -9 of workers, of their children and of sandboxed models at every stage: nothing is lost, nothing done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from submissions.models import Job
from tests.faults.conftest import full
from tests.faults.kills import Tally, kill_often, repetitions
from tests.faults.orders import Victim
from tests.faults.site import Site
from tests.faults.work import ModelWork, Work, doubled, ended, lost, tell_everybody

pytestmark = pytest.mark.database

WORKER: tuple[Victim, ...] = ("child", "worker")
MODEL: tuple[Victim, ...] = ("child", "sandbox", "worker")
RUN_STAGES = ("claimed", "validating", "scoring", "stored", "publishing", "published", "settled")
of_test_faults = pytest.mark.skipif(not full(), reason="of make test-faults")


def check(tally: Tally) -> None:
    """Nothing lost, nothing doubled."""
    assert tally.lost == []
    assert tally.doubled == []


def test_runs_survive_at_three_stages(queue_site: Site, work: Work) -> None:
    site = queue_site
    order: list[tuple[str, Victim]] = [("claimed", "child"), ("stored", "worker"), ("publishing", "child")]
    for stage, victim in order:
        site.orders.strike(stage, victim)
    submissions = [work.submit() for _ in order]
    site.wait_for(lambda: site.orders.armed() == 0, "all to be struck")
    site.wait_for(lambda: ended(submissions), "all jobs to end")
    tell_everybody()
    assert lost() == []
    assert doubled() == []


@of_test_faults
@pytest.mark.parametrize("stage", RUN_STAGES)
def test_a_run_survives(
    stage: str, scoring_site: Site, work: Work, settings: Any, tallied: Callable[[Tally], None]
) -> None:
    if stage == "validating":
        settings.VALIDATE_AT_ONCE_BYTES = 0  # as with a large file, a worker reads it first
    tally = kill_often(scoring_site, work, stage, WORKER, repetitions())
    tallied(tally)
    check(tally)


@of_test_faults
@pytest.mark.parametrize("stage", ["certainty", "dispatching"])
def test_what_follows_a_result_survives(
    stage: str, scoring_site: Site, work: Work, tallied: Callable[[Tally], None]
) -> None:
    tally = kill_often(scoring_site, work, stage, WORKER, repetitions(), at_once=1, afterwards=True)
    tallied(tally)
    check(tally)
    # Each change of the open board was looked at: nothing that was asked for got lost.
    assert Job.objects.filter(kind=Job.Kind.CERTAINTY, state="done").exists()


@of_test_faults
def test_the_reaper_survives_itself(scoring_site: Site, work: Work, tallied: Callable[[Tally], None]) -> None:
    class Dying:
        """Work whose first worker dies, so that there is something to reap."""

        def submit(self) -> Any:
            scoring_site.orders.strike("claimed", "child")
            return work.submit()

    tally = kill_often(scoring_site, Dying(), "reaping", WORKER, repetitions(), at_once=1)
    tallied(tally)
    check(tally)


@of_test_faults
@pytest.mark.parametrize("stage", ["loading", "encoding", "indexing", "searching", "publishing"])
def test_a_model_survives(
    stage: str, model_site: Site, model_work: ModelWork, tallied: Callable[[Tally], None]
) -> None:
    victims = WORKER if stage == "publishing" else MODEL  # there is no child of a model any more
    tally = kill_often(model_site, model_work, stage, victims, repetitions())
    tallied(Tally(f"model: {stage}", tally.kills, tally.lost, tally.doubled, tally.recoveries))
    check(tally)


@of_test_faults
def test_a_shard_survives(
    sharding_site: Site, model_work: ModelWork, tallied: Callable[[Tally], None]
) -> None:
    tally = kill_often(sharding_site, model_work, "shard", WORKER, repetitions())
    tallied(tally)
    check(tally)
