"""What was promised, what was found, and both as Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.load import memory
from tests.load.usage import SAMPLED_EVERY, Usage

#: What is promised: milliseconds that 95 of 100 requests for pages take at most, and how much memory may grow.
P95_MS = 500.0
GROWTH = 0.10
#: What readers wait for in one piece; files of pages come from nginx.
STATIC, WHOLE = "static file", "(page with its files)"
#: Growth below so many MiB is no growth: a connection's buffers.
MIN_MIB = 8.0
#: Processes with so much anonymous memory have a line of their own.
LARGE_MIB = 20.0
#: Whose processes are its connections.
POSTGRESQL = "PostgreSQL"
#: How the groups are called that make the load.
GENERATOR = "load generator"


@dataclass(frozen=True)
class Request:
    """One request of a reader: when it began, in seconds, and what it took."""

    at: float
    kind: str
    status: int
    milliseconds: float
    size: int
    address: str

    @property
    def failed(self) -> bool:
        """Whether it was answered with an error, or not at all."""
        return not 200 <= self.status < 400


@dataclass
class Findings:
    """All that was measured."""

    seconds: float
    readers: int
    requests: Sequence[Request]
    uploads: Sequence[Mapping[str, Any]]
    upload_bytes: int
    #: When the first upload began and the last run was scored, in seconds.
    uploading: tuple[float, float]
    scored: Mapping[str, int]
    usage: Usage
    machine: str
    faults: list[str] = field(default_factory=list)

    @property
    def pages(self) -> list[Request]:
        """What gunicorn answers."""
        return [each for each in self.requests if each.kind not in (STATIC, WHOLE)]

    def while_uploading(self) -> list[Request]:
        """Pages that were asked for while uploads came in or were scored."""
        first, last = self.uploading
        return [each for each in self.pages if first <= each.at <= last]

    def broken(self) -> list[str]:
        """Every promise that does not hold."""
        found = list(self.faults)
        for name, requests in (("all", self.pages), ("while uploads came in", self.while_uploading())):
            p95 = quantile([each.milliseconds for each in requests], 0.95)
            if not p95 < P95_MS:
                found.append(f"p95 of pages, {name}: {p95:.0f} ms, not below {P95_MS:.0f}")
        failed = Counter(each.status for each in self.requests if each.failed)
        found += [f"{count} answers with status {status}" for status, count in sorted(failed.items())]
        refused = [each for each in self.uploads if each["status"] != 201]
        found += [f"upload {each['number']}: {each['status']} {each['detail']}" for each in refused]
        if self.scored != {"done": len(self.uploads)}:
            found.append(f"of {len(self.uploads)} runs: {dict(self.scored)}")
        return found + self._grown()

    def _grown(self) -> list[str]:
        """The site's own processes: what makes the load keeps a record of it.

        Of PostgreSQL by the mean over its processes: a connection is one, and how many there may be is set. What was
        not sampled has not been seen not to grow.
        """
        grown = []
        for name, course in self.courses().items():
            first, last = course.near(self.moments[0]), course.near(self.moments[-1])
            as_many = last.processes / first.processes if name == POSTGRESQL else 1.0
            more = last.anonymous - first.anonymous * as_many
            if not name.startswith(GENERATOR) and not more <= max(MIN_MIB, GROWTH * first.anonymous):
                grown.append(
                    f"anonymous memory of {name}: {first.anonymous:.0f} MiB in {first.processes:.0f} processes after "
                    f"the warm-up, {last.anonymous:.0f} in {last.processes:.0f} at the end"
                )
        return grown

    def courses(self) -> dict[str, memory.Course]:
        """The memory of each group."""
        return {
            name: memory.course_of(each for each in self.usage.samples if each.group == name)
            for name in self.usage.seconds
        }

    def largest(self) -> dict[str, memory.Course]:
        """The memory of each larger process of the site that was there from the warm-up to the end."""
        found: dict[str, dict[int, list[memory.Sample]]] = {}
        for each in self.usage.samples:
            if not each.group.startswith(GENERATOR):
                found.setdefault(each.group, {}).setdefault(each.process, []).append(each)
        courses = {
            f"{group}, process {number}": memory.course_of(samples)
            for group, processes in found.items()
            for number, samples in enumerate(processes.values(), 1)
        }
        first, _, last = self.moments
        return {
            name: course
            for name, course in courses.items()
            if course.moments[0] <= first < last <= course.moments[-1] + SAMPLED_EVERY * 2
            and course.near(last).anonymous >= LARGE_MIB
        }

    @property
    def moments(self) -> tuple[float, float, float]:
        """Seconds: after the warm-up, half of the time, and the end."""
        return memory.warm_up(self.seconds), self.seconds / 2, self.seconds


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def as_markdown(found: Findings) -> str:
    """Tables for docs/measurements/load.md."""
    lines = [
        f"{found.readers} readers, {found.seconds / 60:g} minutes, {len(found.uploads)} uploads of "
        f"{found.upload_bytes / 1e6:.0f} MB · {found.machine}",
        "",
        *_latencies(found),
        "",
        *_machine(found),
        "",
        *_uploads(found),
        "",
    ]
    p95, while_uploading = (
        quantile([each.milliseconds for each in requests], 0.95) for requests in (found.pages, found.while_uploading())
    )
    lines.append(
        f"p95 of all pages {p95:.0f} ms, {while_uploading:.0f} ms while uploads came in (bound {P95_MS:.0f}); of "
        f"{len(found.requests):,} answers {sum(each.failed for each in found.requests)} with an error (bound 0); "
        f"anonymous memory may grow by {GROWTH:.0%}, or {MIN_MIB:.0f} MiB, from the warm-up to the end."
    )
    return "\n".join(lines)


def _latencies(found: Findings) -> list[str]:
    kinds = sorted({each.kind for each in found.pages})
    rows = [(kind, [each for each in found.pages if each.kind == kind]) for kind in kinds]
    rows += [
        ("**all pages**", found.pages),
        ("**pages while uploads came in or were scored**", found.while_uploading()),
        ("static files (nginx)", [each for each in found.requests if each.kind == STATIC]),
        ("a first page with all its files", [each for each in found.requests if each.kind == WHOLE]),
    ]
    return [
        "| what readers asked for | requests | a second | not modified | p50 ms | p95 ms | p99 ms | max ms | 5xx |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(_latency(name, requests, found.seconds) for name, requests in rows if requests),
    ]


def _latency(name: str, requests: Sequence[Request], seconds: float) -> str:
    waits = [each.milliseconds for each in requests]
    numbers = [f"{quantile(waits, share):.0f}" for share in (0.5, 0.95, 0.99, 1.0)]
    kept = sum(each.status == 304 for each in requests) / len(requests)
    failed = sum(each.status >= 500 for each in requests)
    cells = [
        name,
        f"{len(requests):,}",
        f"{len(requests) / seconds:.1f}",
        f"{kept:.0%}",
        *numbers,
        str(failed),
    ]
    return f"| {' | '.join(cells)} |"


def _machine(found: Findings) -> list[str]:
    moments = ", ".join(f"{moment / 60:.2g}" for moment in found.moments)
    lines = [
        f"| processes | CPU s | of one core | how many after {moments} min | MiB | anonymous | a minute, last half |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, course in found.courses().items():
        seconds = found.usage.seconds[name]
        cells = [name, f"{seconds:.0f}", f"{seconds / found.seconds:.0%}", *_memory(course, found)]
        lines.append(f"| {' | '.join(cells)} |")
    for name, course in found.largest().items():
        lines.append(f"| {' | '.join([name, '', '', '', *_memory(course, found)[1:]])} |")
    return [
        *lines,
        "",
        "Memory: PSS, medians of five samples. Anonymous memory is what a process keeps for itself: the rest is pages "
        "of files, which the kernel takes back, and PostgreSQL's shared buffers, which have an end. A minute: the line "
        "with the least squares through the anonymous memory of the last half. The web processes begin with the room "
        "for kept pages full, as it is after some hours.",
    ]


def _memory(course: memory.Course, found: Findings) -> list[str]:
    """How many processes and both kinds at each moment, and the slope; of those that ended before, the last."""
    there = [course.near(moment) for moment in found.moments]
    columns = [" → ".join(f"{kind:.0f}" for kind in kinds) for kinds in zip(*there, strict=True)]
    return [*columns, f"{course.slope(found.moments[1]):+.1f}"]


def _uploads(found: Findings) -> list[str]:
    if not found.uploads:
        return []
    first, last = found.uploading
    transfer = [each["sent"] - each["began"] for each in found.uploads]
    wait = [each["answered"] - each["sent"] for each in found.uploads]
    return [
        f"Uploads: {sum(each['status'] == 201 for each in found.uploads)} of {len(found.uploads)} accepted, "
        f"{found.scored.get('done', 0)} scored; "
        f"{quantile(transfer, 0.5):.1f} s to send (median), then {quantile(wait, 0.5):.1f} s until the answer "
        f"(at most {max(wait):.1f}); the last was scored {last - first:.0f} s after the first began."
    ]
