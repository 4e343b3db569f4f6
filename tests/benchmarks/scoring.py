"""How fast runs are scored, beside pytrec_eval on the same file: `python tests/benchmarks/scoring.py`.

The yardstick Y is pytrec_eval fed query by query, as a whole process. Everything else is a ratio of CPU seconds to
it, measured in the same rounds; medians are printed. *cold* is a whole process that has yet to compile the reader,
*warm* a worker that has scored a small run before. The run is synthetic, of MS MARCO's size by default, and is checked
against a list of a million document ids; the table of these is memory-mapped, its file pages are not counted. A *job*
scores the run and then verifies the scores from the run as it is stored (zstd), judgements read for that included.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from evaluation.runs.score import ScoredRun

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.figures import Figures, add_option  # noqa: E402

DEPTH = 1000
DOCUMENTS = 1_000_000
TREC_EVAL_MEASURES = {"ndcg_cut.10,100", "map", "recip_rank", "recall.100,1000", "P.10", "success.5,20"}
SMALL_QUERIES = 50


# --- the files


def make_files(folder: Path, queries: int, dense: bool) -> None:
    """A run, its shuffled and compressed forms, qrels, and document ids; kept if they are there already."""
    from evaluation.collections.document_ids import DocumentIds

    marker = folder / f"made-{queries}-{dense}"
    if marker.exists():
        return
    for other in folder.glob("made-*"):  # their files are about to be written over
        other.unlink()
    generator = random.Random(20)
    documents = [str(number) for number in generator.sample(range(1_000_000, 9_000_000), DOCUMENTS)]
    query_ids = sorted(str(number) for number in generator.sample(range(100_000, 1_200_000), queries))
    DocumentIds.build(documents, folder / "documents.ids")
    write_run(folder / "run.txt", folder / "qrels.txt", query_ids, documents, generator, dense)
    write_run(
        folder / "small.txt",
        folder / "small-qrels.txt",
        query_ids[:SMALL_QUERIES],
        documents,
        generator,
        dense,
        1300,
    )
    for name, shuffled in (("run.txt", "shuffled.txt"), ("small.txt", "shuffled-small.txt")):
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        generator.shuffle(lines)
        (folder / shuffled).write_bytes(b"".join(lines))
    with (folder / "run.txt").open("rb") as source, gzip.open(folder / "run.txt.gz", "wb", 6) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    with (folder / "run.txt").open("rb") as source, (folder / "run.txt.zst").open("wb") as target:
        zstandard.ZstdCompressor(level=3).copy_stream(source, target)  # as the site stores runs
    marker.touch()


def write_run(
    run: Path, qrels: Path, query_ids: list[str], documents: list[str], generator: random.Random, dense: bool,
    judged: int = 2,
) -> None:  # fmt: skip
    """`judged` documents, or one less, and some more are judged per query, up to half of those retrieved among them."""
    with run.open("w") as lines, qrels.open("w") as judgements:
        for query in query_ids:
            ranked = generator.sample(documents, DEPTH)
            score, rows = 30.0, []
            for rank, document in enumerate(ranked, 1):
                # now and then a tie, also one that is a tie only in single precision
                score -= generator.choice((0.0, 1e-9, 0.01, 0.02, 0.02, 0.02))
                rows.append(f"{query} Q0 {document} {rank} {repr(score) if dense else format(score, '.6f')} bench\n")
            lines.write("".join(rows))
            count = generator.randint(max(1, judged - 1), judged)
            chosen = generator.sample(ranked, min(len(ranked) // 2, count))
            others = generator.sample(documents, max(1, count - len(chosen)))
            grades = (0, 0, 1, 1, 2) if judged > 2 else (1, 1, 1, 2)
            for document in sorted({*chosen, *others}):
                judgements.write(f"{query} 0 {document} {generator.choice(grades)}\n")


# --- the contenders, each run as `python scoring.py --child NAME FOLDER`


def child_pytrec_eval(folder: Path) -> dict[str, float]:
    """The yardstick: one query at a time, so that it needs little memory, and not one check."""
    import pytrec_eval

    with (folder / "qrels.txt").open() as file:
        evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(file), TREC_EVAL_MEASURES)
    results = {}
    with (folder / "run.txt").open() as file:
        for query, rows in groupby((line.split() for line in file), key=lambda row: row[0]):
            results.update(evaluator.evaluate({query: {row[2]: float(row[4]) for row in rows}}))
    with (folder / "out.json").open("w") as out:
        json.dump(results, out)
    return {}


def child_cold(folder: Path) -> dict[str, float]:
    """Ours, from nothing: imports, compilation, qrels, the run, the answer written."""
    score(folder, "run.txt", target_of(folder, "qrels.txt"))
    return {}


def child_warm(folder: Path) -> dict[str, float]:
    """Ours in one worker process: CPU seconds and peak memory of each run once a small one has been scored."""
    small = target_of(folder, "small-qrels.txt")
    large = target_of(folder, "qrels.txt")
    score(folder, "small.txt", small)
    score(folder, "shuffled-small.txt", small)
    score(folder, "small.txt", large_prepared(large, folder))
    result = {"idle MiB": anonymous_memory()}
    for name in ("run.txt", "run.txt.gz", "shuffled.txt"):
        timed(result, name, lambda watch, name=name: score(folder, name, large, watch))
    for name in ("run.txt", "run.txt.zst"):
        timed(result, f"job {name}", lambda watch, name=name: job(folder, name, large, watch))
    result["small"] = repeated(lambda: score(folder, "small.txt", small))
    result["small, pytrec_eval"] = repeated(lambda: bare_pytrec_eval(folder))
    return result


def timed(result: dict[str, float], name: str, work: Callable[[Callable[[float], None] | None], object]) -> None:
    """The CPU seconds of some work and, of a second pass, so that looking costs nothing, its peak memory."""
    started = time.process_time()
    work(None)
    result[name] = time.process_time() - started
    peak = anonymous_memory()

    def watch(share: float) -> None:
        nonlocal peak
        peak = max(peak, anonymous_memory())

    work(watch)
    result[f"{name} MiB"] = max(peak, anonymous_memory()) - result["idle MiB"]


def job(folder: Path, name: str, target: object, watch: Callable[[float], None] | None) -> None:
    """Score a run, and verify the scores from the stored form of its text."""
    from evaluation.verification.comparing import (
        Judgements,
        ScoringRules,
        verify,
    )

    scored = score(folder, name, target, watch)
    claimed = scored.as_claimed_scores()
    judgements = Judgements((folder / "qrels.txt").read_bytes())
    with (
        (folder / "run.txt.zst").open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as text,
    ):
        verify(text, judgements, claimed, ScoringRules(), "00", (lambda: watch(1.0)) if watch else (lambda: None))


def large_prepared(target: object, folder: Path) -> object:
    """The large target, its lookup tables made: what a worker keeps between runs."""
    from evaluation.runs.score import check_run

    check_run(folder / "small.txt", target)  # type: ignore[arg-type]
    return target


def bare_pytrec_eval(folder: Path) -> None:
    """What a script would do for a small run, its qrels being parsed already."""
    import pytrec_eval

    if folder not in _small_qrels:
        with (folder / "small-qrels.txt").open() as file:
            _small_qrels[folder] = pytrec_eval.parse_qrel(file)
    with (folder / "small.txt").open() as file:
        run = pytrec_eval.parse_run(file)
    pytrec_eval.RelevanceEvaluator(_small_qrels[folder], TREC_EVAL_MEASURES).evaluate(run)


_small_qrels: dict[Path, dict[str, dict[str, int]]] = {}


def target_of(folder: Path, qrels: str) -> object:
    from evaluation.collections.document_ids import DocumentIds
    from evaluation.judgements.qrels import read_qrels
    from evaluation.runs.score import ScoringTarget

    read = read_qrels(folder / qrels)
    return ScoringTarget(read, read.query_ids, DocumentIds.open(folder / "documents.ids"), hidden=False)


def score(folder: Path, name: str, target: object, progress: Callable[[float], None] | None = None) -> ScoredRun:
    import numpy as np

    from evaluation.measures.registry import DEFAULT_MEASURES
    from evaluation.runs.score import score_run

    scored = score_run(folder / name, target, DEFAULT_MEASURES, progress=progress)  # type: ignore[arg-type]
    np.save(folder / "out.npy", scored.per_query)
    return scored


def repeated(action: Callable[[], None], times: int = 9) -> float:
    """The median of the CPU seconds that an action takes."""
    seconds = []
    for _ in range(times):
        started = time.process_time()
        action()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def anonymous_memory() -> float:
    """This process's own memory in MiB, pages of mapped files left out."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


# --- measuring


def measured(command: list[str], environment: dict[str, str]) -> tuple[float, float, str]:
    """A whole process's CPU seconds and peak memory in MiB, and what it printed."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True, cwd=ROOT)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, printed


def one_round(folder: Path, caches: Path) -> dict[str, float]:
    """Every contender once."""

    def child(name: str, cache: Path) -> tuple[float, float, str]:
        environment = {**os.environ, "RUNBOARD_KERNEL_CACHE": str(cache)}
        return measured([sys.executable, str(Path(__file__)), "--child", name, str(folder)], environment)

    result: dict[str, float] = {}
    result["Y"], result["Y MiB"], _ = child("pytrec_eval", caches)
    with tempfile.TemporaryDirectory() as empty:
        result["cold"], result["cold MiB"], _ = child("cold", Path(empty))
        result["cached"], _, _ = child("cold", Path(empty))
    result["gzip -dc"], _, _ = measured(["sh", "-c", f"gzip -dc '{folder}/run.txt.gz' > /dev/null"], dict(os.environ))
    result.update(json.loads(child("warm", caches)[2]))
    return result


def report(figures: Figures, rounds: list[dict[str, float]], lines: int) -> None:
    """The table: medians, ratios to Y, and bounds."""
    median = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    ratio = {name: statistics.median(each[name] / each["Y"] for each in rounds) for name in median}
    rows: list[tuple[str, str, float | None, float | None]] = [
        ("pytrec_eval, query by query (Y)", "Y", None, None),
        ("cold process, empty cache", "cold", 0.60, None),
        ("cold process, compiled before", "cached", None, None),
        ("warm worker", "run.txt", 0.15, 256),
        ("warm worker, `.gz`", "run.txt.gz", None, None),
        ("warm worker, lines shuffled", "shuffled.txt", 2, 1536),
        ("job: an upload, scored and verified", "job run.txt", 0.30, 256),
        ("job: a stored run, the same", "job run.txt.zst", None, None),
    ]
    cells = []
    for label, name, most, most_memory in rows:
        memory = median.get(f"{name} MiB")
        bounds = [figures.bound(label, ratio[name], most, " Y")] if most else []
        bounds += [figures.bound(label, median[f"{name} MiB"], most_memory, " MiB")] if most_memory else []
        shown = "" if memory is None else f"{memory:.0f}"
        cells.append([label, f"{median[name]:.2f}", f"{ratio[name]:.3f}", shown, ", ".join(bounds)])
    extra = statistics.median((each["run.txt.gz"] - each["run.txt"]) / each["gzip -dc"] for each in rounds)
    small = statistics.median(each["small"] / each["small, pytrec_eval"] for each in rounds)
    figures.say(f"{lines:,} lines, medians of {len(rounds)} rounds.")
    figures.table(["", "CPU s", "× Y", "MiB", "bound"], cells)
    figures.say(
        f"MiB of whole processes are their peaks, those of warm workers and jobs are above the idle worker's "
        f"{median['idle MiB']:.0f}. `.gz` costs plain + {extra:.2f} × `gzip -dc` ({median['gzip -dc']:.2f} s; bound "
        f"{figures.bound('.gz, × gzip -dc above plain', extra, 1.5)}). {SMALL_QUERIES} × {DEPTH:,} lines, warm, scored "
        f"alone: {1000 * median['small']:.1f} ms, {small:.2f} × bare pytrec_eval (bound "
        f"{figures.bound('a small run scored, × pytrec_eval', small, 1)})."
    )


CHILDREN = {"pytrec_eval": child_pytrec_eval, "cold": child_cold, "warm": child_warm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lines", type=int, default=6_980_000, help="lines of the run, 1,000 a query")
    parser.add_argument("--repeat", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--dense", action="store_true", help="scores of 15 to 18 digits")
    parser.add_argument("--folder", type=Path, help="where the files are made, and kept (default: a temporary one)")
    parser.add_argument("--child", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--make", nargs=2, metavar=("QUERIES", "FOLDER"), help=argparse.SUPPRESS)
    add_option(parser)
    arguments = parser.parse_args()
    if arguments.make:
        make_files(Path(arguments.make[1]), int(arguments.make[0]), arguments.dense)
        return
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child[0]](Path(arguments.child[1]))))
        return
    figures = Figures(__file__)
    chosen = nullcontext(str(arguments.folder)) if arguments.folder else tempfile.TemporaryDirectory()
    with chosen as folder, tempfile.TemporaryDirectory() as caches:
        files = Path(folder)
        files.mkdir(parents=True, exist_ok=True)
        queries = max(SMALL_QUERIES, arguments.lines // DEPTH)
        # in a process of its own: a child's peak memory begins with its parent's
        dense = ["--dense"] if arguments.dense else []
        making = [sys.executable, __file__, "--make", str(queries), str(files), *dense]
        subprocess.run(making, check=True, cwd=ROOT)
        one_round_results = [one_round(files, Path(caches)) for _ in range(arguments.repeat)]
    report(figures, one_round_results, queries * DEPTH)
    sys.exit(figures.finish(arguments.write))


if __name__ == "__main__":
    main()
