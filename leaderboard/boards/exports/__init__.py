"""A board to take away: exactly the rows, columns and order of its view, with values as published.

`FORMATS` names the formats by the ending of their addresses.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from leaderboard.boards.exports.data import to_csv, to_json, to_json_text
from leaderboard.boards.exports.texts import Citation, to_bibtex, to_latex, to_markdown
from leaderboard.boards.model import Board


class Format(NamedTuple):
    """What a board can be had as: how it is called, its media type, and what writes it."""

    label: str
    content_type: str
    write: Callable[[Board, Citation], str]
    #: Whether browsers are to save it: nobody reads CSV in a browser.
    saved: bool = False


FORMATS: Mapping[str, Format] = {
    "csv": Format("CSV", "text/csv; charset=utf-8", to_csv, saved=True),
    "json": Format("JSON", "application/json", to_json_text),
    "md": Format("Markdown", "text/markdown; charset=utf-8", to_markdown),
    "tex": Format("LaTeX", "text/x-tex; charset=utf-8", to_latex),
    "bib": Format("BibTeX", "text/x-bibtex; charset=utf-8", to_bibtex),
}

__all__ = [
    "FORMATS", "Citation", "Format", "to_bibtex", "to_csv", "to_json", "to_latex", "to_markdown",
]  # fmt: skip
