"""What a figure is, what it is asked for (the board's own view, systems, its own choices), and what is drawn of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlencode

from django.core.validators import slug_re

from leaderboard.boards import pages
from leaderboard.boards.model import Board
from leaderboard.boards.pages import BenchmarkPage, DatasetPage
from leaderboard.boards.state import PARAMETERS, BoardState, Parameters, last_value
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.text.numbers import MINUS
from leaderboard.datasets import lists

if TYPE_CHECKING:
    import plotly.graph_objects as go

Subject = Literal["benchmark", "dataset", "system", "comparison", "site"]
Cell = str | float | int | None

#: So many systems may be named.
MOST_SYSTEMS = 12
#: What Plotly fills with values; in these alone tags are ours.
TEMPLATES = frozenset({"hovertemplate", "texttemplate"})
_PLAIN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class TableColumn(NamedTuple):
    """A column of a figure's table. `form` is a format specification, such as `.3f`, `+.3f` and `,d`."""

    head: str
    values: Sequence[Cell]
    form: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The values of a picture, by column."""

    columns: Sequence[TableColumn]

    @classmethod
    def of(cls, *columns: tuple[str, Sequence[Cell]] | tuple[str, Sequence[Cell], str]) -> Table:
        """Return the table with columns of these heads, values, and formats."""
        return cls([TableColumn(*column) for column in columns])

    @property
    def heads(self) -> list[str]:
        return [column.head for column in self.columns]

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        return list(zip(*(column.values for column in self.columns), strict=True))

    def texts(self) -> list[list[str]]:
        """Return the cells as people read them, with a dash where there is no value."""
        columns = ([_text(value, column.form) for value in column.values] for column in self.columns)
        return [list(row) for row in zip(*columns, strict=True)]

    def as_data(self) -> dict[str, Any]:
        """Return the JSON: values for programs, texts for the page, and which columns hold numbers."""
        numeric = [any(isinstance(one, (int, float)) for one in column.values) for column in self.columns]
        return {"heads": self.heads, "rows": self.rows, "texts": self.texts(), "numeric": numeric}


def _text(value: Cell, form: str) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else format(value, form).replace("-", MINUS)


@dataclass(frozen=True, slots=True)
class Plot:
    """A figure of some subject: plotly's traces and its layout, and the same as words and table.

    `subtitle` names subject and measure; a picture that is taken away has it under its title. `chosen` are the figure's
    own parameters where it chose them itself; `baseline` is how the board's is called, for the title.
    """

    data: list[Any]
    layout: go.Layout | None
    table: Table
    caption: str
    subtitle: str = ""
    notes: list[str] = field(default_factory=list)
    chosen: Mapping[str, str] = field(default_factory=dict)
    baseline: str = ""

    @classmethod
    def empty(cls, reason: str) -> Plot:
        """Nothing to draw, and why."""
        return cls([], None, Table(()), reason)


def plain(value: Any, key: str = "") -> Any:
    """Data or layout in which every text says what it says, but for templates.

    Plotly reads every text as markup: tags, links, entities. Names and titles come from people: they stand in `data`
    and `layout` as they are, and are made plain here, once, as the figure leaves. So whatever puts its own tags into a
    text does so in a template, and templates have no names within.
    """
    if isinstance(value, str):
        return value if key in TEMPLATES else value.translate(_PLAIN)
    if isinstance(value, dict):
        return {name: plain(inner, name) for name, inner in value.items()}
    return [plain(inner, key) for inner in value] if isinstance(value, (list, tuple)) else value


class FigureChoice(NamedTuple):
    """One value of a figure's own parameter."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A kind of picture. `choices` are its own parameters: name → label and values, the first one the default.

    `fits` tells by a dataset's row (`pages.DATASET_FIELDS`) whether its page
    shows the figure, `drawable` by its whole board, quickly: no frame where no choice would draw what says anything.
    `known` is asked the same, of the board and the ids of its datasets, where that takes a look into the database.
    """

    slug: str
    title: str
    caption: str
    subjects: tuple[Subject, ...]
    build: Callable[[FigureRequest], Plot]
    choices: Mapping[str, tuple[str, tuple[FigureChoice, ...]]] = field(default_factory=dict)
    fits: Callable[[Mapping[str, Any]], bool] = lambda dataset: True
    drawable: Callable[[Board], bool] = lambda board: True
    known: Callable[[Board, Sequence[int]], bool] = lambda board, datasets: True

    def titled(self, baseline: str = "") -> str:
        """The title on a board whose baseline is called so."""
        return self.title.replace("the baseline", baseline or "the baseline")

    def as_data(self, plot: Plot) -> dict[str, Any]:
        """The whole figure as its JSON; `data` and `layout` are for plotly, where names are no markup."""
        return {
            "slug": self.slug,
            "title": self.titled(plot.baseline),
            "subtitle": plot.subtitle,
            "caption": plot.caption,
            "notes": plot.notes,
            "chosen": plot.chosen,
            "data": [plain(trace.to_plotly_json()) for trace in plot.data],
            "layout": plain(plot.layout.to_plotly_json()) if plot.layout is not None else {},
            "table": plot.table.as_data(),
        }


class SubjectNotFound(Exception):
    """There is no page of that name."""


class FigureRequest:
    """A figure and its parameters. What it reads of boards, it reads once."""

    def __init__(self, figure: Figure, parameters: Parameters) -> None:
        """Raises UnknownChoice, and SubjectNotFound for what can be the name of no page."""
        self.figure = figure
        self.state = BoardState.read(parameters)
        self.dataset = _slug(parameters, "dataset")
        self.benchmark = "" if self.dataset else _slug(parameters, "benchmark")
        if not self.dataset and not self.benchmark:
            if benchmarks := benchmarks_for(figure):
                self.benchmark, self.dataset = benchmarks[0]["slug"], ""
            else:
                most = max(datasets_for(figure), key=lambda row: row["number"], default=None)
                self.benchmark, self.dataset = "", most["slug"] if most else ""
        named = [slug for slug in parameters.getlist("system") if slug]
        self.systems = tuple(dict.fromkeys(named))[:MOST_SYSTEMS]
        self._choices = {name: last_value(parameters, name) for name in figure.choices}
        for name, value in self._choices.items():
            known = [choice.value for choice in figure.choices[name][1]]
            if value and value not in known:
                raise UnknownChoice(name, value, known)

    def plot(self) -> Plot:
        """The figure drawn, or why there is nothing to draw it of. Raises what the figure's `build` raises."""
        if self.benchmark or self.dataset or {"site", "system"} & set(self.figure.subjects):
            return self.figure.build(self)
        return Plot.empty("Nothing on this site has what this figure needs yet.")

    def choice(self, name: str) -> str:
        """The value of one of the figure's own parameters, its first one by default."""
        return self._choices[name] or self.figure.choices[name][1][0].value

    def asks(self, name: str) -> bool:
        """Whether one of the figure's own parameters is asked for."""
        return bool(self._choices[name])

    def query_string(self) -> str:
        """Its parameters in one fixed order, for links and for the page cache."""
        pairs = [("benchmark", self.benchmark), ("dataset", self.dataset)]
        pairs += [("system", slug) for slug in self.systems]
        pairs += list(self._choices.items())
        own = urlencode([pair for pair in pairs if pair[1]])
        return "?" + "&".join(part for part in (own, self.state.query_string()[1:]) if part)

    @property
    def view(self) -> BoardState:
        """The page's facets, with everything that a board shows of them: all pages, all groups of columns, scores."""
        return self.state.but(all_rows=True, hidden=(), view="", weights=())

    @cached_property
    def benchmark_page(self) -> BenchmarkPage:
        """The benchmark's page in this view. Raises SubjectNotFound and UnknownChoice."""
        return self.benchmark_in_view("")

    def benchmark_in_view(self, view: str) -> BenchmarkPage:
        """The benchmark's page with this of `VIEWS` in the datasets' columns. Raises SubjectNotFound and
        UnknownChoice."""
        state = self.view.but(view=view, all_rows=True)
        page = pages.benchmark_page(self.benchmark, state) if self.benchmark else None
        if page is None:
            raise SubjectNotFound
        return page

    @cached_property
    def dataset_page(self) -> DatasetPage:
        """The dataset's page in this view. Raises SubjectNotFound and UnknownChoice."""
        page = pages.dataset_page(self.dataset, self.view) if self.dataset else None
        if page is None:
            raise SubjectNotFound
        return page

    def unfiltered(self) -> FigureRequest:
        """The same figure of all rows of its page, in the same measure and on the same machine."""
        request = copy(self)
        request.state = self.state.but(facets=(), ranges=(), text="", zero_shot=False, sorts=())
        for name in ("benchmark_page", "dataset_page"):
            request.__dict__.pop(name, None)
        return request

    def board(self) -> Board:
        """The board of the page that the figure is about, all rows that its facets leave. See `benchmark_page`."""
        return self.dataset_page.board if self.dataset else self.benchmark_page.board


def figure_parameters(figure: Figure) -> list[str]:
    """Return the query parameters that a figure reads."""
    return [*dict.fromkeys(("benchmark", "dataset", "system", *figure.choices, *PARAMETERS))]


def benchmarks_for(figure: Figure) -> list[dict[str, Any]]:
    """The benchmarks that a figure can be about, in the order of the site."""
    return lists.benchmarks() if "benchmark" in figure.subjects else []


def datasets_for(figure: Figure) -> list[dict[str, Any]]:
    """The datasets with results whose pages show a figure."""
    if not {"dataset", "comparison"} & set(figure.subjects):
        return []
    return [row for row in lists.datasets() if row["number"] and figure.fits(row)]


def _slug(parameters: Parameters, name: str) -> str:
    slug = last_value(parameters, name)
    if slug and not slug_re.fullmatch(slug):
        raise SubjectNotFound
    return slug
