"""On how many datasets a system beats BM25 (Figure 3 of the BEIR paper)."""

from __future__ import annotations

from typing import NamedTuple

from leaderboard.boards.model import Row
from leaderboard.figures.bars import bar_layout, rows_of_bars
from leaderboard.figures.model import Figure, Plot, Table
from leaderboard.figures.palette import BETTER, GREY, WORSE
from leaderboard.figures.request import FigureRequest
from leaderboard.figures.rows import WINS, counts_several, names_of, present, titled


class _Counted(NamedTuple):
    row: Row
    won: int
    tied: int
    lost: int


def build(request: FigureRequest) -> Plot:
    """Wins to the right, losses to the left, most wins on top. Baselines themselves are left out."""
    board = request.benchmark_page.board
    if not counts_several(board):
        return Plot.empty("This board has one counted dataset: there is nothing to count over.")
    place = board.index(WINS)
    counted = [
        _Counted(row, *map(int, row.shown[place].split("/")))
        for row in present(board)
        if place in row.shown and not row.entry.is_baseline
    ]
    if not counted:
        return Plot.empty("No system of this view can be compared with BM25 on these datasets.")
    counted.sort(key=lambda one: (-one.won, one.lost))
    shown, left_out = rows_of_bars(counted, "most wins")
    names = names_of([one.row for one in shown])
    datasets = sum(member.counted for member in request.benchmark_page.members)
    return Plot(
        data=[
            _bars("Losses", names, [-one.lost for one in shown], [one.lost for one in shown], WORSE),
            _bars("Wins", names, [one.won for one in shown], [one.won for one in shown], BETTER),
            *(
                [_bars("Ties", names, [one.tied for one in shown], [one.tied for one in shown], GREY)]
                if any(one.tied for one in shown)
                else []
            ),
        ],
        layout={
            **bar_layout(len(shown)),
            "barmode": "relative",
            "xaxis": {
                "title": {"text": "← datasets lost · datasets won →"},
                "range": [-datasets * 1.08, datasets * 1.08],
                **_ticks(datasets),
            },
        },
        table=Table(
            ("System", "Wins", "Ties", "Losses"),
            [(name, one.won, one.tied, one.lost) for name, one in zip(names, shown, strict=True)],
            ("", "d", "d", "d"),
        ),
        caption=f"Datasets of {titled(board)} on which each system scores above, equal to and below BM25 in "
        f"{board.measure}, of the {datasets} that count. Each is compared with the BM25 of its own source.",
        subtitle=f"{board.title}, {board.measure}",
        notes=left_out,
    )


def _bars(
    name: str, systems: list[str], lengths: list[int], numbers: list[int], color: str
) -> dict[str, object]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": systems,
        "x": lengths,
        "text": [str(number) if number else "" for number in numbers],
        "customdata": numbers,
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": f"%{{y}}<br>{name}: %{{customdata}}<extra></extra>",
        "marker": {"color": color},
    }


def _ticks(datasets: int) -> dict[str, list[object]]:
    """Ticks without a sign: a loss is counted, too."""
    step = 1 if datasets <= 6 else 5
    values = [number for number in range(-datasets, datasets + 1) if number % step == 0]
    return {"tickvals": list(values), "ticktext": [str(abs(number)) for number in values]}


FIGURES = (
    Figure(
        slug="wins",
        title="Wins against BM25",
        caption="On how many datasets each system beats BM25, and on how many it loses.",
        subjects=("benchmark",),
        build=build,
        drawable=counts_several,
    ),
)
