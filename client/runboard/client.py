"""A site's API, with a token: verbs as methods."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pandas as pd
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from runboard import answers
from runboard.errors import Refused, SiteUnavailable, seconds_to_wait
from runboard.uploading import upload

#: Larger files are sent in pieces, so that a broken connection costs little.
IN_PIECES = 32 * 1024 * 1024
#: States in which a submission stays.
ENDED = frozenset({"done", "rejected", "failed", "cancelled", "timed_out", "withdrawn"})
_TIMEOUT = (10.0, 120.0)
_LONGEST_PAUSE = 60.0
_BLOCK = 1 << 20
#: Told what is sent or brought, how many of its bytes are, and how many there are.
Progress = Callable[[str, int, int], None]


def _ignore(what: str, done: int, total: int) -> None:
    """Tell nobody."""


def has_ended(submission: answers.Submission) -> bool:
    """Whether nothing will change by itself any more."""
    return submission["state"] in ENDED


class Client:
    """A Runboard site.

    Where `url` and `token` are left out they are those of RUNBOARD_URL and RUNBOARD_TOKEN, or of `runboard login`.
    Methods raise Refused for what the site does not take, and SiteUnavailable where it cannot be reached, after
    several tries.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, progress: Progress = _ignore
    ) -> None:
        known = read_login()
        address = url or os.environ.get("RUNBOARD_URL") or known.get("url")
        if not address or urlsplit(address).scheme not in ("http", "https"):
            raise ValueError(
                "Which site? Name it (https://…), set RUNBOARD_URL, or run `runboard login https://…`."
            )
        self.url = address.split("/api/")[0].rstrip("/") + "/"
        if token is None:
            token = os.environ.get("RUNBOARD_TOKEN") or (
                known.get("token") if known.get("url") == self.url else None
            )
        self._progress = progress
        self._session = requests.Session()
        self._session.headers["User-Agent"] = "runboard-client"
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        passing = Retry(
            total=6, backoff_factor=0.5, status_forcelist=(429, 502, 503, 504), allowed_methods=("GET", "HEAD"),
            raise_on_status=False,
        )  # fmt: skip
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=passing))

    # --- what there is

    def datasets(self) -> list[answers.DatasetSummary]:
        """All datasets, with their statistics."""
        found: answers.DatasetList = self._get("datasets/")
        return found["datasets"]

    def dataset(self, slug: str) -> answers.Dataset:
        """One dataset: what runs are checked against, judgements' versions, examples."""
        found: answers.Dataset = self._get(f"datasets/{slug}/")
        return found

    def files(self, slug: str) -> list[answers.File]:
        """The files that may be downloaded: name, kind, size, sha256, url."""
        found: list[answers.File] = self._get(f"datasets/{slug}/files/")
        return found

    def recipes(self, slug: str) -> list[answers.Recipe]:
        """How each result of a system is made again, or why it cannot be."""
        found: list[answers.Recipe] = self._get(f"systems/{slug}/recipes/")
        return found

    def download(self, slug: str, folder: Path, kinds: Sequence[str] = ()) -> list[Path]:
        """Bring files of these kinds, or all, into a folder; those that are there stay. Returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [file for file in self.files(slug) if not kinds or file["kind"] in kinds]
        return [self._download(file, folder / Path(file["name"]).name) for file in wanted]

    def board(self, slug: str, **view: Any) -> pd.DataFrame:
        """A board as a frame: a row for each system, columns as the page calls them, numbers unrounded.

        `view` is what a board's address takes: `sort="AP"`, `architecture="dense"`, `max_mean_latency=20`. The site's
        own words on it and its permalink are in `attrs`.
        """
        return self._frame(f"datasets/{slug}/board/", view)

    def benchmark(self, slug: str, **view: Any) -> pd.DataFrame:
        """A benchmark's board, as `board`."""
        return self._frame(f"benchmarks/{slug}/board/", view)

    def export(self, slug: str, form: str = "csv", **view: Any) -> bytes:
        """A dataset's board as the site exports it: csv, json, md, tex, bib …"""
        answer = self._ask(
            "GET", urljoin(self.url, f"datasets/{slug}/board.{form}"), params=_parameters(view)
        )
        return answer.content

    # --- submissions

    def check(self, slug: str, run: Path) -> answers.Report:
        """What the site says of a run; nothing is stored."""
        found: answers.Report = self._send("check/", {"dataset": slug}, "run", [run])
        return found

    def submit(
        self,
        datasets: Sequence[str],
        runs: Sequence[Path] = (),
        checkpoint: Path | None = None,
        **fields: Any,
    ) -> answers.Submission:
        """Submit runs (a dataset for each, or one for all as seeds), or a model's archive for these datasets.

        `fields` are those of the API: `system`, `architecture`, `engine`, `parameters`, `public` …
        """
        values = {"dataset": list(datasets), **fields}
        kind, files = "run", runs
        if checkpoint is not None:
            values.setdefault("kind", "model")
            kind, files = "model", [checkpoint]
        found: answers.Submission = self._send("submissions/", values, kind, files)
        return found

    def status(self, identifier: str) -> answers.Submission:
        """How far a submission is."""
        found: answers.Submission = self._get(f"submissions/{identifier}/")
        return found

    def submissions(self) -> list[answers.Submission]:
        """Yours and your teams', newest first."""
        found: answers.SubmissionPage = self._get("submissions/")
        return found["results"]

    def watch(self, identifier: str, timeout: float | None = None) -> Iterator[answers.Submission]:
        """The submission whenever something changes, until it has ended. Raises TimeoutError after so many seconds."""
        started, pause, last = time.monotonic(), 1.0, ""
        while True:
            found = self.status(identifier)
            seen = json.dumps([found["state"], found["jobs"], found["results"]], sort_keys=True, default=str)
            if seen != last:
                yield found
                pause = 1.0
            if has_ended(found):
                return
            if timeout is not None and time.monotonic() - started > timeout:
                raise TimeoutError(
                    f"{identifier} has not ended in {timeout:.0f} s; it goes on, and `watch` can too."
                )
            time.sleep(pause)
            last, pause = seen, min(1.5 * pause, 15.0)

    # --- how it is asked

    def ask(self, method: str, path: str, **options: Any) -> Any:
        """What any call of the API answers; `path` is below /api/v1/."""
        answer = self._ask(method, urljoin(self.url, f"api/v1/{path}"), **options)
        return answer.json() if answer.content else None

    def _get(self, path: str, **parameters: Any) -> Any:
        return self.ask("GET", path, params=parameters)

    def _ask(self, method: str, url: str, **options: Any) -> requests.Response:
        for attempt in range(4):
            try:
                answer = self._session.request(method, url, timeout=_TIMEOUT, **options)
            except requests.RequestException as error:
                raise SiteUnavailable(f"{self.url} cannot be reached: {_cause(error)}") from error
            # What is streamed cannot be sent twice.
            if answer.status_code != 429 or method == "GET" or attempt == 3 or "data" in options:
                break
            time.sleep(min(seconds_to_wait(answer, 5.0), _LONGEST_PAUSE))
        if answer.status_code >= 500:
            raise SiteUnavailable(f"{self.url} answered {answer.status_code}. {_detail(answer)}".rstrip())
        if answer.status_code == 401:
            raise Refused(
                401, "unauthorised", f"{_detail(answer)} Run `runboard login {self.url}`.".lstrip(), []
            )
        if answer.status_code >= 400:
            raise Refused.of(answer)
        return answer

    def _send(self, path: str, fields: Mapping[str, Any], kind: str, files: Sequence[Path]) -> Any:
        """Fields and files; large ones go in pieces before."""
        values = [(name, each) for name, value in fields.items() for each in _as_form(value)]
        field = "checkpoint" if kind == "model" else "file"
        sent = []
        for file in files:
            if file.stat().st_size > IN_PIECES:
                values.append(("upload", upload(self, file, kind, self._progress)))
            else:  # whole in memory: it may have to be sent again
                sent.append((field, (file.name, file.read_bytes())))
        # Without a file the fields still go as a form of several parts.
        return self.ask("POST", path, files=[*((name, (None, value)) for name, value in values), *sent])

    def _download(self, file: answers.File, target: Path) -> Path:
        if target.exists() and _sha256(target) == file["sha256"]:
            return target
        url = urljoin(self.url, urlsplit(file["url"]).path)
        partial = target.with_name(f".{target.name}.partial")
        try:
            with self._ask("GET", url, stream=True) as answer, partial.open("wb") as out:
                for block in answer.iter_content(_BLOCK):
                    out.write(block)
                    self._progress(file["name"], out.tell(), file["size"])
            if _sha256(partial) != file["sha256"]:
                raise SiteUnavailable(f"{file['name']} did not arrive whole. Try again.")
            partial.replace(target)
        except requests.RequestException as error:
            raise SiteUnavailable(
                f"{file['name']} did not arrive whole: {_cause(error)}. Try again."
            ) from error
        finally:
            partial.unlink(missing_ok=True)
        return target

    def _frame(self, path: str, view: Mapping[str, Any]) -> pd.DataFrame:
        board: answers.Board = self._get(path, **_parameters(view))
        labels = _labels(board["columns"])
        rows = []
        for row in board["rows"]:
            named = {"Rank": row["rank"], "System": row["system"], "slug": row["slug"]}
            values = {labels[key]: value for key, value in row["values"].items() if key in labels}
            rows.append({**named, "Configuration": row["configuration"], **values})
        frame = pd.DataFrame(rows)
        frame.attrs = {name: board[name] for name in ("title", "summary", "permalink", "measure")}
        return frame.assign(Rank=frame["Rank"].astype("Int64")) if len(frame) else frame


def _labels(columns: Sequence[answers.Column]) -> dict[str, str]:
    """What columns are called, by key; those of one name by their group as well."""
    named = [column for column in columns if column["key"] != "system"]
    often = Counter(column["label"] for column in named)
    return {
        each["key"]: f"{each['label']} ({each['group']})" if often[each["label"]] > 1 else each["label"]
        for each in named
    }


def config_path() -> Path:
    """Where `login` keeps address and token."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "runboard" / "login.json"


def read_login() -> dict[str, str]:
    """What `login` kept."""
    try:
        return dict(json.loads(config_path().read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def write_login(url: str, token: str) -> Path:
    """Keep address and token, for nobody else to read."""
    path = config_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump({"url": url, "token": token}, file)
    return path


def _parameters(view: Mapping[str, Any]) -> dict[str, Any]:
    """As an address has them: names that Python can write have underscores for dashes."""
    return {name.replace("_", "-") if name.isidentifier() else name: value for name, value in view.items()}


def _as_form(value: Any) -> list[str]:
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, Mapping):
        return [json.dumps(value)]
    if isinstance(value, list | tuple):
        return [part for each in value for part in _as_form(each)]
    return [str(value)]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _detail(answer: requests.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return ""


def _cause(error: BaseException) -> str:
    """The innermost reason, in the system's words."""
    while (inner := getattr(error, "reason", None) or error.__cause__ or error.__context__) is not None:
        if not isinstance(inner, BaseException):
            return str(inner)
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
