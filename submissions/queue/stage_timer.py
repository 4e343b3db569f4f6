"""How long each stage of a job took: noted by whoever holds it, added up once the attempt has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from django.db.models import F

from submissions.models import StageTime

#: Upper limits of the buckets, in seconds: from a run that is scored at once to a model that runs all day.
LIMITS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0)
#: The bucket of all.
NO_LIMIT = 0.0


class StageClock:
    """Seconds by stage, of one attempt. Not for several threads."""

    def __init__(self, stage: str) -> None:
        self._seconds: dict[str, float] = {}
        self._stage = stage
        self._since = time.monotonic()

    def enter(self, stage: str) -> None:
        """The stage so far has ended; `stage` begins, perhaps again."""
        now = time.monotonic()
        self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now

    def ended(self) -> Mapping[str, float]:
        """Seconds by stage, now that the attempt has ended. Time before any stage was named counts as "starting"."""
        self.enter(self._stage)
        return {stage or "starting": seconds for stage, seconds in self._seconds.items()}


def add_up(kind: str, seconds: Mapping[str, float]) -> None:
    """Count each of these stages in its buckets."""
    for stage, duration in seconds.items():
        buckets = StageTime.objects.filter(kind=kind, stage=stage)
        if not buckets.filter(limit=NO_LIMIT).exists():
            StageTime.objects.bulk_create(
                [StageTime(kind=kind, stage=stage, limit=limit) for limit in (NO_LIMIT, *LIMITS)],
                ignore_conflicts=True,
            )
        buckets.filter(limit__gte=duration).update(count=F("count") + 1)
        buckets.filter(limit=NO_LIMIT).update(count=F("count") + 1, seconds=F("seconds") + duration)


def histograms() -> Iterator[tuple[str, str, list[tuple[float, int]], int, float]]:
    """For each kind and stage: (kind, stage, [(limit, how many took at most so long)], how many in all, seconds)."""
    rows: dict[tuple[str, str], list[StageTime]] = {}
    for row in StageTime.objects.all():
        rows.setdefault((row.kind, row.stage), []).append(row)
    for (kind, stage), buckets in rows.items():
        all_of_them = next((bucket for bucket in buckets if bucket.limit == NO_LIMIT), None)
        if all_of_them is not None:
            limits = [(bucket.limit, bucket.count) for bucket in buckets if bucket.limit != NO_LIMIT]
            yield kind, stage, limits, all_of_them.count, all_of_them.seconds
