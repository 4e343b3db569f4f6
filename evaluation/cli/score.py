"""Commands `score`, `score-answers`, `check`, and `compare` of `python -m evaluation`."""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO, TypeAlias

import numpy as np

from evaluation.archives.compression import FileLimits, open_blocks, open_lines
from evaluation.collections.beir import read_corpus, read_queries
from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import EndlessPattern, InvalidContent, Report, at_lines
from evaluation.judgements.answers import read_answers
from evaluation.judgements.qrels import read_excluded, read_qrels
from evaluation.judgements.subtopics import read_subtopics
from evaluation.measures import registry
from evaluation.runs.answer_runs import read_answer_run, read_response_files
from evaluation.runs.score import ScoredRun, ScoringTarget, check_run, score_run
from evaluation.statistics.comparison import compare_paired
from evaluation.statistics.randomisation import holm

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_RUN_HELP = "run: TREC, a table, JSON, or an answer run"


def add_parser(subparsers: Subparsers) -> None:
    """Add the commands `score`, `score-answers`, `check`, and `compare` with their options.

    Each command sets `run`, a function from the parsed arguments to the exit status.
    """
    score = subparsers.add_parser(
        "score",
        help="score a run",
        description="Score a run as the site does. Means are over all judged queries.",
    )
    score.add_argument("--run", required=True, type=Path, dest="run_file", help=_RUN_HELP)
    _add_measures_option(score)
    _add_scoring_options(score)
    score.set_defaults(run=run_score)
    score_answers = subparsers.add_parser(
        "score-answers",
        help="score an answer run",
        description="Score an answer run as the site does, by every measure that the run supports, and list the "
        "reasons for the other measures. Means are over all judged queries.",
    )
    score_answers.add_argument(
        "--run",
        required=True,
        type=Path,
        dest="run_file",
        help="answer run, or folder with a JSON file per query (BrowseComp-Plus)",
    )
    score_answers.add_argument("--measures", type=_parse_measures, default=(), help="further measures, comma-separated")
    score_answers.add_argument("--output", type=Path, help="write the run as a JSON Lines file for submission")
    _add_scoring_options(score_answers)
    score_answers.set_defaults(run=run_score_answers)
    check = subparsers.add_parser(
        "check",
        help="check a run file",
        description="Report all problems of a run, as the site does.",
    )
    check.add_argument("--run", required=True, type=Path, dest="run_file", help=_RUN_HELP)
    check.add_argument("--queries", type=Path, help="the dataset's queries.jsonl")
    documents = check.add_mutually_exclusive_group()
    documents.add_argument("--corpus", type=Path, help="the dataset's corpus.jsonl")
    documents.add_argument("--document-ids", type=Path, help="the dataset's document ids, one per line")
    check.add_argument("--qrels", type=Path, help="qrels, to report judged queries that are missing")
    _add_common(check)
    check.set_defaults(run=run_check)
    compare = subparsers.add_parser(
        "compare",
        help="compare runs with the first one",
        description="Compare runs with the first one: mean differences, 95% intervals, two-sided randomization tests "
        "with Holm's correction, and numbers of queries won, equal, and lost.",
    )
    compare.add_argument("--qrels", required=True, type=Path, help="TREC qrels, or BEIR's test.tsv")
    compare.add_argument("runs", type=Path, nargs="+", help="runs in any format; the first is the baseline")
    _add_measures_option(compare)
    compare.add_argument("--json", action="store_true", help="print JSON, with unrounded values")
    compare.set_defaults(run=run_compare)


def _add_scoring_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `score` and `score-answers` have in common."""
    parser.add_argument("--qrels", required=True, type=Path, help="TREC qrels, or BEIR's test.tsv; may be compressed")
    parser.add_argument("--candidates-only", action="store_true", help="skip documents that are not judged")
    parser.add_argument("--excluded", type=Path, help="excluded.tsv: documents to omit from the rankings of queries")
    parser.add_argument("--answers", type=Path, help="answers.jsonl with correct answers, such as for EM and Answer@k")
    parser.add_argument("--corpus", type=Path, help="corpus.jsonl with texts to search, for Answer@k and R@2kt")
    parser.add_argument("--subtopics", type=Path, help="subtopic-qrels.txt: subtopics of pairs in the qrels")
    parser.add_argument("--per-query", action="store_true", help="also print a row for every judged query")
    parser.add_argument(
        "--relevance-level",
        type=int,
        default=1,
        metavar="GRADE",
        help="lowest grade that is relevant for binary measures (default: %(default)s)",
    )
    _add_common(parser)


def _add_measures_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--measures` with the default measures."""
    default = ",".join(registry.DEFAULT_MEASURES)
    parser.add_argument(
        "--measures",
        type=_parse_measures,
        default=_parse_measures(default),
        help=f"comma-separated (default: {default})",
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--drop-self-matches", action="store_true", help="omit documents with their query's id")
    parser.add_argument("--json", action="store_true", help="print JSON, with unrounded values")


def _parse_measures(text: str) -> tuple[registry.Measure, ...]:
    """Parse measures separated by commas outside of parentheses. Raises ArgumentTypeError for unknown ones."""
    names = re.split(r",(?![^()]*\))", text)  # Commas in parentheses separate parameters, which are not nested.
    try:
        return tuple(registry.parse_measure(name) for name in names if name.strip())
    except registry.UnknownMeasureError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run_score_answers(arguments: argparse.Namespace) -> int:
    """Print the scores of an answer run, which may be a folder of responses. Return the exit status of `run_score`."""
    run, names = arguments.run_file, list[str]()
    try:
        if arguments.run_file.is_dir():
            run, names = read_response_files(arguments.run_file)
        read_answer_run(run, FileLimits())
        if arguments.output:
            arguments.output.write_bytes(b"".join(open_blocks(run)))
    except InvalidContent as error:
        lines = sorted({line for problem in error.report.errors for line in problem.lines})
        for line in lines if names else ():
            print(f"line {line} of the run is {names[line - 1]}", file=sys.stderr)
        return refuse(arguments.run_file, error.report, arguments.json)
    measures = [*map(registry.parse_measure, registry.RESPONSE_MEASURES), *arguments.measures]
    arguments.measures = tuple(dict.fromkeys(measures))
    return run_score(arguments, run)


def run_score(arguments: argparse.Namespace, run: Path | bytes | None = None) -> int:
    """Print the scores of a run, by default of the file in the arguments, and return the exit status.

    The status is 1 if a file is not usable, and 2 if a measure needs a missing option.
    """
    path = arguments.qrels
    try:
        qrels = read_qrels(path)
        path = arguments.answers
        answers = read_answers(path) if path else None
        path = arguments.subtopics
        subtopics = read_subtopics(path) if path else None
        path = arguments.excluded
        excluded = read_excluded(path) if path else None
    except InvalidContent as error:
        return refuse(path, error.report, arguments.json)
    target = ScoringTarget(
        qrels=qrels,
        query_ids=qrels.query_ids,
        hidden=False,
        names_queries=True,
        relevance_level=arguments.relevance_level,
        drop_self_matches=arguments.drop_self_matches,
        candidates_only=arguments.candidates_only,
        excluded=excluded,
        answers=answers,
        corpus=arguments.corpus,
        subtopics=subtopics,
        measures=tuple(measure.name for measure in arguments.measures),
    )
    for measure in arguments.measures:
        lacks_texts = measure.family.reads_texts and (answers is None or arguments.corpus is None)
        if lacks_texts or (measure.family.reads_subtopics and subtopics is None):
            options = "--answers and --corpus" if lacks_texts else "--subtopics"
            print(f"{measure.name} cannot be computed without {options}.", file=sys.stderr)
            return 2
    try:
        scored_run = score_run(run or arguments.run_file, target, arguments.measures)
    except InvalidContent as error:
        path = arguments.answers if isinstance(error, EndlessPattern) else arguments.run_file
        return refuse(path, error.report, arguments.json)
    if arguments.json:
        names = [measure.name for measure in scored_run.measures]
        result: dict[str, object] = {
            "means": scored_run.means,
            "queries": len(scored_run.query_ids),
            "missing_queries": scored_run.missing_queries,
            "omitted_measures": dict(scored_run.omitted_measures),
            **scored_run.report.as_dict(),
        }
        if arguments.per_query:
            rows = zip(scored_run.query_ids, scored_run.per_query.tolist(), strict=True)
            result["per_query"] = {query: dict(zip(names, row, strict=True)) for query, row in rows}
        _print_json(result)
        return 0
    _print_problems(scored_run.report, sys.stderr)
    for name, reason in scored_run.omitted_measures.items():
        print(f"{name} is omitted: {reason}", file=sys.stderr)
    _print_scores(scored_run, arguments.per_query)
    return 0


def _print_scores(scored_run: ScoredRun, per_query: bool) -> None:
    """Print a row per measure, or with `per_query` a row per query and a column per measure."""
    names = [measure.name for measure in scored_run.measures]
    if not per_query:
        width = max((len(name) for name in names), default=0)
        for name in names:
            print(f"{name:<{width}}  {scored_run.means[name]:.4f}")
        return
    label_width = max(len("query"), *(len(query) for query in scored_run.query_ids))
    widths = [max(6, len(name)) for name in names]

    def row(label: str, cells: list[str]) -> str:
        aligned = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        return "  ".join([f"{label:<{label_width}}", *aligned])

    print(row("query", names))
    for query, values in zip(scored_run.query_ids, scored_run.per_query.tolist(), strict=True):
        print(row(query, [f"{value:.4f}" for value in values]))
    print(row("mean", [f"{scored_run.means[name]:.4f}" for name in names]))


def run_check(arguments: argparse.Namespace) -> int:
    """Print a run's problems and whether it is valid. Return 1 if there are errors, otherwise 0."""
    try:
        qrels = read_qrels(arguments.qrels) if arguments.qrels else None
        queries = list(qrels.query_ids) if qrels else []
        if arguments.queries:
            queries = [query.id for query in read_queries(arguments.queries)]
        with _open_document_ids(arguments) as documents:
            target = ScoringTarget(
                qrels=qrels,
                query_ids=queries,
                document_ids=documents,
                hidden=False,
                names_queries=True,
                drop_self_matches=arguments.drop_self_matches,
            )
            report = check_run(arguments.run_file, target)
    except InvalidContent as error:
        return refuse(None, error.report, arguments.json)
    if arguments.json:
        _print_json(report.as_dict())
    else:
        _print_problems(report, sys.stdout)
        statistics = report.statistics
        verdict = "valid" if report.valid else "not valid"
        print(f"{arguments.run_file}: {verdict}; {statistics.lines:,} lines, {statistics.queries:,} queries")
    return 0 if report.valid else 1


def run_compare(arguments: argparse.Namespace) -> int:
    """Print each measure of each run and its difference from the first run. Return 1 if a file is not usable."""
    try:
        qrels = read_qrels(arguments.qrels)
        target = ScoringTarget(qrels=qrels, query_ids=qrels.query_ids, hidden=False, names_queries=True)
        scored_runs = [score_run(path, target, arguments.measures) for path in arguments.runs]
    except InvalidContent as error:
        return refuse(None, error.report, arguments.json)
    rows = []
    for column, measure in enumerate(arguments.measures):
        baseline, *other_values = (scored_run.per_query[:, column] for scored_run in scored_runs)
        comparisons = [
            compare_paired(values, baseline, lower_is_better=not measure.family.higher_is_better)
            for values in other_values
        ]
        p_values = holm([result.p for result in comparisons]).tolist() if comparisons else []
        rows.append({"measure": measure.name, "run": str(arguments.runs[0]), "mean": float(np.mean(baseline))})
        for path, values, result, p in zip(arguments.runs[1:], other_values, comparisons, p_values, strict=True):
            rows.append(
                {
                    "measure": measure.name,
                    "run": str(path),
                    "mean": float(np.mean(values)),
                    "difference": result.difference,
                    "low": result.low,
                    "high": result.high,
                    "p": result.p,
                    "p_corrected": p,
                    "wins": result.wins,
                    "ties": result.ties,
                    "losses": result.losses,
                }
            )
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


@contextmanager
def _open_document_ids(arguments: argparse.Namespace) -> Iterator[DocumentIds | None]:
    """Yield the dataset's document ids, from its corpus or a list, in a temporary table; None without either."""
    if not arguments.corpus and not arguments.document_ids:
        yield None
        return
    ids: Iterator[str]
    if arguments.corpus:
        ids = (document.id for document in read_corpus(arguments.corpus))
    else:
        limits = FileLimits(max_stored_bytes=1 << 40, max_expanded_bytes=1 << 40)
        lines = (line.strip() for line in open_lines(arguments.document_ids, limits))
        ids = (line.decode("utf-8", "replace") for line in lines if line)
    with tempfile.TemporaryDirectory() as folder:
        yield DocumentIds.build(ids, Path(folder) / "documents.ids")


def refuse(path: Path | None, report: Report, as_json: bool) -> int:
    """Print the problems of a file, as JSON or as text on standard error, and return 1."""
    if as_json:
        _print_json(report.as_dict())
    else:
        _print_problems(report, sys.stderr)
        print(f"{path}: not valid" if path else "not valid", file=sys.stderr)
    return 1


def _print_problems(report: Report, stream: TextIO) -> None:
    for problem in report.problems:
        line_text = at_lines(problem.lines, problem.count)
        print(f"{problem.severity}: {problem.code}: {problem.message}{line_text}", file=stream)
        print(f"    {problem.hint}", file=stream)


def _print_json(content: object) -> None:
    print(json.dumps(content, ensure_ascii=False, indent=2))
