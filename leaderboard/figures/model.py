"""Figures, the requests that select what to draw, and the plots that they build."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlencode

from django.core.validators import slug_re
from django.utils.translation import gettext as _

from leaderboard.boards import pages
from leaderboard.boards.model import Board
from leaderboard.boards.pages import BenchmarkPage, DatasetPage
from leaderboard.boards.state import PARAMETERS, BoardState, Parameters, last_value
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.text.numbers import MINUS
from leaderboard.datasets import lists

if TYPE_CHECKING:
    import plotly.graph_objects as go

Subject = Literal["benchmark", "dataset", "comparison", "site"]
Cell = str | float | int | None

#: Maximum number of systems in a request.
MAX_SYSTEMS = 12
#: Layout keys that Plotly fills with values; only these may contain our own tags.
TEMPLATES = frozenset({"hovertemplate", "texttemplate"})
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class TableColumn(NamedTuple):
    """A column of a figure's table; `number_format` is a format specification, such as `.3f`, `+.3f`, or `,d`."""

    head: str
    values: Sequence[Cell]
    number_format: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The values of a figure, by column; `links` are the addresses of the rows' first cells, or empty."""

    columns: Sequence[TableColumn]
    links: Sequence[str] = ()

    @classmethod
    def from_columns(
        cls, *columns: tuple[str, Sequence[Cell]] | tuple[str, Sequence[Cell], str], links: Sequence[str] = ()
    ) -> Table:
        return cls([TableColumn(*column) for column in columns], links)

    @property
    def heads(self) -> list[str]:
        return [column.head for column in self.columns]

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        return list(zip(*(column.values for column in self.columns), strict=True))

    def texts(self) -> list[list[str]]:
        columns = ([_format_cell(value, column.number_format) for value in column.values] for column in self.columns)
        return [list(row) for row in zip(*columns, strict=True)]

    def linked_texts(self) -> list[tuple[str, list[str]]]:
        """Return the address, or an empty string, and the texts of each row."""
        return list(zip(self.links or [""] * len(self.rows), self.texts(), strict=True))

    def as_data(self) -> dict[str, Any]:
        """Return JSON data: heads, raw and formatted rows, whether each column is numeric, and the rows' links."""
        is_numeric = [any(isinstance(value, (int, float)) for value in column.values) for column in self.columns]
        texts = self.texts()
        return {"heads": self.heads, "rows": self.rows, "texts": texts, "numeric": is_numeric, "links": self.links}


def _format_cell(value: Cell, number_format: str) -> str:
    if value is None:
        return "—"
    return value if isinstance(value, str) else format(value, number_format).replace("-", MINUS)


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawn figure: Plotly traces and layout, and a table and caption with the same content.

    `finding` is a statement that holds for exactly these data; it is empty if the data allow none. It begins the
    caption and is the title of downloaded pictures. `subtitle` names the subject and measure, and appears below that
    title. `chosen` holds the figure's own parameters that the request omitted and the figure selected. `baseline` is
    the name of the board's baseline, for the title.
    """

    data: list[Any]
    layout: go.Layout | None
    table: Table
    caption: str
    subtitle: str = ""
    notes: list[str] = field(default_factory=list)
    chosen: Mapping[str, str] = field(default_factory=dict)
    baseline: str = ""
    finding: str = ""

    @property
    def full_caption(self) -> str:
        """Caption that begins with the finding."""
        return f"{self.finding}. {self.caption}" if self.finding else self.caption

    @classmethod
    def empty(cls, reason: str) -> Plot:
        return cls([], None, Table(()), reason)


def escape_markup(value: Any, key: str = "") -> Any:
    """Return the data or layout with markup escaped in all texts, nested ones included, except templates.

    Plotly interprets every text as markup: tags, links, and entities. `data` and `layout` have user-supplied names and
    titles verbatim, which are escaped here, once, on output. Text with tags of its own must therefore be in a template,
    and templates must not contain names.
    """
    if isinstance(value, str):
        return value if key in TEMPLATES else value.translate(_ESCAPES)
    if isinstance(value, dict):
        return {name: escape_markup(item, name) for name, item in value.items()}
    return [escape_markup(item, key) for item in value] if isinstance(value, (list, tuple)) else value


class FigureChoice(NamedTuple):
    """One value of a figure's own parameter."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A kind of figure, registered by its slug.

    Its `title` is a question. `choices` are its own parameters: name → label and values, the default first. Pages of
    boards show the figures with the same `fold`, its title, together in a fold of their own.

    Three predicates decide whether a page shows the figure: `fits` by a dataset's row (`pages.DATASET_FIELDS`),
    `drawable` by the whole board, and `has_data`, which may query the database, by the board and the ids of its
    datasets. A page has no frame for a figure that would be empty with every choice.
    """

    slug: str
    title: str
    caption: str
    subjects: tuple[Subject, ...]
    build: Callable[[FigureRequest], Plot]
    choices: Mapping[str, tuple[str, tuple[FigureChoice, ...]]] = field(default_factory=dict)
    fits: Callable[[Mapping[str, Any]], bool] = lambda dataset: True
    drawable: Callable[[Board], bool] = lambda board: True
    has_data: Callable[[Board, Sequence[int]], bool] = lambda board, datasets: True
    fold: str = ""

    def omission_reason(self, dataset: Mapping[str, Any] | None, board: Board, datasets: Sequence[int]) -> str:
        """Return the reason why a page does not show the figure, empty if it does; `datasets` are ids."""
        if dataset is not None and not self.fits(dataset):
            return _("data not public")
        if not self.drawable(board):
            return _("too few values")
        return "" if self.has_data(board, datasets) else _("no data")

    def get_title(self, baseline: str) -> str:
        """Return the question, with the name of the baseline if it is known."""
        return self.title.replace("the baseline", baseline or "the baseline")

    def as_data(self, plot: Plot) -> dict[str, Any]:
        """Return the JSON of a plot, with markup in `data` and `layout` escaped."""
        return {
            "slug": self.slug,
            "title": plot.finding or self.get_title(plot.baseline),
            "subtitle": plot.subtitle,
            "caption": plot.full_caption,
            "notes": plot.notes,
            "chosen": plot.chosen,
            "data": [escape_markup(trace.to_plotly_json()) for trace in plot.data],
            "layout": escape_markup(plot.layout.to_plotly_json()) if plot.layout is not None else {},
            "table": plot.table.as_data(),
        }


class SubjectNotFound(Exception):
    """Raised if there is no page with the requested slug."""


class FigureRequest:
    """A figure and its parameters. Boards are read at most once."""

    def __init__(self, figure: Figure, parameters: Parameters) -> None:
        """Read the parameters. Without a subject, select a benchmark or else the largest dataset with the figure.

        Raises UnknownChoice for an invalid value, and SubjectNotFound for an invalid slug.
        """
        self.figure = figure
        self.state = BoardState.from_parameters(parameters)
        self.dataset = _read_slug(parameters, "dataset")
        self.benchmark = "" if self.dataset else _read_slug(parameters, "benchmark")
        if not self.dataset and not self.benchmark:
            if benchmarks := benchmarks_with_figure(figure):
                self.benchmark = benchmarks[0]["slug"]
            elif datasets := datasets_with_figure(figure):
                self.dataset = max(datasets, key=lambda row: row["number"])["slug"]
        system_slugs = [slug for slug in parameters.getlist("system") if slug]
        self.systems = tuple(dict.fromkeys(system_slugs))[:MAX_SYSTEMS]
        self._choices = {name: last_value(parameters, name) for name in figure.choices}
        for name, value in self._choices.items():
            allowed_values = [choice.value for choice in figure.choices[name][1]]
            if value and value not in allowed_values:
                raise UnknownChoice(name, value, allowed_values)

    def plot(self) -> Plot:
        """Draw the figure, or return an empty plot if no page has it. Raises what the figure's `build` raises."""
        if self.benchmark or self.dataset or "site" in self.figure.subjects:
            return self.figure.build(self)
        return Plot.empty("No page on this site has the data for this figure yet.")

    def choice(self, name: str) -> str:
        return self._choices[name] or self.figure.choices[name][1][0].value

    def has_choice(self, name: str) -> bool:
        return bool(self._choices[name])

    def query_string(self) -> str:
        """Return all parameters, including those of the board's view, as a query string in a fixed order."""
        pairs = [("benchmark", self.benchmark), ("dataset", self.dataset)]
        pairs += [("system", slug) for slug in self.systems]
        pairs += list(self._choices.items())
        own_parameters = urlencode([pair for pair in pairs if pair[1]])
        return "?" + "&".join(part for part in (own_parameters, self.state.query_string()[1:]) if part)

    @property
    def view(self) -> BoardState:
        """State of the page with all rows, columns, and scores visible."""
        return self.state.with_values(all_rows=True, hidden=(), view="", weights=())

    @cached_property
    def benchmark_page(self) -> BenchmarkPage:
        """The benchmark's page in this view. Raises SubjectNotFound and UnknownChoice."""
        return self.benchmark_in_view("")

    def benchmark_in_view(self, view: str) -> BenchmarkPage:
        """Return the benchmark's page with a view of `VIEWS`. Raises SubjectNotFound and UnknownChoice."""
        page = pages.benchmark_page(self.benchmark, self.view.with_values(view=view)) if self.benchmark else None
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

    def without_filters(self) -> FigureRequest:
        """Return a copy of the request without filters and sort order, which reads the page again."""
        request = copy(self)
        request.state = self.state.with_values(facets=(), ranges=(), text="", zero_shot=False, sorts=())
        for name in ("benchmark_page", "dataset_page"):
            request.__dict__.pop(name, None)
        return request

    def board(self) -> Board:
        """Return the filtered board of the subject's page. Raises SubjectNotFound and UnknownChoice."""
        return self.dataset_page.board if self.dataset else self.benchmark_page.board


def figure_parameters(figure: Figure) -> list[str]:
    return [*dict.fromkeys(("benchmark", "dataset", "system", *figure.choices, *PARAMETERS))]


def benchmarks_with_figure(figure: Figure) -> list[dict[str, Any]]:
    return lists.benchmarks() if "benchmark" in figure.subjects else []


def datasets_with_figure(figure: Figure) -> list[dict[str, Any]]:
    """Return the datasets with results whose pages show the figure; none if it is not about datasets."""
    if not {"dataset", "comparison"} & set(figure.subjects):
        return []
    return [row for row in lists.datasets() if row["number"] and figure.fits(row)]


def _read_slug(parameters: Parameters, name: str) -> str:
    slug = last_value(parameters, name)
    if slug and not slug_re.fullmatch(slug):
        raise SubjectNotFound
    return slug
