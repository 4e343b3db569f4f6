"""What is found while a checkpoint is read, collected so that its sender hears everything at once."""

from __future__ import annotations

from evaluation.checkpoints.codes import CODES
from evaluation.core.problems import Problem, Report

#: How many classes of problem one report holds; a hostile file could make one for each of its tensors.
_MOST = 100
#: How many names a message lists.
_NAMED = 5


class Findings:
    """Errors and remarks about the files of one checkpoint."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, str], int] = {}
        self._unnamed = 0

    def refuse(self, code: str, file: str, what: str, key: str = "") -> None:
        """An error: which file, which key in it, and what was found."""
        self._add("error", code, file, key, what)

    def remark(self, code: str, file: str, what: str, key: str = "") -> None:
        """Something that its sender should know of, though the checkpoint is taken."""
        self._add("warning", code, file, key, what)

    def _add(self, severity: str, code: str, file: str, key: str, what: str) -> None:
        where = ": ".join(quote(part) for part in (file, key) if part)
        entry = (severity, code, where, what)
        if entry not in self._found and len(self._found) >= _MOST:
            self._unnamed += severity == "error"
            return
        self._found[entry] = self._found.get(entry, 0) + 1

    @property
    def refused(self) -> bool:
        """Whether there is any error."""
        return any(severity == "error" for severity, *_ in self._found)

    def has(self, code: str) -> bool:
        """Whether there is an error or a remark of this code."""
        return any(code == found for _, found, *_ in self._found)

    def report(self) -> Report:
        """Everything found, errors first."""
        problems = [
            Problem(
                "error" if severity == "error" else "warning",
                code,
                count,
                _sentence(where, what),
                CODES[code],
            )
            for (severity, code, where, what), count in self._found.items()
        ]
        return Report(tuple(sorted(problems, key=lambda problem: problem.severity != "error")))


def quote(text: object, most: int = 120) -> str:
    """A stranger's text, short and printable."""
    plain = "".join(
        c if c.isprintable() and not 0xD800 <= ord(c) < 0xE000 else "\ufffd" for c in str(text)[: most + 1]
    )
    return plain if len(plain) <= most else plain[:most] + " …"


def quoted(value: object) -> str:
    """A stranger's value for a message, short."""
    return f"“{quote(value, 60)}”"


def listed(names: list[str]) -> str:
    """The first few names and how many more."""
    more = len(names) - _NAMED
    return ", ".join(quote(name) for name in names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _sentence(where: str, what: str) -> str:
    return f"{where}: {what}" if where else what
