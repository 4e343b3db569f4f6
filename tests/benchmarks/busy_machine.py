"""Jobs of one checkpoint, every other one beside busy loops: the costs that they publish, and the doubtful ones.

    .venv/bin/python tests/benchmarks/busy_machine.py [--jobs 4] [--loops 2]

The site's own worker runs the sample checkpoint over the demo collection, in the sandbox where there is one. Fails
where × BM25 of a job that is not marked doubtful is further than 15 % from the median of such undisturbed jobs, where
fewer than eight of ten undisturbed jobs, or four of ten jobs, are unmarked, where more than a fifth of the jobs publish
nothing, or where a job takes more than four times as long as the median of the undisturbed ones.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

if TYPE_CHECKING:
    from leaderboard.results.board_rows.measurements import MeasuredEntry

#: The share of jobs that may publish nothing, how far × BM25 may be off, and how much later one may be.
UNPUBLISHED, OFF, LATER = 0.2, 0.15, 4.0
#: The shares of undisturbed jobs, and of all, that may be marked doubtful. Busy loops on all cores mark theirs.
QUIET_DOUBTFUL, DOUBTFUL = 0.2, 0.6


class Job(NamedTuple):
    """A job: whether busy loops ran beside it, its seconds, and its measurement, None if it published none."""

    busy: bool
    seconds: float
    measured: MeasuredEntry | None = None

    def read_again(self) -> Job:
        """Return the job with its measurement as the site shows it now."""
        from leaderboard.results.board_rows.measurements import system_measurements

        if self.measured is None:
            return self
        return self._replace(measured=system_measurements(self.measured.system_id)[0])

    @property
    def doubt(self) -> str:
        """Reason for the mark, for the table."""
        doubt = self.measured.doubt if self.measured else ""
        return doubt.removeprefix("busy machine: ") or "no"

    @property
    def ratio(self) -> float | None:
        """Latency over BM25's; None where the job published none."""
        baseline = self.measured.baseline_latency if self.measured else None
        return self.measured.latency["mean"] / baseline if self.measured and baseline else None

    @property
    def doubtful(self) -> bool:
        """Whether the site marks its times, as boards do."""
        return self.measured is not None and bool(self.measured.doubt)


def main() -> None:
    """Make a site with the demo collection, run the jobs, print them and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=4)
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
        # Later jobs show how fast the machine's memory and BM25 usually are.
        jobs = [job.read_again() for job in jobs]
        for row, job in zip(rows, jobs, strict=True):
            if job.measured is not None:
                row[HEAD.index("doubtful")] = job.doubt
    figures.table(HEAD, rows)
    _hold(figures, jobs)
    sys.exit(figures.finish(arguments.write))


def _make_demo(folder: Path) -> None:
    """The demo collection with its BM25 and the sample checkpoint, as at a first start."""
    from leaderboard.importing.collections.importer import import_dataset
    from leaderboard.importing.collections.source import ImportOptions
    from leaderboard.importing.demo.stdlib_search import DEMO_SLUG, build_stdlib_search
    from leaderboard.systems.baselines import request_sample_model
    from submissions.jobs.runner import drain_queue
    from submissions.queue.queue import create_requested_jobs

    scratch = folder / "demo"
    scratch.mkdir()
    options = ImportOptions(slug=DEMO_SLUG, name="StdlibSearch", hidden=False)
    demo = import_dataset(build_stdlib_search(scratch), options).dataset
    for _ in range(2):  # its BM25 first, which makes it public
        create_requested_jobs()
        drain_queue("cpu", "benchmark")
        request_sample_model(demo)


def _run(name: str, *, busy: bool = False) -> Job:
    """A submission of the sample checkpoint, from claim to published row."""
    from evaluation.engines import describe
    from leaderboard.models import Dataset
    from leaderboard.results.board_rows.measurements import system_measurements
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
    measured = next(iter(system_measurements(submission.system_id)), None)
    if row.state != State.DONE or measured is None or not measured.baseline:
        print(row.log)
        return Job(busy, seconds)
    return Job(busy, seconds, measured)


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


HEAD = [
    "job",
    "seconds",
    "ms",
    "±",
    "rounds",
    "unsettled",
    "interruptions",
    "other work",
    "BM25 ms",
    "± BM25",
]
HEAD += ["BM25 other work", "× BM25", "doubtful", "load"]


def _row(number: int, job: Job, loops: list[Any]) -> list[str]:
    beside = f"{len(loops)} busy loops" if loops else "nothing of ours"
    load = Path("/proc/loadavg").read_text().split()[0]
    start = [f"{number}, {beside}", f"{job.seconds:.1f}"]
    if job.measured is None:
        return [*start, *["—"] * (len(HEAD) - 3), load]
    own, bm25 = job.measured.figures, job.measured.baseline
    return [
        *start,
        f"{own['latency_ms']['mean']:.3f}",
        f"{own['spread_ms']:.3f}",
        str(own["rounds"]),
        f"{own['unsettled']} of {own['queries']}",
        str(own["interruptions"]),
        _share(own["other_work"]),
        f"{bm25['latency_ms']['mean']:.4f}",
        f"{bm25['spread_ms']:.4f}",
        _share(bm25["other_work"]),
        f"{job.ratio:.2f}",
        job.doubt,
        load,
    ]


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _hold(figures: Figures, jobs: list[Job]) -> None:
    """Hold the jobs against the bounds."""
    quiet = [job for job in jobs if not job.busy]
    ratios = [job.ratio for job in jobs if job.ratio is not None and not job.doubtful]
    sure = [job.ratio for job in quiet if job.ratio is not None and not job.doubtful]
    true = statistics.median(sure) if sure else math.nan
    off = max((abs(ratio / true - 1) for ratio in ratios), default=math.inf) if sure else math.inf
    marked = [abs(job.ratio / true - 1) for job in jobs if job.ratio is not None and job.doubtful]
    later = max(job.seconds for job in jobs) / statistics.median(job.seconds for job in quiet)
    unpublished = sum(job.ratio is None for job in jobs) / len(jobs)
    doubtful = sum(job.doubtful for job in jobs) / len(jobs)
    found = [
        ("share of jobs that publish nothing", unpublished, UNPUBLISHED),
        (
            "share of undisturbed jobs that are doubtful",
            sum(job.doubtful for job in quiet) / len(quiet),
            QUIET_DOUBTFUL,
        ),
        ("share of all jobs that are doubtful", doubtful, DOUBTFUL),
        ("× BM25 of those without doubt, furthest from the median of the undisturbed", off, OFF),
        ("latest job, × the median of the undisturbed", later, LATER),
    ]
    rows = [[what, f"{value:.3f}", figures.bound(what, value, most)] for what, value, most in found]
    rows.append(["× BM25 of the doubtful, furthest from it", f"{max(marked, default=0.0):.3f}", "none"])
    figures.table(["", "found", "bound"], rows)


if __name__ == "__main__":
    main()
