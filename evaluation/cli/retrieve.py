"""`python -m evaluation retrieve`, `encode`, `fuse`, `merge`, and `engines`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import open_checkpoint
from evaluation.core.problems import InvalidContent, ModelFailure, at_lines
from evaluation.core.writing import DISK_FULL
from evaluation.engines import (
    ENGINES,
    FACTS,
    EncodingTask,
    InvalidParameter,
    Parameter,
    Part,
    Resources,
    RetrievalTask,
    describe,
    encode,
    merge,
    retrieve,
)
from evaluation.execution.failures import MODEL_FAILURES

if TYPE_CHECKING:
    from evaluation.engines import Stage
    from evaluation.engines.base import ParameterValue


Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_DEPTH: dict[str, Any] = {"type": int, "default": 1000, "help": "documents a query (default: %(default)s)"}
#: An engine may have no such parameter, and still need to be told how to take a checkpoint that does not say.
_POOLING = "pooling"


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands; each sets `run`, a function that takes the parsed arguments and returns the exit status."""
    fuse = subparsers.add_parser(
        "fuse",
        help="join runs to one",
        description="Join runs query by query, as `retrieve --engine fusion` does.",
    )
    fuse.add_argument("runs", type=Path, nargs="+", help="runs of the same queries")
    _add_files(fuse, "queries.jsonl, or .gz")
    fuse.add_argument("--depth", **_DEPTH)
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
    _add_files(merging, "the queries that the parts were made with")
    merging.set_defaults(run=run_merge)
    parser = subparsers.add_parser(
        "retrieve",
        help="make a run: index a corpus, and search it with queries",
        description="Index a corpus in BEIR layout, and write an engine's TREC run over the queries.",
    )
    _add_files(parser, "queries.jsonl, or .gz")
    parser.add_argument("--depth", **_DEPTH)
    parser.add_argument("--tag", help="last column of the run (default: the engine's name)")
    parser.add_argument(
        "--drop-self-matches", action="store_true", help="leave out a document with the query's own id"
    )
    parser.add_argument(
        "--excluded", type=Path, help="excluded.tsv: documents to leave out of the rankings of queries"
    )
    parser.add_argument(
        "--rankings",
        type=Path,
        help="folder where rankings are kept as they are found: a search goes on behind them",
    )
    _add_engine(parser, "one that `engines` lists")
    parser.set_defaults(run=run_retrieve)
    encoding = subparsers.add_parser(
        "encode",
        help="encode a corpus, or a part of it, into shards that `retrieve` finds",
        description="Encode the shards of a corpus that are not in --shards yet.",
    )
    _add_engine(encoding, "one that encodes shards")
    encoding.set_defaults(run=run_encode)
    listing = subparsers.add_parser("engines", help="list the engines and their parameters")
    listing.set_defaults(run=run_engines)


def _add_files(parser: argparse.ArgumentParser, queries: str) -> None:
    parser.add_argument("--queries", required=True, type=Path, help=queries)
    parser.add_argument("--out", required=True, type=Path, help="run to write; compressed if it ends in .gz")


def _add_engine(parser: argparse.ArgumentParser, engines: str) -> None:
    """Which engine, what it is given, and its parameters."""
    parser.add_argument("--engine", default="bm25", help=f"{engines} (default: %(default)s)")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.jsonl, or .gz")
    parser.add_argument(
        "--part",
        help="one part alone, such as 2/8: of the shards, or of the queries for engines without; `merge` joins runs",
    )
    given = parser.add_argument_group("what the engine is given")
    given.add_argument("--checkpoint", type=Path, help="a model: its folder, or an archive of it")
    given.add_argument(
        "--runs",
        "--run",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        help="runs to re-rank or to fuse",
    )
    given.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where a model runs; auto is cuda where there is one (default: %(default)s)",
    )
    given.add_argument("--threads", type=int, help="cores to use (default: all that this process may)")
    given.add_argument(
        "--shards", type=Path, help="folder of encoded shards: those in it are used, others are left there"
    )
    own = {option for action in parser._actions for option in action.option_strings}
    group = parser.add_argument_group("parameters of the engine")
    for name, meanings in _parameters().items():
        text = "; ".join(
            f"{parameter.description} ({parameter.values}; default: {_quoted(parameter.default)}; {', '.join(engines)})"
            for parameter, engines in meanings.items()
        ).replace("%", "%%")
        if name == _POOLING:
            sparse = ", ".join(filter(_requires_pooling, ENGINES))
            text += (
                f"; {sparse} takes a plain masked language model with max or sum, a plain encoder with sparta"
            )
        words = name.replace("_", "-")
        if f"--{words}" in own:
            words = f"engine-{words}"
        options: dict[str, Any] = {"dest": _destination(name), "help": text, "metavar": "VALUE"}
        if any(isinstance(parameter.default, bool) for parameter in meanings):
            group.add_argument(f"--{words}", nargs="?", const=True, **options)
            options = {**options, "action": "store_const", "const": False, "help": f"as --{words} false"}
            del options["metavar"]
            group.add_argument(f"--no-{words}", **options)
        else:
            group.add_argument(f"--{words}", **options)


def _parameters() -> dict[str, dict[Parameter, list[str]]]:
    """By each name of a parameter what it means, and to which engines."""
    found: dict[str, dict[Parameter, list[str]]] = {}
    for engine in ENGINES.values():
        for parameter in engine.parameters:
            found.setdefault(parameter.name, {}).setdefault(parameter, []).append(engine.name)
    return found


def _destination(name: str) -> str:
    """Where the parser puts a parameter's value: apart from the command's own options."""
    return f"parameter_{name}"


def run_retrieve(arguments: argparse.Namespace) -> int:
    """Make the run; say on standard error what was done, or why it could not be."""

    def make(given: Mapping[str, object], resources: Resources) -> str:
        done = retrieve(
            RetrievalTask(
                arguments.engine,
                arguments.corpus,
                arguments.queries,
                arguments.out,
                parameters=given,
                k=arguments.depth,
                drop_self_matches=arguments.drop_self_matches,
                excluded=arguments.excluded,
                tag=arguments.tag,
                resources=resources,
                shards=arguments.shards,
                part=_part(arguments),
                rankings=arguments.rankings,
            ),
            progress=_show_progress if sys.stderr.isatty() else None,
        )
        out, facts = arguments.out, []
        for name, value in done.facts.items():
            fact = FACTS[name]
            number = value if isinstance(value, str) else f"{value:,.{fact.decimals}f}"
            facts.append(f"\n{fact.label}: {number} {fact.unit}".rstrip())
        beside = [f"\n{path}: {label}" for label, path in done.variants.items() if path != out]
        settings = ", ".join(f"{name} = {value}" for name, value in done.parameters.items())
        return (
            f"{out}: {done.lines:,} lines for {done.queries - done.queries_without_results:,} of {done.queries:,} "
            f"queries over {done.documents:,} documents\n"
            f"{done.engine} ({settings}; {done.analyser}): index {done.index_bytes / 1e6:,.1f} MB "
            f"in {done.build_seconds:.2f} s, search {done.search_seconds:.2f} s" + "".join([*facts, *beside])
        )

    return _run(arguments, make)


def run_encode(arguments: argparse.Namespace) -> int:
    """Encode shards; say on standard error how many documents, or why it could not be."""

    def make(given: Mapping[str, object], resources: Resources) -> str:
        if arguments.shards is None:
            raise InvalidParameter("Name a folder for the shards: --shards FOLDER.")
        progress = _show_progress if sys.stderr.isatty() else None
        done = encode(
            EncodingTask(
                arguments.engine,
                arguments.corpus,
                shards=arguments.shards,
                parameters=given,
                resources=resources,
                part=_part(arguments),
            ),
            progress,
        )
        shards = f"{len(done.folders):,} of {done.shards:,} shards"
        return f"{arguments.shards}: {shards}, {done.documents:,} documents encoded now"

    return _run(arguments, make)


def _part(arguments: argparse.Namespace) -> Part | None:
    return Part.parse(arguments.part) if arguments.part is not None else None


def _run(arguments: argparse.Namespace, make: Callable[[Mapping[str, object], Resources], str]) -> int:
    """Run an engine with the given parameters and resources, and report as `_report` does."""
    values = {name: getattr(arguments, _destination(name)) for name in _parameters()}
    given = {name: value for name, value in values.items() if value is not None}

    def make_with_resources() -> str:
        if _requires_pooling(arguments.engine):
            given.pop(_POOLING, None)  # `_resources` uses it
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as scratch:
            return make(given, _resources(arguments, Path(scratch)))

    return _report(make_with_resources)


def run_fuse(arguments: argparse.Namespace) -> int:
    """Write the fused run."""

    def make() -> str:
        done = retrieve(
            RetrievalTask(
                "fusion",
                arguments.queries,  # it reads no corpus
                arguments.queries,
                arguments.out,
                parameters={
                    each.name: getattr(arguments, each.name) for each in describe("fusion").parameters
                },
                k=arguments.depth,
                resources=Resources(runs=tuple(arguments.runs)),
            )
        )
        return f"{arguments.out}: {done.lines:,} lines of {len(arguments.runs):,} runs"

    return _report(make)


def run_merge(arguments: argparse.Namespace) -> int:
    """Write the merged run."""

    def make() -> str:
        lines = merge(arguments.parts, arguments.queries, arguments.out)
        return f"{arguments.out}: {lines:,} lines of {len(arguments.parts):,} parts"

    return _report(make)


def _report(make: Callable[[], str]) -> int:
    """Print on standard error what `make` returns, or the reason of its failure, and return the exit status."""
    try:
        done = make()
    except InvalidContent as error:
        return show_problems(error)
    except ModelFailure as error:
        remedy = MODEL_FAILURES[error.code].remedy if error.code in MODEL_FAILURES else ""
        print(f"error: the model cannot be used: {error.message} ({error.code}). {remedy}", file=sys.stderr)
        return 1
    except (InvalidParameter, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            message = f"The disk is full: {message}. Make room, and give the same command again: what is whole stays."
        print(f"error: {message}", file=sys.stderr)
        return 2
    print(done, file=sys.stderr)
    return 0


def show_problems(error: InvalidContent) -> int:
    """Say on standard error what is wrong with files; the exit status."""
    for problem in error.report.problems:
        where = at_lines(problem.lines, problem.count)
        print(f"{problem.severity}: {problem.message}{where}. {problem.hint}", file=sys.stderr)
    return 1


def _resources(arguments: argparse.Namespace, scratch: Path) -> Resources:
    """What the engine is given. Raises InvalidContent where the checkpoint is none that it can run."""
    description = describe(arguments.engine)
    if arguments.threads is not None and arguments.threads < 1:
        raise InvalidParameter(f"{arguments.threads} threads compute nothing; give at least 1.")
    checkpoint, device = arguments.checkpoint, "cpu"
    if description.needs_checkpoint and arguments.device != "cpu":
        from torch.cuda import is_available

        if arguments.device == "cuda" and not is_available():
            raise InvalidParameter("There is no CUDA device here; leave out --device, or use --device cpu.")
        device = "cuda" if is_available() else "cpu"
    if checkpoint is not None and description.needs_checkpoint:
        pooling = getattr(arguments, _destination(_POOLING)) or ""
        checkpoint = open_checkpoint(checkpoint, description.checkpoints, scratch, pooling)
        if checkpoint != arguments.checkpoint:
            from evaluation.engines.neural.checking import check_checkpoint

            report = check_checkpoint(checkpoint)
            if not report.valid:
                raise InvalidContent(report)
        own = CheckpointDescription.read(checkpoint).pooling
        if pooling and pooling != own and _requires_pooling(description.name):
            raise InvalidParameter(
                f"The checkpoint says itself how to pool: {own}; leave out --pooling {pooling}."
            )
    return Resources(
        checkpoint=checkpoint,
        runs=tuple(arguments.runs),
        device=device,
        threads=arguments.threads or len(os.sched_getaffinity(0)),
    )


def _requires_pooling(engine: str) -> bool:
    """Whether it has to be told how to pool a plain encoder, and takes nothing else for an answer later."""
    description = describe(engine)
    own = any(parameter.name == _POOLING for parameter in description.parameters)
    return CheckpointKind.SPARSE_ENCODER in description.checkpoints and not own


def _show_progress(stage: Stage, share: float) -> None:
    print(f"\r{stage} {share:4.0%}   ", end="" if share < 1 else "\r", file=sys.stderr, flush=True)


def _quoted(value: ParameterValue) -> str:
    """A default, as one would type it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or "nothing"


def run_engines(arguments: argparse.Namespace) -> int:
    """List the engines on standard output."""
    for engine in ENGINES.values():
        print(f"{engine.name}: {engine.description}")
        for parameter in engine.parameters:
            print(
                f"    {parameter.name} = {_quoted(parameter.default)}: {parameter.description} ({parameter.values})"
            )
    return 0
