"""Problems found while a checkpoint is read, collected so that its sender gets all of them at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from evaluation.checkpoints.codes import CODES
from evaluation.core.problems import Problem, Report, Severity

T = TypeVar("T")
#: Classes of errors and of remarks in a report; a hostile file could make one for each of its tensors.
_MOST = 100
#: Names that a message lists.
_NAMED = 5


class Refused(Exception):
    """A part of a checkpoint is refused, for a reason among the findings, and not read any further."""


def attempt(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None if it is refused, so that problems of other parts are found as well."""
    try:
        return read()
    except Refused:
        return None


class Findings:
    """Errors and remarks about the files of one checkpoint."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Severity, str, str]] = Counter()

    def at(self, file: str) -> FileFindings:
        """Return the findings about one file, or about the checkpoint for an empty name."""
        return FileFindings(self, file)

    def add(self, severity: Severity, code: str, message: str) -> None:
        """Count a problem; further classes of one severity are dropped after the first hundred."""
        entry = (severity, code, message)
        if entry in self._counts or sum(severity == each for each, *_ in self._counts) < _MOST:
            self._counts[entry] += 1

    @property
    def refused(self) -> bool:
        """Whether there is any error."""
        return any(severity == "error" for severity, *_ in self._counts)

    def has(self, code: str) -> bool:
        """Whether there is an error or a remark of this code."""
        return any(code == each for _, each, _ in self._counts)

    def report(self) -> Report:
        """Return all problems, errors first."""
        problems = [
            Problem(severity, code, count, message, CODES[code])
            for (severity, code, message), count in self._counts.items()
        ]
        return Report(tuple(sorted(problems, key=lambda problem: problem.severity != "error")))


@dataclass(frozen=True, slots=True)
class FileFindings:
    """Errors and remarks about one file, whose messages begin with its name and the key in it."""

    findings: Findings
    file: str

    def refuse(self, code: str, message: str, key: str = "") -> None:
        """Add an error, for which the checkpoint is refused."""
        self._add("error", code, message, key)

    def stop(self, code: str, message: str, key: str = "") -> NoReturn:
        """Add an error, and raise Refused."""
        self.refuse(code, message, key)
        raise Refused

    def remark(self, code: str, message: str, key: str = "") -> None:
        """Add a remark for the sender of a checkpoint that is accepted."""
        self._add("warning", code, message, key)

    def _add(self, severity: Severity, code: str, message: str, key: str) -> None:
        where = [quote(part) for part in (self.file, key) if part]
        self.findings.add(severity, code, ": ".join([*where, message]))


def quote(text: object, most: int = 120) -> str:
    """Return untrusted text, short and printable."""
    plain = "".join(
        c if c.isprintable() and not 0xD800 <= ord(c) < 0xE000 else "\ufffd" for c in str(text)[: most + 1]
    )
    return plain if len(plain) <= most else plain[:most] + " …"


def quoted(value: object) -> str:
    """Return an untrusted value in quotation marks, short."""
    return f"“{quote(value, 60)}”"


def listed(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(quote(name) for name in names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
