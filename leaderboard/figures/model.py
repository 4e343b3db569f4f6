"""What a figure is: how it is called, and what is drawn and told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from leaderboard.boards.wording import MINUS
from leaderboard.figures.texts import plain

if TYPE_CHECKING:
    from leaderboard.boards.model import Board
    from leaderboard.figures.request import FigureRequest

Subject = Literal["benchmark", "dataset", "system", "comparison", "site"]
Cell = str | float | int | None
Trace = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """The values of a picture. `formats` has a format specification for a column: `.3f`, `+.3f`, `,d`, "" for text."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    formats: Sequence[str] = ()

    def texts(self) -> list[list[str]]:
        """The cells as people read them, a dash where there is no value."""
        formats = self.formats or [""] * len(self.heads)
        return [[_text(value, form) for value, form in zip(row, formats, strict=True)] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [
            any(isinstance(row[place], (int, float)) for row in self.rows) for place in range(len(self.heads))
        ]

    def as_data(self) -> dict[str, Any]:
        """As the JSON has it: values for programs, texts for the page."""
        return {
            "heads": list(self.heads),
            "rows": [list(row) for row in self.rows],
            "texts": self.texts(),
            "numeric": self.numeric,
        }


def _text(value: Cell, form: str) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else format(value, form).replace("-", MINUS)


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of some subject: plotly's `data` and `layout`, and the same as words and table.

    `subtitle` names subject and measure; a picture that is taken away has it under its title.
    """

    data: list[Trace]
    layout: dict[str, Any]
    table: Table
    caption: str
    subtitle: str = ""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def empty(cls, reason: str) -> Plot:
        """Nothing to draw, and why."""
        return cls([], {}, Table((), ()), reason)


def always(dataset: Mapping[str, Any]) -> bool:
    """For figures that any dataset's page shows."""
    return True


def of_any_board(board: Board) -> bool:
    """For figures that any board has something for."""
    return True


class Choice(NamedTuple):
    """One value of a figure's own parameter."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A kind of picture. `choices` are its own parameters: name → label and values, the first one the default.

    `wide` figures take a page's whole width. `fits` tells by a dataset's row (`pages.DATASET_FIELDS`) whether its page
    shows the figure, `drawable` by its whole board, quickly: no frame where no choice would draw what says anything.
    """

    slug: str
    title: str
    caption: str
    subjects: tuple[Subject, ...]
    build: Callable[[FigureRequest], Plot]
    choices: Mapping[str, tuple[str, tuple[Choice, ...]]] = field(default_factory=dict)
    wide: bool = False
    fits: Callable[[Mapping[str, Any]], bool] = always
    drawable: Callable[[Board], bool] = of_any_board

    def as_data(self, plot: Plot) -> dict[str, Any]:
        """The whole figure as its JSON; `data` and `layout` are for plotly, where names are no markup."""
        return {
            "slug": self.slug,
            "title": self.title,
            "subtitle": plot.subtitle,
            "caption": plot.caption,
            "notes": plot.notes,
            "data": plain(plot.data),
            "layout": plain(plot.layout),
            "table": plot.table.as_data(),
        }
