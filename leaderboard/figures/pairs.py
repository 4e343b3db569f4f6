"""Head to head: on how many datasets each system beats each other (BEIR, finding 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leaderboard.boards.benchmark.aggregates import wins
from leaderboard.boards.model import Row
from leaderboard.core.measures import better
from leaderboard.figures.bars import cut, heatmap
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.rows import (
    Place,
    chosen_first,
    counts_several,
    datasets_of,
    names_of,
    only_kind,
    present,
    titled,
    told_kind,
)

MOST_SYSTEMS, MOST_NARROW = 12, 8


#: On how many datasets a system is better than, equal to, and worse than another.
Counts = tuple[int, int, int]


def build(request: FigureRequest) -> Plot:
    """A square of systems: won and lost datasets, row against column, over those that both have."""
    page = request.benchmark_page
    slugs = request.systems or request.state.pins
    every = present(page.board)
    rows, kind = only_kind([row for row in every if row.entry.slug in slugs] or every)
    of_kind = [row for row in every if row.ranked_in == kind]
    rows = chosen_first(of_kind, slugs, MOST_SYSTEMS)
    places = datasets_of(page)
    if len(rows) < 2 or not places:
        return Plot.empty("A comparison needs two systems of one kind, reported or scored.")
    names = names_of(rows)
    found = _compared(rows, places, lower=better(page.board.measure) == "lower")
    counted = told_kind(kind)
    return Plot(
        data=[_cells(names, found)],
        layout=_layout(len(rows)),
        table=Table(
            ("Won–lost against", *names),
            [(name, *(_cell(one) or None for one in line)) for name, line in zip(names, found, strict=True)],
        ),
        caption=f"Datasets of {titled(page.board)} won and lost in {page.board.measure} by the row's system against "
        f"that of the column, of those {len(places)} that count and both have. {len(rows)} systems, {counted} only.",
        subtitle=f"{page.board.title}, {page.board.measure}, {counted}",
        notes=_notes(len(of_kind), len(rows), other=len(every) - len(of_kind)),
    )


def _compared(rows: Sequence[Row], places: Sequence[Place], *, lower: bool) -> list[list[Counts | None]]:
    """What each row won, tied and lost against each other; None for itself and where they share no dataset."""
    scores = np.array([[row.value(place.column) for place in places] for row in rows], np.float64)
    against = [zip(*wins(mine, scores, lower_is_better=lower), strict=True) for mine in scores]
    return [
        [counts if any(counts) and number != other else None for other, counts in enumerate(line)]
        for number, line in enumerate(against)
    ]


def _cell(found: Counts | None) -> str:
    return f"{found[0]}–{found[2]}" if found else ""


def _share(found: Counts | None) -> float | None:
    """The share of the common datasets that were won, a tie half."""
    return round((found[0] + found[1] / 2) / sum(found), 4) if found else None


def _cells(names: Sequence[str], found: Sequence[Sequence[Counts | None]]) -> go.Heatmap:
    short = [cut(name, 22) for name in names]
    labels = short if len(set(short)) == len(short) else list(names)
    return heatmap(
        labels,
        [[_share(one) for one in line] for line in found],
        text=[[_cell(one) for one in line] for line in found],
        texttemplate="%{text}",
        hovertemplate="%{y} against %{x}<br>won–lost %{text}<extra></extra>",
        zmax=1,
        showscale=False,
    )


def _layout(number: int) -> go.Layout:
    axis = {"type": "category", "showgrid": False, "ticks": "", "zeroline": False}
    return go.Layout(
        height=number * 34 + 130,
        xaxis={**axis, "side": "top", "tickangle": -45},
        yaxis={**axis, "autorange": "reversed"},
        meta={"narrow": {"font": {"size": 9}}} if number > MOST_NARROW else {},
    )


def _notes(of_kind: int, shown: int, *, other: int) -> list[str]:
    notes = [
        "Darker on paper, brighter in the dark: more of the common datasets won. A tie counts for neither, "
        "in the shade half for each."
    ]
    if of_kind > shown:
        notes.append(f"The first {shown} of {of_kind} systems; pinning others on the board puts them first.")
    if other:
        notes.append(f"{other} of the other kind, reported or scored, are not compared with these.")
    return notes


FIGURES = (
    Figure(
        slug="head-to-head",
        title="Head to head",
        caption="On how many datasets each system beats each other.",
        subjects=("benchmark",),
        drawable=counts_several,
        build=build,
    ),
)
