"""Published scores of the same models, as a column of a dataset's board and as a note below it."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

from leaderboard.boards.model import Board, Cell, Column
from leaderboard.results.agreement import published_scores
from leaderboard.results.board_rows.entry_rows import EntryRow

PUBLISHED = "published-score"
#: Head of the group of columns.
GROUP = _("Agreement")


def published_columns(entries: Sequence[EntryRow], current_group: str, measure: str) -> list[Column]:
    """Return the column of published scores, if any entry has one; see `published_scores`.

    Private entries do not count, because they must not change the columns.
    """
    scores = published_scores(entries, current_group, measure)

    def cell(line: Any) -> Cell | None:
        score = scores.get(line.entry.pk)
        return score and Cell(score.value, title=score.source, published=score)

    note = _("score that a publication reports for the same model; below it, the difference of the row’s score")
    column = Column(PUBLISHED, _("Published"), GROUP, "number", decimals=3, note=note, cell=cell)
    return [column] if any(entry.pk in scores for entry in entries if entry.is_public) else []


def agreement_notes(board: Board) -> list[str]:
    """Return a note with the sources of the published scores in a view, if it shows their column."""
    is_shown = any(column.key == PUBLISHED for column in board.shown)
    sources = {score.source for row in board.rows if is_shown and (score := row[PUBLISHED].published)}
    text = gettext(
        "Published: the score that a publication ({sources}) reports for the same model on this dataset. The number "
        "below it is the row’s score minus the published one."
    )
    return [text.format(sources="; ".join(sorted(sources)))] if sources else []
