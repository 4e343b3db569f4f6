"""`python -m evaluation compare`, `fuse`, and `merge`: several runs of one collection."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from evaluation.cli import Subparsers
from evaluation.cli.retrieve import show_fault, show_problems
from evaluation.cli.score import measures_option
from evaluation.core.problems import InvalidContent
from evaluation.engines import InvalidParameter, Resources, RetrievalTask, describe, merge, retrieve
from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import ScoringTarget, score_run
from evaluation.statistics.comparison import compare_paired
from evaluation.statistics.randomisation import holm


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands; each sets `run`, which takes the parsed arguments and returns the exit status."""
    compare = subparsers.add_parser(
        "compare",
        help="compare runs with the first one",
        description="Differences of runs to the first one: means, 95 % intervals, two-sided randomisation tests "
        "corrected by Holm, and by how many queries.",
    )
    compare.add_argument("--qrels", required=True, type=Path, help="TREC qrels, or BEIR's test.tsv")
    compare.add_argument("runs", type=Path, nargs="+", help="runs in any format; the first is the baseline")
    measures_option(compare)
    compare.add_argument("--json", action="store_true", help="print JSON, with unrounded values")
    compare.set_defaults(run=run_compare)
    fuse = subparsers.add_parser(
        "fuse",
        help="join runs to one",
        description="Join runs query by query, as `retrieve --engine fusion` does.",
    )
    fuse.add_argument("runs", type=Path, nargs="+", help="runs of the same queries")
    fuse.add_argument("--queries", required=True, type=Path, help="queries.jsonl, or .gz")
    fuse.add_argument("--out", required=True, type=Path, help="run to write; compressed if it ends in .gz")
    fuse.add_argument("--depth", type=int, default=1000, help="documents a query (default: %(default)s)")
    for parameter in describe("fusion").parameters:
        help_text = f"{parameter.description} ({parameter.values}; default: {parameter.default or 'nothing'})"
        fuse.add_argument(f"--{parameter.name.replace('_', '-')}", default=parameter.default, help=help_text)
    fuse.set_defaults(run=run_fuse)
    merging = subparsers.add_parser(
        "merge",
        help="merge the runs of all parts to one",
        description="Merge what `retrieve --part` wrote for each part to the run of the whole.",
    )
    merging.add_argument("parts", type=Path, nargs="+", help="runs of all parts, in any order")
    merging.add_argument(
        "--queries", required=True, type=Path, help="the queries that the parts were made with"
    )
    merging.add_argument("--out", required=True, type=Path, help="run to write; compressed if it ends in .gz")
    merging.set_defaults(run=run_merge)


def run_compare(arguments: argparse.Namespace) -> int:
    """Print a row for each measure and run; 1 if a file is not usable."""
    try:
        qrels = read_qrels(arguments.qrels)
        target = ScoringTarget(qrels=qrels, query_ids=qrels.query_ids, hidden=False, names_queries=True)
        scored = [score_run(path, target, arguments.measures) for path in arguments.runs]
    except InvalidContent as error:
        return show_problems(error)
    rows = []
    for place, measure in enumerate(arguments.measures):
        baseline, *others = (each.per_query[:, place] for each in scored)
        found = [
            compare_paired(values, baseline, lower_is_better=not measure.family.higher_is_better)
            for values in others
        ]
        corrected = holm([result.p for result in found]).tolist() if found else []
        rows.append(
            {"measure": measure.name, "run": str(arguments.runs[0]), "mean": float(np.mean(baseline))}
        )
        for path, values, result, p in zip(arguments.runs[1:], others, found, corrected, strict=True):
            rows.append(
                {
                    "measure": measure.name, "run": str(path), "mean": float(np.mean(values)),
                    "difference": result.difference, "low": result.low, "high": result.high, "p": result.p,
                    "p_corrected": p, "wins": result.wins, "ties": result.ties, "losses": result.losses,
                }
            )  # fmt: skip
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    width = max(len(str(path)) for path in arguments.runs)
    for row in rows:
        line = f"{row['measure']:<12} {row['run']:<{width}}  {row['mean']:.4f}"
        if "difference" in row:
            p = row["p_corrected"]
            line += (
                f"  {row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"
                f"  p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
                f"  {row['wins']} won, {row['ties']} equal, {row['losses']} lost"
            )
        print(line)
    return 0


def run_fuse(arguments: argparse.Namespace) -> int:
    """Write the run; say on standard error how many lines it has, or why it could not be."""
    given = {each.name: getattr(arguments, each.name) for each in describe("fusion").parameters}
    try:
        done = retrieve(
            RetrievalTask(
                "fusion",
                arguments.queries,  # it reads no corpus
                arguments.queries,
                arguments.out,
                parameters=given,
                k=arguments.depth,
                resources=Resources(runs=tuple(arguments.runs)),
            )
        )
    except InvalidContent as error:
        return show_problems(error)
    except InvalidParameter as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{arguments.out}: {done.lines:,} lines of {len(arguments.runs):,} runs", file=sys.stderr)
    return 0


def run_merge(arguments: argparse.Namespace) -> int:
    """Write the run; say on standard error how many lines it has, or why it could not be."""
    try:
        lines = merge(arguments.parts, arguments.queries, arguments.out)
    except InvalidContent as error:
        return show_problems(error)
    except OSError as error:
        return show_fault(error)
    print(f"{arguments.out}: {lines:,} lines of {len(arguments.parts):,} parts", file=sys.stderr)
    return 0
