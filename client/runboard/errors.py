"""What may go wrong between client and site."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import requests

#: Seconds that a site may ask to wait before the same is asked again; where it asks for more, that is said instead.
LONGEST_WAIT = 60.0
_WEEK = 7 * 86400.0


class SiteUnavailable(Exception):
    """The site cannot be reached, has no time, answers what it should not, or has a fault of its own.

    The same may do better in a while: after `wait` seconds, where the site said so.
    """

    def __init__(self, text: str, wait: float = 0.0) -> None:
        super().__init__(text)
        self.wait = wait


class Refused(Exception):
    """The site does not take what was sent.

    `code` is stable; `problems` say where, what is wrong and what would be right. The site may take it after `wait`
    seconds.
    """

    def __init__(
        self, status: int, code: str, detail: str, problems: list[dict[str, Any]], wait: float = 0.0
    ) -> None:
        self.status, self.code, self.problems, self.wait = status, code, problems, wait
        same = [each for each in problems if str(each.get("message")).lower() == detail.lower()]
        others = [in_words(each) for each in problems if each not in same]
        super().__init__("\n".join([in_words(same[0]).strip() if same else detail, *others]))

    @classmethod
    def of(cls, status: int, body: bytes, url: str, wait: float = 0.0) -> Refused:
        """What the body of an answer of 4xx says."""
        try:
            told = json.loads(body)
            problems = [problem for problem in told.get("problems", []) if isinstance(problem, dict)]
            for file in told.get("files", []):
                problems += [{**problem, "file": file.get("file")} for problem in file.get("problems", [])]
            detail = str(told.get("detail") or f"The site answered {status}.")
            if detail == "Not found.":
                detail = f"There is nothing at {url}."
            if wait > LONGEST_WAIT:
                detail = f"{detail.rstrip('.')}.{try_again(wait)}"
            return cls(status, told.get("code", ""), detail, _distinct(problems), wait)
        except (ValueError, AttributeError, TypeError):
            said = "with a page in place of JSON: is this the address of a Runboard site?"
            return cls(status, "", f"{url} answered {status} {said}{try_again(wait)}", [], wait)


def _distinct(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for problem in problems:
        seen[(problem.get("code"), problem.get("message"))] = problem
    return list(seen.values())


def seconds_to_wait(answer: requests.Response, otherwise: float) -> float:
    """What `Retry-After` asks for in seconds, a week at most; a date, which it may also have, is not read."""
    said = answer.headers.get("Retry-After", "")
    return min(float(said), _WEEK) if said.isdecimal() else otherwise


def try_again(wait: float) -> str:
    """When to try again, where that is too long to wait for; else nothing."""
    if wait <= LONGEST_WAIT:
        return ""
    size, unit = next(each for each in ((3600, "h"), (60, "min")) if wait >= each[0])
    return f" Try again in {-(-wait // size):,.0f} {unit}."


def cause_of(error: BaseException) -> str:
    """The innermost reason, in the system's words."""
    while (inner := getattr(error, "reason", None) or error.__cause__ or error.__context__) is not None:
        if not isinstance(inner, BaseException):
            return str(inner)
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def library_missing(error: ImportError) -> ValueError:
    """For a command that computes with runboard-eval where that cannot be imported: how to come by it."""
    return ValueError(
        "This command needs runboard-eval. In the folder of Runboard's repository, `make wheels` makes it and "
        f"`pip install build/wheels/*.whl` installs it ({error})."
    )


def in_words(problem: Mapping[str, Any]) -> str:
    """Where, what is wrong, and what would be right, in one line."""
    where = f"{problem['file']}: " if problem.get("file") else ""
    lines = ", ".join(map(str, problem.get("lines") or []))
    message = str(problem.get("message", problem.get("code", "")))
    at = f" (line {lines})" if lines and "line " not in message else ""
    return f"  {where}{message}{at}. {problem.get('hint', '')}".replace("..", ".").rstrip()
