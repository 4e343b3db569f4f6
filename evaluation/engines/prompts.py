"""What stands before queries and documents: as a submission says, or one of the prompts that a checkpoint brings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.findings import CODES, quote, summarize_names
from evaluation.core.problems import Problem
from evaluation.engines.base import AUTO, InvalidParameter, Parameter

Side = Literal["query", "document"]
SIDES: tuple[Side, ...] = ("query", "document")
#: Kinds of checkpoint that have texts of two sides.
_WITH_PROMPTS = frozenset(
    {
        CheckpointKind.SENTENCE_ENCODER,
        CheckpointKind.STATIC_EMBEDDINGS,
        CheckpointKind.SPARSE_ENCODER,
        CheckpointKind.MULTI_VECTOR,
    }
)
#: What the name of a prompt for searching probably has in it, the likeliest first.
_LIKELY = ("web_search", "retriev", "search", "query")
#: The end of a line, and how it is written.
_LINE, _WRITTEN_LINE = "\n", r"\n"
#: Characters of a prompt that a message shows.
_SHOWN = 160
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
    """Return what is put before the texts of a side, by a checkpoint's prompts. Raises InvalidParameter."""
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


def prompts_of(prompts: Mapping[str, str], parameters: Mapping[str, Any]) -> dict[Side, str]:
    """Return what is put before the texts of each side, by a checkpoint's prompts. Raises InvalidParameter."""
    return {side: prompt_of(prompts, side, parameters[f"{side}_prompt"]) for side in SIDES}


def check_prompts(parameters: Mapping[str, Any], checkpoint: CheckpointDescription | None) -> None:
    """Raise InvalidParameter where the parameters name a prompt that the checkpoint does not have."""
    if checkpoint is not None:
        prompts_of(checkpoint.prompts, parameters)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """How a family of models was trained to read texts, as its card says. `{task}` stands for an instruction.

    It is recognised by `names` in the name of the model, where its type is one of `model_types` (empty: any), or by a
    prompt in its form.
    """

    label: str
    query: str
    document: str
    source: str
    names: str
    model_types: tuple[str, ...] = ()

    def reads_like(self, prompt: str) -> bool:
        """Return whether a prompt for queries is in this form, whatever its instruction."""
        form = ".+".join(re.escape(part.strip()) for part in self.query.split("{task}"))
        return re.fullmatch(form, prompt.strip(), re.DOTALL) is not None

    def named_by(self, name: str, model_type: str) -> bool:
        """Return whether the name of a model of this type is one of the family's."""
        fits = not self.model_types or not model_type or model_type in self.model_types
        return fits and re.search(self.names, name, re.IGNORECASE) is not None


#: In the order in which they are tried.
TEMPLATES = (
    PromptTemplate(
        "Qwen3-Embedding", "Instruct: {task}\nQuery:", "", "https://huggingface.co/Qwen/Qwen3-Embedding-0.6B",
        r"qwen3.?emb", ("qwen3",),
    ),
    PromptTemplate(
        "E5-mistral", "Instruct: {task}\nQuery: ", "", "https://huggingface.co/intfloat/e5-mistral-7b-instruct",
        r"e5-mistral|e5.*-instruct", ("mistral", "xlm-roberta"),
    ),
    PromptTemplate(
        "EmbeddingGemma", "task: {task} | query: ", "title: none | text: ",
        "https://huggingface.co/google/embeddinggemma-300m", r"embedding.?gemma", ("gemma3_text",),
    ),
    PromptTemplate(
        "Nomic Embed", "search_query: ", "search_document: ", "https://huggingface.co/nomic-ai/nomic-embed-text-v1.5",
        r"nomic-embed|modernbert-embed", ("nomic_bert", "modernbert"),
    ),
    PromptTemplate(
        "BGE", "Represent this sentence for searching relevant passages: ", "",
        "https://huggingface.co/BAAI/bge-large-en-v1.5", r"bge-(small|base|large)-en", ("bert",),
    ),
    PromptTemplate(
        "BGE, Chinese", "为这个句子生成表示以用于检索相关文章：", "",
        "https://huggingface.co/BAAI/bge-large-zh-v1.5", r"bge-(small|base|large)-zh", ("bert",),
    ),
    PromptTemplate(
        "E5", "query: ", "passage: ", "https://huggingface.co/intfloat/e5-base-v2",
        r"(^|[/_-])(multilingual-)?e5-(small|base|large)", ("bert", "xlm-roberta"),
    ),
)  # fmt: skip


def template_of(prompts: Mapping[str, str], model_type: str, name: str) -> PromptTemplate | None:
    """Return the family that a checkpoint's prompts, or else its type and name, are of; None for others.

    Of several that have the same form the name tells which, whatever the type.
    """
    by_form = [each for each in TEMPLATES if any(map(each.reads_like, prompts.values()))]
    both = [each for each in by_form if each.named_by(name, "")]
    by_name = [each for each in TEMPLATES if each.named_by(name, model_type)]
    return next(iter([*both, *by_form, *by_name]), None)


def shown(prompt: str) -> str:
    """Return a prompt as messages write it: in quotation marks, so that blanks at its end are seen, and in one line."""
    return f"“{quote(prompt.replace(_LINE, _WRITTEN_LINE), _SHOWN)}”" if prompt else "nothing"


def prompt_remarks(kind: str, prompts: Mapping[str, str], model_type: str, name: str) -> list[Problem]:
    """What the sender of a checkpoint should know of its prompts before it is run with those that it says itself."""
    if kind not in _WITH_PROMPTS:
        return []
    own, documents = (prompts.get(side, "") for side in SIDES)
    others = [quote(each, _SHOWN) for each in prompts if each not in SIDES]
    remarks: list[tuple[str, str, str]] = []
    if others and not own:
        likely = next((each for word in _LIKELY for each in others if word in each.lower()), others[0])
        what = f"its prompts are named {summarize_names(others)}, and none of them query: nothing is put before queries"
        remarks.append(("prompt_names", what, f"Choose one by its name, as `query_prompt={AUTO}:{likely}`."))
    template = template_of(prompts, model_type, name)
    if template and not any(map(template.reads_like, prompts.values())):
        what = (
            f"it looks like {template.label}, whose card puts {shown(template.query)} before queries and "
            f"{shown(template.document)} before documents; its files put {shown(own)} and {shown(documents)}"
        )
        remarks.append(
            ("prompt_template", what, f"Set query_prompt and document_prompt as {template.source} says.")
        )
    return [Problem("warning", code, 1, what, f"{hint} {CODES[code]}") for code, what, hint in remarks]
