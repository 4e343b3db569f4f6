"""Errors for unknown query parameters and unknown values."""

from collections.abc import Iterable
from difflib import get_close_matches

#: Maximum number of suggested choices.
MAX_SUGGESTED = 3
#: Names used by other sites, mapped to this site's names.
_SYNONYMS = {
    "metric": "measure", "query": "q", "search": "q", "filter": "q", "limit": "rows", "per_page": "rows",
    "group": "columns", "license": "licence", "model": "system", "name": "system", "latency": "mean-latency",
    "size": "model-parameters",
}  # fmt: skip


def similar(text: str, choices: Iterable[str], limit: int = MAX_SUGGESTED, cutoff: float = 0.6) -> list[str]:
    """Return the choices that are spelled like a text, ignoring case, most similar first.

    `cutoff` is the least similarity, as in `difflib.get_close_matches`.
    """
    by_fold = {choice.casefold(): choice for choice in choices}
    return [by_fold[fold] for fold in get_close_matches(text.casefold(), by_fold, limit, cutoff)]


class UnknownChoice(Exception):
    """A query parameter has an unknown value.

    Args:
        parameter: Name of the parameter.
        value: The unknown value.
        choices: Valid values.
        expected: Description of the valid values, if they cannot be listed.
    """

    def __init__(self, parameter: str, value: str, choices: Iterable[str] = (), *, expected: str = "") -> None:
        self.parameter, self.value, self.choices, self.expected = parameter, value, list(choices), expected
        synonym = _SYNONYMS.get(value.casefold(), "")
        self.near = [synonym] if synonym in self.choices else similar(value, self.choices)
        super().__init__(f"{self.problem} {self.valid}".rstrip())

    @property
    def problem(self) -> str:
        """Sentence that names the unknown value, and a question that suggests similar choices if there are any."""
        names = " or ".join(f"“{choice}”" for choice in self.near)
        return f"Unknown {self.parameter} “{self.value[:60]}”.{f' Did you mean {names}?' if names else ''}"

    @property
    def valid(self) -> str:
        """Sentence that lists or describes the valid values."""
        if self.choices:
            return f"Choose one of: {', '.join(self.choices)}."
        return f"Valid: {self.expected}." if self.expected else ""


class UnknownParameter(UnknownChoice):
    """A query parameter is unknown; `choices` are the valid parameters."""

    def __init__(self, name: str, names: Iterable[str]) -> None:
        super().__init__("parameter", name, names, expected="no parameters at this address")
