"""What stands below a board's table for everyone: what its colours, bars and marks mean."""

from __future__ import annotations

from collections.abc import Iterator

from django.utils.translation import gettext as _

from leaderboard.boards.model import Board

#: Where more systems than these are compared, the legend says how many differ by chance alone.
FEW_COMPARED = 20


def legend(board: Board) -> Iterator[str]:
    """What everyone has to know to read the table; the notes say the rest."""
    if any(column.kind in ("delta", "relative") for column in board.shown):
        least = board.statements.least_difference(board.measure)
        facts = {"baseline": board.baseline, "least": f"{least or 0:+.3f}"}
        yield _("Δ is the difference from %(baseline)s on the same topics and judgements.") % facts
        if least is not None:
            colours = _(
                "Blue: significantly better than %(baseline)s, by %(least)s or more. Over hidden judgements this one "
                "threshold (0.05, from the values of the baseline alone) stands in for a test of each system. Grey: "
                "less, or not known."
            )
            yield colours % facts
        elif board.certainty or board.found_with:
            colours = _(
                "Blue: significantly better than %(baseline)s. Orange: significantly worse. The 95 %% confidence "
                "interval of the difference does not include 0. Grey: neither, or not tested."
            )
            yield colours % facts
        if board.compared > FEW_COMPARED:
            few = {"few": f"{board.compared / 20:.0f}", "all": board.compared}
            yield _("Chance alone would colour about %(few)s of %(all)d equal systems.") % few
    if len(board.statements.tied_with_best(board.measure)) > 1:
        ties = _(
            "The bar at the left marks the best system and all that tie with it: they are behind by less than the "
            "threshold, which is raised here because all pairs are compared."
        )
        if board.certainty is not None:
            how = board.certainty.settings
            ties = _(
                "The bar at the left marks the best system and all that tie with it: paired tests of all pairs at "
                "%(alpha)g (%(correction)s) do not tell them apart."
            ) % {"alpha": how.alpha, "correction": how.pairs_correction}
        yield ties
    lower = list(dict.fromkeys(c.label for c in board.shown if c.better == "lower" and c.numeric))
    better = (
        _("Higher is better; lower is better for %s.") % ", ".join(lower) if lower else _("Higher is better.")
    )
    yield f"{better} {_('Best in bold, second best underlined.')}"
