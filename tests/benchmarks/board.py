"""What a board of 500 systems costs to show: `python tests/benchmarks/board.py`.

Every request goes through the whole WSGI application with its middleware, against SQLite and a real Valkey. *miss*
reads, ranks, renders and compresses a board of which no page is kept; *changed* is the same after a publication on one
dataset, *unread* where nothing of the board was read for an hour: both decode rows that a miss remembers. *first* is
the very first request of a process that was forked from a server which had warmed up, as gunicorn's workers are, by the
site's own address: the start has made the page. *first unmade* is the same where the start has made none of this view.
*hit* serves the kept page; *hello* is a bare view behind the same middleware. The naive
templates read nothing: *plain* is a Django template with as many cells, each a number through `floatformat`, *same* one
that writes this very table. Contenders take turns; medians of CPU milliseconds are printed.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

MEASURES = [
    "nDCG@10", "nDCG@100", "AP", "RR@10", "R@100", "R@1000", "R_cap@100", "P@10", "Success@5", "Success@20", "Hole@10",
]  # fmt: skip
DATASETS = 19
#: Bounds relative to the naive template of the same table, by kind of request and board.
MAX_RATIOS = {
    "miss": {"datasets": 0.20, "benchmarks": 0.12},
    "first": {"datasets": 0.20, "benchmarks": 0.25},
    "changed": {"datasets": 0.30, "benchmarks": 0.30},
    "unread": {"benchmarks": 0.60},
}
#: A hit beside the bare view, and the queries of a miss.
MAX_OF_HELLO, MAX_QUERIES = 1.7, {"datasets": 8, "benchmarks": 6}


def prepare(folder: str, after: ExitStack) -> None:
    """A migrated database and a broker of its own."""
    os.environ.update(
        RUNBOARD_VAR=folder,
        DJANGO_SETTINGS_MODULE="tests.settings",
        LOG_LEVEL="ERROR",
        SITE_ADDRESS="http://localhost",
    )
    from tests.servers.broker import start_broker

    os.environ["REDIS_URL"] = start_broker(after.callback).url
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def fill(systems: int) -> None:
    """One dataset with every measure, and a benchmark of 19 datasets, each with every system."""
    from leaderboard.models import Benchmark, BenchmarkMember, Dataset, System, Team

    teams = [Team.objects.create(slug=f"team-{n}", name=f"Team {n} & friends") for n in range(40)]
    made = System.objects.bulk_create(
        System(slug=f"system-{n}", name=f"System {n} <large>", architecture="dense", team=teams[n % 40])
        for n in range(systems)
    )
    benchmark = Benchmark.objects.create(slug="all", name="All")
    for number in range(DATASETS):
        dataset = Dataset.objects.create(
            slug=f"dataset-{number}",
            name=f"Dataset {number}",
            state="published",
            hidden=False,
            measures=MEASURES,
        )
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=number)
        publish(dataset, made)


def publish(dataset: Any, systems: list[Any]) -> None:
    """A scored entry of every system, in bulk; the first is the baseline."""
    from django.utils import timezone

    from leaderboard.core.storage.store import Area, put
    from leaderboard.models import DatasetVersion, Entry, Evaluation, Qrels, Run
    from leaderboard.results.board_rows.revisions import Kind, board_changed

    version = DatasetVersion.objects.create(dataset=dataset, number=1, content_sha256="0", queries_sha256="0")
    with tempfile.NamedTemporaryFile("w", suffix=".qrels") as file:
        file.write("".join(f"{query} 0 {document} 1\n" for query in range(50) for document in range(20)))
        file.flush()
        qrels = Qrels.objects.create(version=version, sha256=put(Area.QRELS, Path(file.name)))
    runs = Run.objects.bulk_create(
        Run(version=version, system=system, sha256=str(number), origin="uploaded", size=1)
        for number, system in enumerate(systems)
    )
    evaluations = Evaluation.objects.bulk_create(
        Evaluation(run=run, qrels=qrels, specification="1", measures=[], means={}, values=b"", judged_queries=1)
        for run in runs
    )
    Entry.objects.bulk_create(
        Entry(
            dataset=dataset,
            system=system,
            evaluation=evaluation,
            provenance="scored",
            scores={name: random.random() for name in MEASURES},
            comparison_group=f"scored:{version.pk}:{qrels.pk}:1",
            is_baseline=number == 0,
            submission_reference=f"abcdefgh{number:04}",
            published_at=timezone.now(),
        )
        for number, (system, evaluation) in enumerate(zip(systems, evaluations, strict=True))
    )
    dataset.current_version, dataset.current_qrels = version, qrels
    dataset.save()
    board_changed(dataset, Kind.PUBLISHED)


class Site:
    """The WSGI application, asked in process."""

    def __init__(self) -> None:
        from django.http import HttpResponse
        from django.urls import path

        from leaderboard import urls
        from leaderboard.wsgi import application

        urls.urlpatterns.insert(0, path("hello", lambda request: HttpResponse("hello")))
        self.application: Any = application

    def get(self, address: str) -> bytes:
        """The body of the answer, which must be 200."""
        path, _, query = address.partition("?")
        environ = {
            "REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query, "SERVER_NAME": "localhost",
            "SERVER_PORT": "80", "HTTP_HOST": "localhost", "HTTP_ACCEPT_ENCODING": "gzip", "wsgi.input": io.BytesIO(),
            "wsgi.url_scheme": "http", "wsgi.errors": sys.stderr, "REMOTE_ADDR": "127.0.0.1",
        }  # fmt: skip
        seen: list[str] = []
        answer = self.application(environ, lambda status, headers: seen.append(status))
        body = b"".join(answer)
        answer.close()
        if not seen[0].startswith("200"):
            raise SystemExit(f"{address} answered {seen[0]}")
        return body


PLAIN = (
    "<table>{% for row in rows %}<tr>{% for value in row %}<td>{{ value|floatformat:4 }}</td>{% endfor %}</tr>"
    "{% endfor %}</table>"
)
SAME = """<table>{% for row in rows %}<tr{% if row.entry.is_baseline %} class="is-baseline"{% endif %}>
<td class="rank">{{ row.rank_label }}</td><th class="name">
<a href="/systems/{{ row.entry.slug }}/">{{ row.entry.system }}</a>
{% if row.entry.is_baseline %}<span class="badge is-baseline">baseline</span>{% endif %}</th>
{% for cell in row.cells %}<td class="{{ cell.column.kind }}{% if cell.column.key == board.sort %} bar{% endif %}">
{% if cell.value is None %}—{% elif cell.column.kind == "text" %}{{ cell.value }}{% elif cell.value == cell.best %}
<b>{{ cell.value|floatformat:4 }}</b>{% else %}{{ cell.value|floatformat:4 }}{% endif %}</td>{% endfor %}</tr>
{% endfor %}</table>"""


def naive_templates(board: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The table as most would write it: first as many numbers and no more, then with links, classes and bold."""
    from django.template import Context, Template

    numbers = [[random.random() for _ in range(len(board.columns))] for _ in board.rows]
    rows = [
        {
            "entry": row.entry,
            "rank_label": row.rank_label,
            "cells": [
                {
                    "value": row.value(column.key),
                    "column": column,
                    "best": board.best.get((column.key, row.ranked_in)),
                }
                for column in board.columns[1:]
            ],
        }
        for row in board.rows
    ]
    plain, same = Template(PLAIN), Template(SAME)
    return lambda: plain.render(Context({"rows": numbers})), lambda: same.render(
        Context({"rows": rows, "board": board})
    )


def cost(work: Callable[[], Any], times: int = 1) -> float:
    """CPU milliseconds of one call."""
    gc.collect()
    begin = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begin) * 1000 / times


def first_cost(site: Site, address: str, *, made: bool) -> float:
    """CPU milliseconds of a first request, measured by the process that answers it; whether the start made its page."""
    from tests.pages import clear_page_cache

    site.application.warm_up()
    if not made:
        clear_page_cache()
    reading, writing = os.pipe()
    if process := os.fork():
        os.close(writing)
        with os.fdopen(reading) as said:
            milliseconds = float(said.read())
        os.waitpid(process, 0)
        return milliseconds
    try:
        os.write(writing, str(cost(lambda: site.get(address))).encode())
    finally:
        os._exit(0)


def measure(site: Site, address: str, board: Any, rounds: int) -> dict[str, float]:
    """Medians for one board."""
    from leaderboard.models import Dataset
    from leaderboard.results.board_rows.revisions import Kind, board_changed
    from leaderboard.results.board_rows.rows import board_cache
    from tests.pages import clear_page_cache

    plain, same = naive_templates(board)
    dataset = Dataset.objects.get(slug="dataset-0")

    def restarted() -> None:
        clear_page_cache()
        board_cache.clear()

    contenders: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
        "unread": (restarted, lambda: site.get(address), 1),
        "changed": (lambda: board_changed(dataset, Kind.DESCRIPTION), lambda: site.get(address), 1),
        "miss": (clear_page_cache, lambda: site.get(address), 1),
        "hit": (lambda: None, lambda: site.get(address), 20),
        "hello": (lambda: None, lambda: site.get("/hello"), 20),
        "plain": (lambda: None, plain, 1),
        "same": (lambda: None, same, 1),
    }
    found: dict[str, list[float]] = {name: [] for name in ("first", "first unmade", *contenders)}
    for _ in range(rounds):
        for name, (before, work, times) in contenders.items():
            before()
            found[name].append(cost(work, times))
        for name in ("first", "first unmade"):
            restarted()
            found[name].append(first_cost(site, address, made=name == "first"))
    return {name: statistics.median(values) for name, values in found.items()}


def queries(site: Site, address: str) -> list[int]:
    """How many queries are made where nothing was read, by a miss, and by a hit."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from leaderboard.results.board_rows.rows import board_cache
    from tests.pages import clear_page_cache

    counts = []
    board_cache.clear()
    for before in (clear_page_cache, clear_page_cache, lambda: None):
        before()
        with CaptureQueriesContext(connection) as captured:
            site.get(address)
        counts.append(len(captured))
    return counts


def report(figures: Figures, board: str, got: dict[str, float], counts: list[int]) -> list[list[str]]:
    """The rows of one board."""

    def against(name: str, *peers: str) -> list[str]:
        return [f"{got[name] / got[peer]:.3f}" if peer in peers else "" for peer in ("same", "plain", "hello")]

    rows = []
    for name, asked in (
        ("miss", counts[1]), ("first", None), ("first unmade", None), ("changed", None), ("unread", counts[0]),
    ):  # fmt: skip
        kind = board.split("/")[1]
        bounds = []
        if most := MAX_RATIOS.get(name, {}).get(kind):
            bounds.append(figures.bound(f"{board}, {name}", got[name] / got["same"], most, " × same"))
        if name == "miss":
            bounds.append(figures.bound(f"{board}, {name}", counts[1], MAX_QUERIES[kind], " queries"))
        ratios = against(name, "same", "plain")
        rows.append([f"{board}: {name}", f"{got[name]:.2f}", *ratios, str(asked or ""), ", ".join(bounds)])
    bound = figures.bound(f"{board}, hit", got["hit"] / got["hello"], MAX_OF_HELLO, " × hello")
    rows.append([f"{board}: hit", f"{got['hit']:.2f}", *against("hit", "hello"), str(counts[2]), bound])
    rows += [[f"{board}: {name}", f"{got[name]:.2f}", "", "", "", "", ""] for name in ("same", "plain", "hello")]
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=9)
    add_option(parser)
    options = parser.parse_args()
    figures = Figures(__file__)
    with ExitStack() as after, tempfile.TemporaryDirectory(prefix="runboard-board-") as folder:
        prepare(folder, after)
        fill(options.systems)
        from leaderboard.boards.pages import benchmark_page, dataset_page
        from leaderboard.boards.state import BoardState

        site = Site()
        dataset, benchmark = dataset_page("dataset-0", BoardState()), benchmark_page("all", BoardState())
        rows = []
        for address, page in (("/datasets/dataset-0/", dataset), ("/benchmarks/all/", benchmark)):
            if page is None:
                raise SystemExit(f"{address} is not there")
            got = measure(site, address, page.board, options.rounds)
            columns = len(page.board.columns)
            rows += report(figures, f"{address}, {columns} columns", got, queries(site, address))
    figures.say(f"{options.systems:,} systems; CPU milliseconds, medians of {options.rounds} rounds.")
    figures.table(["", "CPU ms", "× same", "× plain", "× hello", "queries", "bound"], rows)
    sys.exit(figures.finish(options.write))


if __name__ == "__main__":
    main()
