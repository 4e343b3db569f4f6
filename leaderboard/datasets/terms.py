"""Terms that pages group by, such as a dataset's task: values in use, and warnings about near-duplicates."""

import re
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher

from django.db.models import Count, Model

from leaderboard.models import Dataset, System

#: Fields with terms, by model.
TERMS: Mapping[type[Model], tuple[str, ...]] = {Dataset: ("task", "domain", "licence"), System: ("licence",)}
#: Expansions of abbreviations; stop words are removed.
_ABBREVIATIONS = {"ir": "retrieval", "qa": "questionanswering", "information": "", "and": "", "the": ""}
#: Minimum similarity of two spellings of one term.
MIN_SIMILARITY = 0.9


def terms_in_use(model: type[Model], field: str) -> dict[str, int]:
    """Return the field's values in alphabetical order, with the number of rows that have each."""
    rows = model._default_manager.exclude(**{field: ""}).values_list(field).annotate(Count("pk"))
    return dict(rows.order_by(field))


def near_duplicates(row: Model, fields: Collection[str] | None = None) -> list[str]:
    """Return warnings about terms of the row that are similar to, but spelled differently from, those of other rows.

    By default, all fields in TERMS are checked.
    """
    warnings = []
    for field in TERMS.get(type(row), ()):
        if fields is not None and field not in fields:
            continue
        value: str = getattr(row, field)
        for other_value, count in terms_in_use(type(row), field).items() if value else ():
            if other_value != value and _is_similar(value, other_value):
                verb = "has" if count == 1 else "have"
                name = row._meta.verbose_name if count == 1 else row._meta.verbose_name_plural
                warnings.append(
                    f"The {field} “{value}” is similar to “{other_value}”, which {count} {name} {verb}. "
                    "Pages group by the exact text: use one spelling."
                )
    return warnings


def _is_similar(value: str, other_value: str) -> bool:
    """Return whether two terms are equal after normalization, or almost equal and without digits."""
    first, second = _normalize(value), _normalize(other_value)
    if first == second or any(character.isdigit() for character in first + second):
        return first == second  # CC BY 4.0 and CC BY-SA 4.0 are different licenses
    return SequenceMatcher(None, first, second).ratio() >= MIN_SIMILARITY


def _normalize(text: str) -> str:
    words = re.findall(r"\w+", text.casefold())
    return "".join(_ABBREVIATIONS.get(word, word) for word in words)
