"""How long each stage of a job took: noted by whoever holds it, added up once the attempt has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from django.db import connection

from submissions.models import StageTime

#: Upper limits of the buckets, in seconds: from a run that is scored at once to a model that runs all day.
LIMITS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 21600.0)
#: The bucket of all.
NO_LIMIT = 0.0
#: A new bucket begins with what is counted now, be it nothing, so that a histogram has all of them.
_UPSERT = """INSERT INTO submissions_stagetime AS kept (kind, stage, "limit", count, seconds) VALUES {}
ON CONFLICT (kind, stage, "limit") DO UPDATE SET count = kept.count + excluded.count,
seconds = kept.seconds + excluded.seconds WHERE excluded.count > 0"""


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
    """Count each of these stages in its buckets, in one statement, so that two workers lose none of each other's.

    `bulk_create(update_conflicts=True)` would put the new counts in place of the old ones. The rows are in the order of
    their key, so two statements at once take the rows' locks in one order and no deadlock comes of it.
    """
    values: list[str | float] = []
    for stage, duration in sorted(seconds.items()):
        values += [kind, stage, NO_LIMIT, 1, duration]
        for limit in LIMITS:
            values += [kind, stage, limit, int(duration <= limit), 0.0]
    rows = ", ".join(["(%s, %s, %s, %s, %s)"] * (len(values) // 5))
    with connection.cursor() as cursor:
        cursor.execute(_UPSERT.format(rows), values)


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
