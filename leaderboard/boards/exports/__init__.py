"""Exports of boards: exactly the rows, columns, and order of a view, with values as published.

`FORMATS` maps URL extensions to formats.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from leaderboard.boards.exports.data import to_csv, to_json, to_json_text
from leaderboard.boards.exports.texts import Citation, to_bibtex, to_latex, to_markdown
from leaderboard.boards.model import Board


class Format(NamedTuple):
    """An export format: its name, media type, and writer."""

    label: str
    content_type: str
    write: Callable[[Board, Citation], str]
    #: Whether browsers download the file instead of displaying it.
    is_download: bool = False


FORMATS: Mapping[str, Format] = {
    "csv": Format("CSV", "text/csv; charset=utf-8", to_csv, is_download=True),
    "json": Format("JSON", "application/json", to_json_text),
    "md": Format("Markdown", "text/markdown; charset=utf-8", to_markdown),
    "tex": Format("LaTeX", "text/x-tex; charset=utf-8", to_latex),
    "bib": Format("BibTeX", "text/x-bibtex; charset=utf-8", to_bibtex),
}

__all__ = [
    "FORMATS", "Citation", "Format", "to_bibtex", "to_csv", "to_json", "to_latex", "to_markdown",
]  # fmt: skip
