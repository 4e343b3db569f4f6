"""What sharing out a corpus costs: `python tests/benchmarks/coordinator.py`.

2,768 shards (MS MARCO v2 in shards of 50,000) wait for 64 devices. Everything is the product's, on a PostgreSQL of its
own: claims, leases, heartbeats, the dispatcher, shards that are stored; but a child that encodes is a pause of
`--seconds`. It ends after `--rounds` shards of each device (0: all of them), and is counted from where all are at work
to where the first has done its last. The coordinator is PostgreSQL and the dispatcher; each device has a process, as in
production, which on a cluster has a machine of its own. A gap is the time of a device between the end of a shard and
the start of the next: the shard is stored, its job ends, the next one is claimed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

#: Of a core, at full load; and seconds that a device waits while shards do.
MAX_OF_A_CORE, LONGEST_GAP = 0.02, 1.0
SETTINGS = ["shared_buffers=128MB", "max_connections=400"]
#: Seconds between two signs of life of a child, as its supervision has them.
_SIGN = 0.25


def prepare(folder: Path, after: ExitStack) -> int:
    """A migrated database; the process of its server."""
    from tests.servers.postgresql import start_postgresql

    server = start_postgresql(after.callback, SETTINGS)
    os.environ.update(
        RUNBOARD_VAR=str(folder),
        DATABASE_URL=server.url,
        DJANGO_SETTINGS_MODULE="leaderboard.settings",
        REDIS_URL="redis://127.0.0.1:1/0",
        SANDBOX="none",
        SHARD_SIZE="1",
        LOG_LEVEL="ERROR",
    )
    import django
    from django.core.management import call_command

    django.setup()
    from leaderboard.core import wakeup

    # Nobody hears of work here: whoever is idle looks, and nobody is while shards wait.
    vars(wakeup).update(send_wakeup=lambda *told, **more: False, count_pending=lambda queue: 0)
    call_command("migrate", verbosity=0)
    return int((server.folder / "data" / "postmaster.pid").read_text().split()[0])


def fill(shards: int) -> None:
    """A model's job that waits for so many shards."""
    from submissions.jobs.checkpoints.encodings import EncodingSetting, wait_for_shards
    from submissions.queue.queue import claim
    from tests.factories import make_dataset, make_version
    from tests.submissions.model_jobs import make_submission, queue_model

    dataset = make_dataset()
    version = make_version(dataset, statistics={"documents": shards})
    submission = make_submission()
    queue_model(dataset, submission)
    job = claim(["cpu"], "first")
    assert job is not None
    assert submission.checkpoint is not None
    setting = EncodingSetting(submission.checkpoint, version, "toy", {}, "a-device", "cpu", 1, shard_size=1)
    assert wait_for_shards(job, setting)


class Pause:
    """Stands for `ShardEncoder`: a shard takes so long, and its vectors are a few bytes; after `left` we end."""

    def __init__(self, job: Any, seconds: float, left: int) -> None:
        self.job = job
        self.gaps: list[float] = []
        self._seconds, self._left = seconds, left
        self._ended: float | None = None

    def encode(self, number: int, target: Path, on_progress: Any) -> Any:
        """Wait, and tell how far it is as often as a child does."""
        from submissions.queue.workers import STOPPING
        from submissions.sandbox.running import SandboxOutcome

        began = time.monotonic()
        if self._ended is not None:
            self.gaps.append(began - self._ended)
        while (passed := time.monotonic() - began) < self._seconds:
            on_progress("encoding", passed / self._seconds, "")
            time.sleep(min(_SIGN, self._seconds - passed))
        target.mkdir()
        (target / "embeddings.npy").write_bytes(b"vectors")
        self._left -= 1
        if self._left == 0:
            STOPPING.set()
        shard = {"number": number, "documents": 1, "seconds": self._seconds}
        self._ended = time.monotonic()
        return SandboxOutcome("done", self._seconds, 0, {"shard": shard, "hardware": {"slug": "a-device"}})

    def close(self) -> None:
        """It has no child."""


def device(delay: float, seconds: float, rounds: int, report: Path) -> None:
    """A worker of one device, which ends after so many shards or when there is none; its gaps go into the report."""
    from django.db import connections

    from evaluation.execution.job import ExecutionJob
    from leaderboard import VERSION
    from submissions.jobs.checkpoints import running as shards
    from submissions.jobs.runner import drain_queue
    from submissions.jobs.worker import HungProcessMonitor
    from submissions.models import Job
    from submissions.queue import workers as process
    from submissions.queue.workers import Heartbeat

    connections.close_all()
    process.set_identity(("cpu",))
    child: list[Pause] = []

    def encoder(encoding: Any, device: str, folder: Path) -> Pause:
        child.append(Pause(ExecutionJob("encode_shards", "dense", folder / "out"), seconds, rounds))
        return child[-1]

    vars(shards).update(create_encoder=encoder)
    time.sleep(delay)
    hung = HungProcessMonitor(process.worker_name())
    Heartbeat(process.worker_name(), ["cpu"], VERSION, callback=lambda: hung.kill_hung([])).start()
    used = time.process_time()
    while not process.STOPPING.is_set() and Job.objects.waiting().filter(kind=Job.Kind.SHARD).exists():
        drain_queue("cpu", process.process_name())
    used = time.process_time() - used
    report.write_text(json.dumps({"gaps": [gap for each in child for gap in each.gaps], "cpu": used}))


def dispatcher() -> None:
    """Run the dispatcher's steps at the scheduled intervals."""
    from django.conf import settings
    from django.db import connections

    from submissions import tasks

    connections.close_all()
    for turn in itertools.count():
        tasks.dispatch(urgent_only=turn % round(60 / settings.QUEUE_TIMES.dispatch) != 0)
        time.sleep(settings.QUEUE_TIMES.dispatch)


def start(work: Callable[..., None], *told: Any) -> int:
    """Fork a process that does this."""
    if process := os.fork():
        return process
    try:
        work(*told)
        os._exit(0)
    finally:
        os._exit(1)


def cpu_seconds(process: int) -> float:
    """Of the process and its children that are there now: time on a processor, as Linux counts it in nanoseconds."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if process in (int(folder.name), parent):
                found += int((folder / "schedstat").read_text().split()[0])
    return found / 1e9


def measure(options: argparse.Namespace, folder: Path, server: int, figures: Figures) -> None:
    """Let them work, and tell what it took."""
    from django.db import connection
    from django.utils import timezone

    from submissions.models import Job, Shard

    connection.close()
    turns = start(dispatcher)
    reports = [folder / f"device-{number}.json" for number in range(options.devices)]
    apart = options.seconds / options.devices  # no two end a shard in one moment
    devices = [
        start(device, number * apart, options.seconds, options.rounds or -1, path)
        for number, path in enumerate(reports)
    ]
    time.sleep(1.5 * options.seconds)  # All devices encode then, and their leases have a connection.
    before, turning, began = cpu_seconds(server), cpu_seconds(turns), time.monotonic()
    _, status = os.waitpid(devices[0], 0)
    wall = time.monotonic() - began
    serving, dispatching = cpu_seconds(server) - before, cpu_seconds(turns) - turning
    counted = Shard.objects.filter(done_at__gt=timezone.now() - timedelta(seconds=wall)).count()
    failed = (status != 0) + sum(os.waitpid(process, 0)[1] != 0 for process in devices[1:])
    os.kill(turns, signal.SIGKILL)
    os.waitpid(turns, 0)
    told = [json.loads(path.read_text()) for path in reports if path.exists()]
    gaps = sorted(gap for each in told for gap in each["gaps"])
    done = Shard.objects.exclude(done_at=None).count()
    ended = Job.objects.filter(kind=Job.Kind.SHARD, state="done")
    wrong = failed + abs(ended.count() - done) + ended.exclude(attempts=1).count()
    wrong += abs(done - min(options.shards, options.rounds * options.devices or options.shards))
    own = sum(each["cpu"] for each in told) / done * 1000
    figures.say(
        f"{options.devices} devices, {options.shards:,} shards of {options.seconds:g} s each, of which {done:,} "
        f"were encoded; counted over {wall:,.0f} s. A device's own process took {own:.0f} ms of a core for each shard."
    )
    figures.table(
        ["", "", "bound"],
        [
            ["PostgreSQL, share of a core", f"{serving / wall:.2%}", ""],
            ["dispatcher, share of a core", f"{dispatching / wall:.2%}", ""],
            _bounded(figures, "both, share of a core", (serving + dispatching) / wall, MAX_OF_A_CORE),
            ["for each shard, ms of a core", f"{(serving + dispatching) / counted * 1000:.1f}", ""],
            ["gap between two shards, median, s", f"{statistics.median(gaps):.3f}", ""],
            ["gap, 99 of 100, s", f"{gaps[int(len(gaps) * 0.99)]:.3f}", ""],
            _bounded(figures, "gap, longest, s", gaps[-1], LONGEST_GAP),
            _bounded(figures, "shards lost, done twice or tried again", wrong, 0),
        ],
    )


def _bounded(figures: Figures, what: str, found: float, most: float) -> list[str]:
    return [what, f"{found:.3g}", figures.bound(what, found, most)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--shards", type=int, default=2768)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=3)
    add_option(parser)
    options = parser.parse_args()
    figures = Figures(__file__)
    with ExitStack() as after:
        folder = Path(after.enter_context(tempfile.TemporaryDirectory(prefix="runboard-coordinator-")))
        server = prepare(folder, after)
        fill(options.shards)
        measure(options, folder, server, figures)
    sys.exit(figures.finish(options.write))


if __name__ == "__main__":
    main()
