"""What a figure is asked for: the board's own view, and which page, systems and axis are meant."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.core.validators import slug_re

from leaderboard.boards import lists, pages
from leaderboard.boards.model import Board
from leaderboard.boards.pages import BenchmarkPage, DatasetPage
from leaderboard.boards.state import BoardState, Parameters, UnknownChoice
from leaderboard.figures.model import Figure, Plot

#: So many systems may be named.
MOST_SYSTEMS = 12


class NoSubject(Exception):
    """There is no page of that name."""


class FigureRequest:
    """A figure and its parameters. What it reads of boards, it reads once."""

    def __init__(self, figure: Figure, parameters: Parameters) -> None:
        """Raises UnknownChoice, and NoSubject for what can be the name of no page."""
        self.figure = figure
        self.state = BoardState.read(parameters)
        self.dataset = _slug(parameters, "dataset")
        self.benchmark = "" if self.dataset else _slug(parameters, "benchmark")
        if not self.dataset and not self.benchmark:
            self.benchmark, self.dataset = _usual_subject(figure)
        named = [slug for slug in parameters.getlist("system") if slug]
        self.systems = tuple(dict.fromkeys(named))[:MOST_SYSTEMS]
        self._choices = {name: _last(parameters, name) for name in figure.choices}
        for name, value in self._choices.items():
            known = [choice.value for choice in figure.choices[name][1]]
            if value and value not in known:
                raise UnknownChoice(name, value, known)

    def plot(self) -> Plot:
        """The figure drawn, or why there is nothing to draw it of. Raises what the figure's `build` raises."""
        if self.benchmark or self.dataset or "site" in self.figure.subjects:
            return self.figure.build(self)
        return Plot.empty("Nothing on this site has what this figure needs yet.")

    def choice(self, name: str) -> str:
        """The value of one of the figure's own parameters, its first one by default."""
        return self._choices[name] or self.figure.choices[name][1][0].value

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
        """The benchmark's page in this view. Raises NoSubject and UnknownChoice."""
        return self.benchmark_in_view("")

    def benchmark_in_view(self, view: str) -> BenchmarkPage:
        """The benchmark's page with this of `VIEWS` in the datasets' columns. Raises NoSubject and UnknownChoice."""
        state = self.view.but(view=view, all_rows=True)
        page = pages.benchmark_page(self.benchmark, state) if self.benchmark else None
        if page is None:
            raise NoSubject
        return page

    @cached_property
    def dataset_page(self) -> DatasetPage:
        """The dataset's page in this view. Raises NoSubject and UnknownChoice."""
        page = pages.dataset_page(self.dataset, self.view) if self.dataset else None
        if page is None:
            raise NoSubject
        return page

    def unfiltered(self) -> FigureRequest:
        """The same figure of all rows of its page, in the same measure and on the same machine."""
        bare = self.state.but(facets=(), ranges=(), text="", zero_shot=False, sorts=())
        asked = copy(self)
        asked.state = bare
        for name in ("benchmark_page", "dataset_page"):
            asked.__dict__.pop(name, None)
        return asked

    def board(self) -> Board:
        """The board of the page that the figure is about, all rows that its facets leave. See `benchmark_page`."""
        return self.dataset_page.board if self.dataset else self.benchmark_page.board


def benchmarks_for(figure: Figure) -> list[dict[str, Any]]:
    """The benchmarks that a figure can be about, in the order of the site."""
    return lists.benchmarks() if "benchmark" in figure.subjects else []


def datasets_for(figure: Figure) -> list[dict[str, Any]]:
    """The datasets with results whose pages show a figure."""
    if not {"dataset", "comparison"} & set(figure.subjects):
        return []
    return [row for row in lists.datasets() if row["number"] and figure.fits(row)]


def _usual_subject(figure: Figure) -> tuple[str, str]:
    """What a figure is about that is asked for without: the first benchmark, else the dataset with most results."""
    if benchmarks := benchmarks_for(figure):
        return benchmarks[0]["slug"], ""
    most = max(datasets_for(figure), key=lambda row: row["number"], default=None)
    return "", most["slug"] if most else ""


def _slug(parameters: Parameters, name: str) -> str:
    slug = _last(parameters, name)
    if slug and not slug_re.fullmatch(slug):
        raise NoSubject
    return slug


def _last(parameters: Parameters, name: str) -> str:
    values = parameters.getlist(name)
    return values[-1] if values else ""
