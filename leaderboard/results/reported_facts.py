"""What papers report of a system beside its effectiveness, as pages write it."""

from collections.abc import Mapping
from typing import Any

from evaluation.engines.facts import FACTS
from evaluation.engines.prompts import SIDES, format_prompt

#: Figures that say what a system costs, and which way is good.
COSTS = {"latency": "lower", "index size": "lower", "cost": "lower", "dimension": ""}
_PROMPTS = frozenset(f"{side}_prompt" for side in SIDES)


def fact_texts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and value of what papers report of such a system, in the order of FACTS."""
    found = []
    for name, fact in FACTS.items():
        value = facts.get(name)
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        text = (
            f"{value:,.{fact.decimals}f}"
            if number
            else format_prompt(value)
            if name in _PROMPTS
            else str(value)
        )
        found.append((fact.label, f"{text} {fact.unit}".strip()))
    return found


def is_address(locator: str) -> bool:
    """Whether a figure was read from a file at this address, rather than from a table of a paper."""
    return locator.startswith(("https://", "http://"))
