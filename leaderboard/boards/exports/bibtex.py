"""What to cite for a board: the board itself at its date, and every publication in view."""

from collections.abc import Iterable
from itertools import chain

from leaderboard.boards.exports.cells import Citation, measured
from leaderboard.boards.model import Board
from leaderboard.core.text.bibtex import BibtexEntry, escape_url, misc_entry, parse_entries
from leaderboard.core.text.latex import escape


def bibliography(references: Iterable[BibtexEntry], taken: Iterable[str] = ()) -> list[str]:
    """The references as text, each once, under keys that none shares: `thakur2021`, `thakur2021-2`."""
    keys = {key.casefold() for key in taken}
    seen: set[str] = set()
    written = []
    for reference in references:
        content = " ".join(reference.written(reference.key).split())
        if content in seen:
            continue
        seen.add(content)
        key, number = reference.key, 1
        while key.casefold() in keys:
            number += 1
            key = f"{reference.key}-{number}"
        keys.add(key.casefold())
        written.append(reference.written(key))
    return written


def to_bibtex(board: Board, cited: Citation) -> str:
    """The board as a dated `@misc`, then what its rows cite.

    Its summary stands before these in a comment, and in another behind them the systems that have nothing to cite.
    """
    key = f"{cited.kind}-{cited.slug}" + (f"-{cited.at:%Y-%m-%d}" if cited.at else "")
    own = misc_entry(
        key,
        {
            "title": f"{{{escape(board.title)}: {escape(measured(board))}}}",
            "author": f"{{{escape(cited.site)}}}",
            "year": f"{cited.at:%Y}" if cited.at else "",
            "month": f"{cited.at:%b}".lower() if cited.at else "",
            "howpublished": rf"\url{{{escape_url(cited.url)}}}",
            "note": escape(f"Leaderboard as of {cited.moment}") if cited.at else "Leaderboard",
        },
    )
    names = {row.entry.slug: row.entry.system for row in board.rows}
    references = {slug: parse_entries(cited.bibtex.get(slug, "")) for slug in names}
    silent = [name for slug, name in names.items() if not references[slug]]
    parts = [_comment(board.summary.text)] if board.summary else []
    parts += [own, *bibliography(chain.from_iterable(references.values()), [key])]
    if silent:
        parts.append(_comment(f"Nothing to cite is known of: {', '.join(silent)}"))
    return "\n\n".join(parts) + "\n"


def _comment(text: str) -> str:
    """The text on a line that BibTeX ignores: all that is outside of entries and has no @."""
    return f"% {' '.join(text.replace('@', '(at)').split())}"
