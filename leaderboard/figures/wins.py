"""On how many datasets systems beat the baseline (Figure 3 of the BEIR paper), and each other (its finding 5)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from leaderboard.boards.benchmark.aggregates import wins
from leaderboard.boards.facts import Member
from leaderboard.boards.model import Row
from leaderboard.figures import chart_rows, drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table

#: So many systems are compared with each other; on a phone the letters of more than these are smaller.
MOST_SYSTEMS, MOST_NARROW = 12, 8
#: On how many datasets a system is better than, equal to, and worse than another.
Counts = tuple[int, int, int]


class _WinCount(NamedTuple):
    row: Row
    won: int
    tied: int
    lost: int

    @property
    def compared(self) -> int:
        """On how many datasets."""
        return self.won + self.tied + self.lost


def build_wins(request: FigureRequest) -> Plot:
    """Wins to the right, losses to the left. Baselines themselves are left out.

    Systems with all datasets are on top, most wins first; who has fewer could win on fewer, and lose on fewer.
    """
    board = request.benchmark_page.board
    if not chart_rows.counts_several(board):
        return Plot.empty("This board has one counted dataset: there is nothing to count over.")
    counted = [
        _WinCount(row, *map(int, row[chart_rows.WINS].text.split("/")))
        for row in chart_rows.present(board)
        if row[chart_rows.WINS].text and not row.entry.is_baseline
    ]
    if not counted:
        return Plot.empty("No system of this view can be compared with a baseline on these datasets.")
    datasets = len(chart_rows.datasets_of(request.benchmark_page))
    counted.sort(key=lambda one: (-one.compared, -one.won, one.lost))
    shown, notes = drawing.rows_of_bars(counted, "most datasets, and of these the most wins")
    systems = chart_rows.names_of([one.row for one in shown])
    coverage = [f"{one.compared}/{datasets}" for one in shown]
    incomplete = sum(one.compared < datasets for one in shown)
    if incomplete:
        notes.append(
            f"{incomplete} of these {len(shown)} systems cannot be compared on all {datasets} datasets: they come "
            "last, with the number that they are compared on in brackets."
        )
    names = [
        f"{name} ({compared})" if one.compared < datasets else name
        for one, name, compared in zip(shown, systems, coverage, strict=True)
    ]
    won, tied, lost = ([getattr(one, count) for one in shown] for count in ("won", "tied", "lost"))
    return Plot(
        data=[
            _bars("Losses", names, lost, drawing.WORSE, sign=-1),
            _bars("Wins", names, won, drawing.BETTER),
            *([_bars("Ties", names, tied, drawing.GREY)] if any(tied) else []),
        ],
        layout=drawing.bar_layout(
            len(shown),
            barmode="relative",
            xaxis={"range": [-datasets * 1.08, datasets * 1.08], **_ticks(datasets)},
            xaxis_title_text="← datasets lost · datasets won →",
        ),
        table=Table.of(
            ("System", systems),
            ("Wins", won, "d"),
            ("Ties", tied, "d"),
            ("Losses", lost, "d"),
            ("Datasets compared", coverage),
        ),
        caption=f"Datasets of {chart_rows.titled(board)} on which each system scores above or below "
        f"{board.baseline} in {board.measure}, of the {datasets} that count.",
        baseline=board.baseline,
        subtitle=f"{board.title}, {board.measure}",
        notes=notes,
    )


def _bars(name: str, systems: list[str], numbers: list[int], color: str, sign: int = 1) -> go.Bar:
    return go.Bar(
        orientation="h",
        name=name,
        y=systems,
        x=[sign * number for number in numbers],
        text=[str(number) if number else "" for number in numbers],
        customdata=numbers,
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont_color=drawing.PAPER,
        textangle=0,
        constraintext="none",
        hovertemplate="%{y}<br>%{fullData.name}: %{customdata}<extra></extra>",
        marker_color=color,
    )


def _ticks(datasets: int) -> dict[str, list[object]]:
    """Ticks without a sign: a loss is counted, too."""
    step = 1 if datasets <= 6 else 5
    values = [number for number in range(-datasets, datasets + 1) if number % step == 0]
    return {"tickvals": list(values), "ticktext": [str(abs(number)) for number in values]}


def build_head_to_head(request: FigureRequest) -> Plot:
    """A square of systems: won and lost datasets, row against column, over those that both have."""
    page = request.benchmark_page
    slugs = request.systems or request.state.pins
    every = chart_rows.present(page.board)
    rows, kind = chart_rows.rows_of_kind([row for row in every if row.entry.slug in slugs] or every)
    of_kind = [row for row in every if row.ranked_in == kind]
    rows = chart_rows.chosen_first(of_kind, slugs, MOST_SYSTEMS)
    places = chart_rows.datasets_of(page)
    if len(rows) < 2 or not places:
        return Plot.empty("A comparison needs two systems of one kind, reported or scored.")
    names, counted = chart_rows.names_of(rows), chart_rows.describe_kind(kind)
    counts = _compared(rows, places, lower=chart_rows.lower_is_better(page.board))
    texts = [[_cell(one) for one in line] for line in counts]
    short = [drawing.cut(name, 22) for name in names]
    notes = ["A tie counts for neither; in the shade it is half a win for each."]
    if len(of_kind) > len(rows):
        notes.append(
            f"The first {len(rows)} of {len(of_kind)} systems; pinning others on the board puts them first."
        )
    if other := len(every) - len(of_kind):
        notes.append(f"{other} of the other kind, reported or scored, are not compared with these.")
    return Plot(
        data=[
            drawing.heatmap(
                drawing.NameSquare(names, [[_share(one) for one in line] for line in counts], texts),
                1,
                "share won",
                "%{customdata[0]} against %{customdata[1]}<br>won–lost %{customdata[2]}",
            )
        ],
        layout=drawing.heatmap_layout(
            len(rows) * 34 + 130,
            short if len(set(short)) == len(short) else names,
            {"side": "top", "tickangle": -45},
            meta={"narrow": {"font": {"size": 9}}} if len(rows) > MOST_NARROW else {},
        ),
        table=Table.of(
            ("Won–lost against", names),
            *((name, [line[place] or None for line in texts]) for place, name in enumerate(names)),
        ),
        caption=f"Datasets of {chart_rows.titled(page.board)} that the row's system wins and loses against the "
        f"column's in {page.board.measure}. {len(rows)} systems, {counted} only.",
        subtitle=f"{page.board.title}, {page.board.measure}, {counted}",
        notes=notes,
    )


def _compared(rows: Sequence[Row], places: Sequence[Member], *, lower: bool) -> list[list[Counts | None]]:
    """What each row won, tied and lost against each other; None for itself and where they share no dataset."""
    scores = np.array([[row.value(place.slug) for place in places] for row in rows], np.float64)
    against = [zip(*wins(mine, scores, lower_is_better=lower), strict=True) for mine in scores]
    return [
        [counts if any(counts) and number != other else None for other, counts in enumerate(line)]
        for number, line in enumerate(against)
    ]


def _cell(counts: Counts | None) -> str:
    return f"{counts[0]}–{counts[2]}" if counts else ""


def _share(counts: Counts | None) -> float | None:
    """The share of the common datasets that were won, a tie half."""
    return round((counts[0] + counts[1] / 2) / sum(counts), 4) if counts else None


WIN_COUNTS = Figure(
    slug="wins",
    title="Wins against the baseline",
    caption="On how many datasets each system beats the baseline, and on how many it loses.",
    subjects=("benchmark",),
    build=build_wins,
    drawable=chart_rows.counts_several,
)
HEAD_TO_HEAD = Figure(
    slug="head-to-head",
    title="Head to head",
    caption="On how many datasets each system beats each other.",
    subjects=("benchmark",),
    build=build_head_to_head,
    drawable=chart_rows.counts_several,
)
