"""Texts in groups that a tokenizer can take at once: what it returns is a hundred times larger than what is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

_ITEMS, _CHARACTERS = 1_000, 2_000_000


def grouped(items: Iterable[Item], text_of: Callable[[Item], str]) -> Iterator[list[Item]]:
    """The items in order, in lists of at most 1,000 whose texts have 2,000,000 characters, but for the last of each."""
    group: list[Item] = []
    characters = 0
    for item in items:
        group.append(item)
        characters += len(text_of(item))
        if len(group) == _ITEMS or characters >= _CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group


def slices(text: str) -> Iterator[str]:
    """The text in pieces of at most 2,000,000 characters, cut behind white space wherever there is some."""
    start = 0
    while len(text) - start > _CHARACTERS:
        end = start + _CHARACTERS
        space = max(text.rfind(mark, start, end) for mark in " \n\t")
        cut = space + 1 if space > start else end
        yield text[start:cut]
        start = cut
    yield text[start:]
