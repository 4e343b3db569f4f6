"""Errors between client and site."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import requests

#: Maximum seconds to wait for a site before a retry; longer waits are reported to the user.
LONGEST_WAIT = 60.0
_WEEK = 7 * 86400.0


class SiteUnavailable(Exception):
    """Error raised if the site is unreachable, overloaded, faulty, or not a Runboard site.

    A retry may succeed later, after `wait` seconds if the site stated a time.
    """

    def __init__(self, text: str, wait: float = 0.0) -> None:
        super().__init__(text)
        self.wait = wait


class Refused(Exception):
    """Refusal of a request by the site.

    `code` is stable. Each of the `problems` has a location, a message, and a hint. The site may accept the request
    after `wait` seconds.
    """

    def __init__(self, status: int, code: str, detail: str, problems: list[dict[str, Any]], wait: float = 0.0) -> None:
        self.status, self.code, self.problems, self.wait = status, code, problems, wait
        duplicates = [problem for problem in problems if str(problem.get("message")).lower() == detail.lower()]
        other_lines = [format_problem(problem) for problem in problems if problem not in duplicates]
        super().__init__("\n".join([format_problem(duplicates[0]).strip() if duplicates else detail, *other_lines]))

    @classmethod
    def from_response(cls, status: int, body: bytes, url: str, wait: float = 0.0) -> Refused:
        """Return the error for a response with status 4xx, with the detail and problems of its JSON body.

        A body of another form gives a general message.
        """
        try:
            answer = json.loads(body)
            problems = [problem for problem in answer.get("problems", []) if isinstance(problem, dict)]
            for file in answer.get("files", []):
                problems += [{**problem, "file": file.get("file")} for problem in file.get("problems", [])]
            detail = str(answer.get("detail") or f"The site answered {status}.")
            if detail == "Not found.":
                detail = f"No page exists at {url}. Check the address."
            if wait > LONGEST_WAIT:
                detail = f"{detail.rstrip('.')}.{retry_advice(wait)}"
            return cls(status, answer.get("code", ""), detail, _drop_duplicates(problems), wait)
        except (ValueError, AttributeError, TypeError):
            reason = "with a page instead of JSON: is this the address of a Runboard site?"
            return cls(status, "", f"{url} answered {status} {reason}{retry_advice(wait)}", [], wait)


def _drop_duplicates(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the problems with distinct code and message, keeping the last of equal ones."""
    by_message: dict[tuple[Any, ...], dict[str, Any]] = {}
    for problem in problems:
        by_message[(problem.get("code"), problem.get("message"))] = problem
    return list(by_message.values())


def seconds_to_wait(answer: requests.Response, default: float) -> float:
    """Return the seconds in `Retry-After`, at most a week, or `default`. Dates are ignored."""
    value = answer.headers.get("Retry-After", "")
    return min(float(value), _WEEK) if value.isdecimal() else default


def retry_advice(wait: float) -> str:
    """Return a sentence that states when to try again, or an empty string if the wait is short."""
    if wait <= LONGEST_WAIT:
        return ""
    size, unit = next(option for option in ((3600, "h"), (60, "min")) if wait >= option[0])
    return f" Try again in {-(-wait // size):,.0f} {unit}."


def describe_root_cause(error: BaseException) -> str:
    """Return the message of the error's root cause, as given by the operating system if it has one."""
    while (inner := getattr(error, "reason", None) or error.__cause__ or error.__context__) is not None:
        if not isinstance(inner, BaseException):
            return str(inner)
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def missing_library(error: ImportError) -> ValueError:
    """Return the error of a command that needs runboard-eval if it cannot be imported."""
    return ValueError(
        "This command needs runboard-eval. In Runboard's repository, run `make wheels` and "
        f'`pip install "$(echo build/wheels/runboard_eval-*.whl)[index]"` ({error}).'
    )


def format_problem(problem: Mapping[str, Any]) -> str:
    """Return a problem's location, message, and hint in one line."""
    file_prefix = f"{problem['file']}: " if problem.get("file") else ""
    lines = ", ".join(map(str, problem.get("lines") or []))
    message = str(problem.get("message", problem.get("code", "")))
    line_suffix = f" (line {lines})" if lines and not re.search(r"\bline \d", message) else ""
    return f"  {file_prefix}{message}{line_suffix}. {problem.get('hint', '')}".replace("..", ".").rstrip()
