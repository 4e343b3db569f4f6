"""What a board costs where it is served: `python tests/benchmarks/served_board.py`.

gunicorn as the site starts it (two workers of four threads), PostgreSQL and Valkey, a generated board of 1,000
systems × 20 datasets, and sixteen clients at once. *hit* is the kept page, *miss* a view that nobody asked for before
(each request another), *part* what htmx gets of it, *naive* a Django template of the same table that reads nothing,
*plain* one of as many bare numbers, *hello* a bare view behind the same middleware. Printed are the CPU milliseconds
of the gunicorn workers by request (from /proc; clients, PostgreSQL and Valkey are left out), the wall times that
clients see, and the bytes that travel.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

CLIENTS = 16
TICKS = os.sysconf("SC_CLK_TCK")
HTMX = {"HX-Request": "true", "HX-Target": "board-part"}

#: CPU of a contender beside a peer's, and kB of a part on the way.
BOUNDS = {"hit": ("hello", 3), "miss": ("naive", 0.15), "miss, all rows": ("naive, all rows", 0.05)}
MAX_KB = 60

_numbers = itertools.count(1)


def prepare(folder: str, systems: int, datasets: int, after: ExitStack) -> None:
    """PostgreSQL and Valkey of their own, the migrated database and the generated board."""
    from tests.servers.broker import start_broker
    from tests.servers.postgresql import start_postgresql

    os.environ.update(
        RUNBOARD_VAR=folder,
        DJANGO_SETTINGS_MODULE="leaderboard.settings",
        LOG_LEVEL="ERROR",
        DATABASE_URL=start_postgresql(after.callback).url,
        REDIS_URL=start_broker(after.callback).url,
    )
    import django
    from django.core.management import call_command
    from django.db import connection

    django.setup()
    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)
    from tests.generated.board import generate_board

    generate_board(systems, datasets)
    connection.close()


class Served:
    """gunicorn, and what its workers used."""

    def __init__(self, folder: str, after: ExitStack) -> None:
        from leaderboard.management.supervisor import services
        from tests.servers import processes

        self.port = _free_port()
        arguments = [
            "tests.benchmarks.served_site:application" if word == "leaderboard.wsgi:application" else word
            for word in services.web(self.port, os.environ).arguments
        ]
        self.process = processes.start(arguments, Path(folder) / "log", cwd=ROOT)
        after.callback(processes.stop, self.process)
        deadline = time.monotonic() + 60
        while True:
            try:
                if self.get("/hello", {})[0] == 200:
                    return
            except OSError:
                if time.monotonic() > deadline:
                    raise SystemExit(processes.last_lines(Path(folder) / "log")) from None
                time.sleep(0.1)

    def get(self, address: str, headers: dict[str, str]) -> tuple[int, int]:
        """Status and bytes of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            return _ask(connection, address, headers)
        finally:
            connection.close()

    def cpu(self) -> float:
        """CPU seconds that the workers used until now."""
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        return sum(_seconds(pid) for pid in children)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _seconds(pid: str) -> float:
    fields = re.sub(r"\(.*\)", "", Path(f"/proc/{pid}/stat").read_text()).split()
    return (int(fields[12]) + int(fields[13])) / TICKS


def _ask(connection: http.client.HTTPConnection, address: str, headers: dict[str, str]) -> tuple[int, int]:
    connection.request("GET", address, headers={"Accept-Encoding": "gzip", **headers})
    answer = connection.getresponse()
    return answer.status, len(answer.read())


def load(
    served: Served, addresses: Callable[[], str], headers: dict[str, str], requests: int, before: int = 0
) -> tuple[float, list[float], int]:
    """CPU ms a request, wall times in ms, and bytes of the largest answer; `before` is how many do not count."""
    waits: list[float] = []
    sizes: list[int] = []
    numbers: Iterator[int] = iter(range(requests))
    lock = threading.Lock()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=300)
        while True:
            with lock:
                if next(numbers, None) is None:
                    break
                address = addresses()
            begin = time.perf_counter()
            status, size = _ask(connection, address, headers)
            if status != 200:
                raise SystemExit(f"{address} answered {status}")
            with lock:
                waits.append((time.perf_counter() - begin) * 1000)
                sizes.append(size)
        connection.close()

    for _ in range(before):
        served.get(addresses(), headers)
    used = served.cpu()
    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(waits) != requests:
        raise SystemExit("some requests were not answered")
    return (served.cpu() - used) * 1000 / requests, waits, max(sizes)


def unseen(address: str) -> Callable[[], str]:
    """Addresses of views that differ in a bound that no row is under."""
    mark = "&" if "?" in address else "?"
    return lambda: f"{address}{mark}min-mean=-{next(_numbers)}"


CONTENDERS: dict[str, tuple[Callable[[], str], dict[str, str], float]] = {
    "hello": (lambda: "/hello", {}, 8.0),
    "hit": (lambda: "/benchmarks/generated/", {}, 8.0),
    "hit, part": (lambda: "/benchmarks/generated/?sort=wins", HTMX, 8.0),
    "miss": (unseen("/benchmarks/generated/"), {}, 1.0),
    "miss, part": (unseen("/benchmarks/generated/"), HTMX, 1.0),
    "miss, all rows": (unseen("/benchmarks/generated/?rows=all"), {}, 0.5),
    "naive": (lambda: "/naive", {}, 0.5),
    "naive, all rows": (lambda: "/naive-all", {}, 0.2),
    "plain, all rows": (lambda: "/plain-all", {}, 0.3),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=1000)
    parser.add_argument("--datasets", type=int, default=20)
    parser.add_argument("--requests", type=int, default=16, help="of each contender a round, more or fewer by its cost")
    parser.add_argument("--rounds", type=int, default=3)
    add_option(parser)
    options = parser.parse_args()
    figures = Figures(__file__)
    with ExitStack() as after, tempfile.TemporaryDirectory(prefix="runboard-served-") as folder:
        prepare(folder, options.systems, options.datasets, after)
        served = Served(folder, after)
        found: dict[str, list[tuple[float, list[float], int]]] = {name: [] for name in CONTENDERS}
        for address, headers, share in CONTENDERS.values():
            load(served, address, headers, max(int(CLIENTS * min(share, 1)), 4))  # both workers have read the board
        for _ in range(options.rounds):
            for name, (address, headers, share) in CONTENDERS.items():
                requests = max(int(options.requests * share), 4)
                # A page is kept for two minutes, and other contenders may have taken longer.
                found[name].append(load(served, address, headers, requests, before=4 if share > 1 else 0))
    figures.say(
        f"{options.systems:,} systems × {options.datasets} datasets, {CLIENTS} clients; medians of {options.rounds} "
        "rounds."
    )
    report(figures, found)
    sys.exit(figures.finish(options.write))


def report(figures: Figures, found: dict[str, list[tuple[float, list[float], int]]]) -> None:
    """Medians over the rounds."""
    cpu = {name: statistics.median(round_[0] for round_ in rounds) for name, rounds in found.items()}
    rows = []
    for name, rounds in found.items():
        waits = [wait for round_ in rounds for wait in round_[1]]
        p50, p95 = (statistics.quantiles(waits, n=100)[place] for place in (49, 94))
        naive = cpu["naive, all rows" if "all rows" in name else "naive"]
        kilobytes = rounds[0][2] / 1000
        bounds = []
        if name in BOUNDS:
            peer, most = BOUNDS[name]
            bounds.append(figures.bound(f"{name}, CPU", cpu[name] / cpu[peer], most, f" × {peer.split(',')[0]}"))
        if "part" in name:
            bounds.append(figures.bound(f"{name}, compressed", kilobytes, MAX_KB, " kB"))
        ratios = [f"{cpu[name] / cpu['hello']:.2f}", f"{cpu[name] / naive:.3f}"]
        times = [f"{p50:.0f}", f"{p95:.0f}"]
        rows.append([name, f"{cpu[name]:.2f}", *ratios, *times, f"{kilobytes:.1f}", ", ".join(bounds)])
    figures.table(["", "CPU ms", "× hello", "× naive", "p50 ms", "p95 ms", "kB", "bound"], rows)


if __name__ == "__main__":
    main()
