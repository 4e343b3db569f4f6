"""The head of each row as HTML: its rank and the system's name, with what stands below them."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from html import escape
from typing import NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from leaderboard.boards.columns import gap as gaps
from leaderboard.boards.columns import marks
from leaderboard.boards.columns.about import ARCHITECTURES
from leaderboard.boards.columns.significance import ranks_text
from leaderboard.boards.model import Board, Row, Value, reason_gone
from leaderboard.core.text.numbers import format_quantity
from leaderboard.results.board_rows.entry_rows import GONE, REPORTED, SCORED, STALE, EntryRow

#: How a result was obtained, and what state it or its system is in, in few words.
PROVENANCES = {
    "measured": gettext_lazy("run here"),
    "scored": gettext_lazy("scored here"),
    "reported": gettext_lazy("reported"),
}
STATES = {
    "baseline": gettext_lazy("baseline"),
    "stale": gettext_lazy("stale"),
    "challenged": gettext_lazy("challenged"),
    "late": gettext_lazy("late"),
    "manual": gettext_lazy("manual"),
    "private": gettext_lazy("private"),
    "withdrawn": gettext_lazy("withdrawn"),
    "quarantined": gettext_lazy("quarantined"),
}
#: Between facts; it ends a line and begins none.
DOT = "\u00a0· "
#: What may stand under a system's name: its team, what it is, how it was scored, how large it is.
_BELOW = ("by", "architecture", "provenance", "declared-parameters")
#: Those that a phone cuts short or leaves out, with their classes.
_GIVES_WAY = {"by": ' class="by"', "architecture": ' class="kind"'}


class Names(NamedTuple):
    """Context for the row heads of a board: facts that no column shows, and the entries not separable from the best.

    `without_page` are slugs of systems that no longer have a page, `implied` is a provenance that rows omit, and
    `missing` is the number of missing queries that all results share. The other fields are texts that are looked up
    once for a board: labels of buttons, with a placeholder for the name, and the notes below a rank.
    """

    below: tuple[str, ...]
    tied: Collection[int]
    without_page: Collection[str]
    implied: str
    missing: int
    pin: str
    unpin: str
    ties: str
    open_ranks: str

    @classmethod
    def of(cls, board: Board) -> Names:
        """Those of the view."""
        shown = {column.key for column in board.shown}
        if "parameters" in shown:
            shown.add("declared-parameters")
        if len(board.papers) == 1:  # named above the board
            shown |= {"by", "provenance"}
        tied = board.statements.tied_with_best(board.measure)
        return cls(
            tuple(key for key in _BELOW if key not in shown),
            tied if len(tied) > 1 else (),
            board.without_page,
            "" if board.counted and board.counted[0]["provenance"].get(REPORTED) else SCORED,
            board.missing_from_all,
            _("Pin %s"),
            _("Unpin %s"),
            f'<small title="{_("not separable from the best when all pairs are compared")}">≈ 1</small>',
            f'<small title="{_("the ranks that the tests of all pairs leave open")}">',
        )

    def pin_button(self, row: Row) -> str:
        """A button of the board's form, so that no row repeats the whole address."""
        return (
            f'<button class="pin" type="submit" form="board-form" name="pin" value="{row.entry.slug}" '
            f'aria-label="{self.pin % escaped(row.entry.system)}"></button>'
        )

    def unpin_link(self, row: Row, href: str) -> str:
        """The way back; empty without an address."""
        label = self.unpin % escaped(row.entry.system)
        return (
            f'<a class="pin" hx-boost="true" href="{escape(href)}" aria-label="{label}"></a>' if href else ""
        )


@lru_cache(4096)
def _facts(keys: tuple[str, ...], values: tuple[Value, ...], implied: str) -> str:
    """Facts of a system in one line, as HTML; rows share them, board after board.

    Each has a `<span>` with the sign before it: where there is little room team and architecture give way.
    """
    said: list[tuple[str, str]] = []
    for key, value in zip(keys, values, strict=True):
        if key == "provenance" and value == implied:
            continue
        if isinstance(value, (float, int)):
            text = _("%s M parameters") % format_quantity(value)
        elif value is not None and key == "provenance":
            text = ", ".join(str(PROVENANCES.get(one, one)) for one in value.split(", "))
        elif value not in (None, ARCHITECTURES["other"]):
            text = str(value)
        else:
            continue
        said.append((_GIVES_WAY.get(key, ""), escape(text)))
    return "".join(
        f"<span{named}>{DOT if number else ''}{text}</span>" for number, (named, text) in enumerate(said)
    )


def _rank(names: Names, row: Row, *, tied: bool) -> str:
    """The rank, and below it the ranks that tests leave open, unless there is one only."""
    label = str(row.rank or "—") if row.ranked_in == REPORTED else row.rank_label or "—"
    found = row.certainty
    if found is None and tied:
        return label if row.rank == 1 else label + names.ties
    if found is None or found.rank_low is None or found.rank_low == found.rank_high:
        return label
    return f"{label}{names.open_ranks}{ranks_text(found)}</small>"


def row_head(names: Names, row: Row, pin: str, *classes: str) -> str:
    """The row's start: rank and name, which stay in sight when the board scrolls sideways."""
    entry = row.entry
    signs = ("‡" if entry.training == "in-domain" else "") + marks.pooled_mark(entry)
    after = f"<sup>{signs}</sup>" if signs else ""
    states = marks.badges(entry)
    if entry.visibility not in ("public", GONE):
        states.insert(0, entry.visibility)
    if entry.challenged:
        states.insert(0, "challenged")
    if row.ranked_in == STALE:
        states.insert(0, "stale")
    if entry.is_baseline:
        states.insert(0, "baseline")
    for state in states:
        after += f'&ensp;<span class="badge is-{state}">{STATES.get(state, state)}</span>'
    if row.values.get(gaps.GAP_SHOWN) == gaps.SIGNIFICANT:
        told = _("significant gap")
        after += f'&ensp;<a class="badge is-gap" href="/docs/contamination/" title="{gaps.CLAIM}">{told}</a>'
    shared = names.missing if row.ranked_in != STALE else 0
    lacking = 0 if entry.missing_queries == shared else entry.missing_queries
    text = ngettext("%d judged query missing", "%d judged queries missing", lacking) if lacking else ""
    missing = text and text % lacking
    facts = _facts(names.below, tuple(map(row.values.get, names.below)), names.implied)
    further = [escaped(text) for text in (entry.configuration, missing, reason_gone(entry)) if text]
    if said := DOT.join([*([facts] if facts else []), *further]):
        after += f"<small>{said}</small>"
    tied = bool(names.tied) and bool(row.entries) and row.entries[0] in names.tied
    if tied:
        classes = (*classes, "is-tied")
    named = " ".join([*classes, *[f"is-{state}" for state in states]])
    opening = f'<tr class="{named}">' if named else "<tr>"
    return (
        f'{opening}<td class="rank">{pin}{_rank(names, row, tied=tied)}</td><th scope="row" class="name">'
        f"{_named(entry, names.without_page)}{after}</th>"
    )


def _named(entry: EntryRow, without_page: Collection[str]) -> str:
    """The system's name, as a link to its page; one that has only private results may have none."""
    name, address = escaped(entry.system).replace(" = ", "\u00a0=\u00a0"), f"/systems/{entry.slug}/"
    if entry.visibility == "private":
        address = f"/submissions/{entry.submission}/" if entry.submission else ""
    return f'<a href="{address}">{name}</a>' if address and entry.slug not in without_page else name


@lru_cache(16_384)
def escaped(text: str) -> str:
    """Boards say the same in thousands of cells, again and again."""
    return escape(text)
