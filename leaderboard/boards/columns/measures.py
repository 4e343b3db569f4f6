"""The columns of measures on a dataset's board, which of them it has, and those of a competition's private part."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from django.utils.translation import gettext_noop as _

from leaderboard.boards.columns.marks import title_of
from leaderboard.boards.model import EFFECTIVENESS, JUDGED_SHARE, OTHER_MEASURES, Cell, Column, Value
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.results.board_rows.entry_rows import EntryRow
from leaderboard.results.values import JUDGED_MEASURES, is_about_judging


def measure_column(
    measure: str, group: str = EFFECTIVENESS, note: str = "", *, in_focus: bool = False
) -> Column:
    """The column of a measure on a dataset's board; that of the one in focus says how its seeds spread.

    A cell in focus has the interval that was found of it, too.
    """

    def cell(line: Any) -> Cell | Value:
        value: Value = line.about.scores.get(measure)
        if line.about.deviations or (in_focus and line.certainty is not None):
            return _cell(line, measure, value, in_focus=in_focus)
        return value

    return Column(measure, measure, group, "score", better(measure), note=note, cell=cell)


def _cell(line: Any, measure: str, value: Value, *, in_focus: bool) -> Cell | Value:
    """The cell of a seed set, or of a score with an interval."""
    found = line.certainty if in_focus else None
    ends = None if found is None else (found.low, found.high)
    if value is None or measure not in line.about.deviations:
        return Cell(value, interval=ends) if ends else value
    deviation, seeds = line.about.deviations[measure], line.about.seed_count
    spread = f"± {deviation:.{line.decimals}f} ({seeds})" if in_focus else ""
    return Cell(value, title=title_of(seeds, deviation, line.decimals), spread=spread, interval=ends)


_NOTES = {
    "Judged@10": _("share of the top 10 that is judged"),
    "Hole@10": _(
        "share of the top 10 that is unjudged: relevant documents may be missing from the judgements"
    ),
}
_UPPER = _("the most that the score could be, whatever grades the unjudged documents of this top k would get")


def add_judged_measures(measures: Sequence[str], had: Collection[str], *, hidden: bool) -> list[str]:
    """The measures of a board, and last those of judging that any row has; none of these over hidden judgements."""
    judged = [*JUDGED_MEASURES, *sorted(name for name in had if name not in JUDGED_MEASURES)]
    last = [name for name in judged if is_about_judging(name) and name in had and not hidden]
    first = measures[:1]  # a board may be about holes
    return [
        *first,
        *(name for name in measures[1:] if name not in last),
        *(name for name in last if name not in first),
    ]


def other_column(measure: str) -> Column:
    """The column of a measure that is not in focus, in its group."""
    if measure in JUDGED_MEASURES:
        return measure_column(measure, JUDGED_SHARE, _NOTES[measure])
    if is_about_judging(measure):
        return replace(measure_column(measure, JUDGED_SHARE, _UPPER), label="Upper bound", better="")
    return measure_column(measure, OTHER_MEASURES)


PRIVATE_PART = _("Private part")

REVEALED = _(
    "Private part: the mean over the judged queries that the ranking does not use, published when the round was "
    "revealed. Δ is private minus public: a much larger loss than others have suggests overfitting to the public part. "
    "A dash: submitted after the reveal, or in a round that is not revealed yet."
)


def private_columns(entries: Iterable[EntryRow], measure: str) -> list[Column]:
    """The private value of the measure in focus, and by how much it differs from the public one.

    None while nothing is revealed. A result that came later, or whose round waits, has neither.
    """
    if not any(measure in entry.private_scores for entry in entries):
        return []
    good = better(measure)
    return [
        Column(
            "private",
            measure,
            PRIVATE_PART,
            "score",
            good,
            note=_("mean over the private part"),
            cell=lambda line: line.about.private_scores.get(measure),
        ),
        Column(
            "private_difference",
            "Δ",
            PRIVATE_PART,
            "delta",
            good,
            note=_("private part minus public part"),
            cell=lambda line: numbers.difference(
                line.about.private_scores.get(measure), line.about.scores.get(measure)
            ),
        ),
    ]
