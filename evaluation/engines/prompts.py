"""Prompts before queries and documents, chosen by a submission or defined by a checkpoint."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.findings import CODES, quote, summarize_names
from evaluation.core.problems import Problem
from evaluation.engines.base import AUTO, InvalidParameter, Parameter

Side = Literal["query", "document"]
SIDES: tuple[Side, ...] = ("query", "document")
#: Kinds of checkpoints that distinguish queries from documents.
_PROMPTED_KINDS = frozenset(
    {
        CheckpointKind.SENTENCE_ENCODER,
        CheckpointKind.STATIC_EMBEDDINGS,
        CheckpointKind.SPARSE_ENCODER,
        CheckpointKind.MULTI_VECTOR,
    }
)
#: Words in the names of retrieval prompts, the most likely first.
_NAME_PARTS = ("web_search", "retriev", "search", "query")
#: Line break and its escape sequence.
_LINE, _WRITTEN_LINE = "\n", r"\n"
#: Maximum characters of a prompt in a message.
_MAX_SHOWN = 160
#: Prefix of the name of a checkpoint's prompt.
_NAME_PREFIX = f"{AUTO}:"

PROMPT_PARAMETERS = tuple(
    Parameter(
        f"{side}_prompt",
        AUTO,
        f"prefix of each {side}; auto uses the checkpoint's prompt, auto:NAME its prompt with that name",
    )
    for side in SIDES
)


def select_prompt(prompts: Mapping[str, str], side: Side, value: str) -> str:
    """Return the prompt for a side.

    Args:
        prompts: The checkpoint's prompts, keyed by name.
        side: "query" or "document".
        value: Value of the parameter: a prompt, "auto", or "auto:NAME".

    Raises:
        InvalidParameter: The checkpoint has no prompt with this name.
    """
    if value == AUTO:
        return prompts.get(side, "")
    if not value.startswith(_NAME_PREFIX):
        return value
    name = value.removeprefix(_NAME_PREFIX)
    if name not in prompts:
        available = f"its prompts are {', '.join(sorted(prompts))}" if prompts else "it has none"
        raise InvalidParameter(
            f"{side}_prompt = {value!r:.120} is not valid: the checkpoint has no prompt of this name; {available}."
        )
    return prompts[name]


def get_prompts(prompts: Mapping[str, str], parameters: Mapping[str, Any]) -> dict[Side, str]:
    return {side: select_prompt(prompts, side, parameters[f"{side}_prompt"]) for side in SIDES}


def check_prompts(parameters: Mapping[str, Any], checkpoint: CheckpointDescription | None) -> None:
    if checkpoint is not None:
        get_prompts(checkpoint.prompts, parameters)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The prompts with which a family of models was trained, according to its model card.

    `{task}` in a prompt stands for an instruction. A model belongs to the family if its name matches the pattern
    `names` and its type is one of `model_types` (empty: any), or if one of its prompts has this form.
    """

    label: str
    query: str
    document: str
    source: str
    names: str
    model_types: tuple[str, ...] = ()

    def reads_like(self, prompt: str) -> bool:
        """Return whether a query prompt has this form, with any instruction."""
        form = ".+".join(re.escape(part.strip()) for part in self.query.split("{task}"))
        return re.fullmatch(form, prompt.strip(), re.DOTALL) is not None

    def matches_name(self, name: str, model_type: str) -> bool:
        """Return whether name and type of a model match the family."""
        matches_type = not self.model_types or not model_type or model_type in self.model_types
        return matches_type and re.search(self.names, name, re.IGNORECASE) is not None


#: Templates in order of precedence.
TEMPLATES = tuple(
    PromptTemplate(**{**template, "model_types": tuple(template["model_types"])})
    for template in json.loads(Path(__file__).with_name("prompt_templates.json").read_text("utf-8"))
)


def find_template(prompts: Mapping[str, str], model_type: str, name: str) -> PromptTemplate | None:
    """Return the family of a checkpoint by its prompts, or else by its type and name; None if it is unknown.

    If several families share the form of the prompts, the name decides, regardless of the type.
    """
    form_matches = [template for template in TEMPLATES if any(map(template.reads_like, prompts.values()))]
    form_and_name_matches = [template for template in form_matches if template.matches_name(name, "")]
    name_matches = [template for template in TEMPLATES if template.matches_name(name, model_type)]
    return next(iter([*form_and_name_matches, *form_matches, *name_matches]), None)


def format_prompt(prompt: str) -> str:
    """Format a prompt for messages, on one line and in quotation marks, which make trailing spaces visible."""
    return f"“{quote(prompt.replace(_LINE, _WRITTEN_LINE), _MAX_SHOWN)}”" if prompt else "nothing"


def prompt_remarks(kind: str, prompts: Mapping[str, str], model_type: str, name: str) -> list[Problem]:
    """Return warnings if none of a checkpoint's prompts is for queries, or if they do not fit the model's family.

    Other kinds of checkpoints than `_PROMPTED_KINDS` have no warnings.
    """
    if kind not in _PROMPTED_KINDS:
        return []
    query, document_prompt = (prompts.get(side, "") for side in SIDES)
    other_names = [quote(other_name, _MAX_SHOWN) for other_name in prompts if other_name not in SIDES]
    remarks: list[tuple[str, str, str]] = []
    if other_names and not query:
        best_name = next((name for word in _NAME_PARTS for name in other_names if word in name.lower()), other_names[0])
        names = summarize_names(other_names)
        message = f"its prompts are named {names}, and none of them query: queries get no prompt"
        remarks.append(("prompt_names", message, f"Choose one by its name, as `query_prompt={AUTO}:{best_name}`."))
    family = find_template(prompts, model_type, name)
    if family and not any(map(family.reads_like, prompts.values())):
        message = (
            f"it looks like {family.label}, whose card specifies {format_prompt(family.query)} before queries and "
            f"{format_prompt(family.document)} before documents; its files specify "
            f"{format_prompt(query)} and {format_prompt(document_prompt)}"
        )
        remarks.append(
            (
                "prompt_template",
                message,
                f"Set query_prompt and document_prompt as described at {family.source}.",
            )
        )
    return [Problem("warning", code, 1, message, f"{hint} {CODES[code]}") for code, message, hint in remarks]
