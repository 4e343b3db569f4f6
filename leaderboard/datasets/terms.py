"""Terms that pages group by, such as a dataset's task: values in use, and warnings of near-duplicates."""

import re
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher

from django.db.models import Count, Model

from leaderboard.models import Dataset, System

#: The fields of each model.
TERMS: Mapping[type[Model], tuple[str, ...]] = {Dataset: ("task", "domain", "licence"), System: ("licence",)}
#: Expansions of abbreviations; words without meaning of their own are removed.
_ABBREVIATIONS = {"ir": "retrieval", "qa": "questionanswering", "information": "", "and": "", "the": ""}
#: Texts with this share of equal letters are spellings of one term.
SIMILAR = 0.9


def terms_in_use(model: type[Model], field: str) -> dict[str, int]:
    """Return the field's values, in alphabetical order, with the number of rows that have each."""
    rows = model._default_manager.exclude(**{field: ""}).values_list(field).annotate(Count("pk"))
    return dict(rows.order_by(field))


def near_duplicates(row: Model, fields: Collection[str] | None = None) -> list[str]:
    """Return warnings about terms of the row that other rows spell differently, by default in all fields."""
    warnings = []
    for field in TERMS.get(type(row), ()):
        if fields is not None and field not in fields:
            continue
        value: str = getattr(row, field)
        for other, count in terms_in_use(type(row), field).items() if value else ():
            if other != value and _is_similar(value, other):
                has = "has" if count == 1 else "have"
                name = row._meta.verbose_name if count == 1 else row._meta.verbose_name_plural
                warnings.append(
                    f"The {field} “{value}” is similar to “{other}”, which {count} {name} {has}. "
                    "Pages group by the exact text: use one spelling."
                )
    return warnings


def _is_similar(one: str, other: str) -> bool:
    first, second = _normalized(one), _normalized(other)
    if first == second or any(character.isdigit() for character in first + second):
        return first == second  # CC BY 4.0 and CC BY-SA 4.0 are two licences
    return SequenceMatcher(None, first, second).ratio() >= SIMILAR


def _normalized(text: str) -> str:
    """Return the text without case, punctuation, spaces, and abbreviations."""
    words = re.findall(r"\w+", text.casefold())
    return "".join(_ABBREVIATIONS.get(word, word) for word in words)
