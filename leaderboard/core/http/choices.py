"""A query parameter whose value is none of the choices."""

from __future__ import annotations

from collections.abc import Iterable


class UnknownChoice(Exception):
    """A parameter has a value that the board does not have; `choices` are those that it has."""

    def __init__(self, parameter: str, value: str, choices: Iterable[str]) -> None:
        self.parameter, self.value, self.choices = parameter, value, list(choices)
        super().__init__(
            f"“{value[:60]}” is no {parameter} of this board. It has: {', '.join(self.choices)}."
        )
