"""Ten jobs of one checkpoint, every other one beside busy loops: what is published of its costs.

    .venv/bin/python tests/benchmarks/busy_machine.py [--jobs 10] [--loops 2]

The site's own worker runs the sample checkpoint over the demo collection, in the sandbox where there is one. Fails
where fewer than eight of ten jobs publish × BM25, where one is further than 15 % from the median of the undisturbed
ones, or where a job takes more than four times as long as the median of those.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

#: The share of jobs that may publish nothing, how far × BM25 may be off, and how much later one may be.
UNPUBLISHED, OFF, LATER = 0.2, 0.15, 4.0


class Job(NamedTuple):
    """What became of a job; `ratio` is None where nothing was published."""

    busy: bool
    seconds: float
    latency: float | None
    spread: float | None
    bm25: float | None
    ratio: float | None


def main() -> None:
    """Make a site with the demo collection, run the jobs, print them and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--loops", type=int, default=2)
    add_option(parser)
    figures = Figures(__file__)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RUNBOARD_VAR": folder, "DJANGO_SETTINGS_MODULE": "leaderboard.settings"}
        os.environ |= {"LOG_LEVEL": "ERROR", "TIMING_LOCK": f"{folder}/timing.lock"}
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        _make_demo(Path(folder))
        _run("warm-up")
        jobs, rows = [], []
        for number in range(arguments.jobs):
            with _busy(arguments.loops if number % 2 else 0) as loops:
                jobs.append(_run(f"job {number}", busy=bool(loops)))
            rows.append(_row(number, jobs[-1], loops))
            print(*rows[-1], sep=" | ", flush=True)
    figures.table(["job", "seconds", "ms", "±", "BM25 ms", "× BM25", "load"], rows)
    _hold(figures, jobs)
    sys.exit(figures.finish(arguments.write))


def _make_demo(folder: Path) -> None:
    """The demo collection with its BM25 and the sample checkpoint, as at a first start."""
    from leaderboard.importing.demo.collection import make_demo_collection
    from leaderboard.systems.baselines import request_sample_model
    from submissions.jobs.runner import drain_queue
    from submissions.queue.queue import create_requested_jobs

    scratch = folder / "demo"
    scratch.mkdir()
    demo = make_demo_collection(scratch)
    for _ in range(2):  # its BM25 first, which makes it public
        create_requested_jobs()
        drain_queue("cpu", "benchmark")
        request_sample_model(demo)


def _run(name: str, *, busy: bool = False) -> Job:
    """A submission of the sample checkpoint, from claim to published row."""
    from evaluation.engines import describe
    from leaderboard.models import Dataset, Measurement
    from leaderboard.systems.records import SystemFields, create_system
    from submissions.jobs.runner import drain_queue
    from submissions.models import Checkpoint, State, Submission
    from submissions.models import Job as Row
    from tests.factories import make_user, team_of

    person = make_user()
    submission = Submission.objects.create(
        kind=Submission.Kind.MODEL,
        submitter=person,
        team=team_of(person),
        system=create_system(team_of(person), SystemFields(name, "dense")),
        engine="dense",
        parameters=describe("dense").complete({}),
        checkpoint=Checkpoint.objects.get(),
    )
    row = Row.objects.create(
        kind=Row.Kind.MODEL,
        queue=Row.Queue.CPU,
        dataset=Dataset.objects.exclude(current_version=None).get(),
        submission=submission,
        state=State.QUEUED,
        validated=True,
        payload={"unprotected": True},
    )
    started = time.monotonic()
    drain_queue("cpu", "benchmark")
    seconds = time.monotonic() - started
    row.refresh_from_db()
    measured = Measurement.objects.filter(entry__system=submission.system).first()
    if row.state != State.DONE or measured is None or not measured.baseline:
        print(row.log)
        return Job(busy, seconds, None, None, None, None)
    latency, bm25 = (each["latency_ms"]["mean"] for each in (measured.figures, measured.baseline))
    return Job(busy, seconds, latency, measured.figures["spread_ms"], bm25, latency / bm25)


@contextmanager
def _busy(loops: int) -> Iterator[list[Any]]:
    """So many processes that compute and never wait."""
    running = [multiprocessing.get_context("fork").Process(target=_spin, daemon=True) for _ in range(loops)]
    for process in running:
        process.start()
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.join()


def _spin() -> None:
    while True:
        sum(range(10_000))


def _row(number: int, job: Job, loops: list[Any]) -> list[str]:
    beside = f"{len(loops)} busy loops" if loops else "nothing of ours"
    load = Path("/proc/loadavg").read_text().split()[0]
    found = ["—" if each is None else f"{each:.3f}" for each in (job.latency, job.spread, job.bm25)]
    return [
        f"{number}, {beside}",
        f"{job.seconds:.1f}",
        *found,
        f"{job.ratio:.2f}" if job.ratio else "—",
        load,
    ]


def _hold(figures: Figures, jobs: list[Job]) -> None:
    """Hold what was found against the bounds."""
    quiet = [job for job in jobs if not job.busy]
    ratios = [job.ratio for job in jobs if job.ratio is not None]
    true = statistics.median(job.ratio for job in quiet if job.ratio is not None)
    off = max(abs(ratio / true - 1) for ratio in ratios)
    later = max(job.seconds for job in jobs) / statistics.median(job.seconds for job in quiet)
    found = [
        ("share of jobs that publish nothing", 1 - len(ratios) / len(jobs), UNPUBLISHED),
        ("× BM25, furthest from the median of the undisturbed", off, OFF),
        ("latest job, × the median of the undisturbed", later, LATER),
    ]
    rows = [[what, f"{value:.3f}", figures.bound(what, value, most)] for what, value, most in found]
    figures.table(["", "found", "bound"], rows)


if __name__ == "__main__":
    main()
