"""Texts in a figure's data. Plotly reads every one of them as markup: tags, links, entities.

Names and titles come from people. They stand in `data` and `layout` as they are, and are made plain here, once, as the
figure leaves; so whatever puts its own tags into a text does so in a template, and templates have no names within.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: What Plotly fills with values; in these alone tags are ours.
TEMPLATES = frozenset({"hovertemplate", "texttemplate"})
_PLAIN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def plain(value: Any, key: str = "") -> Any:
    """Data or layout in which every text says what it says, but for templates."""
    if isinstance(value, str):
        return value if key in TEMPLATES else value.translate(_PLAIN)
    if isinstance(value, dict):
        return {name: plain(inner, name) for name, inner in value.items()}
    return [plain(inner, key) for inner in value] if isinstance(value, (list, tuple)) else value


def told(lines: Sequence[Sequence[str]]) -> dict[str, Any]:
    """What a trace says of hovering: by point several lines of plain text, of each as many."""
    places = range(len(lines[0]) if lines else 0)
    template = "<br>".join(f"%{{customdata[{place}]}}" for place in places)
    return {"customdata": [list(each) for each in lines], "hovertemplate": f"{template}<extra></extra>"}
