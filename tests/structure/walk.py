"""List the first-party functions that one small run enters, from its upload to the page of its board.

    .venv/bin/python tests/structure/walk.py [--functions] [--queries]

A run comes in through the API, a worker scores it, and a visitor asks for the board. The second run of a system of its
own is the one that counts: the process is warm then. The site is an empty one on SQLite without a broker.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
PACKAGES = tuple(f"{ROOT / name}{os.sep}" for name in ("evaluation", "leaderboard", "submissions"))
#: Parts of a function that Python compiles on their own. They count with their function.
PARTS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>")
#: What reads the first bytes alone, to tell zips from runs, and what reads a run after its row is published.
UNCOUNTED = frozenset({"zip.is_zip", "derived_files.prepare_run"})

_opened: list[str] | None = None


class Stretch:
    """The calls of first-party functions in one stretch of the walk, and the queries that they made."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: Counter[CodeType] = Counter()
        self.queries: Counter[str] = Counter()
        self.reads: list[str] = []

    def note_call(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call; `sys.setprofile` calls this."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGES) and code.co_name not in PARTS:
            self.calls[code] += 1

    def note_query(self, execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        """Count a query by the function that made it."""
        self.queries[f"{caller(2)}: {sql.split()[0]}"] += 1
        return execute(sql, *arguments)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what the block does."""
        from django.db import connection

        with opened_runs() as self.reads, connection.execute_wrapper(self.note_query):
            sys.setprofile(self.note_call)
            try:
                yield
            finally:
                sys.setprofile(None)


def caller(depth: int = 1) -> str:
    """The names of the innermost first-party functions that are active now, the innermost one first."""
    frame, names = sys._getframe(1), []
    while frame is not None and len(names) < depth:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGES) and code.co_name not in PARTS:
            names.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return " < ".join(names)


@contextmanager
def opened_runs() -> Iterator[list[str]]:
    """The functions that open a file with a run for reading while the block lasts, one for each time."""
    global _opened
    if _opened is None:
        sys.addaudithook(_note_open)
    _opened = []
    try:
        yield _opened
    finally:
        _opened = []


def _note_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or _opened is None or not isinstance(arguments[0], str | os.PathLike):
        return
    path, mode = os.fspath(arguments[0]), arguments[1]
    if str(mode).startswith("r") and (".upload" in str(path) or "/runs/" in str(path)):
        names = caller(8).split(" < ")
        if UNCOUNTED.isdisjoint(names):
            _opened.append(" < ".join(names[:3]))


def walk(folder: Path) -> list[Stretch]:
    """Bring two runs in; the stretches of the second one."""
    from django.test import Client

    from submissions.jobs.runner import drain_queue
    from tests.factories import make_user
    from tests.submissions.clients import Api
    from tests.submissions.collections import add_baseline, make_collection, run_text

    api, visitor = Api(make_user("Alice")), Client()
    add_baseline(make_collection(folder), folder)
    for number in range(2):
        stretches = [
            Stretch("`POST /api/v1/submissions/`"),
            Stretch("worker: claim, score, publish"),
            Stretch("`GET /datasets/demo/`"),
        ]
        post, work, page = stretches
        with post.recording():
            answer = api.submit(run_text(skip=number + 2), system=f"System {number}")
        with work.recording():
            drain_queue("score", "walk")
        with page.recording():
            board = visitor.get("/datasets/demo/")
        state = api.get(f"submissions/{answer.body['id']}/").body["state"]
        assert (answer.status, state, board.status_code) == (201, "done", 200), answer.body
        assert f"System {number}" in board.content.decode()
    return stretches


def report(stretches: list[Stretch]) -> Iterator[str]:
    """The lines of a Markdown table, a row for each stretch."""
    yield "| stretch | functions | files | calls | queries |"
    yield "|---|--:|--:|--:|--:|"
    whole = Stretch("**all**")
    for stretch in stretches:
        whole.calls += stretch.calls
        whole.queries += stretch.queries
    for each in (*stretches, whole):
        files = {code.co_filename for code in each.calls}
        figures = (len(each.calls), len(files), each.calls.total(), each.queries.total())
        yield f"| {each.name} | {' | '.join(f'{figure:,}' for figure in figures)} |"
    reads = [name for stretch in stretches for name in stretch.reads]
    yield f"\nThe run is read {len(reads) + 1} times: as it comes in, and by {'; '.join(reads)}."


def main() -> None:
    """Walk, and print what was entered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", action="store_true", help="list the functions of each stretch by file")
    parser.add_argument("--queries", action="store_true", help="list the queries of each stretch by caller")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"RUNBOARD_VAR": folder, "DJANGO_SETTINGS_MODULE": "tests.settings"}
        os.environ["LOG_LEVEL"] = "ERROR"
        import django
        from django.test.utils import setup_test_environment

        django.setup()
        setup_test_environment()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        stretches = walk(Path(folder))
    print("\n".join(report(stretches)))
    for stretch in stretches:
        if options.functions:
            print(f"\n## {stretch.name}\n")
            names = (
                f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_firstlineno} {code.co_qualname} × {count}"
                for code, count in stretch.calls.items()
            )
            print("\n".join(sorted(names)))
        if options.queries:
            print(f"\n## Queries of {stretch.name}\n")
            print("\n".join(f"{count} {name}" for name, count in stretch.queries.items()))


if __name__ == "__main__":
    main()
