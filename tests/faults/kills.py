"""Kill again and again at one stage, and count: what every kill test does, whatever its work is."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Protocol

from submissions.models import Job, Submission
from tests.faults.orders import Fired, Victim
from tests.faults.site import PATIENCE, Site
from tests.faults.work import doubled, ended, idle, lost, tell_everybody
from tests.figures import Figures


class Submitting(Protocol):
    """Whoever brings work."""

    def submit(self) -> Submission:
        """One more submission."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of so many kills at a stage; recoveries in seconds, from the kill to the job's result."""

    stage: str
    kills: Mapping[str, int]
    lost: Sequence[str]
    doubled: Sequence[str]
    recoveries: Sequence[float] = field(default_factory=tuple)
    scale: float = 1.0
    #: Seconds that a recovery may take; None where the queue's times are not production's.
    longest: float | None = None

    def as_row(self, figures: Figures) -> list[str]:
        """A row of the table in docs/measurements/reliability.md."""
        who = ", ".join(f"{count} {victim}" for victim, count in sorted(self.kills.items()))
        took = self.recoveries
        said = f"{median(took):.1f} / {max(took):.1f} s" if took else "–"
        total = sum(self.kills.values())
        wrong = len(self.lost) + len(self.doubled)
        bounds = [figures.bound(self.stage, wrong, 0, " lost or doubled")]
        if self.longest is not None:
            bounds.append(figures.bound(f"{self.stage}, recovery", max(took, default=inf), self.longest, " s"))
        counts = [f"{total} ({who})", str(len(self.lost)), str(len(self.doubled))]
        return [self.stage, *counts, said, ", ".join(bounds)]


HEAD = ["stage", "kills", "lost", "doubled", "recovery, median / longest", "bound"]


def repetitions() -> int:
    """How often to kill forked workers at a stage, and as often their children: REPEAT says it."""
    return int(os.environ.get("REPEAT", "50"))


def repetitions_of_celery() -> int:
    """How often to kill Celery's workers, which are slow to start: REPEAT_CELERY, else as often."""
    return int(os.environ.get("REPEAT_CELERY", "") or repetitions())


def kill_often(
    site: Site,
    work: Submitting,
    stage: str,
    victims: Sequence[Victim],
    times: int,
    *,
    at_once: int = 2,
    afterwards: bool = False,
    name: str = "",
) -> Tally:
    """Kill each of the victims so many times at the stage, `at_once` of them at a time, under work that is watched.

    `afterwards`: the stage belongs to what follows once the submission's jobs have ended.
    """
    site.orders.forget_fired()
    order = list(victims) * times
    recoveries: list[float] = []
    while order:
        batch, order = order[:at_once], order[at_once:]
        for victim in batch:
            site.orders.strike(stage, victim)
        submissions = [work.submit() for _ in batch]
        _wait_for_strikes(site, work, stage, submissions)
        site.wait_for(lambda those=submissions: ended(those), "all jobs to end")
        if afterwards:
            site.wait_for(idle, "the site to be idle")
        recoveries += [_recovery(fired) for fired in _struck(site, stage)[-len(batch) :]]
    tell_everybody()
    kills = Counter(fired.victim for fired in _struck(site, stage))
    return Tally(name or stage, kills, lost(), doubled(), recoveries, site.scale)


def _wait_for_strikes(site: Site, work: Submitting, stage: str, submissions: list[Submission]) -> None:
    """Return when nobody is left to be struck. Where work ended without coming to the stage, more is brought."""
    deadline = time.monotonic() + 2 * PATIENCE
    while site.orders.armed():
        assert time.monotonic() < deadline, f"there was work, and nobody came to “{stage}”\n{site.last_words()}"
        site.wait_for(lambda: not site.orders.armed() or ended(submissions), f"all to be struck at “{stage}”")
        if site.orders.armed():
            submissions.append(work.submit())


def recoveries_at(site: Site, stage: str) -> list[float]:
    """Seconds from each kill at the stage to the job's result."""
    return [_recovery(fired) for fired in _struck(site, stage)]


def _struck(site: Site, stage: str) -> list[Fired]:
    return [fired for fired in site.orders.fired() if fired.point == stage]


def _recovery(fired: Fired) -> float:
    """Seconds from the kill until the job had its result: 0 where it had it before."""
    job = Job.objects.filter(pk=fired.job).first()
    finished = job.finished_at.timestamp() if job and job.finished_at else time.time()
    return max(0.0, finished - fired.at)
