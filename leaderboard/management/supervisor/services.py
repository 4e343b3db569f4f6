"""Commands of the site's own processes."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from django.conf import settings

from evaluation.efficiency.hardware import visible_gpus
from leaderboard.management.supervisor.logs import ConsoleOutput
from leaderboard.management.supervisor.processes import Command

#: Configuration module of gunicorn.
GUNICORN_CONFIG = "python:leaderboard.core.http.gunicorn"
WEB_WORKERS = 2
WEB_THREADS = 4
#: Number of runs that are scored in parallel; efficiency is measured one run at a time.
SCORING_PROCESSES = 2
#: Niceness of workers and the clock, so that pages have priority if all share a machine. It has no effect on
#: an idle machine.
NICENESS = 10
#: Options that disable communication between workers through the broker.
WITHOUT_TALK = ("--without-gossip", "--without-mingle", "--without-heartbeat")
#: Device file of the NVIDIA driver.
_GPU = Path("/dev/nvidiactl")


def web(port: int, environment: Mapping[str, str]) -> Command:
    """Return the command of gunicorn on the loopback address, preloaded so that its workers share memory."""
    options = [
        *("--bind", f"127.0.0.1:{port}", "--workers", str(WEB_WORKERS), "--preload"),
        *("--config", GUNICORN_CONFIG, "--threads", str(WEB_THREADS), "--keep-alive", "5"),
        *("--timeout", "60", "--graceful-timeout", "4", "--no-control-socket"),
    ]
    if os.access("/dev/shm", os.W_OK):  # noqa: S108  Heartbeats must not wait for a disk.
        options += ["--worker-tmp-dir", "/dev/shm"]  # noqa: S108
    return Command("web", [sys.executable, "-m", "gunicorn", *options, "leaderboard.wsgi:application"], environment)


#: Queues and number of processes of each kind of worker, by the queue that it is started for. The notices
#: worker has no pool, to save memory: it mostly waits for servers.
WORKER_KINDS = {
    "score": ("score,dispatch", SCORING_PROCESSES),
    "notices": ("notices", 0),
    "cpu": ("cpu", 1),
    "gpu": ("gpu", 1),
}


def queue_worker(queue: str, name: str, environment: Mapping[str, str], processes: int | None = None) -> Command:
    """Return the command of a Celery worker for a queue, with the usual or a given number of processes."""
    queues, default_count = WORKER_KINDS[queue]
    if queue == "notices":  # It must not access private storage.
        environment = {**environment, "PRIVATE_STORAGE": "off"}
    return worker(name, queues, default_count if processes is None else processes, environment)


def retrievers(environment: Mapping[str, str]) -> list[Command]:
    """Return the commands of retrieval workers: a single one with at most one GPU, or one for the CPU and one per GPU.

    Each runs one job at a time. Several get equal shares of memory and threads, except for settings in this process's
    environment. `environment` is passed on to the commands.
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
    return [queue_worker("cpu", "retriever", environment)] + [
        queue_worker("gpu", f"retriever-{number}", {**environment, "CUDA_VISIBLE_DEVICES": gpu})
        for number, gpu in enumerate(gpus)
    ]


def worker(name: str, queues: str, processes: int, environment: Mapping[str, str]) -> Command:
    """Return the command of a Celery worker for comma-separated queues; with 0 processes it has no pool."""
    pool = ("prefork", "--concurrency", str(processes)) if processes else ("solo",)
    options = [
        *("--pool", *pool, "--queues", queues, "--hostname", f"{name}@%h"),
        *("--prefetch-multiplier", "1", *WITHOUT_TALK, "--loglevel", "INFO"),
    ]
    return _celery(name, ["worker", *options], environment)


def beat(run_folder: Path, environment: Mapping[str, str]) -> Command:
    options = ["--schedule", str(run_folder / "beat-schedule"), "--pidfile", "", "--loglevel", "INFO"]
    return _celery("beat", ["beat", *options], environment)


def manage(name: str, *arguments: str, environment: Mapping[str, str], console: ConsoleOutput = "warnings") -> Command:
    """Return a step that runs a management command with garbage collection off, a fifth to a third of the time."""
    code = "import gc, runpy; gc.disable(); runpy.run_path('manage.py', run_name='__main__')"
    return Command(name, [sys.executable, "-c", code, *arguments], environment, lasting=False, console=console)


def compile_kernels(environment: Mapping[str, str]) -> Command:
    """Return a step that compiles the functions of BM25 and scoring, for which the first jobs would otherwise wait.

    It takes a second if `make install` has compiled them for this state folder. It ignores errors, which those jobs
    report.
    """
    code = "from evaluation.engines.index import kernels as k; from evaluation.engines import warm_up as w\n"
    code += "try:\n    k.load()\n    w.warm_up()\nexcept Exception as error:\n    print(error)"
    return Command("kernels", [sys.executable, "-c", code], environment, lasting=False)


def _celery(name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Command:
    """Return a Celery command with lower priority than the web processes."""
    nice = shutil.which("nice")
    priority = [nice, "-n", str(NICENESS)] if nice else []
    command = [*priority, sys.executable, "-m", "celery", "--app", "leaderboard.celery", "--quiet", *arguments]
    return Command(name, command, environment)
