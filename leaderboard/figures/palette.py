"""Hues that people tell apart whichever way they see colour (after Okabe and Ito), each with a symbol.

A colour is a custom property of static/css/figures.css, which has a value for the light and one for the dark scheme;
the browser puts it in. So a figure's data is the same for both.
"""

from __future__ import annotations

from typing import NamedTuple

from leaderboard.models import Architecture

INK = "var(--ink)"
SOFT = "var(--ink-soft)"
PAPER = "var(--paper)"
#: Better and worse, as on the boards; always with a sign.
BETTER, WORSE = "var(--up)", "var(--down)"

BLUE = "var(--figure-blue)"
ORANGE = "var(--figure-orange)"
GREEN = "var(--figure-green)"
SKY = "var(--figure-sky)"
VERMILLION = "var(--figure-vermillion)"
PURPLE = "var(--figure-purple)"
OLIVE = "var(--figure-olive)"
GREY = "var(--figure-grey)"
#: In the order in which several kinds of things get them.
HUES = (BLUE, ORANGE, GREEN, PURPLE, VERMILLION, SKY, OLIVE, GREY)
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "triangle-down", "star", "x")

#: A scale from nothing to much, on paper; for heat maps. All of it is a ground for INK, which texts have to ask for:
#: Plotly's own choice, dark grey or white, is too weak on the middle of any scale.
SCALE = [[step / 4, f"var(--figure-scale-{step})"] for step in range(5)]


class Mark(NamedTuple):
    """How a kind of thing is drawn."""

    color: str
    symbol: str


def mark(number: int) -> Mark:
    """The mark of the n-th kind; after eight they repeat, with other symbols."""
    return Mark(HUES[number % len(HUES)], SYMBOLS[(number + number // len(HUES)) % len(SYMBOLS)])


#: By architecture, always the same. BM25 and other lexical ones are grey: what is compared with.
ARCHITECTURE: dict[str, Mark] = {
    Architecture.LEXICAL.value: Mark(GREY, "circle"),
    Architecture.LEARNED_SPARSE.value: Mark(GREEN, "square"),
    Architecture.DENSE.value: Mark(BLUE, "diamond"),
    Architecture.LATE_INTERACTION.value: Mark(PURPLE, "triangle-up"),
    Architecture.RE_RANKING.value: Mark(VERMILLION, "cross"),
    Architecture.DOCUMENT_EXPANSION.value: Mark(ORANGE, "triangle-down"),
    Architecture.QUERY_AUGMENTATION.value: Mark(OLIVE, "star"),
    Architecture.GENERATIVE.value: Mark(SKY, "hexagon"),
    Architecture.FUSION.value: Mark(ORANGE, "pentagon"),
    Architecture.OTHER.value: Mark(GREY, "x"),
}
