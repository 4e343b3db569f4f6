"""A query parameter whose value is none of the choices."""

from __future__ import annotations

from collections.abc import Iterable


class UnknownChoice(Exception):
    """A parameter has a value that the board does not have; `choices` are those that it has."""

    def __init__(self, parameter: str, value: str, choices: Iterable[str]) -> None:
        self.parameter, self.value, self.choices = parameter, value, list(choices)
        had = f" It has: {', '.join(self.choices)}." if self.choices else ""
        super().__init__(f"Unknown {parameter} “{value[:60]}”.{had}")
