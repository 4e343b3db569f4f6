"""Recall of approximate indexes against their throughput."""

from __future__ import annotations

from leaderboard.boards.model import Board, Row
from leaderboard.figures import drawing
from leaderboard.figures.drawing import go, linear_axis, log_axis
from leaderboard.figures.model import Figure, FigureRequest, Plot
from leaderboard.models import Entry

RECALL, SPEED = "Recall of the exact top 100", "Queries per second"


def _recalls(board: Board) -> dict[int, float]:
    """Return the recall of timed approximate indexes against exact search, by entry id. One database query."""
    rows = drawing.comparable_rows(board)
    timed_entries = [row.entry.pk for row in rows if _speed(row) and row.entry.architecture != "lexical"]
    entries_with_recall = Entry.objects.filter(pk__in=timed_entries, facts__recall_against_exact__isnull=False)
    return {pk: float(facts["recall_against_exact"]) for pk, facts in entries_with_recall.values_list("pk", "facts")}


def _speed(row: Row) -> float:
    """Return the queries per second of a row, 0 if they were not measured or are doubtful."""
    if row.measured is None or row.measured.doubt:
        return 0.0
    return row.measured.figures["queries_per_second"] or 0.0


def build(request: FigureRequest) -> Plot:
    """Draw recall against queries per second of each system with a timed approximate index.

    Speeds were measured on the board's machine.
    """
    board = request.board()
    recalls = _recalls(board)
    rows = [row for row in drawing.comparable_rows(board) if row.entry.pk in recalls]
    speeds = [_speed(row) for row in rows]
    if not rows:
        return Plot.empty("No system of this view has an approximate index whose searches were timed.")
    points = [
        drawing.ChartPoint(row, name, recall, speed, (f"{RECALL}: {recall:.4f}", f"{SPEED}: {speed:,.4g}"))
        for row, name, speed in zip(rows, drawing.distinct_names(rows), speeds, strict=True)
        for recall in [recalls[row.entry.pk]]
    ]
    traces, labels = drawing.traces_by_architecture(points)
    x_axis, y_axis = (linear_axis(RECALL, [point.x for point in points]), log_axis(f"{SPEED}, log scale", speeds))
    return Plot(
        data=traces,
        layout=go.Layout(height=400, xaxis=x_axis, yaxis=y_axis, **labels),
        table=drawing.points_table(points, (RECALL, ".4f"), (SPEED, ",.4g")),
        caption=f"Approximate indexes on {drawing.inline_title(board)}: recall of exact search against throughput. "
        f"{board.cost_group or 'All were timed on one machine'}.",
        subtitle=board.title,
    )


THROUGHPUT = Figure(
    slug="approximate-search",
    title="How much recall does faster search cost?",
    caption="Recall of approximate indexes (HNSW, IVF, PQ) against exact search, and their queries per second.",
    subjects=("dataset",),
    build=build,
    has_data=lambda board, datasets: len(_recalls(board)) > 1,
)
