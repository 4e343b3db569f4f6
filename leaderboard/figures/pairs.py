"""Head to head: on how many datasets each system beats each other (BEIR, finding 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leaderboard.boards.model import Row
from leaderboard.core.measures import better
from leaderboard.figures.bars import cut
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import INK, SCALE
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


class Wins(NamedTuple):
    """On how many datasets a system is better than, equal to, and worse than another."""

    wins: int
    ties: int
    losses: int


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
    lower = better(page.board.measure) == "lower"
    found = [[_compared(row, other, places, lower=lower) for other in rows] for row in rows]
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


def _compared(row: Row, other: Row, places: Sequence[Place], *, lower: bool) -> Wins | None:
    """What the row won, tied and lost against the other; None for itself and where they share no dataset."""
    if row is other:
        return None
    pairs = [(row.values[place.column], other.values[place.column]) for place in places]
    differences = [
        mine - theirs
        for mine, theirs in pairs
        if isinstance(mine, (int, float)) and isinstance(theirs, (int, float))
    ]
    above, below = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    if not differences:
        return None
    won, lost = (below, above) if lower else (above, below)
    return Wins(won, len(differences) - won - lost, lost)


def _cell(found: Wins | None) -> str:
    return f"{found.wins}–{found.losses}" if found else ""


def _share(found: Wins | None) -> float | None:
    """The share of the common datasets that were won, a tie half."""
    if found is None:
        return None
    return round((found.wins + found.ties / 2) / (found.wins + found.ties + found.losses), 4)


def _cells(names: Sequence[str], found: Sequence[Sequence[Wins | None]]) -> dict[str, object]:
    short = [cut(name, 22) for name in names]
    labels = short if len(set(short)) == len(short) else list(names)
    return {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "z": [[_share(one) for one in line] for line in found],
        "text": [[_cell(one) for one in line] for line in found],
        "texttemplate": "%{text}",
        "textfont": {"color": INK},
        "hovertemplate": "%{y} against %{x}<br>won–lost %{text}<extra></extra>",
        "hoverongaps": False,
        "zmin": 0,
        "zmax": 1,
        "colorscale": SCALE,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }


def _layout(number: int) -> dict[str, object]:
    axis = {"type": "category", "showgrid": False, "ticks": "", "zeroline": False}
    return {
        "height": number * 34 + 130,
        "xaxis": {**axis, "side": "top", "tickangle": -45},
        "yaxis": {**axis, "autorange": "reversed"},
        "meta": {"narrow": {"font": {"size": 9}}} if number > MOST_NARROW else {},
    }


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
