"""The command `runboard`.

Exit status: 0 all well, 1 refused or not well, 2 wrong usage, 3 the site cannot be reached, answers what no Runboard
site does, or takes longer than it was waited for.
"""

from __future__ import annotations

import argparse
import getpass
import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

from runboard.answers import Submission
from runboard.client import ENDED, Client, has_ended
from runboard.errors import Refused, SiteUnavailable, in_words, library_missing
from runboard.login import checked_token, write_login
from runboard.terminal import say
from runboard.uploading import upload


def main(words: Sequence[str] | None = None) -> int:
    """Run the command that `words` (by default the process's arguments) name; its exit status."""
    arguments = _parser().parse_args(words)
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
        named = getattr(error, "filename", None)
        say(f"{named}: {error.strerror}" if named and isinstance(error, OSError) else error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. The site goes on with what it has.", file=sys.stderr)
        return 130


#: Columns of boards that are fractions.
_PERCENTAGES = ("relative", "average-relative", "mean-relative")
#: Columns of frames that are left out where a board is printed.
_NOT_PRINTED = [
    "ranked_among", "slug", "baseline", "comparison_group", "missing_queries", "doubtful", "rank_low", "rank_high",
]  # fmt: skip
#: Adds a command: its name, what runs it, and what it does.
AddCommand = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="runboard", description="Work with a Runboard site.")
    parser.add_argument("--url", help="the site (else RUNBOARD_URL, else the one of `login`)")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        found.set_defaults(run=run)
        return found

    login = command("login", _login, "keep a site's address and your token, asked for or from standard input")
    login.add_argument("site", help="https://runboard.example.org")
    _add_datasets(command)
    _add_submissions(command)
    _add_boards(command)
    _add_retrieve(command)
    return parser


def _add_datasets(command: AddCommand) -> None:
    _add_json(command("datasets", _datasets, "list the datasets"))
    download = command("download", _download, "download a dataset's files, each checked by its sha256")
    download.add_argument("dataset")
    download.add_argument("--to", type=Path, help="folder (default: one that is called as the dataset)")
    download.add_argument(
        "--kind", action="append", default=[], help="such as corpus or queries; all where left out"
    )
    _add_force(download)


def _add_submissions(command: AddCommand) -> None:
    check = command("check", _check, "say everything that is wrong with a run; nothing is stored")
    check.add_argument("dataset")
    check.add_argument("runs", type=Path, nargs="+")
    submit = command("submit", _submit, "submit runs, or a model's archive")
    submit.add_argument("dataset", help="or several, with commas between")
    submit.add_argument(
        "runs", type=Path, nargs="*", help="a run for each dataset, or several for one: its seeds"
    )
    submit.add_argument("--checkpoint", type=Path, help="a model's archive, as `runboard-eval pack` makes it")
    submit.add_argument("--system", required=True, help="slug or name of one of yours, or a new name")
    submit.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="fields",
                        help="any field of the API: architecture=dense, training_datasets=none …")  # fmt: skip
    submit.add_argument("--private", action="store_true", help="only your team sees the results")
    submit.add_argument("--watch", action="store_true", help="wait for the end")
    status = command("status", _status, "show how far submissions are: one, or yours")
    status.add_argument("submission", nargs="?")
    watch = command("watch", _watch, "follow a submission to its end")
    watch.add_argument("submission")
    watch.add_argument("--timeout", type=float, help="seconds")
    cancel = command("cancel", _cancel, "stop a submission whose jobs have not ended")
    withdraw = command("withdraw", _withdraw, "remove a submission's results from all boards")
    withdraw.add_argument("--why", required=True, help="the reason, which the boards show in their place")
    for each in (cancel, withdraw):
        each.add_argument("submission")
        _add_json(each)
    sending = command(
        "upload", _upload, "send a large file and print its id, which a submission names as upload=ID"
    )
    sending.add_argument("file", type=Path)
    sending.add_argument("--kind", required=True, choices=["run", "model"])
    for each in (check, submit, status, watch):
        _add_json(each)


def _add_boards(command: AddCommand) -> None:
    board = command("board", _board, "show a board")
    export = command("export", _export, "write a board as the site exports it")
    formats = "csv, json, md (markdown), tex (latex), bib (bibtex); default: %(default)s"
    export.add_argument("--format", default="csv", help=formats)
    export.add_argument("--out", type=Path, help="file (default: standard output)")
    view = "as in a board's address: sort=AP"
    for each in (board, export):
        each.add_argument("dataset", help="the slug of a dataset or benchmark")
        each.add_argument("--view", action="append", default=[], metavar="NAME=VALUE", help=view)
    board.add_argument("--rows", type=int, default=20, help="how many are shown (default: %(default)s)")
    _add_json(board)
    again = command("reproduce", _reproduce, "make a system's results again, and compare runs and scores")
    again.add_argument("system", help="the address of its page, or its slug")
    again.add_argument("--checkpoint", type=Path, help="its model: a folder or an archive")
    place = "for downloads and runs (default: %(default)s)"
    again.add_argument("--folder", type=Path, default=Path("reproduced"), help=place)
    _add_force(again)


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="replace files of these names with other content"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print what the API answers")


def _add_retrieve(command: AddCommand) -> None:
    parser = command(
        "retrieve", _retrieve, "make a run with embeddings of an interface like OpenAI's /v1/embeddings"
    )
    parser.add_argument(
        "--endpoint", required=True, help="https://api.example.org: the address before /v1/embeddings"
    )
    parser.add_argument("--format", choices=["openai"], default="openai", help="what the interface is like")
    parser.add_argument("--model", required=True, help="as the interface calls it")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.jsonl, or .gz")
    parser.add_argument("--queries", required=True, type=Path, help="queries.jsonl, or .gz")
    parser.add_argument("--out", required=True, type=Path, help="run to write")
    parser.add_argument(
        "--cache",
        type=Path,
        help="folder where vectors are kept as they come, and used again (default: OUT.vectors)",
    )
    parser.add_argument("--depth", type=_count, default=1000, help="documents a query (default: %(default)s)")
    parser.add_argument("--batch", type=_count, default=64, help="texts of a request (default: %(default)s)")
    parser.add_argument("--query-prefix", default="", help="put before each query")
    parser.add_argument("--document-prefix", default="", help="put before each document")
    parser.add_argument(
        "--price", type=_price, help="US dollars for a million tokens: what it cost is noted in the run"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number of 1 or more")
    return int(text)


def _price(text: str) -> float:
    if not 0 <= (price := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no price: a number of US dollars, 0 or more")
    return price


def _client(arguments: argparse.Namespace) -> Client:
    return Client(arguments.url, progress=_Bars())


class _Bars:
    """A bar for each file that travels."""

    def __init__(self) -> None:
        self._bars: dict[str, tqdm] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        bar = self._bars.get(what)
        if bar is None:
            bar = self._bars[what] = tqdm(total=total, desc=what, unit="B", unit_scale=True, leave=False,
                                         disable=None)  # fmt: skip
        bar.update(done - bar.n)
        if done >= total:
            bar.close()


def _login(arguments: argparse.Namespace) -> int:
    asked = f"Token for {arguments.site} (your account's page makes one): "
    token = checked_token(getpass.getpass(asked) if sys.stdin.isatty() else sys.stdin.readline())
    if not token:
        raise ValueError("No token was given.")
    site = Client(arguments.site, token)
    site.submissions()  # refused where the token is none
    say(f"Kept in {write_login(site.url, token)}.")
    return 0


def _datasets(arguments: argparse.Namespace) -> int:
    found = _client(arguments).datasets()
    if arguments.json:
        return _print_json(found)
    rows = [
        (
            each["slug"], each["name"], each["language"], each["primary_measure"],
            "hidden" if each["hidden"] else "open", f"{each['entries']:,}",
        )
        for each in found
    ]  # fmt: skip
    _print_table(("dataset", "name", "language", "measure", "judgements", "results"), rows)
    return 0


def _download(arguments: argparse.Namespace) -> int:
    folder = arguments.to or Path(arguments.dataset)
    for path in _client(arguments).download(arguments.dataset, folder, arguments.kind, arguments.force):
        say(path)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    status, site = 0, _client(arguments)
    for path in arguments.runs:
        report = site.check(arguments.dataset, path)
        status = max(status, 0 if report["valid"] else 1)
        if arguments.json:
            _print_json(report)
            continue
        say(f"{path}: {'valid' if report['valid'] else 'not valid'}")
        for problem in report["problems"]:
            say(f"  {problem['severity']}:{in_words(problem).rstrip()[1:]}")
    return status


def _submit(arguments: argparse.Namespace) -> int:
    if bool(arguments.runs) == bool(arguments.checkpoint or "hub_model=" in "".join(arguments.fields)):
        raise ValueError(
            "Name the runs to submit, or a model: --checkpoint ARCHIVE, or --set hub_model=NAME."
        )
    site = _client(arguments)
    fields = {"system": arguments.system, "public": not arguments.private, **_pairs(arguments.fields)}
    found = site.submit(arguments.dataset.split(","), arguments.runs, arguments.checkpoint, **fields)
    if arguments.watch:
        return _follow(site, found["id"], None, arguments.json)
    if arguments.json:
        return _print_json(found)
    say(f"{found['id']}: {found['state']}; {found['url']}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    site = _client(arguments)
    found = [site.status(arguments.submission)] if arguments.submission else site.submissions()
    if arguments.json:
        return _print_json(found if arguments.submission is None else found[0])
    for each in found:
        _print_submission(each)
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    site = _client(arguments)
    before = site.status(arguments.submission)
    status = _show(site.cancel(arguments.submission), arguments.json)
    if has_ended(before):
        told = f"{before['id']} had already ended ({before['state']}), so there was nothing to cancel."
        say(told, file=sys.stderr)
    return status


def _withdraw(arguments: argparse.Namespace) -> int:
    site = _client(arguments)
    before = site.status(arguments.submission)
    status = _show(site.withdraw(arguments.submission, arguments.why), arguments.json)
    if before["state"] == "withdrawn":
        reason = before["withdrawal_reason"]
        say(f"{before['id']} was already withdrawn. Its reason is still “{reason}”.", file=sys.stderr)
    return status


def _show(submission: Submission, as_json: bool) -> int:
    if as_json:
        return _print_json(submission)
    _print_submission(submission)
    return 0


def _watch(arguments: argparse.Namespace) -> int:
    return _follow(_client(arguments), arguments.submission, arguments.timeout, arguments.json)


def _follow(site: Client, identifier: str, timeout: float | None, as_json: bool) -> int:
    """Print the submission as it changes, or its end as JSON; 0 where all of it was scored."""
    found = None
    for found in site.watch(identifier, timeout):
        if not as_json:
            _print_submission(found)
    if as_json:
        _print_json(found)
    return 0 if found is not None and found["state"] == "done" else 1


def _board(arguments: argparse.Namespace) -> int:
    frame = _client(arguments).board(arguments.dataset, **_pairs(arguments.view))
    if arguments.json:
        say(frame.to_json(orient="records", indent=1, force_ascii=False))
        return 0
    summary = frame.attrs["summary"] or {}
    say(frame.attrs["title"])
    if summary.get("text"):
        say(summary["text"])
    shown = frame.drop(columns=_NOT_PRINTED).replace("", None).dropna(axis="columns", how="all").iloc[:, :9]
    percentages = {name: "{:+.1%}".format for name in shown if name in _PERCENTAGES}
    say(
        shown.head(arguments.rows).to_string(
            index=False, formatters=percentages, float_format="{:.3f}".format, na_rep="—", max_colwidth=40
        )
    )
    return 0


def _export(arguments: argparse.Namespace) -> int:
    content = _client(arguments).export(arguments.dataset, arguments.format, **_pairs(arguments.view))
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


def _retrieve(arguments: argparse.Namespace) -> int:
    from runboard.embeddings import retrieve  # needs runboard-eval, as other commands do not

    retrieve(arguments)
    return 0


def _reproduce(arguments: argparse.Namespace) -> int:
    """A line for each result; 1 where one differs."""
    try:
        from runboard_eval.core.problems import KernelUnavailable
        from runboard_eval.kernel.library import library

        from runboard.reproducing import reproduce, site_and_slug
    except ImportError as error:
        raise library_missing(error) from error
    try:
        library()  # which reads runs: before anything is downloaded
    except KernelUnavailable as error:
        raise ValueError(str(error)) from error
    address, slug = site_and_slug(arguments.system)
    site, status = Client(arguments.url or address, progress=_Bars()), 0
    for found in reproduce(site, slug, arguments.folder, arguments.checkpoint, arguments.force):
        say(found)
        status = max(status, 1 if found.differs else 0)
    return status


def _print_submission(submission: Submission) -> None:
    place = f", {submission['queue_position']} before it" if submission["queue_position"] else ""
    say(f"{submission['id']}  {submission['system']}: {submission['state']}{place}")
    sentences = {result["dataset"]: result["sentence"] for result in submission["results"]}
    for job in submission["jobs"]:
        progress = "" if job["state"] in ENDED else job["progress_note"] or job["stage"]
        note = sentences.get(job["dataset"]) or progress or job["meaning"]
        say(f"    {job['dataset']}: {job['state']} {note}".rstrip())
        for problem in job["problems"]:
            say(f"      {in_words(problem)}")
        for text in (job["error"], job["remedy"]):
            if text and text != note:
                say(f"        {text}")
    for seeds in submission["seed_sets"]:
        if seeds["dataset"] not in sentences:
            say(f"    {seeds['dataset']}: {seeds['meaning']}")


def _pairs(words: Sequence[str]) -> dict[str, Any]:
    """FIELD=VALUE pairs; a field that repeats is a list."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word} is no pair: write FIELD=VALUE.")
        found[name] = (
            [*([found[name]] if isinstance(found[name], str) else found[name]), value]
            if name in found
            else value
        )
    return found


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
