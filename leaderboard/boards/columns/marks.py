"""Marks of results: late, manual, and pooled runs, challenges, and the spread over seeds."""

from collections import Counter
from collections.abc import Collection, Iterable

from django.utils.translation import gettext_noop as _

from leaderboard.boards.model import Row
from leaderboard.results.board_rows.entry_rows import CLOSED, SCORED, EntryRow
from leaderboard.results.mteb import EXTERNAL, NO_REVISION

#: Marks of results that the makers of a model published, of results without a revision of the model, and of results on
#: another revision of the dataset.
SELF_REPORTED, UNKNOWN_REVISION, OTHER_REVISION = "†", "¶", "°"
SELF_REPORTED_NOTE = _("† self-reported: published by the makers of the model, not measured by the source.")
UNKNOWN_REVISION_NOTE = _("¶ revision of the model unknown: another one may score differently.")
OTHER_REVISION_NOTE = _("° on another or an unknown revision of the dataset: not ranked, compared, or averaged.")
#: Placeholder instead of a model's revision → mark of the result, and its text on hover.
REVISION_MARKS = {
    EXTERNAL: (SELF_REPORTED, _("self-reported")),
    NO_REVISION: (UNKNOWN_REVISION, _("revision of the model unknown")),
}
#: Mark of systems whose run contributed to a judged pool.
POOLED = "§"
NOTES = {
    POOLED: f"{POOLED} pooled: the run contributed to the judged pool; others may have more unjudged documents.",
    "late": _("Late: submitted after the round had closed."),
    "manual": _("Manual: a person changed the queries or the ranking."),
    "closed book": _("Closed book: answers without retrieval."),
    "gold evidence": _("Gold evidence: answers from the relevant documents."),
}


def badges(entry: EntryRow) -> list[str]:
    """Return the badges after a system's name. A benchmark's row has none, because it has several results."""
    words = "late" if entry.late else "", "manual" if entry.run_type == "manual" else "", entry.reference_name
    return list(filter(None, words))


def pooled_mark(entry: EntryRow) -> str:
    return POOLED if entry.pooled else ""


def notes(entries: Iterable[EntryRow]) -> list[str]:
    """Return the footnotes that apply to any of the entries."""
    labels = set[str]()
    for entry in entries:
        if entry.late or entry.pooled or entry.run_type:
            labels.update(badges(entry), pooled_mark(entry))
    return [text for label, text in NOTES.items() if label in labels]


CHALLENGED_NOTE = _("Challenged: a claim about this system is under review, see its page. Scores do not change.")


def notes_on_challenges(rows: Iterable[Row]) -> list[str]:
    return [CHALLENGED_NOTE] if any(row.entry.challenged for row in rows) else []


MISSING_QUERIES = _(
    "Missing queries score 0. Their number is shown above the board if most results lack the same number, and below "
    "the names of other systems."
)


def usual_missing_count(rows: Iterable[Row]) -> int:
    """Return the number of missing queries that most scored results share, or 0 if there is no such number."""
    counts = Counter(row.entry.missing_queries for row in rows if row.ranked_in in (SCORED, CLOSED))
    number, frequency = next(iter(counts.most_common(1)), (None, 0))
    return number if number and frequency > max(1, counts.total() / 2) else 0


DOUBTFUL_NOTE = _("?: doubtful, as printed or as measured on a busy machine; never used to rank, sort, or plot.")
SEEDS_NOTE = _("±: sample standard deviation (n − 1) over seeds, with their number; the score is their mean.")


def notes_on_cells(rows: Iterable[Row]) -> list[str]:
    """Return the notes on marks that the rows have: self-reported results, and revisions of models and datasets."""
    signs = {cell.mark for row in rows for cell in row.cells.values()}
    notes = (
        (SELF_REPORTED, SELF_REPORTED_NOTE),
        (UNKNOWN_REVISION, UNKNOWN_REVISION_NOTE),
        (OTHER_REVISION, OTHER_REVISION_NOTE),
    )
    return [note for mark, note in notes if any(mark in sign for sign in signs)]


def has_seeds(rows: Iterable[Row], keys: Collection[str]) -> bool:
    """Return whether a row shows a spread over seeds in one of the columns, as opposed to the uncertainty of a cost."""
    cells = (cell for row in rows for key, cell in row.cells.items() if key in keys)
    return any(cell.spread and not cell.noise for cell in cells)


def seeds_title(seeds: int, deviation: float | None, decimals: int) -> str:
    """Return the text that the mean over seeds shows on hover, with the sample standard deviation if known."""
    return f"mean of {seeds} seeds" + ("" if deviation is None else f", ± {deviation:.{decimals}f}")
