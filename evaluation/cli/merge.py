"""`python -m evaluation merge`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from evaluation.cli import Subparsers
from evaluation.cli.retrieve import show_fault, show_problems
from evaluation.core.errors import InvalidContent
from evaluation.engines import merge


def add_parser(subparsers: Subparsers) -> None:
    """Add the command, whose `run` takes the parsed arguments and returns the exit status."""
    parser = subparsers.add_parser(
        "merge",
        help="merge the runs of all parts to one",
        description="Merge what `retrieve --part` wrote for each part to the run of the whole.",
    )
    parser.add_argument("parts", type=Path, nargs="+", help="runs of all parts, in any order")
    parser.add_argument(
        "--queries", required=True, type=Path, help="the queries that the parts were made with"
    )
    parser.add_argument("--out", required=True, type=Path, help="run to write; compressed if it ends in .gz")
    parser.set_defaults(run=run_merge)


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
