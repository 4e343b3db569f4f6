"""What stands beside a result of how its run came to a round: late, by hand, and whether it fed a judged pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Follows the name of a system whose run fed a pool that was judged.
POOLED = "§"
NOTES = {
    POOLED: f"{POOLED} pooled: its run fed the pool that was judged; others may have more unjudged documents.",
    "late": "Late: it came after its round had closed.",
    "manual": "Manual: a person had a hand in the queries or in the ranking.",
}


def badges(entry: Any) -> list[str]:
    """The words that stand after the name. A benchmark's line has none: it is of several results."""
    words = ["late"] if getattr(entry, "late", 0) else []
    return words + (["manual"] if getattr(entry, "run_type", "") == "manual" else [])


def mark(entry: Any) -> str:
    """The sign that stands at the name, or nothing."""
    return POOLED if getattr(entry, "pooled", 0) else ""


def notes(entries: Iterable[Any]) -> list[str]:
    """The footnotes to what any of the entries has."""
    had = set[str]()
    for entry in entries:
        if getattr(entry, "late", 0) or getattr(entry, "pooled", 0) or getattr(entry, "run_type", ""):
            had.update(badges(entry), mark(entry))
    return [text for word, text in NOTES.items() if word in had]
