"""What stands before queries and documents: as a submission says, or one of the prompts that a checkpoint brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from evaluation.engines.base import AUTO, InvalidParameter, Parameter

Side = Literal["query", "document"]
SIDES: tuple[Side, ...] = ("query", "document")
#: Before the name of a checkpoint's prompt.
_NAMED = f"{AUTO}:"

PROMPT_PARAMETERS = tuple(
    Parameter(
        f"{side}_prompt",
        AUTO,
        f"put before each {side}; auto is what the checkpoint says, auto:NAME its prompt of that name",
    )
    for side in SIDES
)


def prompt_of(prompts: Mapping[str, str], side: Side, asked: str) -> str:
    """What is put before the texts of a side, by a checkpoint's prompts. Raises InvalidParameter."""
    if asked == AUTO:
        return prompts.get(side, "")
    if not asked.startswith(_NAMED):
        return asked
    name = asked.removeprefix(_NAMED)
    if name not in prompts:
        has = f"its prompts are {', '.join(sorted(prompts))}" if prompts else "it has none"
        raise InvalidParameter(
            f"{side}_prompt = {asked!r:.120} is not possible: the checkpoint has no prompt of this name; {has}."
        )
    return prompts[name]


def check_prompts(prompts: Mapping[str, str], parameters: Mapping[str, Any]) -> None:
    """Raise InvalidParameter where the parameters name a prompt that the checkpoint does not have."""
    for side in SIDES:
        prompt_of(prompts, side, parameters[f"{side}_prompt"])
