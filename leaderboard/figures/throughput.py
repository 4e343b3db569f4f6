"""Approximate search: how much of the exact results it finds, against how many queries it answers a second."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.boards.model import Board, Row
from leaderboard.figures.axes import linear_axis, log_axis
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot
from leaderboard.figures.points import ChartPoint, points_table, traces_by_architecture
from leaderboard.figures.rows import names_of, present, titled
from leaderboard.models import Entry

RECALL, SPEED = "Recall of the exact top 100", "Queries per second"


def _recalls(entries: Sequence[int]) -> dict[int, float]:
    """By entry what its approximate index finds of the exact results. One query."""
    found = Entry.objects.filter(pk__in=entries, facts__recall_against_exact__isnull=False)
    return {pk: float(facts["recall_against_exact"]) for pk, facts in found.values_list("pk", "facts")}


def _timed(board: Board) -> list[int]:
    return [row.entry.pk for row in present(board) if _speed(row) and row.entry.architecture != "lexical"]


def _speed(row: Row) -> float:
    """Return the queries per second of a row, 0 if they were not measured or are doubtful."""
    if row.measured is None or row.measured.doubt:
        return 0.0
    return row.measured.figures["queries_per_second"] or 0.0


def build(request: FigureRequest) -> Plot:
    """A point for each system with an approximate index whose searches were timed on the board's machine."""
    board = request.board()
    recalls = _recalls(_timed(board))
    rows = [row for row in present(board) if row.entry.pk in recalls and _speed(row)]
    speeds = [_speed(row) for row in rows]
    if not rows:
        return Plot.empty("No system of this view has an approximate index whose searches were timed.")
    points = [
        ChartPoint(row, name, recall, speed, (f"{RECALL}: {recall:.4f}", f"{SPEED}: {speed:,.4g}"))
        for row, name, speed in zip(rows, names_of(rows), speeds, strict=True)
        for recall in [recalls[row.entry.pk]]
    ]
    traces, labels = traces_by_architecture(points)
    x_axis, y_axis = (
        linear_axis(RECALL, [point.x for point in points]),
        log_axis(f"{SPEED}, log scale", speeds),
    )
    return Plot(
        data=traces,
        layout=go.Layout(height=400, xaxis=x_axis, yaxis=y_axis, **labels),
        table=points_table(points, (RECALL, ".4f"), (SPEED, ",.4g")),
        caption=f"Approximate indexes on {titled(board)}: recall of exact search against throughput. "
        f"{board.cost_group or 'All were timed on one machine'}.",
        subtitle=board.title,
    )


THROUGHPUT = Figure(
    slug="approximate-search",
    title="Approximate search",
    caption="What approximate indexes (HNSW, IVF, PQ) find of the exact results, against queries per second.",
    subjects=("dataset",),
    build=build,
    known=lambda board, datasets: len(_recalls(_timed(board))) > 1,
)
