"""Rank ranges of the systems on a dataset's board, from tests of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from leaderboard.boards.model import Board, Row
from leaderboard.figures import drawing
from leaderboard.figures.drawing import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table


class _RankedRow(NamedTuple):
    """A ranked row with its first and last possible rank; `is_tied` is false if it is separable from the best.

    For hidden judgments, no ranges are published, and both ranks are the row's own rank.
    """

    row: Row
    low: int
    high: int
    is_tied: bool

    @property
    def role(self) -> str:
        if self.row.entry.is_baseline:
            return "baseline"
        return "best" if self.row.rank == 1 else "tied" if self.is_tied else "other"


def _ranked_rows(board: Board) -> list[_RankedRow]:
    """Return the rows with test results in rank order, regardless of the board's sorting."""
    ranked_rows = []
    for row in drawing.comparable_rows(board):
        statement = board.statements.for_entry(row.first_entry, board.measure)
        if row.rank is not None and statement.tied_with_best is not None:
            ranks = statement.ranks or (row.rank, row.rank)
            ranked_rows.append(_RankedRow(row, *ranks, statement.tied_with_best))
    return sorted(ranked_rows, key=lambda ranked: (ranked.row.rank or 0, ranked.low, ranked.high))


def build(request: FigureRequest) -> Plot:
    """Draw the possible ranks of each system as a line, in rank order, with a mark at the system's rank."""
    board = request.dataset_page.board
    ranked_rows = _ranked_rows(board)
    if not ranked_rows:
        return Plot.empty(_("The systems of this view have not been tested against each other."))
    shown, notes = drawing.limit_bars(ranked_rows, "best ranks", "that were tested")
    names, ranks = drawing.distinct_names([ranked.row for ranked in shown]), [ranked.row.rank or 0 for ranked in shown]
    texts = [f"{ranked.low}–{ranked.high}" if ranked.low < ranked.high else f"{ranked.low}" for ranked in shown]
    scores = [drawing.value(ranked.row, board.measure) for ranked in shown]
    is_hidden = board.statements.published is not None
    last_rank = max(ranked.high for ranked in shown)
    axis = {"title_text": "rank", "range": [0.4, last_rank + 0.6], "tick0": 1, "dtick": -(-last_rank // 10)}
    facts = {"measure": board.measure, "board": drawing.inline_title(board)}
    withheld = _("Rank ranges are not published, to protect the hidden judgments.")
    explanation = withheld if is_hidden else _("Lines extend over the ranks that the tests of all pairs leave open.")
    separable = [None if ranked.row.rank == 1 else "no" if ranked.is_tied else "yes" for ranked in shown]
    return Plot(
        data=[*([] if is_hidden else [_range_lines(shown, names, texts)]), *_rank_marks(shown, names)],
        layout=drawing.bar_layout(names, xaxis=axis),
        table=Table.from_columns(
            ("System", names),
            ("Rank", ranks, "d"),
            (board.measure, scores, drawing.score_format([ranked.row for ranked in shown])),
            *([] if is_hidden else [("Possible ranks", texts)]),
            ("Separable from the best", separable),
            links=[drawing.system_url(ranked.row) for ranked in shown],
        ),
        caption=f"{_('Ranks by %(measure)s on %(board)s.') % facts} {explanation}",
        subtitle=f"{board.title}, {board.measure}",
        notes=notes,
        finding="" if request.state.filtered else _finding(ranked_rows),
    )


def _finding(ranked_rows: Sequence[_RankedRow]) -> str:
    """Return a sentence that counts the systems not separable from the best.

    It is empty for a single system, and if several systems share rank 1.
    """
    best_names = [ranked.row.entry.system for ranked in ranked_rows if ranked.row.rank == 1]
    if len(ranked_rows) < 2 or len(best_names) != 1:
        return ""
    best, count = drawing.shorten(best_names[0]), sum(ranked.is_tied for ranked in ranked_rows) - 1
    if not count:
        return _("Every other system can be separated from %(best)s") % {"best": best}
    text = ngettext(
        "%(count)d system cannot be separated from %(best)s",
        "%(count)d systems cannot be separated from %(best)s",
        count,
    )
    return text % {"best": best, "count": count}


def _range_lines(ranked_rows: Sequence[_RankedRow], names: Sequence[str], texts: Sequence[str]) -> go.Scatter:
    """Return lines from the first to the last possible rank. A single rank has only its mark."""
    return drawing.line_trace(
        _("possible ranks"),
        [x for ranked in ranked_rows for x in (ranked.low, ranked.high, None)],
        [name for name in names for _number in range(3)],
        {"color": drawing.GREY, "width": 3},
        customdata=[text for text in texts for _number in range(3)],
        hovertemplate="%{y}<br>possible ranks: %{customdata}<extra></extra>",
        opacity=0.7,  # of the trace, so that its legend has it too
    )


def _rank_marks(ranked_rows: Sequence[_RankedRow], names: Sequence[str]) -> list[go.Scatter]:
    """Return a trace of marks for each role, as in the plot on a board's first screen."""
    traces = []
    for role, label, color, symbol, size in (
        ("best", _("best"), drawing.BEST, "circle", 11),
        ("tied", _("not separable from best"), drawing.TIED, "diamond", 12),
        ("baseline", _("baseline"), drawing.GREY, "square", 10),
        ("other", _("other"), drawing.GREY, "circle", 7),
    ):
        pairs = zip(names, ranked_rows, strict=True)
        if members := [(name, ranked.row) for name, ranked in pairs if ranked.role == role]:
            trace = go.Scatter(
                mode="markers",
                name=label,
                x=[row.rank for _name, row in members],
                y=[name for name, _row in members],
                marker={"color": color, "symbol": symbol, "size": size},
                meta={"links": [drawing.system_url(row) for _name, row in members]},
                hovertemplate="%{y}<br>rank %{x}<extra></extra>",
            )
            traces.append(trace)
    return traces


RANK_RANGES = Figure(
    slug="rank-ranges",
    title="Which ranks are possible for each system?",
    caption="Ranks of the systems, and those that the tests of all pairs leave open.",
    subjects=("dataset",),
    build=build,
    fits=lambda dataset: not dataset["hidden"],
    drawable=lambda board: len(_ranked_rows(board)) >= drawing.MIN_SYSTEMS,
)
