"""Scores of today's re-rankers equal what a model card's snippet gives with bare transformers, in one batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.settings import TEMPLATES, recognize_template
from evaluation.engines import InvalidParameter
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation.neural import created, rebuilt
from tests.evaluation.tiny_families import PAD, byte_tokenizer, save_transformer

LENGTH = 2048
#: A query is read with each document: empty ones, short ones, one in another script, one of over 600 tokens.
QUERY = "who measured the speed of sound"
DOCUMENTS = ["", "a", "heart disease and blood pressure", "зимний вечер", "stock market price fell " * 30]

_QWEN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
)
_QWEN_TASK = "Given a web search query, retrieve relevant passages that answer the query"
_MXBAI = (
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n",
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document "
    "pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:",
    "<|im_end|>\n<|im_start|>assistant\n",
)
_BGE = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
    "prediction of either 'Yes' or 'No'."
)
#: Takes (tokens of a text without special ones, cut to so many if a number is given), query, document, instruction,
#: and how many tokens there may be; returns the tokens of the pair.
Rows = Callable[[Callable[..., list[int]], str, str, str, int], list[int]]


def qwen3_rows(tokens: Callable[..., list[int]], query: str, document: str, instruction: str, most: int) -> list[int]:
    """https://huggingface.co/Qwen/Qwen3-Reranker-0.6B"""
    prefix, suffix = map(tokens, _QWEN)
    asked = f"<Instruct>: {instruction or _QWEN_TASK}\n<Query>: {query}\n<Document>: {document}"
    return prefix + tokens(asked, most - len(prefix) - len(suffix)) + suffix


def mxbai_rows(tokens: Callable[..., list[int]], query: str, document: str, instruction: str, most: int) -> list[int]:
    """https://github.com/mixedbread-ai/mxbai-rerank/blob/03324ea9/mxbai_rerank/mxbai_rerank_v2.py"""
    prefix, task, suffix = map(tokens, _MXBAI)
    asked = (f"instruction: {instruction}\n" if instruction else "") + f"query: {query}"
    fixed = prefix + tokens(asked) + tokens("\n")
    end = tokens("\n") + task + suffix
    return fixed + tokens(f"document: {document}", most - len(fixed) - len(end)) + end


def bge_rows(tokens: Callable[..., list[int]], query: str, document: str, instruction: str, most: int) -> list[int]:
    """https://github.com/FlagOpen/FlagEmbedding/blob/0dff36cd/FlagEmbedding/inference/reranker/decoder_only/base.py"""
    fixed = tokens("<s>") + tokens(f"A: {query}") + tokens("\n")
    end = tokens("\n") + tokens(instruction or _BGE)
    return fixed + tokens(f"B: {document}", most - len(fixed) - len(end)) + end


GENERATIVE: dict[str, tuple[str, str, Rows]] = {
    "qwen3-reranker": ("qwen3", "yes no", qwen3_rows),
    "mxbai-rerank-v2": ("qwen2", "1 0", mxbai_rows),
    "bge-reranker-v2-gemma": ("gemma", "Yes", bge_rows),
}

_PLACE = '{{ messages | selectattr("role", "eq", "%s") | map(attribute="content") | first }}'
#: Chat templates as such models have them.
PROGRAMS = {
    "qwen3-reranker": f"{_QWEN[0]}<Instruct>: {{{{ '{_QWEN_TASK}' }}}}\n<Query>: {_PLACE % 'query'}\n"
    f"<Document>: {_PLACE % 'document'}{_QWEN[1]}\n",
    "mxbai-rerank-v2": f"{_MXBAI[0]}query: {_PLACE % 'query'}\ndocument: {_PLACE % 'document'}\n"
    f"{_MXBAI[1]}{_MXBAI[2]}\n",
    "bge-reranker-v2-gemma": f"{{{{ bos_token }}}}A: {_PLACE % 'query'}\nB: {_PLACE % 'document'}\n{_BGE}",
}


def last_logits(model: Any, rows: list[list[int]], side: str = "left") -> Any:
    """The logits in the last column of a batch that is padded on this side."""
    import torch

    width = max(map(len, rows))
    padding = [[PAD] * (width - len(row)) for row in rows]
    ids = [pad + row if side == "left" else row + pad for pad, row in zip(padding, rows, strict=True)]
    mask = [[int(place >= len(pad)) for place in range(width)] for pad in padding]
    if side == "right":
        mask = [line[::-1] for line in mask]
    with torch.inference_mode():
        return model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask)).logits[:, -1]


def save_generative(folder: Path, model_type: str, words: Any, answers: list[int]) -> Path:
    """A causal language model with LogitScore, as sentence-transformers 6.2 saves it."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    save_transformer(folder, model_type, "AutoModelForCausalLM", words, max_position_embeddings=LENGTH)
    modules = [Transformer(str(folder), transformer_task="text-generation"), LogitScore(*answers)]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


def assert_same(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name != "qwen3-reranker")) for name in GENERATIVE]
)
def test_language_models_are_asked_as_their_cards_say(name: str, tmp_path: Path) -> None:
    import torch
    import transformers
    from sentence_transformers import CrossEncoder

    model_type, answers, rows_of = GENERATIVE[name]
    words = byte_tokenizer("left", length=LENGTH)
    ids = words.convert_tokens_to_ids(answers.split())
    words.chat_template = PROGRAMS[name]
    checkpoint = rebuilt(
        tmp_path, lambda folder: save_generative(folder, model_type, words, ids), CheckpointKind.CROSS_ENCODER
    )
    assert check_checkpoint(checkpoint).valid
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "raw").eval()

    def tokens(text: str, most: int | None = None) -> list[int]:
        found: list[int] = words(text, add_special_tokens=False)["input_ids"]
        return found[:most]

    def plain(instruction: str, most: int = LENGTH, side: str = "left") -> Any:
        logits = last_logits(model, [rows_of(tokens, QUERY, text, instruction, most) for text in DOCUMENTS], side)
        return (logits[:, ids[0]] - (logits[:, ids[1]] if len(ids) > 1 else 0)).numpy()

    queries = [QUERY] * len(DOCUMENTS)
    found = created("cross-encoder", checkpoint, batch_tokens=100_000).scorer.score(queries, DOCUMENTS)
    assert_same(found, plain(""))
    library = CrossEncoder(str(tmp_path / "raw"), device="cpu")  # which runs the template
    assert_same(found, library.predict([[QUERY, text] for text in DOCUMENTS], activation_fn=torch.nn.Identity()))
    for mutant in (plain("Find answers"), plain("", 900), plain("", side="right")):
        assert np.abs(found - mutant).max() > 1e-3
    engine = created("cross-encoder", checkpoint, query_prompt="Find answers", maximum_length=900)
    assert_same(engine.scorer.score(queries, DOCUMENTS), plain("Find answers", 900))


@pytest.mark.parametrize("labels", [1, 2])
def test_classifiers_on_decoders_read_the_last_token(labels: int, tmp_path: Path) -> None:
    """RankLLaMA: https://huggingface.co/castorini/rankllama-v1-7b-lora-passage"""
    import torch
    import transformers

    words = byte_tokenizer(begin=True, end=False, length=LENGTH)
    words.pad_token = None  # as Llama's
    checkpoint = rebuilt(
        tmp_path,
        lambda folder: save_transformer(
            folder, "llama", "AutoModelForSequenceClassification", words, num_labels=labels,
            max_position_embeddings=LENGTH, pad_token_id=None,
        ),
        CheckpointKind.CROSS_ENCODER,
    )  # fmt: skip
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "raw").eval()

    def plain(query: str, document: str) -> list[float]:
        with torch.inference_mode():
            rows = [model(**words(query + QUERY, document + text, return_tensors="pt")).logits[0] for text in DOCUMENTS]
        return [float(row[-1] - (row[0] if labels == 2 else 0)) for row in rows]

    prompts = {"query_prompt": "query: ", "document_prompt": "document: "}
    scorer = created("cross-encoder", checkpoint, batch_tokens=100_000, **prompts).scorer
    found = scorer.score([QUERY] * len(DOCUMENTS), DOCUMENTS)
    assert_same(found, plain("query: ", "document: "))
    assert np.abs(found - plain("", "")).max() > 1e-3


@pytest.mark.parametrize("name", ["deberta-v2", pytest.param("modernbert", marks=pytest.mark.long)])
def test_classifiers_with_two_labels_give_the_second_less_the_first(name: str, tmp_path: Path) -> None:
    import torch
    import transformers

    words = byte_tokenizer(begin=True)
    checkpoint = rebuilt(
        tmp_path,
        lambda folder: save_transformer(folder, name, "AutoModelForSequenceClassification", words, num_labels=2),
        CheckpointKind.CROSS_ENCODER,
    )
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "raw").eval()
    batch = words([QUERY] * len(DOCUMENTS), DOCUMENTS, padding=True, return_tensors="pt")
    batch.pop("token_type_ids", None)
    with torch.inference_mode():
        logits = model(**batch).logits
    found = created("cross-encoder", checkpoint, batch_tokens=100_000).scorer.score([QUERY] * len(DOCUMENTS), DOCUMENTS)
    assert_same(found, logits[:, 1] - logits[:, 0])
    assert np.abs(found - logits[:, 1].numpy()).max() > 1e-3


def test_monot5_says_true_or_false(tmp_path: Path) -> None:
    """https://github.com/castorini/pygaggle, and mteb's MonoT5Reranker."""
    import torch
    import transformers

    words = byte_tokenizer(length=LENGTH)
    checkpoint = rebuilt(
        tmp_path,
        lambda folder: save_transformer(folder, "t5", "AutoModelForSeq2SeqLM", words),
        CheckpointKind.SEQ2SEQ,
    )
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "raw").eval()
    false, true = (words.get_vocab()[f"▁{word}"] for word in ("false", "true"))

    def plain(prompt: str) -> Any:
        texts = [prompt.format(query=QUERY, text=text) for text in DOCUMENTS]
        batch = words(texts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            output = model.generate(
                input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=1,
                return_dict_in_generate=True, output_scores=True,
            )  # fmt: skip
        return output.scores[0][:, true] - output.scores[0][:, false]

    engine = created("cross-encoder", checkpoint, batch_tokens=100_000, maximum_length=LENGTH)
    found = engine.scorer.score([QUERY] * len(DOCUMENTS), DOCUMENTS)
    assert_same(found, plain("Query: {query} Document: {text} Relevant:"))
    assert np.abs(found - plain("{query} {text}").numpy()).max() > 1e-3
    # A text that is too long loses its end, not the question.
    cut = created("cross-encoder", checkpoint, maximum_length=200).scorer.score([QUERY], [DOCUMENTS[-1]])
    fitting = DOCUMENTS[-1][: 200 - len(f"Query: {QUERY} Document:  Relevant:") - 1]
    assert_same(cut, engine.scorer.score([QUERY], [fitting]))


def test_a_chat_template_is_recognised_by_what_it_says_and_else_asked_for(tmp_path: Path) -> None:
    for name, program in PROGRAMS.items():
        assert recognize_template(program) == name
        assert recognize_template(program.replace("relevan", "importan").replace("answer", "word")) == ""
    assert recognize_template(PROGRAMS["bge-reranker-v2-gemma"].replace("'Yes' or 'No'", "\\'Yes\\' or \\'No\\'")) != ""
    assert set(PROGRAMS) == set(GENERATIVE) == {name for name in TEMPLATES if "monot5" not in name}
    words = byte_tokenizer("left")
    checkpoint = rebuilt(
        tmp_path, lambda folder: save_generative(folder, "qwen3", words, [4, 5]), CheckpointKind.CROSS_ENCODER
    )
    with pytest.raises(InvalidParameter, match=r"Set template to .*: qwen3-reranker, mxbai-rerank-v2"):
        created("cross-encoder", checkpoint)
    chosen = created("cross-encoder", checkpoint, template="bge-reranker-v2-gemma").scorer._model[-1]
    assert (chosen.true_token_id, chosen.false_token_id) == (words.convert_tokens_to_ids("Yes"), None)
