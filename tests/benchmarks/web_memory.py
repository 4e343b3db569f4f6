"""What a web process has in memory: `python tests/benchmarks/web_memory.py`.

gunicorn as the site starts it, but with one worker, on SQLite and a real Valkey with the reported boards. It answers 20
pages of boards, then a CSV, then a figure, which needs plotly and pandas. Printed are MiB of the worker and of
the process that it was forked from; what they share is divided among them (PSS).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.board import prepare  # noqa: E402
from tests.figures import Figures, add_option  # noqa: E402

#: Pages of boards, and what is asked after them.
BOARDS = 20
LATER = ("/datasets/fiqa/board.csv", "/figures/wins.json?benchmark=beir")


def boards() -> list[str]:
    """Addresses of boards, those of benchmarks first."""
    from leaderboard.models import Benchmark, Dataset

    listed = {"benchmarks": Benchmark.objects.all(), "datasets": Dataset.objects.listed()}
    pages = [
        f"/{kind}/{slug}/"
        for kind, rows in listed.items()
        for slug in rows.order_by("pk").values_list("slug", flat=True)
    ]
    return pages[:BOARDS]


def answer(port: int, address: str) -> None:
    """Ask, and read the answer. Raises HTTPError."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{address}") as response:
        response.read()


def measure(folder: str, after: ExitStack) -> Iterator[list[str]]:
    """The rows of the table."""
    from leaderboard.management.supervisor import services
    from tests.load.memory import read
    from tests.servers import processes

    services.WEB_WORKERS = 1
    port, log = processes.free_port(), Path(folder) / "web.log"
    process = processes.start(services.web(port, {}).arguments, log, dict(os.environ), cwd=ROOT)
    after.callback(processes.stop, process)
    processes.wait_until(lambda: processes.takes_connections(port), process, log)
    pages = boards()
    for said, addresses in ((f"{len(pages)} pages of boards", pages), *((each, [each]) for each in LATER)):
        for address in addresses:
            answer(port, address)
        (child,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        worker, parent = read(0, "web", (child, process.pid))
        loaded = "pandas" if "/pandas/" in Path(f"/proc/{child}/maps").read_text() else ""
        yield [said, f"{worker.resident:.0f}", f"{worker.anonymous:.0f}", f"{parent.resident:.0f}", loaded]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_option(parser)
    options = parser.parse_args()
    figures = Figures(__file__)
    with ExitStack() as after, tempfile.TemporaryDirectory(prefix="runboard-memory-") as folder:
        prepare(folder, after)
        from django.core.management import call_command

        call_command("load_reported", verbosity=0)
        rows = list(measure(folder, after))
    head = ["after", "worker, MiB", "of it anonymous", "parent, MiB", "compiled parts loaded"]
    figures.table(head, rows)
    sys.exit(figures.finish(options.write))


if __name__ == "__main__":
    main()
