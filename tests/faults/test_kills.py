"""kill -9 of workers, of their children and of sandboxed models at every stage: nothing is lost, nothing done twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from submissions.models import Job, Shard, Submission
from tests.faults.kills import Tally, kill_often, repetitions, repetitions_of_celery
from tests.faults.orders import Victim
from tests.faults.repetitions import full
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


def test_runs_survive_at_two_stages(queue_site: Site, work: Work) -> None:
    site = queue_site
    order: list[tuple[str, Victim]] = [("stored", "worker"), ("publishing", "child")]
    for stage, victim in order:
        site.orders.strike(stage, victim)
    submissions = [work.submit() for _ in order]
    site.wait_for(lambda: site.orders.armed() == 0, "all to be struck")
    site.wait_for(lambda: ended(submissions), "all jobs to end")
    tell_everybody()
    assert lost() == []
    assert doubled() == []


class Dying:
    """Work whose first worker dies, so that there is something to reap."""

    def __init__(self, site: Site, work: Work) -> None:
        self._site, self._work = site, work

    def submit(self) -> Submission:
        """One more, and the end of whoever takes it first."""
        self._site.orders.strike("claimed", "child")
        return self._work.submit()


@of_test_faults
@pytest.mark.parametrize("stage", RUN_STAGES)
def test_a_run_survives_in_a_crowd(
    stage: str, crowded_site: Site, work: Work, settings: Any, tallied: Callable[[Tally], None]
) -> None:
    """Forked workers: the product's own work, claims and leases, without what starts slowly."""
    if stage == "validating":
        settings.VALIDATE_AT_ONCE_BYTES = 0
    tally = kill_often(crowded_site, work, stage, WORKER, repetitions(), at_once=15)
    tallied(tally)
    check(tally)


@of_test_faults
@pytest.mark.parametrize("stage", ["certainty", "dispatching"])
def test_what_follows_a_result_survives_in_a_crowd(
    stage: str, crowded_site: Site, work: Work, tallied: Callable[[Tally], None]
) -> None:
    tally = kill_often(crowded_site, work, stage, WORKER, repetitions_of_celery(), at_once=1, afterwards=True)
    tallied(tally)
    check(tally)
    assert Job.objects.filter(kind=Job.Kind.CERTAINTY, state="done").exists()


@of_test_faults
def test_the_reaper_survives_itself_in_a_crowd(
    crowded_site: Site, work: Work, tallied: Callable[[Tally], None]
) -> None:
    tally = kill_often(crowded_site, Dying(crowded_site, work), "reaping", WORKER, repetitions(), at_once=10)
    tallied(tally)
    check(tally)


@of_test_faults
@pytest.mark.parametrize("stage", RUN_STAGES)
def test_a_run_survives(
    stage: str, scoring_site: Site, work: Work, settings: Any, tallied: Callable[[Tally], None]
) -> None:
    if stage == "validating":
        settings.VALIDATE_AT_ONCE_BYTES = 0  # as with a large file, a worker reads it first
    tally = kill_often(scoring_site, work, stage, WORKER, repetitions_of_celery(), name=f"Celery: {stage}")
    tallied(tally)
    check(tally)


@of_test_faults
@pytest.mark.parametrize("stage", ["certainty", "dispatching"])
def test_what_follows_a_result_survives(
    stage: str, scoring_site: Site, work: Work, tallied: Callable[[Tally], None]
) -> None:
    tally = kill_often(
        scoring_site,
        work,
        stage,
        WORKER,
        repetitions_of_celery(),
        at_once=1,
        afterwards=True,
        name=f"Celery: {stage}",
    )
    tallied(tally)
    check(tally)
    # Each change of the open board was looked at: nothing that was asked for got lost.
    assert Job.objects.filter(kind=Job.Kind.CERTAINTY, state="done").exists()


@of_test_faults
def test_the_reaper_survives_itself(scoring_site: Site, work: Work, tallied: Callable[[Tally], None]) -> None:
    dying = Dying(scoring_site, work)
    tally = kill_often(
        scoring_site, dying, "reaping", WORKER, repetitions_of_celery(), at_once=1, name="Celery: reaping"
    )
    tallied(tally)
    check(tally)


@of_test_faults
@pytest.mark.parametrize("stage", ["loading", "encoding", "indexing", "searching", "publishing"])
def test_a_model_survives(
    stage: str, start_models: Callable[..., Site], tmp_path: Path, tallied: Callable[[Tally], None]
) -> None:
    site = start_models(SHARD_SIZE="1000")
    victims = WORKER if stage == "publishing" else MODEL  # there is no child of a model any more
    models = ModelWork(tmp_path / "models", site)
    tally = kill_often(site, models, stage, victims, repetitions_of_celery(), name=f"model: {stage}")
    tallied(tally)
    check(tally)


@of_test_faults
def test_a_shard_survives(start_models: Callable[..., Site], tmp_path: Path, tallied: Callable[[Tally], None]) -> None:
    site = start_models(SHARD_SIZE="15")
    models = ModelWork(tmp_path / "models", site)
    tally = kill_often(site, models, "shard", WORKER, repetitions_of_celery())
    tallied(tally)
    check(tally)


HOST: tuple[Victim, ...] = ("child", "worker", "sandbox", "host")


def check_shards() -> None:
    """Each shard is there, and one job of each has made it."""
    shards = Shard.objects.count()
    assert Shard.objects.exclude(done_at=None).count() == shards
    assert Job.objects.filter(kind=Job.Kind.SHARD, state="done").count() == shards


@pytest.mark.long
def test_shards_survive_at_two_stages(encoding_site: Site, tmp_path: Path) -> None:
    models = ModelWork(tmp_path / "models", encoding_site)
    order: list[tuple[str, Victim]] = [("next shard", "sandbox"), ("encoded", "host")]
    for stage, victim in order:
        check(kill_often(encoding_site, models, stage, [victim], 1))
    check_shards()


@of_test_faults
@pytest.mark.parametrize("stage", ["shards made", "next shard", "encoding", "encoded", "shard"])
def test_shards_of_a_child_that_stays_survive(
    stage: str, encoding_site: Site, tmp_path: Path, tallied: Callable[[Tally], None]
) -> None:
    """Forked workers, whose child encodes one shard after the other; of the host all workers die in one moment."""
    models = ModelWork(tmp_path / "models", encoding_site)
    victims = [victim for victim in HOST if victim != "sandbox" or stage in ("next shard", "encoding")]
    tally = kill_often(
        encoding_site, models, stage, victims, min(repetitions(), 20), at_once=1, name=f"shards: {stage}"
    )
    tallied(tally)
    check(tally)
    check_shards()


@of_test_faults
@pytest.mark.parametrize("stage", ["handing over", "handed over", "publishing"])
def test_a_model_survives_between_two_workers(
    stage: str, start_models: Callable[..., Site], tmp_path: Path, tallied: Callable[[Tally], None]
) -> None:
    """Who retrieves can read no judgements, and hands what it found to a scorer."""
    site = start_models(SHARD_SIZE="1000", PRIVATE_STORAGE="off")
    models = ModelWork(tmp_path / "models", site)
    tally = kill_often(site, models, stage, WORKER, repetitions_of_celery(), name=f"model of two workers: {stage}")
    tallied(tally)
    check(tally)
