"""Table of current figures in docs/benchmarks.md, generated from docs/measurements/speed.md.

    python tests/result_table.py            write the table
    python tests/result_table.py --check    fail if it is out of date: the release check

`make benchmark` writes the table. The release check fails if the table differs from the measurements, or if a figure is
from a commit whose files in evaluation/, leaderboard/, or submissions/ differ from those of HEAD.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.figures import PLACE, table  # noqa: E402

MEASUREMENTS = ROOT / "docs" / "measurements" / "speed.md"
PAGE = ROOT / "docs" / "benchmarks.md"
PACKAGES = ("evaluation", "leaderboard", "submissions")
#: Place of the table on the page.
TABLE = re.compile(r"<!-- results -->\n(.*?)<!-- end -->", re.DOTALL)
_SOURCE = re.compile(r"· commit (\S+)( with changes)? · (\d{4}-\d\d-\d\d) · (.+?) · load ")
#: Start of a table's second line.
_RULE = "|---|"
NOT_MEASURED = "not measured"
HEAD = ("task", "result", "compared with", "ratio", "bounds", "commit", "date")


@dataclass(frozen=True)
class Result:
    """Row of the table: a figure of a benchmark, and the figure of the program that it is compared with.

    Attributes:
        task: Task and its size.
        program: Name of the script in tests/benchmarks/.
        cell: Row and column of the figure in the script's tables.
        unit: Unit of both figures.
        peer: Name of the other program, if there is one.
        peer_cell: Row and column of its figure.
        optional: Whether `make benchmark` may skip the script, because it needs a GPU.
    """

    task: str
    program: str
    cell: tuple[str, str]
    unit: str
    peer: str = ""
    peer_cell: tuple[str, str] = ("", "")
    optional: bool = False


_DATASET_MISS, _SAME = "/datasets/dataset-0/, 20 columns: miss", "/datasets/dataset-0/, 20 columns: same"
RESULTS = (
    Result("scoring 6,980,000 lines in a warm worker", "scoring", ("warm worker", "CPU s"), "CPU s", "pytrec_eval",
           ("pytrec_eval, query by query (Y)", "CPU s")),
    Result("the same run as a job, with verification", "scoring", ("job: an upload, scored and verified", "CPU s"),
           "CPU s", "pytrec_eval", ("pytrec_eval, query by query (Y)", "CPU s")),
    Result("a run of 50,000 lines, from claim to publication", "small_run",
           ("claim, check, score, verify, publish", "CPU ms"), "CPU ms", "pytrec_eval",
           ("pytrec_eval: parse and evaluate", "CPU ms")),
    Result("publishing a result on a board of 1,000 rows", "publication", ("1,000", "CPU ms"), "CPU ms", "10 rows",
           ("10", "CPU ms")),
    Result("BM25, 1,000 queries on 200,000 documents", "bm25", ("search, CPU s, median of 10", "BM25"), "CPU s",
           "bm25s", ("search, CPU s, median of 10", "bm25s")),
    Result("indexing these documents with BM25", "bm25", ("reading, analysing, indexing, CPU s", "BM25"), "CPU s",
           "bm25s", ("reading, analysing, indexing, CPU s", "bm25s")),
    Result("dense retrieval, 11,429 documents (all-MiniLM-L6-v2)", "dense", ("wall s", "ours"), "s",
           "sentence-transformers and faiss", ("wall s", "bare")),
    Result("re-ranking BM25 runs with a cross-encoder", "cross_encoder", ("CPU s", "ours"), "CPU s",
           "`CrossEncoder.rank`", ("CPU s", "bare")),
    Result("exact search, 1,000,000 × 384, 1,000 queries", "exact_search", ("ours", "wall s"), "s", "faiss",
           ("faiss", "wall s")),
    Result("encoding small shards in one child process", "warm_child", ("one child for all", "wall s"), "s",
           "one child process per shard", ("a child for each shard", "wall s")),
    Result("coordinating 64 devices, share of a core", "coordinator", ("both, share of a core", ""), ""),
    Result("page of a board of 500 systems, not cached", "board", (_DATASET_MISS, "CPU ms"), "CPU ms",
           "Django template of the same table", (_SAME, "CPU ms")),
    Result("cached page of a board of 1,000 systems behind gunicorn", "served_board", ("hit", "CPU ms"), "CPU ms",
           "empty view", ("hello", "CPU ms")),
    Result("the same page, not cached", "served_board", ("miss", "CPU ms"), "CPU ms",
           "Django template of the same table", ("naive", "CPU ms")),
    Result("significance tests of 100 systems and 7,000 queries", "significance", ("these together", "CPU s"), "CPU s",
           "scipy, one baseline", ("scipy `permutation_test` × 99 pairs, one anchor", "CPU s")),
    Result("GPU: encoding documents, batch 1,024", "gpu", ("ours", "documents a second"), "documents a second",
           "sentence-transformers", ("bare", "documents a second"), optional=True),
)  # fmt: skip


def read_cells(text: str) -> dict[tuple[str, str], str]:
    """Return the cells of all Markdown tables in a text, keyed by row and column without emphasis."""
    cells: dict[tuple[str, str], str] = {}
    head: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if not line.startswith("| ") or line.startswith(_RULE):
            continue
        words = [word.strip() for word in line.strip("|").split(" |")]
        if number + 1 < len(lines) and lines[number + 1].startswith(_RULE):
            head = words
            continue
        for column, word in zip(head[1:], words[1:], strict=True):
            cells.setdefault((words[0].strip("* "), column), word)
    return cells


def format_ratio(figure: str, peer: str) -> str:
    """Return the ratio of two figures with two significant digits, empty if one is missing."""
    if not peer:
        return ""
    return f"{float(figure.replace(',', '')) / float(peer.replace(',', '')):#.2g}"


def bound_verdict(bound: str) -> str:
    """Return whether the bounds in a cell are met, empty if there are none."""
    return ("missed" if "missed" in bound else "met") if bound else ""


def rows(measurements: str, is_current: Callable[[str], bool]) -> Iterator[list[str]]:
    """Yield the table's rows. Optional figures of other commits count as not measured."""
    places = {place[1]: place[2] for place in PLACE.finditer(measurements)}
    for result in RESULTS:
        text = places[f"tests/benchmarks/{result.program}.py"]
        cells, source = read_cells(text), _SOURCE.search(text)
        figure, peer = cells.get(result.cell, ""), cells.get(result.peer_cell, "")
        if source is None or not figure or (result.optional and not is_current(commit_label(source))):
            yield [result.task, NOT_MEASURED, *[""] * (len(HEAD) - 2)]
            continue
        comparison = f"{result.peer}: {peer}" if result.peer else ""
        ratio, verdict = format_ratio(figure, peer), bound_verdict(cells.get((result.cell[0], "bound"), ""))
        figure = f"{figure} {result.unit}".strip()
        yield [result.task, figure, comparison, ratio, verdict, commit_label(source), source[3]]


def commit_label(source: re.Match[str]) -> str:
    """Return the commit of a figure, which is marked if files differed from it."""
    return source[1] + (source[2] or "")


def is_current(name: str) -> bool:
    """Return whether the packages of a commit have the same files as HEAD. An unknown commit is not current."""
    command = ["git", "diff", "--quiet", name, "HEAD", "--", *PACKAGES]
    return " " not in name and subprocess.run(command, cwd=ROOT, stderr=subprocess.DEVNULL).returncode == 0


def write(page: str, measurements: str, is_current: Callable[[str], bool] = is_current) -> str:
    """Return the page with the table of these measurements.

    Raises ValueError if the page does not have exactly one place for it.
    """
    text = table(HEAD, rows(measurements, is_current))
    replaced_page, count = TABLE.subn(lambda _: f"<!-- results -->\n\n{text}\n\n<!-- end -->", page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table of results, not one")
    return replaced_page


def problems(page: str, measurements: str, is_current: Callable[[str], bool] = is_current) -> list[str]:
    """Return the reasons against a release with this page."""
    messages = [] if write(page, measurements, is_current) == page else ["The table differs from docs/measurements."]
    for task, value, *_, name, date in rows(measurements, is_current):
        if value == NOT_MEASURED:
            required = not next(result for result in RESULTS if result.task == task).optional
            messages += [f"{task}: not measured"] if required else []
        elif not is_current(name):
            messages.append(f"{task}: measured at {name} ({date}), and {', '.join(PACKAGES)} have changed since")
    return messages


def main(words: list[str]) -> int:
    """Write or check the table, and return the exit status."""
    page, measurements = PAGE.read_text(), MEASUREMENTS.read_text()
    if words == ["--check"]:
        messages = problems(page, measurements)
        hint = "Run `make benchmark` before a release." if messages else "All figures are current."
        print("\n".join([*messages, hint]))
        return bool(messages)
    PAGE.write_text(write(page, measurements))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
