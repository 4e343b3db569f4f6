"""Notes below the board of a dataset: what the kinds of its rows and the marks in its cells mean."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext_noop as _

from leaderboard.boards.columns import marks
from leaderboard.boards.columns.baseline import BaselineColumns
from leaderboard.boards.columns.marks import DOUBTFUL, SEEDS, has_seeds, notes_on_challenges
from leaderboard.boards.columns.reported import has_doubtful
from leaderboard.boards.facts import DatasetFacts
from leaderboard.boards.model import Board, Row
from leaderboard.results.kinds import CLOSED, CLOSED_NOTE, QUARANTINED, REPORTED, STALE


def notes_on_results(
    facts: DatasetFacts, rows: Sequence[Row], board: Board, versus: BaselineColumns
) -> list[str]:
    """Return the notes on all `rows` of a dataset's board, including those that its view hides."""
    kinds = {row.ranked_in for row in rows}
    notes = [f"Ranked by {board.measure}; equal values share a rank, the earlier submission first."]
    if REPORTED in kinds:
        sources = {row.entry.source_key for row in rows if row.ranked_in == REPORTED}
        papers = "one publication" if len(sources) == 1 else f"{len(sources)} publications"
        notes.append(
            f"Reported: figures taken from {papers}, not recomputed here, and ranked separately from results scored "
            "here."
        )
    if CLOSED in kinds:
        notes.append(CLOSED_NOTE)
    if any(row.entry.visibility == "private" for row in rows):
        notes.append(
            _(
                "Private: only your team sees these rows. They are not ranked, do not change other rows, and are in no "
                "export, figure or feed."
            )
        )
    if STALE in kinds:
        notes.append(
            _(
                "Stale: scored with earlier judgements or an earlier version; not ranked or compared until rescored."
            )
        )
    if QUARANTINED in kinds:
        notes.append(
            _(
                "Quarantined: removed from the ranking by a curator for the reason given; scores are not shown."
            )
        )
    notes += versus.notes(facts.language)
    if any(row.entry.training == "in-domain" for row in rows):
        notes.append(_("‡ in-domain: trained on this dataset."))
    notes += marks.notes(row.entry for row in rows)
    shown = [column.key for column in board.columns]
    if board.measure in shown and has_seeds(rows, [board.measure]):
        notes.append(f"{SEEDS} Tests use each query’s mean over the seeds.")
    if has_doubtful(rows, board.columns):
        notes.append(DOUBTFUL)
    if facts.hidden:
        of_part = " over the public part of the judged queries" if facts.competition else ""
        notes.append(f"The judgements are hidden: scores are means{of_part}, published with three decimals.")
    if any(row.entry.missing_queries for row in rows):
        notes.append(marks.MISSING_QUERIES)
    return notes + notes_on_challenges(rows)
