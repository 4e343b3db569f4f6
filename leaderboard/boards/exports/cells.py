"""What exports call a board, its columns and its rows, and its cells as text, with the digits of the page."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from django.conf import settings

from leaderboard.boards.columns import marks
from leaderboard.boards.facets import OF_DATASETS
from leaderboard.boards.model import EFFECTIVENESS, SEPARATED, Board, Column, Row
from leaderboard.core.text import numbers
from leaderboard.results.board_rows.entry_rows import CLOSED, QUARANTINED

#: What a missing value is written as.
MISSING = "—"


def text_of(row: Row, column: Column) -> str:
    """The cell as the page writes it, without its marks."""
    value, text = row.value(column.key), row[column.key].text
    if text:
        return text
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if column.kind == "score":
        return f"{value:.{row.decimals}f}"
    if column.kind == "delta":
        return numbers.signed(value, row.decimals)
    if column.kind == "relative":
        return numbers.signed(value, 1, percent=True)
    if column.decimals is not None:
        return f"{value:.{column.decimals}f}"
    if column.kind in ("count", "rank", "number"):
        return f"{round(value, 4):g}"
    return numbers.format_quantity(value)


def name_of(row: Row) -> str:
    """Whose row it is, with its configuration: `BM25 (k1 = 1.2)`."""
    entry = row.entry
    return f"{entry.system} ({entry.configuration})" if entry.configuration else entry.system


def footnotes(board: Board) -> list[str]:
    """What a reader of the table alone has to know."""
    cells = [row[column.key] for row in board.rows for column in board.columns]
    signs = {cell.mark for cell in cells}
    found = []
    if any("‡" in sign for sign in signs) or any(row.entry.training == "in-domain" for row in board.rows):
        found.append("‡ in-domain: trained on that dataset.")
    # What the mark of a real difference means is the first sentence of the note on it.
    found += [f"{note.partition('. ')[0]}." for note in board.notes if note.startswith(f"{SEPARATED} ")]
    if any("?" in sign for sign in signs):
        found.append("? doubtful: as printed, or as measured on a busy machine.")
    if any(row.rank_label.startswith("r") for row in board.rows):
        found.append("r: rank among reported figures, which were not recomputed here.")
    if any(row.ranked_in == CLOSED for row in board.rows):
        found.append("c: rank among closed APIs, which cannot be reproduced.")
    if any(cell.spread and not cell.noise for cell in cells):
        found.append("±: sample standard deviation over seeds, and how many there are.")
    if any(cell.spread and cell.noise for cell in cells):
        found.append("± after a latency or × BM25: how far it may be off.")
    found += marks.notes(row.entry for row in board.rows)
    if any(row.entry.visibility == "withdrawn" for row in board.rows):
        found.append("Withdrawn: taken off the board since.")
    return found + [
        f"Quarantined by a curator: {name_of(row)}, {row.entry.moderation_reason}"
        for row in board.rows
        if row.entry.visibility == QUARANTINED
    ]


def status_of(row: Row) -> str:
    """What stands after the name: `(baseline)`, `(withdrawn)`, `(quarantined)`."""
    entry = row.entry
    words = ["baseline"] if entry.is_baseline else []
    words += marks.badges(entry)
    words += ["pooled"] if marks.pooled_mark(entry) else []
    words += [entry.visibility] if entry.visibility in ("withdrawn", QUARANTINED) else []
    return f"({', '.join(words)})" if words else ""


#: By view: what the cells are of the measure, and what the head of each dataset's column ends with.
_VIEWS: Mapping[str, tuple[str, str]] = {
    "delta": ("Difference to {baseline} in {measure}", "Δ"),
    "relative": ("Relative difference to {baseline} in {measure}", "Δ %"),
    "rank": ("Rank by {measure}", "rank"),
}


def measured(board: Board) -> str:
    """What the datasets' cells show: `nDCG@10`, `Rank by nDCG@10`."""
    if not board.view:
        return board.measure
    return _VIEWS[board.view][0].format(measure=board.measure, baseline=board.baseline)


def label_of(board: Board, column: Column) -> str:
    """The head of a column: `FiQA-2018`, or `FiQA-2018 Δ` where it shows differences."""
    return f"{column.label} {_VIEWS[board.view][1]}" if _is_of_view(board, column) else column.label


def heading(board: Board, column: Column) -> str:
    """The head of a column with its unit, as people read it."""
    return label_of(board, column) + (f" ({column.unit})" if column.unit else "")


def key_of(board: Board, column: Column) -> str:
    """The same for programs: `fiqa`, `fiqa delta`, `fiqa relative`, `fiqa rank`."""
    return f"{column.key} {board.view}" if _is_of_view(board, column) else column.key


def datasets_of(board: Board) -> str:
    """`1 of 19 datasets, chosen by domain: Finance`; empty where the board has all of its datasets."""
    shown = sum(column.group.startswith(EFFECTIVENESS) for column in board.columns)
    every = len(board.of_datasets)
    chosen = [
        f"{facet.label.lower()}: {', '.join(option.label for option in facet.options if option.chosen)}"
        for facet in board.facets
        if facet.name in OF_DATASETS and facet.chosen
    ]
    if not chosen:
        return ""
    number = f"{shown} of {every} datasets" if shown else f"some of {every} datasets"
    return f"{number}, chosen by {'; '.join(chosen)}"


def _is_of_view(board: Board, column: Column) -> bool:
    return bool(board.view) and column.group.startswith(EFFECTIVENESS)


#: As addresses of past boards write a time, to the second.
MOMENT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Citation:
    """A board with its date. `at` is when it last changed, None where nobody wrote that down.

    `url` is its permalink in the same view, with a host; without an `at` the address of the present board.
    """

    kind: Literal["dataset", "benchmark"]
    slug: str
    name: str
    url: str
    at: datetime.datetime | None = None
    #: What each system's own page says to cite, by its slug; read for BibTeX only.
    bibtex: Mapping[str, str] = field(default_factory=dict)

    @property
    def site(self) -> str:
        """Who publishes it."""
        return settings.SITE_NAME

    @property
    def date(self) -> str:
        """`21 November 2026`, empty where it is not known."""
        return f"{self.at.day} {self.at:%B %Y}" if self.at else ""

    @property
    def moment(self) -> str:
        """`2026-11-21T17:05:09Z`, empty where it is not known."""
        return self.at.strftime(MOMENT) if self.at else ""
