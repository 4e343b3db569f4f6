"""Commands `retrieve`, `encode`, `fuse`, `merge`, and `engines` of `python -m evaluation`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.rebuilding import open_checkpoint
from evaluation.cli.score import Subparsers, refuse
from evaluation.core.problems import InvalidContent, ModelFailure
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


_DEPTH: dict[str, Any] = {"type": int, "default": 1000, "help": "documents per query (default: %(default)s)"}
#: Name of the pooling option, which checkpoints without pooling need even if the engine has no such parameter.
_POOLING = "pooling"


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands `fuse`, `merge`, `retrieve`, `encode`, and `engines` with their options.

    Each command sets `run`, a function from the parsed arguments to the exit status.
    """
    fuse = subparsers.add_parser("fuse", description="Fuse runs query by query, as `retrieve --engine fusion` does.")
    fuse.add_argument("runs", type=Path, nargs="+", help="runs of the same queries")
    _add_files(fuse, "queries.jsonl, or .gz")
    fuse.add_argument("--depth", **_DEPTH)
    for parameter in describe("fusion").parameters:
        help_text = f"{parameter.description} ({parameter.values}; default: {parameter.default or 'nothing'})"
        fuse.add_argument(f"--{parameter.name.replace('_', '-')}", default=parameter.default, help=help_text)
    fuse.set_defaults(run=run_fuse)
    merging = subparsers.add_parser(
        "merge", description="Merge the runs that `retrieve --part` wrote for each part into the complete run."
    )
    merging.add_argument("parts", type=Path, nargs="+", help="runs of all parts, in any order")
    _add_files(merging, "queries of the parts")
    merging.set_defaults(run=run_merge)
    parser = subparsers.add_parser(
        "retrieve", description="Index a corpus in BEIR layout and write an engine's TREC run for the queries."
    )
    _add_files(parser, "queries.jsonl, or .gz")
    parser.add_argument("--depth", **_DEPTH)
    parser.add_argument("--tag", help="last column of the run (default: the engine's name)")
    parser.add_argument("--drop-self-matches", action="store_true", help="omit documents with their query's id")
    parser.add_argument("--excluded", type=Path, help="excluded.tsv: documents to omit from the rankings of queries")
    parser.add_argument(
        "--rankings",
        type=Path,
        help="folder for finished rankings, so that an interrupted search can continue",
    )
    _add_engine(parser, "one that `engines` lists")
    parser.set_defaults(run=run_retrieve)
    encoding = subparsers.add_parser("encode", description="Encode the shards of a corpus that --shards lacks.")
    _add_engine(encoding, "one that encodes shards")
    encoding.set_defaults(run=run_encode)
    subparsers.add_parser("engines").set_defaults(run=run_engines)


def _add_files(parser: argparse.ArgumentParser, queries: str) -> None:
    parser.add_argument("--queries", required=True, type=Path, help=queries)
    parser.add_argument("--out", required=True, type=Path, help="run to write; compressed if it ends in .gz")


def _add_engine(parser: argparse.ArgumentParser, engines: str) -> None:
    """Add the options for the engine, its inputs, and its parameters."""
    parser.add_argument("--engine", default="bm25", help=f"{engines} (default: %(default)s)")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.jsonl, or .gz")
    parser.add_argument(
        "--part",
        help="one part, such as 2/8, of the shards, or of the queries for engines without shards; see `merge`",
    )
    inputs = parser.add_argument_group("inputs and resources")
    inputs.add_argument("--checkpoint", type=Path, help="a model: its folder, or an archive of it")
    inputs.add_argument(
        "--runs",
        "--run",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        help="runs to re-rank or to fuse",
    )
    inputs.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device for the model; auto uses cuda if available (default: %(default)s)",
    )
    inputs.add_argument("--threads", type=int, help="cores to use (default: all available to this process)")
    inputs.add_argument("--shards", type=Path, help="folder of encoded shards, which are reused and completed")
    own_options = {option for action in parser._actions for option in action.option_strings}
    group = parser.add_argument_group("parameters of the engine")
    for name, meanings in _collect_parameters().items():
        text = "; ".join(
            f"{parameter.description} ({parameter.values}; default: {_to_text(parameter.default)}; {', '.join(users)})"
            for parameter, users in meanings.items()
        ).replace("%", "%%")
        if name == _POOLING:
            sparse = ", ".join(filter(_requires_pooling, ENGINES))
            text += f"; {sparse} accepts a plain masked language model with max or sum, and a plain encoder with sparta"
        words = name.replace("_", "-")
        if f"--{words}" in own_options:
            words = f"engine-{words}"
        options: dict[str, Any] = {"dest": _destination(name), "help": text, "metavar": "VALUE"}
        if any(isinstance(parameter.default, bool) for parameter in meanings):
            group.add_argument(f"--{words}", nargs="?", const=True, **options)
            options = {**options, "action": "store_const", "const": False, "help": f"as --{words} false"}
            del options["metavar"]
            group.add_argument(f"--no-{words}", **options)
        else:
            group.add_argument(f"--{words}", **options)


def _collect_parameters() -> dict[str, dict[Parameter, list[str]]]:
    """Return the meanings of each parameter name, with the engines that use each meaning."""
    meanings: dict[str, dict[Parameter, list[str]]] = {}
    for engine in ENGINES.values():
        for parameter in engine.parameters:
            meanings.setdefault(parameter.name, {}).setdefault(parameter, []).append(engine.name)
    return meanings


def _destination(name: str) -> str:
    """Return the attribute name of a parsed parameter, which must differ from the command's own options."""
    return f"parameter_{name}"


def run_retrieve(arguments: argparse.Namespace) -> int:
    """Write a run with an engine, print its statistics on standard error, and return the exit status."""

    def write_run(parameters: Mapping[str, object], resources: Resources) -> str:
        """Write the run and return its statistics as text."""
        done = retrieve(
            RetrievalTask(
                arguments.engine,
                arguments.corpus,
                arguments.queries,
                arguments.out,
                parameters=parameters,
                k=arguments.depth,
                drop_self_matches=arguments.drop_self_matches,
                excluded=arguments.excluded,
                tag=arguments.tag,
                resources=resources,
                shards=arguments.shards,
                part=_parse_part(arguments),
                rankings=arguments.rankings,
            ),
            progress=_show_progress if sys.stderr.isatty() else None,
        )
        run, facts = arguments.out, []
        for name, value in done.facts.items():
            fact = FACTS[name]
            number = value if isinstance(value, str) else f"{value:,.{fact.decimals}f}"
            facts.append(f"\n{fact.label}: {number} {fact.unit}".rstrip())
        variant_lines = [f"\n{path}: {label}" for label, path in done.variants.items() if path != run]
        settings = ", ".join(f"{name} = {value}" for name, value in done.parameters.items())
        return (
            f"{run}: {done.lines:,} lines for {done.queries - done.queries_without_results:,} of {done.queries:,} "
            f"queries over {done.documents:,} documents\n"
            f"{done.engine} ({settings}; {done.analyser}): index {done.index_bytes / 1e6:,.1f} MB "
            f"in {done.build_seconds:.2f} s, search {done.search_seconds:.2f} s" + "".join([*facts, *variant_lines])
        )

    return _run_engine(arguments, write_run)


def run_encode(arguments: argparse.Namespace) -> int:
    """Encode shards, print their number on standard error, and return the exit status."""

    def encode_shards(parameters: Mapping[str, object], resources: Resources) -> str:
        """Encode the shards and return their number as text."""
        if arguments.shards is None:
            raise InvalidParameter("Specify a folder for the shards with --shards FOLDER.")
        done = encode(
            EncodingTask(
                arguments.engine,
                arguments.corpus,
                shards=arguments.shards,
                parameters=parameters,
                resources=resources,
                part=_parse_part(arguments),
            ),
            _show_progress if sys.stderr.isatty() else None,
        )
        shards = f"{len(done.folders):,} of {done.shards:,} shards"
        return f"{arguments.shards}: {shards}, {done.documents:,} documents encoded now"

    return _run_engine(arguments, encode_shards)


def _parse_part(arguments: argparse.Namespace) -> Part | None:
    return Part.parse(arguments.part) if arguments.part is not None else None


def _run_engine(arguments: argparse.Namespace, make: Callable[[Mapping[str, object], Resources], str]) -> int:
    """Call `make` with the engine's parameters and resources, and report its result like `_report`."""
    values = {name: getattr(arguments, _destination(name)) for name in _collect_parameters()}
    parameters = {name: value for name, value in values.items() if value is not None}

    def make_with_resources() -> str:
        if _requires_pooling(arguments.engine):
            parameters.pop(_POOLING, None)  # `_build_resources` reads it from the arguments.
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as scratch:
            return make(parameters, _build_resources(arguments, Path(scratch)))

    return _report(make_with_resources)


def run_fuse(arguments: argparse.Namespace) -> int:
    """Fuse runs, print the number of lines on standard error, and return the exit status."""

    def write_fused_run() -> str:
        """Write the fused run and return its number of lines as text."""
        done = retrieve(
            RetrievalTask(
                "fusion",
                arguments.queries,  # Fusion reads no corpus.
                arguments.queries,
                arguments.out,
                parameters={option.name: getattr(arguments, option.name) for option in describe("fusion").parameters},
                k=arguments.depth,
                resources=Resources(runs=tuple(arguments.runs)),
            )
        )
        return f"{arguments.out}: {done.lines:,} lines of {len(arguments.runs):,} runs"

    return _report(write_fused_run)


def run_merge(arguments: argparse.Namespace) -> int:
    """Merge the runs of parts, print the number of lines on standard error, and return the exit status."""
    parts, out = arguments.parts, arguments.out
    return _report(lambda: f"{out}: {merge(parts, arguments.queries, out):,} lines of {len(parts):,} parts")


def _report(make: Callable[[], str]) -> int:
    """Print the result of `make`, or the reason for its failure, on standard error. Return the exit status."""
    try:
        summary = make()
    except InvalidContent as error:
        return refuse(None, error.report, as_json=False)
    except ModelFailure as error:
        remedy = MODEL_FAILURES[error.code].remedy if error.code in MODEL_FAILURES else ""
        print(f"error: the model cannot be used: {error.message} ({error.code}). {remedy}", file=sys.stderr)
        return 1
    except (InvalidParameter, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            message = f"The disk is full: {message}. Free some space and run it again. Finished parts are reused."
        print(f"error: {message}", file=sys.stderr)
        return 2
    print(summary, file=sys.stderr)
    return 0


def _build_resources(arguments: argparse.Namespace, scratch: Path) -> Resources:
    """Return the engine's resources, with a checkpoint that is opened in `scratch` if necessary.

    Raises InvalidContent for a checkpoint that the engine cannot run, and InvalidParameter for an invalid option.
    """
    description = describe(arguments.engine)
    if arguments.threads is not None and arguments.threads < 1:
        raise InvalidParameter(f"--threads is {arguments.threads}; use at least 1.")
    checkpoint, device = arguments.checkpoint, "cpu"
    if description.needs_checkpoint and arguments.device != "cpu":
        from torch.cuda import is_available

        if arguments.device == "cuda" and not is_available():
            raise InvalidParameter("This machine has no CUDA device; omit --device or use --device cpu.")
        device = "cuda" if is_available() else "cpu"
    if checkpoint is not None and description.needs_checkpoint:
        pooling = getattr(arguments, _destination(_POOLING)) or ""
        checkpoint = open_checkpoint(checkpoint, description.checkpoints, scratch, pooling)
        if checkpoint != arguments.checkpoint:
            from evaluation.engines.neural.checking import check_checkpoint

            report = check_checkpoint(checkpoint)
            if not report.valid:
                raise InvalidContent(report)
        own_pooling = CheckpointDescription.read(checkpoint).pooling
        if pooling and pooling != own_pooling and _requires_pooling(description.name):
            raise InvalidParameter(
                f"The checkpoint already defines its pooling ({own_pooling}); omit --pooling {pooling}."
            )
    return Resources(
        checkpoint=checkpoint,
        runs=tuple(arguments.runs),
        device=device,
        threads=arguments.threads or len(os.sched_getaffinity(0)),
    )


def _requires_pooling(engine: str) -> bool:
    """Return whether plain encoders need --pooling for this engine, which has no such parameter itself."""
    description = describe(engine)
    has_parameter = any(parameter.name == _POOLING for parameter in description.parameters)
    return CheckpointKind.SPARSE_ENCODER in description.checkpoints and not has_parameter


def _show_progress(stage: Stage, share: float) -> None:
    print(f"\r{stage} {share:4.0%}   ", end="" if share < 1 else "\r", file=sys.stderr, flush=True)


def _to_text(value: ParameterValue) -> str:
    """Return a default value as typed on the command line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or "nothing"


def run_engines(arguments: argparse.Namespace) -> int:
    """Print all engines and their parameters on standard output, and return 0."""
    for engine in ENGINES.values():
        print(f"{engine.name}: {engine.description}")
        for parameter in engine.parameters:
            print(f"    {parameter.name} = {_to_text(parameter.default)}: {parameter.description} ({parameter.values})")
    return 0
