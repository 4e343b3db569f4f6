"""Errors for unknown query parameters and unknown values."""

from collections.abc import Iterable
from difflib import get_close_matches

#: At most this many similar choices are suggested.
MOST_SUGGESTED = 3


class UnknownChoice(Exception):
    """A query parameter has a value that the page does not know.

    Args:
        parameter: The parameter's name.
        value: The unknown value.
        choices: The valid values.
        expected: A description of the valid values, where they cannot be listed.
    """

    def __init__(
        self, parameter: str, value: str, choices: Iterable[str] = (), *, expected: str = ""
    ) -> None:
        self.parameter, self.value, self.choices, self.expected = parameter, value, list(choices), expected
        by_fold = {choice.casefold(): choice for choice in self.choices}
        self.near = [by_fold[fold] for fold in get_close_matches(value.casefold(), by_fold, MOST_SUGGESTED)]
        super().__init__(" ".join(filter(None, (f"{self.subject}.", self.suggestion, self.valid))))

    @property
    def subject(self) -> str:
        """The unknown value, as a heading."""
        return f"Unknown {self.parameter} “{self.value[:60]}”"

    @property
    def suggestion(self) -> str:
        """The question that names similar choices, empty without any."""
        return f"Did you mean {' or '.join(f'“{each}”' for each in self.near)}?" if self.near else ""

    @property
    def valid(self) -> str:
        """The sentence that lists or describes valid values."""
        if self.choices:
            return f"Choose one of: {', '.join(self.choices)}."
        return f"Valid: {self.expected}." if self.expected else ""


class UnknownParameter(UnknownChoice):
    """A query parameter that the page does not read; `choices` are the ones that it reads."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        super().__init__("parameter", name, names, expected="no parameters at this address")
