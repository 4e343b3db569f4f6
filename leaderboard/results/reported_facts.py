"""Formatting of the facts that papers report about a system besides its scores."""

from collections.abc import Mapping
from typing import Any

from evaluation.engines.facts import FACTS
from evaluation.engines.prompts import SIDES, format_prompt

#: Reported costs of a system, with the better direction.
COSTS = {"latency": "lower", "index size": "lower", "cost": "lower", "dimension": ""}
_PROMPTS = frozenset(f"{side}_prompt" for side in SIDES)


def fact_texts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return labels and formatted values of a system's reported facts, in the order of FACTS."""
    texts = []
    for name, fact in FACTS.items():
        value = facts.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        text = f"{value:,.{fact.decimals}f}" if is_number else format_prompt(value) if name in _PROMPTS else str(value)
        texts.append((fact.label, f"{text} {fact.unit}".strip()))
    return texts


def is_url(locator: str) -> bool:
    """Return whether a figure was read from a file at this URL rather than from a table in a paper."""
    return locator.startswith(("https://", "http://"))
