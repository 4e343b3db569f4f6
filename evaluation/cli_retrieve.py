"""`python -m evaluation retrieve` and `python -m evaluation engines`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.engines import ENGINES, InvalidParameter, Parameter, Retrieval, retrieve
from evaluation.errors import InvalidContent

if TYPE_CHECKING:
    from evaluation.engines import Stage

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands `retrieve` and `engines`.

    Each sets `run`, a function that takes the parsed arguments and returns the exit status.
    """
    parser = subparsers.add_parser(
        "retrieve",
        help="make a run: index a corpus, and search it with queries",
        description="Index a corpus in BEIR layout, and write an engine's TREC run over the queries.",
    )
    parser.add_argument("--engine", default="bm25", help="one that `engines` lists (default: %(default)s)")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.jsonl, or .gz")
    parser.add_argument("--queries", required=True, type=Path, help="queries.jsonl, or .gz")
    parser.add_argument("--out", required=True, type=Path, help="run to write; compressed if it ends in .gz")
    parser.add_argument("--depth", type=int, default=1000, help="documents a query (default: %(default)s)")
    parser.add_argument("--tag", help="last column of the run (default: the engine's name)")
    parser.add_argument(
        "--drop-self-matches", action="store_true", help="leave out a document with the query's own id"
    )
    settings = parser.add_argument_group("parameters of the engine")
    for parameter in _all_parameters():
        if parameter.default is True:
            settings.add_argument(
                f"--no-{parameter.name}",
                dest=parameter.name,
                action="store_const",
                const=False,
                help=f"turn {parameter.name} off ({parameter.description})",
            )
        else:
            settings.add_argument(
                f"--{parameter.name}",
                help=f"{parameter.description} ({parameter.values}; default: {parameter.default})",
            )
    parser.set_defaults(run=run_retrieve)
    listing = subparsers.add_parser("engines", help="list the engines and their parameters")
    listing.set_defaults(run=run_engines)


def _all_parameters() -> list[Parameter]:
    """The parameters of all engines, each name once."""
    return list({p.name: p for engine in reversed(ENGINES.values()) for p in engine.parameters}.values())


def run_retrieve(arguments: argparse.Namespace) -> int:
    """Make the run; say on standard error what was done, or why it could not be."""
    names = [parameter.name for parameter in _all_parameters()]
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    try:
        done = retrieve(
            arguments.engine,
            arguments.corpus,
            arguments.queries,
            arguments.out,
            given,
            k=arguments.depth,
            drop_self_matches=arguments.drop_self_matches,
            progress=_show_progress if sys.stderr.isatty() else None,
            tag=arguments.tag,
        )
    except InvalidContent as error:
        for problem in error.report.problems:
            where = f" (line {', '.join(map(str, problem.lines))})" if problem.lines else ""
            print(f"{problem.severity}: {problem.message}{where}. {problem.hint}", file=sys.stderr)
        return 1
    except (InvalidParameter, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(_summary(done, arguments.out), file=sys.stderr)
    return 0


def _show_progress(stage: Stage, share: float) -> None:
    print(f"\r{stage} {share:4.0%}   ", end="" if share < 1 else "\r", file=sys.stderr, flush=True)


def _summary(done: Retrieval, out: Path) -> str:
    settings = ", ".join(f"{name} = {value}" for name, value in done.parameters.items())
    return (
        f"{out}: {done.lines:,} lines for {done.queries - done.queries_without_results:,} of {done.queries:,} "
        f"queries over {done.documents:,} documents\n"
        f"{done.engine} ({settings}; {done.analyser}): index {done.index_bytes / 1e6:,.1f} MB "
        f"in {done.build_seconds:.2f} s, search {done.search_seconds:.2f} s"
    )


def run_engines(arguments: argparse.Namespace) -> int:
    """List the engines on standard output."""
    for engine in ENGINES.values():
        print(f"{engine.name}: {engine.description}")
        for parameter in engine.parameters:
            print(f"    {parameter.name} = {parameter.default}: {parameter.description} ({parameter.values})")
    return 0
