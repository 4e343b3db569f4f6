"""Terms that pages group by, such as a dataset's task: suggestions, and warnings about near-duplicates."""

import re
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher

from django.db.models import Count, Model

from evaluation.text.languages import language_name
from leaderboard.models import Dataset, System

#: Fields with terms, by model.
TERMS: Mapping[type[Model], tuple[str, ...]] = {Dataset: ("task", "domain", "licence"), System: ("licence",)}
#: Fields with suggested values, by model.
SUGGESTED_FIELDS: Mapping[type[Model], tuple[str, ...]] = {**TERMS, Dataset: (*TERMS[Dataset], "language")}
#: Suggestions besides the values in use: tasks and domains of BEIR and MTEB, and codes of frequent languages.
_BUILT_IN: Mapping[str, str] = {
    "task": "Argument Retrieval; Bio-Medical IR; Citation Prediction; Code Retrieval; Conversational Search; "
    "Cross-lingual Retrieval; Duplicate-Question Retrieval; Entity Retrieval; Fact Checking; Instruction Retrieval; "
    "News Retrieval; Open-domain Question Answering; Passage Retrieval; Question Answering; Reranking; Tweet Retrieval",
    "domain": "Academic; Bio-Medical; Encyclopaedic; Finance; Government; Legal; Miscellaneous; News; Programming; "
    "Quora; Reviews; Scientific; Social; StackExchange; Twitter; Web; Wikipedia",
    "language": "ar; bn; cs; da; de; el; en; es; fa; fi; fr; he; hi; hu; id; it; ja; ko; nl; no; pl; pt; ro; ru; sv; "
    "sw; ta; te; th; tr; uk; ur; vi; yo; zh",
}
#: Expansions of abbreviations; stop words are removed.
_ABBREVIATIONS = {"ir": "retrieval", "qa": "questionanswering", "information": "", "and": "", "the": ""}
#: Minimum similarity of two spellings of one term.
MIN_SIMILARITY = 0.9


def terms_in_use(model: type[Model], field: str) -> dict[str, int]:
    """Return the field's values in alphabetical order, with the number of rows that have each."""
    rows = model._default_manager.exclude(**{field: ""}).values_list(field).annotate(Count("pk"))
    return dict(rows.order_by(field))


def suggest_terms(model: type[Model], field: str) -> dict[str, str]:
    """Return suggested values of a field in alphabetical order, with language names or empty strings as labels.

    If a term has several spellings, only the most frequent one is suggested, because pages group by the exact text.
    """
    used = terms_in_use(model, field)
    values: list[str] = []
    for value in [*sorted(used, key=lambda value: -used[value]), *filter(None, _BUILT_IN.get(field, "").split("; "))]:
        if field not in TERMS[model] or not any(_is_similar(value, other) for other in values):
            values.append(value)
    return {value: language_name(value) if field == "language" else "" for value in sorted(values, key=str.casefold)}


def stored_spelling(field: str, value: str) -> str:
    """Return the suggested spelling of a term, or `value` if no suggestion equals it after normalization."""
    return next((term for term in suggest_terms(Dataset, field) if _normalize(term) == _normalize(value)), value)


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
