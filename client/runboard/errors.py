"""What may go wrong between client and site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests


class SiteUnavailable(Exception):
    """The site cannot be reached, has no time, or has a fault of its own. The same may do better in a while."""


class Refused(Exception):
    """The site does not take what was sent.

    `code` is stable; `problems` say where, what is wrong and what would be right.
    """

    def __init__(self, status: int, code: str, detail: str, problems: list[dict[str, Any]]) -> None:
        self.status, self.code, self.problems = status, code, problems
        more = [each for each in problems if str(each.get("message")).lower() != detail.lower()]
        super().__init__("\n".join([detail, *map(in_words, more)]))

    @classmethod
    def of(cls, answer: requests.Response) -> Refused:
        """What an answer of 4xx says."""
        try:
            told = answer.json()
            problems = [problem for problem in told.get("problems", []) if isinstance(problem, dict)]
            for file in told.get("files", []):
                problems += [{**problem, "file": file.get("file")} for problem in file.get("problems", [])]
            detail = told.get("detail") or f"The site answered {answer.status_code}."
            return cls(answer.status_code, told.get("code", ""), detail, _distinct(problems))
        except (ValueError, AttributeError, TypeError):
            said = "with a page in place of JSON: is this the address of a Runboard site?"
            return cls(answer.status_code, "", f"{answer.url} answered {answer.status_code} {said}", [])


def _distinct(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for problem in problems:
        seen[(problem.get("code"), problem.get("message"))] = problem
    return list(seen.values())


def seconds_to_wait(answer: requests.Response, otherwise: float) -> float:
    """What `Retry-After` asks for in seconds; a date, which it may also have, is not read."""
    try:
        return float(answer.headers["Retry-After"])
    except (KeyError, ValueError):
        return otherwise


def in_words(problem: Mapping[str, Any]) -> str:
    """Where, what is wrong, and what would be right, in one line."""
    where = f"{problem['file']}: " if problem.get("file") else ""
    lines = ", ".join(map(str, problem.get("lines") or []))
    message = str(problem.get("message", problem.get("code", "")))
    at = f" (line {lines})" if lines and "line " not in message else ""
    return f"  {where}{message}{at}. {problem.get('hint', '')}".replace("..", ".").rstrip()
