"""The site's own processes: how each is run."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from django.conf import settings

from evaluation.efficiency.hardware import visible_gpus
from leaderboard.management.supervisor.logs import Shown
from leaderboard.management.supervisor.processes import Command

#: What it is that serves: its workers, and what of a request it believes.
GUNICORN_CONFIG = "python:leaderboard.core.http.gunicorn"
WEB_WORKERS = 2
WEB_THREADS = 4
#: Runs are scored beside each other; what is measured runs alone.
SCORING_PROCESSES = 2
#: Of workers and their clock: readers' pages come first where all share a machine. On an idle one it changes nothing.
NICENESS = 10
#: Workers hear messages from their queues and say nothing to each other through the broker.
WITHOUT_TALK = ("--without-gossip", "--without-mingle", "--without-heartbeat")
#: What the driver of an NVIDIA GPU makes.
_GPU = Path("/dev/nvidiactl")


def web(port: int, environment: Mapping[str, str]) -> Command:
    """Return gunicorn on the loopback address. It loads before it forks, so its workers share their memory."""
    options = [
        *("--bind", f"127.0.0.1:{port}", "--workers", str(WEB_WORKERS), "--preload"),
        *("--config", GUNICORN_CONFIG, "--threads", str(WEB_THREADS), "--keep-alive", "5"),
        *("--timeout", "60", "--graceful-timeout", "4", "--no-control-socket"),
    ]
    if os.access("/dev/shm", os.W_OK):  # noqa: S108  heartbeats must not wait for a disk
        options += ["--worker-tmp-dir", "/dev/shm"]  # noqa: S108
    return Command(
        "web", [sys.executable, "-m", "gunicorn", *options, "leaderboard.wsgi:application"], environment
    )


#: Queues and number of processes of workers, by the queue that each is started for. What sends mail and webhooks works
#: without a pool, in the process that takes messages: it waits for servers, and the memory counts.
WORKER_KINDS = {
    "score": ("score,dispatch", SCORING_PROCESSES),
    "notices": ("notices", 0),
    "cpu": ("cpu", 1),
    "gpu": ("gpu", 1),
}


def worker_for(
    queue: str, name: str, environment: Mapping[str, str], processes: int | None = None
) -> Command:
    """Return a Celery worker for a queue, with as many processes as its kind has or as are asked for."""
    queues, usual = WORKER_KINDS[queue]
    if queue == "notices":  # it is kept apart from whatever may read private storage
        environment = {**environment, "PRIVATE_STORAGE": "off"}
    return worker(name, queues, usual if processes is None else processes, environment)


def retrievers(environment: Mapping[str, str]) -> list[Command]:
    """Return Celery workers that retrieve, one job at a time each: one, or one for the processor and for each GPU.

    Several share the machine's memory and cores, unless variables say what each has.
    """
    gpus = visible_gpus()
    if len(gpus) < 2:
        return [worker("retriever", "cpu,gpu" if _GPU.exists() else "cpu", 1, environment)]
    shares = {
        name: str(max(getattr(settings, name) // (len(gpus) + 1), 1))
        for name in ("MODEL_MEMORY_BYTES", "MODEL_THREADS")
        if name not in os.environ
    }
    environment = {**environment, **shares}
    return [worker_for("cpu", "retriever", environment)] + [
        worker_for("gpu", f"retriever-{number}", {**environment, "CUDA_VISIBLE_DEVICES": gpu})
        for number, gpu in enumerate(gpus)
    ]


def worker(name: str, queues: str, processes: int, environment: Mapping[str, str]) -> Command:
    """Return a Celery worker for these queues, separated by commas. With 0 processes it works in its own."""
    pool = ("prefork", "--concurrency", str(processes)) if processes else ("solo",)
    options = [
        *("--pool", *pool, "--queues", queues, "--hostname", f"{name}@%h"),
        *("--prefetch-multiplier", "1", *WITHOUT_TALK, "--loglevel", "INFO"),
    ]
    return _celery(name, ["worker", *options], environment)


def beat(run_folder: Path, environment: Mapping[str, str]) -> Command:
    """Return the clock that wakes the dispatcher."""
    options = ["--schedule", str(run_folder / "beat-schedule"), "--pidfile", "", "--loglevel", "INFO"]
    return _celery("beat", ["beat", *options], environment)


def manage(name: str, *arguments: str, environment: Mapping[str, str], shown: Shown = "warnings") -> Command:
    """Return a step: one management command that ends by itself."""
    command = [sys.executable, "manage.py", *arguments]
    return Command(name, command, environment, lasting=False, shown=shown)


def _celery(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Command:
    """Return a Celery command that gives way to the web processes."""
    nice = shutil.which("nice")
    priority = [nice, "-n", str(NICENESS)] if nice else []
    command = [
        *priority,
        sys.executable,
        "-m",
        "celery",
        "--app",
        "leaderboard.celery",
        "--quiet",
        *arguments,
    ]
    return Command(name, command, environment)
