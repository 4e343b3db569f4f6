"""What stands beside results: how runs came to a round, challenges, and how the seeds of a set spread."""

from collections.abc import Collection, Iterable

from django.utils.translation import gettext_noop as _

from leaderboard.boards.model import Row
from leaderboard.results.board_rows.entry_rows import CLOSED, SCORED, EntryRow

#: Follows the name of a system whose run fed a pool that was judged.
POOLED = "§"
NOTES = {
    POOLED: f"{POOLED} pooled: the run contributed to the judged pool; others may have more unjudged documents.",
    "late": _("Late: submitted after the round had closed."),
    "manual": _("Manual: a person changed the queries or the ranking."),
}


def badges(entry: EntryRow) -> list[str]:
    """The words that stand after the name. A benchmark's row has none: it is of several results."""
    return [*(["late"] if entry.late else []), *(["manual"] if entry.run_type == "manual" else [])]


def pooled_mark(entry: EntryRow) -> str:
    """The sign that stands at the name, or nothing."""
    return POOLED if entry.pooled else ""


def notes(entries: Iterable[EntryRow]) -> list[str]:
    """The footnotes to what any of the entries has."""
    had = set[str]()
    for entry in entries:
        if entry.late or entry.pooled or entry.run_type:
            had.update(badges(entry), pooled_mark(entry))
    return [text for word, text in NOTES.items() if word in had]


CHALLENGED = _(
    "Challenged: a claim about this system is under review; its page has the details. Scores do not change."
)


def notes_on_challenges(rows: Iterable[Row]) -> list[str]:
    """The note, where a row is challenged."""
    return [CHALLENGED] if any(row.entry.challenged for row in rows) else []


MISSING_QUERIES = _(
    "Missing queries score 0. Their number is shown below the system’s name, or above the board where every result has "
    "the same."
)


def missing_from_all(rows: Iterable[Row]) -> int:
    """Return the number of judged queries that are missing from every ranked result, 0 for a single result."""
    missing = [row.entry.missing_queries for row in rows if row.ranked_in in (SCORED, CLOSED)]
    known = [number for number in missing if number is not None]
    return min(known) if len(known) > 1 else 0


DOUBTFUL = _("?: doubtful, as printed or as measured on a busy machine; never used to rank, sort, or plot.")
SEEDS = _("±: sample standard deviation (n − 1) over seeds, with their number; the score is their mean.")


def has_seeds(rows: Iterable[Row], keys: Collection[str]) -> bool:
    """Whether a row shows in one of the columns how seeds spread; beside a cost stands how far that may be off."""
    cells = (cell for row in rows for key, cell in row.cells.items() if key in keys)
    return any(cell.spread and not cell.noise for cell in cells)


def title_of(seeds: int, deviation: float | None, decimals: int) -> str:
    """What the cell of a mean over so many seeds says on hover, with their sample standard deviation if known."""
    return f"mean of {seeds} seeds" + ("" if deviation is None else f", ± {deviation:.{decimals}f}")
