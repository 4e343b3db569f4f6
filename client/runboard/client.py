"""Client of a site's API."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pandas as pd
import requests

from runboard import answers
from runboard.boards import as_frame
from runboard.connection import Connection
from runboard.errors import Refused, SiteUnavailable, describe_root_cause
from runboard.untrusted import T, read_content, require_plain_name
from runboard.uploading import Progress, upload

#: Size above which files are uploaded in pieces, so that a broken connection loses little.
MAX_BYTES_AT_ONCE = 32 * 1024 * 1024
_TOO_LARGE = (
    "{0} is too large to check immediately. Submit it for a check by a worker, or check it on your own "
    "machine with the dataset's queries: runboard-eval check --run {0} --queries queries.jsonl.gz."
)
_EXISTS = "{}: already exists with different content. Choose another folder, or replace existing files (--force)."
#: Final states of submissions.
FINAL_STATES = frozenset({"done", "rejected", "failed", "cancelled", "timed_out", "withdrawn"})
#: File extensions of exports by the display names of formats.
_EXTENSIONS = {"markdown": "md", "latex": "tex", "bibtex": "bib"}
_BLOCK = 1 << 20
#: Maximum size of a downloaded run in bytes. The site states no size.
_MAX_RUN_BYTES = 1 << 30


def _ignore(name: str, transferred: int, total: int) -> None:
    """Ignore progress."""


def has_ended(submission: answers.Submission) -> bool:
    """Return whether the submission is in a final state."""
    return submission["state"] in FINAL_STATES


class Client(Connection):
    """Client of a Runboard site's API.

    Without `url`, the site is RUNBOARD_URL, or that of `runboard login`. Without `token`, it is the one that
    `runboard.login.token_for` returns for this site. Methods raise Refused if the site refuses a request, and
    SiteUnavailable if it cannot be reached after several attempts, or does not respond like a Runboard site.
    `progress` is called with the name of the transferred file, the bytes so far, and the bytes in all.
    """

    def __init__(self, url: str | None = None, token: str | None = None, progress: Progress = _ignore) -> None:
        super().__init__(url, token)
        self._progress = progress

    # --- Datasets and boards

    def datasets(self) -> list[answers.DatasetSummary]:
        """Return all datasets with their statistics."""
        return self.ask_for(answers.DatasetList, "GET", "datasets/")["datasets"]

    def dataset(self, slug: str) -> answers.Dataset:
        """Return one dataset with the versions of its judgments and examples."""
        return self.ask_for(answers.Dataset, "GET", f"datasets/{slug}/")

    def files(self, slug: str) -> list[answers.File]:
        """Return a dataset's downloadable files: name, kind, size, sha256, and url."""
        files = self.ask_for(list[answers.File], "GET", f"datasets/{slug}/files/")
        for file in files:
            require_plain_name(file["name"], self.url)
        return files

    def recipes(self, slug: str) -> list[answers.Recipe]:
        """Return a recipe for each result of a system, or the reason why the result cannot be reproduced."""
        recipes = self.ask_for(list[answers.Recipe], "GET", f"systems/{slug}/recipes/")
        for recipe in recipes:
            require_plain_name(recipe["dataset"], self.url)
        return recipes

    def download(self, slug: str, folder: Path, kinds: Sequence[str] = (), replace: bool = False) -> list[Path]:
        """Download files of these kinds, or all files, into a folder; return their paths.

        Existing files with the right content are not downloaded again. Raises FileExistsError, before any download, if
        files of these names have different content, unless `replace` is set.
        """
        targets = [(file, folder / file["name"]) for file in self.files(slug) if not kinds or file["kind"] in kinds]
        folder.mkdir(parents=True, exist_ok=True)
        downloads = [(file, path) for file, path in targets if not _has_content(path, file["sha256"])]
        if not replace:
            _require_absence([path for _, path in downloads])
        for file, path in downloads:
            self._download(file, path)
        return [path for _, path in targets]

    def board(self, slug: str, **view: Any) -> pd.DataFrame:
        """Return the board of a dataset or benchmark, one row per result.

        Columns are the API's keys. Filters and other submissions do not change them; a column without values is empty.
        Cells with text on the page are numbers here: `low` and `high` are the ends of the score's interval,
        `delta_low` and `delta_high` those of the difference from the baseline, `rank_low` and `rank_high` the range of
        ranks, and `wins`, `ties`, and `losses` counts. Numbers are unrounded, and percentages are fractions (0.1 is
        10%). Ranks count among the rows with the same `ranked_among`. `attrs` has the title, summary, measure, and
        permalink of the board.

        `view` has query parameters of the board's page: `sort="AP"`, `architecture="dense"`, `max_mean_latency=20`.
        Raises ValueError for unknown parameters, and Refused if the site has no such board.
        """
        parameters = _build_parameters(view)

        def ask(kind: str) -> pd.DataFrame:
            return as_frame(self.ask_for(answers.Board, "GET", f"{kind}/{slug}/board/", params=parameters))

        return self._ask_dataset_or_benchmark(ask, f"There is no dataset or benchmark “{slug}” on {self.url}.")

    def export(self, slug: str, form: str = "csv", **view: Any) -> bytes:
        """Return a board in an export format: csv, json, md (Markdown), tex (LaTeX), or bib (BibTeX).

        `view` is as for `board`. Raises Refused if the site has no such board or format.
        """
        extension, parameters = _EXTENSIONS.get(form, form), _build_parameters(view)

        def ask(kind: str) -> bytes:
            url = urljoin(self.url, f"{kind}/{slug}/board.{extension}")
            return read_content(self.request("GET", url, params=parameters))

        message = f"There is no dataset or benchmark “{slug}”, or no format “{form}”. Formats: csv, json, md, tex, bib."
        return self._ask_dataset_or_benchmark(ask, message)

    def _ask_dataset_or_benchmark(self, ask: Callable[[str], T], message: str) -> T:
        """Return `ask("datasets")`, or `ask("benchmarks")` if the site answers 404.

        Raises Refused with `message` if it answers 404 to both, and with its own message for other refusals.
        """
        for kind in ("datasets", "benchmarks"):
            try:
                return ask(kind)
            except Refused as refusal:
                if refusal.status != 404:
                    raise
        raise Refused(404, "not_found", message, [])

    # --- Submissions

    def check(self, slug: str, run: Path) -> answers.Report:
        """Return the site's report on a run, which is not stored. Raises Refused above MAX_BYTES_AT_ONCE."""
        if run.stat().st_size > MAX_BYTES_AT_ONCE:
            raise Refused(0, "too_large_to_check_at_once", _TOO_LARGE.format(run), [])
        return self._send(answers.Report, "check/", {"dataset": slug}, "run", [run])

    def submit(
        self,
        datasets: Sequence[str],
        runs: Sequence[Path] = (),
        checkpoint: Path | None = None,
        **fields: Any,
    ) -> answers.Submission:
        """Submit a run for each dataset, several seeds for one dataset, or a model for all these datasets.

        `fields` are the fields of the API: `system`, `architecture`, `engine`, `parameters`, `public` … Submit a model
        as an archive with `checkpoint`, or name it with `hub_model` or `image`.
        """
        values = {"dataset": list(datasets), **fields}
        kind, files = "run", runs
        if checkpoint is not None or not fields.keys().isdisjoint(("hub_model", "image")):
            values.setdefault("kind", "model")
            kind, files = "model", [checkpoint] if checkpoint is not None else []
        return self._send(answers.Submission, "submissions/", values, kind, files)

    def status(self, identifier: str) -> answers.Submission:
        """Return the state of a submission."""
        return self.ask_for(answers.Submission, "GET", f"submissions/{identifier}/")

    def submissions(self) -> list[answers.Submission]:
        """Return your submissions and those of your teams, newest first."""
        return self.ask_for(answers.SubmissionPage, "GET", "submissions/")["results"]

    def cancel(self, identifier: str) -> answers.Submission:
        """Stop all jobs of a submission that have not ended."""
        return self.ask_for(answers.Submission, "POST", f"submissions/{identifier}/cancel/")

    def withdraw(self, identifier: str, reason: str) -> answers.Submission:
        """Remove the results of a submission from all boards; the reason, at most 300 characters, is public."""
        path = f"submissions/{identifier}/withdraw/"
        return self.ask_for(answers.Submission, "POST", path, json={"reason": reason})

    def watch(self, identifier: str, timeout: float | None = None) -> Iterator[answers.Submission]:
        """Yield the submission whenever it changes, until it has ended. Raises TimeoutError after `timeout` seconds."""
        start, pause, last_snapshot = time.monotonic(), 1.0, ""
        while True:
            submission = self.status(identifier)
            snapshot = json.dumps(
                [submission["state"], submission["jobs"], submission["results"]], sort_keys=True, default=str
            )
            if snapshot != last_snapshot:
                yield submission
                pause = 1.0
            if has_ended(submission):
                return
            if timeout is not None and time.monotonic() - start > timeout:
                raise TimeoutError(
                    f"{identifier} has not ended in {timeout:.0f} s. It continues. Run `watch` again to follow it."
                )
            time.sleep(pause)
            last_snapshot, pause = snapshot, min(1.5 * pause, 15.0)

    def download_runs(self, identifier: str, folder: Path, replace: bool = False) -> list[Path]:
        """Download the runs of a submission into a folder, compressed with gzip, and return their paths.

        These are runs of your team, and others that the site offers. Raises Refused if there are none, and
        FileExistsError, before any download, for existing files with different content, unless `replace` is set.
        """
        addresses = [urlsplit(job["run_url"]) for job in self.status(identifier)["jobs"] if job["run_url"]]
        if not addresses:
            message = f"{identifier} has no run that you may download. Runs are available once they are scored."
            raise Refused(404, "not_found", message, [])
        folder.mkdir(parents=True, exist_ok=True)
        targets = []
        for address in addresses:
            url = urljoin(self.url, f"/{address.path.lstrip('/')}?{address.query}")
            with self.request("HEAD", url) as answer:
                headers = answer.headers
            name = headers.get("Content-Disposition", "").partition('filename="')[2].rstrip('"')
            require_plain_name(name, self.url)
            sha256 = headers.get("ETag", "").removeprefix("W/").strip('"')
            targets.append((url, folder / name, partial(_has_content, sha256=sha256, open_file=gzip.open)))
        downloads = [(url, path, has_run) for url, path, has_run in targets if not has_run(path)]
        if not replace:
            _require_absence([path for _, path, _ in downloads])
        for url, path, has_run in downloads:
            self._save(self.request("GET", url), path, None, has_run)
        return [path for _, path, _ in targets]

    def _send(self, form: type[T], path: str, fields: Mapping[str, Any], kind: str, files: Sequence[Path]) -> T:
        """Send a multipart form of fields and files, and return the response as a `form` of `runboard.answers`.

        Files above MAX_BYTES_AT_ONCE are uploaded in pieces first.
        """
        values = [(name, item) for name, value in fields.items() for item in _to_form_values(value)]
        field = "checkpoint" if kind == "model" else "file"
        file_parts = []
        for file in files:
            if file.stat().st_size > MAX_BYTES_AT_ONCE:
                values.append(("upload", upload(self, file, kind, self._progress)))
            else:  # In memory, because a retry sends it again.
                file_parts.append((field, (file.name, file.read_bytes())))
        # A multipart form even without files.
        parts = [*((name, (None, value)) for name, value in values), *file_parts]
        return self.ask_for(form, "POST", path, files=parts)

    def _download(self, file: answers.File, target: Path) -> None:
        # The host is always this site, regardless of the path.
        url = urljoin(self.url, "/" + urlsplit(file["url"]).path.lstrip("/"))
        self._save(self.request("GET", url), target, file["size"], partial(_has_content, sha256=file["sha256"]))

    def _save(
        self, answer: requests.Response, target: Path, size: int | None, is_complete: Callable[[Path], bool]
    ) -> None:
        """Save a download as `target`, which is replaced only once the download is complete and has the right sha256.

        Raises SiteUnavailable if the download is interrupted, longer than the size that the site stated, or damaged.
        """
        partial_file, limit = target.with_name(f".{target.name}.partial"), _MAX_RUN_BYTES if size is None else size
        try:
            with answer, partial_file.open("wb") as output:
                for block in answer.iter_content(_BLOCK):
                    if output.tell() + len(block) > limit:
                        stated = "that the site stated" if size is not None else "that a run may have"
                        raise SiteUnavailable(f"{target.name} is longer than the {limit:,} bytes {stated}.")
                    output.write(block)
                    if size is not None:
                        self._progress(target.name, output.tell(), size)
            if not is_complete(partial_file):
                raise SiteUnavailable(f"The download of {target.name} is incomplete or damaged. Try again.")
            partial_file.replace(target)
        except requests.RequestException as error:
            raise SiteUnavailable(
                f"The download of {target.name} was interrupted: {describe_root_cause(error)}. Try again."
            ) from error
        finally:
            partial_file.unlink(missing_ok=True)


def _require_absence(paths: Sequence[Path]) -> None:
    """Raise FileExistsError with the paths that exist."""
    if existing_paths := [str(path) for path in paths if os.path.lexists(path)]:
        raise FileExistsError(_EXISTS.format(", ".join(existing_paths)))


def _build_parameters(view: Mapping[str, Any]) -> dict[str, Any]:
    """Return query parameters, with dashes for the underscores of Python names. Raises ValueError for unknown ones."""
    parameters = {name.replace("_", "-") if name.isidentifier() else name: value for name, value in view.items()}
    unknown_names = [name for name in parameters if name not in answers.VIEW and name[:4] not in ("min-", "max-")]
    if unknown_names:
        names = f"{', '.join(answers.VIEW)}, and min- or max- before the key of a column"
        raise ValueError(f"A board's view has no {' and no '.join(unknown_names)}. It has {names}.")
    return parameters


def _to_form_values(value: Any) -> list[str]:
    """Return a field's value as strings: “true” or “false”, JSON for a mapping, and one string per item of a list."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, Mapping):
        return [json.dumps(value)]
    if isinstance(value, list | tuple):
        return [part for item in value for part in _to_form_values(item)]
    return [str(value)]


def _has_content(path: Path, sha256: str, open_file: Callable[..., Any] = open) -> bool:
    """Return whether the file exists and its content, as read with `open_file`, has this SHA-256."""
    if not path.is_file():
        return False
    try:
        with open_file(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False
