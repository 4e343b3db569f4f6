"""Command `runboard`.

Exit status: 0 for success, 1 if something was refused or failed, 2 for wrong usage, 3 if the site is unreachable, is
not a Runboard site, or exceeds the given timeout.
"""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from runboard.answers import Submission
from runboard.client import FINAL_STATES, Client, has_ended
from runboard.endpoint_commands import AddCommand, add_endpoint_commands
from runboard.errors import Refused, SiteUnavailable, format_problem, missing_library
from runboard.login import checked_token, write_login
from runboard.terminal import say
from runboard.uploading import upload


def main(words: Sequence[str] | None = None) -> int:
    """Run the command with the arguments `words` (default: the process's) and return its exit status.

    Errors and interruptions are printed on standard error instead of raised.
    """
    arguments = _build_parser().parse_args(words)
    try:
        status: int = arguments.run(arguments)
        return status
    except Refused as refusal:
        say(refusal, file=sys.stderr)
        return 1
    except (SiteUnavailable, TimeoutError) as error:
        say(error, file=sys.stderr)
        return 3
    except (OSError, ValueError) as error:
        file_name = getattr(error, "filename", None)
        say(
            f"{file_name}: {error.strerror}" if file_name and isinstance(error, OSError) else error,
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        note = getattr(arguments, "interrupted", "The site continues to process your submissions.")
        print(f"\nInterrupted. {note}", file=sys.stderr)
        return 130


#: Columns of fractions, printed as percentages.
_PERCENTAGES = ("relative", "average-relative", "mean-relative")
#: Columns of frames that `board` does not print.
_NOT_PRINTED = [
    "ranked_among", "slug", "baseline", "comparison_group", "missing_queries", "doubtful", "rank_low", "rank_high",
]  # fmt: skip


def _build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands. Each sets `run` to the function that performs it."""
    parser = argparse.ArgumentParser(prog="runboard", description="Work with a Runboard site.")
    parser.add_argument("--url", help="address of the site (default: RUNBOARD_URL, or the site of `login`)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add_command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        subparser.set_defaults(run=run)
        return subparser

    login = add_command("login", _login, "store a site's address and your token, read from a prompt or standard input")
    login.add_argument("site", help="https://runboard.example.org")
    _add_datasets(add_command)
    _add_submissions(add_command)
    _add_boards(add_command)
    add_endpoint_commands(add_command)
    return parser


def _add_datasets(add_command: AddCommand) -> None:
    """Add the commands `datasets` and `download`."""
    _add_json(add_command("datasets", _datasets, "list datasets"))
    download = add_command("download", _download, "download a dataset's files, each checked by its sha256")
    download.add_argument("dataset")
    download.add_argument("--to", type=Path, help="target folder (default: the dataset's slug)")
    download.add_argument(
        "--kind", action="append", default=[], help="kind of files, such as corpus or queries (default: all)"
    )
    _add_force(download)


def _add_submissions(add_command: AddCommand) -> None:
    """Add the commands that check, submit, follow, cancel, withdraw, and upload."""
    check = add_command("check", _check, "report all problems of a run without storing it")
    check.add_argument("dataset")
    check.add_argument("runs", type=Path, nargs="+")
    submit = add_command("submit", _submit, "submit runs, or a model's archive")
    submit.add_argument("dataset", help="slug of the dataset, or several separated by commas")
    submit.add_argument(
        "runs",
        type=Path,
        nargs="*",
        help="a run for each dataset, or several seeds for one dataset",
    )
    submit.add_argument("--checkpoint", type=Path, help="a model's archive, as written by `runboard-eval pack`")
    submit.add_argument("--system", required=True, help="slug or name of one of your systems, or a new name")
    submit.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="fields",
                        help="any field of the API, such as architecture=dense or training_datasets=none")  # fmt: skip
    submit.add_argument("--private", action="store_true", help="show the results to your team only")
    submit.add_argument("--watch", action="store_true", help="wait until the submission ends")
    status = add_command("status", _status, "show the progress of one submission, or of all of yours")
    status.add_argument("submission", nargs="?")
    watch = add_command("watch", _watch, "follow a submission to its end")
    watch.add_argument("submission")
    watch.add_argument("--timeout", type=float, help="maximum seconds to wait")
    runs = add_command("download-runs", _download_runs, "download the runs of a submission, compressed with gzip")
    runs.add_argument("submission")
    runs.add_argument("--to", type=Path, default=Path(), help="target folder (default: the current folder)")
    _add_force(runs)
    cancel = add_command("cancel", _cancel, "stop the unfinished jobs of a submission")
    withdraw = add_command("withdraw", _withdraw, "remove a submission's results from all boards")
    withdraw.add_argument("--why", required=True, help="reason, which boards show instead of the results")
    for parser in (cancel, withdraw):
        parser.add_argument("submission")
        _add_json(parser)
    sending = add_command("upload", _upload, "upload a large file and print its id for a submission's upload=ID")
    sending.add_argument("file", type=Path)
    sending.add_argument("--kind", required=True, choices=["run", "model"])
    for parser in (check, submit, status, watch):
        _add_json(parser)


def _add_boards(add_command: AddCommand) -> None:
    """Add the commands `board`, `export`, and `reproduce`."""
    board = add_command("board", _board, "show a board")
    export = add_command("export", _export, "export a board")
    formats = "csv, json, md (markdown), tex (latex), bib (bibtex); default: %(default)s"
    export.add_argument("--format", default="csv", help=formats)
    export.add_argument("--out", type=Path, help="output file (default: standard output)")
    view = "query parameter of the board, such as sort=AP"
    for parser in (board, export):
        parser.add_argument("dataset", help="the slug of a dataset or benchmark")
        parser.add_argument("--view", action="append", default=[], metavar="NAME=VALUE", help=view)
    board.add_argument("--rows", type=int, default=20, help="number of rows to show (default: %(default)s)")
    _add_json(board)
    again = add_command("reproduce", _reproduce, "reproduce a system's results and compare runs and scores")
    again.add_argument("system", help="the system's slug or the address of its page")
    again.add_argument("--checkpoint", type=Path, help="the system's model: a folder or an archive")
    folder_help = "folder for downloads and runs (default: %(default)s)"
    again.add_argument("--folder", type=Path, default=Path("reproduced"), help=folder_help)
    _add_force(again)


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace existing files with different content")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the API's response")


def _client(arguments: argparse.Namespace) -> Client:
    return Client(arguments.url, progress=_Bars())


class _Bars:
    """Progress bars, one for each transferred file."""

    def __init__(self) -> None:
        self._bars: dict[str, tqdm] = {}

    def __call__(self, name: str, transferred: int, total: int) -> None:
        """Show the bytes of a file transferred so far. The bar is removed when the file is complete."""
        bar = self._bars.get(name)
        if bar is None:
            bar = self._bars[name] = tqdm(total=total, desc=name, unit="B", unit_scale=True, leave=False,
                                         disable=None)  # fmt: skip
        bar.update(transferred - bar.n)
        if transferred >= total:
            bar.close()


def _login(arguments: argparse.Namespace) -> int:
    """Read a token, check it with a request to the site, and store the site's address and the token.

    Raises ValueError if no token is entered, and Refused if the site does not accept it.
    """
    prompt = f"Token for {arguments.site} (create one on your account page): "
    token = checked_token(getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline())
    if not token:
        raise ValueError("Enter a token. Your account page creates one.")
    site = Client(arguments.site, token)
    site.submissions()  # Raises Refused for an invalid token.
    say(f"Stored in {write_login(site.url, token)}.")
    return 0


def _datasets(arguments: argparse.Namespace) -> int:
    """Print all datasets as a table or as JSON."""
    datasets = _client(arguments).datasets()
    if arguments.json:
        return _print_json(datasets)
    rows = [
        (
            dataset["slug"], dataset["name"], dataset["language"], dataset["primary_measure"],
            "hidden" if dataset["hidden"] else "open", f"{dataset['entries']:,}",
        )
        for dataset in datasets
    ]  # fmt: skip
    _print_table(("dataset", "name", "language", "measure", "judgments", "results"), rows)
    return 0


def _download(arguments: argparse.Namespace) -> int:
    folder = arguments.to or Path(arguments.dataset)
    for path in _client(arguments).download(arguments.dataset, folder, arguments.kind, arguments.force):
        say(path)
    return 0


def _download_runs(arguments: argparse.Namespace) -> int:
    for path in _client(arguments).download_runs(arguments.submission, arguments.to, arguments.force):
        say(path)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    """Print the site's report on each run, as text or JSON. Return 1 if a run is not valid."""
    status, site = 0, _client(arguments)
    for path in arguments.runs:
        report = site.check(arguments.dataset, path)
        status = max(status, 0 if report["valid"] else 1)
        if arguments.json:
            _print_json(report)
            continue
        say(f"{path}: {'valid' if report['valid'] else 'not valid'}")
        for problem in report["problems"]:
            say(f"  {problem['severity']}:{format_problem(problem).rstrip()[1:]}")
    return status


def _submit(arguments: argparse.Namespace) -> int:
    """Submit runs or a model, and print the submission or follow it to its end.

    Raises ValueError if the arguments have both runs and a model, or neither.
    """
    named = [field for field in arguments.fields if field.startswith(("hub_model=", "image="))]
    if bool(arguments.runs) == bool(arguments.checkpoint or named):
        raise ValueError("Enter the runs to submit, or a model: --checkpoint ARCHIVE, or --set image=NAME@DIGEST.")
    site = _client(arguments)
    fields = {"system": arguments.system, "public": not arguments.private, **_parse_pairs(arguments.fields)}
    submission = site.submit(arguments.dataset.split(","), arguments.runs, arguments.checkpoint, **fields)
    if arguments.watch:
        return _follow(site, submission["id"], None, arguments.json)
    if arguments.json:
        return _print_json(submission)
    say(f"{submission['id']}: {submission['state']}; {submission['url']}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    """Print the state of one submission, or of all of the user's."""
    site = _client(arguments)
    submissions = [site.status(arguments.submission)] if arguments.submission else site.submissions()
    if arguments.json:
        return _print_json(submissions if arguments.submission is None else submissions[0])
    for submission in submissions:
        _print_submission(submission)
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    """Cancel a submission and print it. Report on standard error if it had already ended."""
    site = _client(arguments)
    submission = site.status(arguments.submission)
    status = _print_result(site.cancel(arguments.submission), arguments.json)
    if has_ended(submission):
        message = f"{submission['id']} had already ended ({submission['state']}), so no job was canceled."
        say(message, file=sys.stderr)
    return status


def _withdraw(arguments: argparse.Namespace) -> int:
    """Withdraw a submission and print it. Report on standard error if it was already withdrawn."""
    site = _client(arguments)
    submission = site.status(arguments.submission)
    status = _print_result(site.withdraw(arguments.submission, arguments.why), arguments.json)
    if submission["state"] == "withdrawn":
        reason = submission["withdrawal_reason"]
        say(f"{submission['id']} was already withdrawn. Its reason is still “{reason}”.", file=sys.stderr)
    return status


def _print_result(submission: Submission, as_json: bool) -> int:
    if as_json:
        return _print_json(submission)
    _print_submission(submission)
    return 0


def _watch(arguments: argparse.Namespace) -> int:
    return _follow(_client(arguments), arguments.submission, arguments.timeout, arguments.json)


def _follow(site: Client, identifier: str, timeout: float | None, as_json: bool) -> int:
    """Print the submission whenever it changes, or only its final state as JSON. Return 0 if that state is “done”."""
    submission = None
    for submission in site.watch(identifier, timeout):
        if not as_json:
            _print_submission(submission)
    if as_json:
        _print_json(submission)
    return 0 if submission is not None and submission["state"] == "done" else 1


def _board(arguments: argparse.Namespace) -> int:
    """Print the board's title, summary, and first rows, or all rows as JSON."""
    frame = _client(arguments).board(arguments.dataset, **_parse_pairs(arguments.view))
    if arguments.json:
        say(frame.to_json(orient="records", indent=1, force_ascii=False))
        return 0
    summary = frame.attrs["summary"] or {}
    say(frame.attrs["title"])
    if summary.get("text"):
        say(summary["text"])
    table = frame.drop(columns=_NOT_PRINTED).replace("", None).dropna(axis="columns", how="all").iloc[:, :9]
    percentages = {name: "{:+.1%}".format for name in table if name in _PERCENTAGES}
    say(
        table.head(arguments.rows).to_string(
            index=False, formatters=percentages, float_format="{:.3f}".format, na_rep="—", max_colwidth=40
        )
    )
    return 0


def _export(arguments: argparse.Namespace) -> int:
    """Write the exported board to the output file or standard output."""
    content = _client(arguments).export(arguments.dataset, arguments.format, **_parse_pairs(arguments.view))
    if arguments.out:
        arguments.out.write_bytes(content)
    elif sys.stdout.isatty():
        say(content.decode("utf-8", "replace"), end="")
    else:
        sys.stdout.buffer.write(content)
    return 0


def _upload(arguments: argparse.Namespace) -> int:
    say(upload(_client(arguments), arguments.file, arguments.kind, _Bars()))
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    """Reproduce a system's results and print a line for each. Return 1 if one differs.

    Raises ValueError if runboard-eval or its kernel is missing.
    """
    try:
        from runboard_eval.core.problems import KernelUnavailable
        from runboard_eval.kernel.library import library

        from runboard.reproducing import reproduce, site_and_slug
    except ImportError as error:
        raise missing_library(error) from error
    try:
        library()  # This fails before the first download.
    except KernelUnavailable as error:
        raise ValueError(str(error)) from error
    address, slug = site_and_slug(arguments.system)
    site, status = Client(arguments.url or address, progress=_Bars()), 0
    for reproduction in reproduce(site, slug, arguments.folder, arguments.checkpoint, arguments.force):
        say(reproduction)
        status = max(status, 1 if reproduction.differs else 0)
    return status


def _print_submission(submission: Submission) -> None:
    """Print the submission's state, and each job's state, note, problems, and errors."""
    queue_note = f", {submission['queue_position']} before it" if submission["queue_position"] else ""
    say(f"{submission['id']}  {submission['system']}: {submission['state']}{queue_note}")
    sentences = {result["dataset"]: result["sentence"] for result in submission["results"]}
    for job in submission["jobs"]:
        progress = "" if job["state"] in FINAL_STATES else job["progress_note"] or job["stage"]
        note = sentences.get(job["dataset"]) or progress or job["meaning"]
        say(f"    {job['dataset']}: {job['state']} {note}".rstrip())
        for problem in job["problems"]:
            say(f"      {format_problem(problem)}")
        for text in (job["error"], job["remedy"]):
            if text and text != note:
                say(f"        {text}")
    for seeds in submission["seed_sets"]:
        if seeds["dataset"] not in sentences:
            say(f"    {seeds['dataset']}: {seeds['meaning']}")


def _parse_pairs(words: Sequence[str]) -> dict[str, Any]:
    """Parse FIELD=VALUE pairs; repeated fields become a list. Raises ValueError for a word without “=”."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word} is not a pair: write FIELD=VALUE.")
        values[name] = (
            [*([values[name]] if isinstance(values[name], str) else values[name]), value] if name in values else value
        )
    return values


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_json(content: Any) -> int:
    with suppress(BrokenPipeError):
        say(json.dumps(content, ensure_ascii=False, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
