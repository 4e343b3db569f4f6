"""What stands below a board's table for everyone: what its colours, bars and marks mean."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from leaderboard.boards.model import SEPARATED, Board

#: Where more systems than these are compared, the legend says how many differ by chance alone.
FEW_COMPARED = 20


def legend(board: Board) -> Iterator[str]:
    """What everyone has to know to read the table; the notes say the rest."""
    if any(column.kind in ("delta", "relative") for column in board.shown):
        yield " ".join(_differences(board))
    yield from _ties(board)
    lower = list(dict.fromkeys(str(c.label) for c in board.shown if c.better == "lower" and c.numeric))
    better = (
        _("Higher is better; lower is better for %s.") % ", ".join(lower) if lower else _("Higher is better.")
    )
    dates = {row.value("published") for row in board.rows} - {None}
    told = (
        _("All results are from %s.") % date_format(datetime.date.fromisoformat(str(*dates)), "j F Y")
        if len(dates) == 1 and not any(column.key == "published" for column in board.shown)
        else ""
    )
    yield f"{better} {_('The best is in bold, the second best underlined.')} {told}".rstrip()


def _differences(board: Board) -> Iterator[str]:
    """What Δ is, and what its colours and its mark say."""
    least = board.statements.least_difference(board.measure)
    facts = {"baseline": board.baseline, "least": f"{least or 0:+.3f}", "mark": SEPARATED}
    yield _("Δ is the difference from %(baseline)s on the same topics and judgements.") % facts
    if least is not None:
        yield _(
            "Green: better than %(baseline)s by at least %(least)s, which is significant at 0.05. Because the judgements "
            "are hidden, one threshold serves all systems; it is computed from the scores of %(baseline)s alone. Grey: "
            "a smaller difference, or not known."
        ) % facts  # fmt: skip
    elif board.certainty or board.found_with:
        yield _(
            "Green: better than %(baseline)s; orange: worse; grey: no clear difference. Colour looks at each system "
            "alone: the 95 %% confidence interval of its Δ excludes 0."
        ) % facts  # fmt: skip
    if board.certainty is not None and board.compared:
        facts |= {"correction": board.certainty.settings.correction, "all": board.compared}
        text = ngettext(
            "%(mark)s significant after %(correction)s correction for %(all)d comparison, too.",
            "%(mark)s significant after %(correction)s correction for all %(all)d comparisons, too.",
            board.compared,
        )
        yield text % facts
    if board.compared > FEW_COMPARED:
        few = {"few": f"{board.compared / 20:.0f}", "all": board.compared}
        yield _("Chance alone would colour about %(few)s of %(all)d equal systems.") % few


def _ties(board: Board) -> Iterator[str]:
    """What the numbers below a rank and the bar beside it say."""
    if board.certainty is not None:
        how = board.certainty.settings
        yield _(
            "The range below a rank holds the ranks that tests of all pairs leave open (%(correction)s, %(alpha)g). The "
            "bar at the left marks the best system and those that tie with it."
        ) % {"alpha": how.alpha, "correction": how.pairs_correction}  # fmt: skip
    elif len(board.statements.tied_with_best(board.measure)) > 1:
        yield _(
            "The bar at the left marks the best system and those that tie with it. Two systems tie if they differ by "
            "less than a threshold, which is higher than the one for Δ because all pairs are compared."
        )
