"""How the memory of processes went: samples of each, sums of groups, and whether it still grows at the end.

What counts is anonymous memory. The rest comes back or has an end: pages of files are the kernel's to take away, and
PostgreSQL's shared buffers, which count as a process touches them, are as large as they were set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import nan
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

#: What is left out at the beginning, in seconds, and as a share of a shorter time: everything is loaded and asked once.
WARM_UP, WARM_UP_SHARE = 120.0, 0.2
#: Samples whose median stands for a moment: a request that is answered just then is no growth.
AROUND = 5
_ANONYMOUS, _ALL = "Pss_Anon", "Pss"


@dataclass(frozen=True)
class Sample:
    """A process at a moment: seconds since the start, and MiB, what several processes share divided among them (PSS).

    `process` is its id; `anonymous` is a part of `resident`.
    """

    at: float
    group: str
    process: int
    resident: float
    anonymous: float


class Moment(NamedTuple):
    """What there is around a moment: how many processes, and MiB."""

    processes: float
    resident: float
    anonymous: float


@dataclass(frozen=True)
class Course:
    """What there is by moments, of a process or a group."""

    moments: Sequence[float]
    found: Sequence[Moment]

    def near(self, moment: float) -> Moment:
        """Medians of the samples next to a moment. NaN of no samples."""
        nearest = sorted(zip(self.moments, self.found, strict=True), key=lambda pair: abs(pair[0] - moment))
        if not nearest:
            return Moment(nan, nan, nan)
        return Moment._make(map(median, zip(*(there for _, there in nearest[:AROUND]), strict=True)))

    def slope(self, first: float) -> float:
        """By how many MiB a minute anonymous memory changes from a moment on: the line with the least squares."""
        found = zip(self.moments, self.found, strict=True)
        late = [(at / 60, there.anonymous) for at, there in found if at >= first]
        return linear_regression(*zip(*late, strict=True)).slope if len(late) > 1 else 0.0


def warm_up(seconds: float) -> float:
    """What does not count of a measurement of so many seconds."""
    return min(WARM_UP, WARM_UP_SHARE * seconds)


def course_of(samples: Iterable[Sample]) -> Course:
    """The sums of all samples, moment by moment."""
    moments, sums = [], []
    for at, found in groupby(sorted(samples, key=lambda each: each.at), key=lambda each: each.at):
        together = list(found)
        moments.append(at)
        resident = sum(each.resident for each in together)
        sums.append(Moment(len(together), resident, sum(each.anonymous for each in together)))
    return Course(moments, sums)


def read(at: float, group: str, processes: Iterable[int]) -> list[Sample]:
    """What the processes have now; one that has ended has nothing."""
    found = []
    for pid in processes:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        if sizes := dict(re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)):
            resident, anonymous = int(sizes[_ALL]) / 1024, int(sizes[_ANONYMOUS]) / 1024
            found.append(Sample(round(at, 1), group, pid, resident, anonymous))
    return found
