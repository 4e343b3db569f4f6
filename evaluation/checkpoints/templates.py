"""How a re-ranker that is a language model is asked about a query and a document.

A chat template is a program, so that none which came with a model is run. Those that are known are written here, and a
model's own is recognised by what it says (`recognise`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Template:
    """What is put to a model: `text`, of which the end is cut where it is too long, and `suffix`, which always stays.

    They have places for {query} and {document}, for {bos}, the token that begins a text, and for {instruction}, which
    is `instruction` where nobody gives one, as `introduced` writes it. The score is the logit that the next token is
    `positive`, less that of `negative` unless that is empty.
    """

    text: str
    suffix: str
    positive: str
    negative: str
    instruction: str = ""
    introduced: str = "{instruction}"

    def render(self, query: str, document: str, instruction: str = "", bos: str = "") -> str:
        """The text for a pair, without the suffix."""
        return self.text.format(query=query, document=document, instruction=self._asked(instruction), bos=bos)

    def render_suffix(self, instruction: str = "") -> str:
        """What stands behind every text."""
        return self.suffix.format(instruction=self._asked(instruction))

    def _asked(self, instruction: str) -> str:
        asked = instruction or self.instruction
        return self.introduced.format(instruction=asked) if asked else ""

    def is_said_by(self, program: str) -> bool:
        """Whether a chat template has every phrase of this one: lines, and parts of lines between places."""
        said = program.replace("\\", "")
        phrases = [*re.split(r"\{\w+\}|\n", self.text + self.suffix), self.instruction]
        return all(phrase.strip() in said for phrase in phrases)


def recognise(program: str) -> str:
    """The name of the template that a chat template means, as far as its phrases tell; empty where none is known."""
    return next((name for name, template in TEMPLATES.items() if template.is_said_by(program)), "")


#: Each with its source: a model card, or the code of whoever made the models.
TEMPLATES: Mapping[str, Template] = {
    # https://huggingface.co/Qwen/Qwen3-Reranker-0.6B
    "qwen3-reranker": Template(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
        "<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}",
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        "yes",
        "no",
        "Given a web search query, retrieve relevant passages that answer the query",
    ),
    # https://github.com/mixedbread-ai/mxbai-rerank/blob/03324ea9/mxbai_rerank/mxbai_rerank_v2.py
    "mxbai-rerank-v2": Template(
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\n{instruction}query: {query}\ndocument: {document}",
        "\nYou are a search relevance expert who evaluates how well documents match search queries. For each "
        "query-document pair, carefully analyze the semantic relationship between them, then provide your binary "
        "relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n",
        "1",
        "0",
        introduced="instruction: {instruction}\n",
    ),
    # https://github.com/FlagOpen/FlagEmbedding/blob/0dff36cd/FlagEmbedding/inference/reranker/decoder_only/base.py
    "bge-reranker-v2-gemma": Template(
        "{bos}A: {query}\nB: {document}",
        "\n{instruction}",
        "Yes",
        "",
        "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing "
        "a prediction of either 'Yes' or 'No'.",
    ),
    # https://github.com/castorini/pygaggle/blob/f54ae53d/pygaggle/rerank/base.py; the multilingual one says yes and no
    "monot5": Template("Query: {query} Document: {document}", " Relevant:", "▁true", "▁false"),
    "mmonot5": Template("Query: {query} Document: {document}", " Relevant:", "▁yes", "▁no"),
}
