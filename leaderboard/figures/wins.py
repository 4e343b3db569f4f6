"""On how many datasets a system beats the baseline (Figure 3 of the BEIR paper)."""

from __future__ import annotations

from typing import NamedTuple

from leaderboard.boards.model import Row
from leaderboard.figures.bars import bar_layout, rows_of_bars
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import BETTER, GREY, PAPER, WORSE
from leaderboard.figures.rows import WINS, counts_several, datasets_of, names_of, present, titled


class _Counted(NamedTuple):
    row: Row
    won: int
    tied: int
    lost: int

    @property
    def compared(self) -> int:
        """On how many datasets."""
        return self.won + self.tied + self.lost


def build(request: FigureRequest) -> Plot:
    """Wins to the right, losses to the left. Baselines themselves are left out.

    Systems with all datasets are on top, most wins first; who has fewer could win on fewer, and lose on fewer.
    """
    board = request.benchmark_page.board
    if not counts_several(board):
        return Plot.empty("This board has one counted dataset: there is nothing to count over.")
    counted = [
        _Counted(row, *map(int, row[WINS].text.split("/")))
        for row in present(board)
        if row[WINS].text and not row.entry.is_baseline
    ]
    if not counted:
        return Plot.empty("No system of this view can be compared with a baseline on these datasets.")
    datasets = len(datasets_of(request.benchmark_page))
    counted.sort(key=lambda one: (-one.compared, -one.won, one.lost))
    shown, left_out = rows_of_bars(counted, "most datasets, and of these the most wins")
    systems, told = names_of([one.row for one in shown]), [f"{one.compared}/{datasets}" for one in shown]
    incomplete = sum(one.compared < datasets for one in shown)
    names = [
        f"{name} ({coverage})" if one.compared < datasets else name
        for one, name, coverage in zip(shown, systems, told, strict=True)
    ]
    return Plot(
        data=[
            _bars("Losses", names, [one.lost for one in shown], WORSE, sign=-1),
            _bars("Wins", names, [one.won for one in shown], BETTER),
            *([_bars("Ties", names, ties, GREY)] if any(ties := [one.tied for one in shown]) else []),
        ],
        layout=bar_layout(
            len(shown),
            barmode="relative",
            xaxis={"range": [-datasets * 1.08, datasets * 1.08], **_ticks(datasets)},
            xaxis_title_text="← datasets lost · datasets won →",
        ),
        table=Table(
            ("System", "Wins", "Ties", "Losses", "Datasets compared"),
            [
                (name, one.won, one.tied, one.lost, coverage)
                for name, one, coverage in zip(systems, shown, told, strict=True)
            ],
            ("", "d", "d", "d", ""),
        ),
        caption=f"Datasets of {titled(board)} on which each system scores above, equal to and below "
        f"{board.baseline} in {board.measure}, of the {datasets} that count. Each is compared within its own source.",
        subtitle=f"{board.title}, {board.measure}",
        notes=[*left_out, *_on_coverage(incomplete, len(shown), datasets)],
    )


def _on_coverage(incomplete: int, systems: int, datasets: int) -> list[str]:
    if not incomplete:
        return []
    return [
        f"{incomplete} of these {systems} systems cannot be compared on all {datasets} datasets: they come last, with "
        "the number that they are compared on in brackets."
    ]


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
        insidetextfont_color=PAPER,
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


FIGURES = (
    Figure(
        slug="wins",
        title="Wins against the baseline",
        caption="On how many datasets each system beats the baseline, and on how many it loses.",
        subjects=("benchmark",),
        build=build,
        drawable=counts_several,
    ),
)
