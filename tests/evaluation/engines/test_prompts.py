"""Prompts before texts: a checkpoint's own prompts by name, and those of recognized model families."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from evaluation.__main__ import main
from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.engines import InvalidParameter, describe
from evaluation.engines.prompts import SIDES, TEMPLATES, find_template, format_prompt, prompt_remarks, select_prompt
from tests.evaluation import tiny_models
from tests.evaluation.neural import DOCUMENTS, QUERIES, created, rebuilt, searched

#: Prompts in config_sentence_transformers.json of intfloat/e5-mistral-7b-instruct.
E5_MISTRAL = {
    "web_search_query": "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ",
    "sts_query": "Instruct: Retrieve semantically similar text.\nQuery: ",
}
#: Prompts of Qwen/Qwen3-Embedding-0.6B.
QWEN3 = {"query": "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"}
#: Some prompts of google/embeddinggemma-300m.
GEMMA = {
    "query": "task: search result | query: ",
    "document": "title: none | text: ",
    "BitextMining": "task: search result | query: ",
    "Clustering": "task: clustering | query: ",
}


@pytest.mark.parametrize(
    ("prompts", "model_type", "name", "family"),
    [
        (QWEN3, "qwen3", "qwen3-embedding-0.6b.zip", "Qwen3-Embedding"),
        ({}, "qwen3", "Qwen_Qwen3-Embedding-8B@0123456789ab.zip", "Qwen3-Embedding"),
        (E5_MISTRAL, "mistral", "e5-mistral-7b-instruct.tar.zst", "E5-mistral"),
        (E5_MISTRAL, "static", "e5-mistral-7b-instruct.zip", "E5-mistral"),
        (
            E5_MISTRAL,
            "mistral",
            "model.zip",
            "Qwen3-Embedding",
        ),  # one form, of which the first stands for all
        (GEMMA, "gemma3_text", "model.zip", "EmbeddingGemma"),
        ({}, "nomic_bert", "nomic-embed-text-v1.5.zip", "Nomic Embed"),
        ({"query": "search_query: ", "document": "search_document: "}, "bert", "mine.zip", "Nomic Embed"),
        ({}, "bert", "bge-large-en-v1.5.zip", "BGE"),
        ({}, "bert", "bge-small-zh-v1.5.zip", "BGE, Chinese"),
        ({}, "bert", "e5-base-v2.zip", "E5"),
        ({}, "xlm-roberta", "multilingual-e5-large.zip", "E5"),
        ({}, "xlm-roberta", "bge-m3.zip", ""),
        ({}, "bert", "all-MiniLM-L6-v2.zip", ""),
        ({"query": "find: "}, "bert", "model.zip", ""),
        ({}, "llama", "bge-large-en-v1.5.zip", ""),
    ],
)
def test_families_are_recognised(prompts: dict[str, str], model_type: str, name: str, family: str) -> None:
    found = find_template(prompts, model_type, name)
    assert (found.label if found else "") == family


def test_prompts_named_otherwise_are_remarked_on() -> None:
    kind = CheckpointKind.SENTENCE_ENCODER
    (names,) = prompt_remarks(kind, E5_MISTRAL, "mistral", "e5-mistral-7b-instruct.zip")
    (template,) = prompt_remarks(kind, {}, "mistral", "e5-mistral-7b-instruct.zip")
    assert names.code == "prompt_names"
    assert "web_search_query, sts_query" in names.message
    assert "query_prompt=auto:web_search_query" in names.hint
    assert template.code == "prompt_template"
    assert r"“Instruct: {task}\nQuery: ” before queries and nothing before documents" in template.message
    assert "its files specify nothing and nothing" in template.message
    assert "https://huggingface.co/intfloat/e5-mistral-7b-instruct" in template.hint
    assert {names.severity, template.severity} == {"warning"}
    assert prompt_remarks(kind, QWEN3, "qwen3", "qwen3-embedding.zip") == []
    assert prompt_remarks(kind, GEMMA, "gemma3_text", "x.zip") == []
    assert [each.code for each in prompt_remarks(kind, {}, "bert", "bge-base-en-v1.5.zip")] == ["prompt_template"]
    assert prompt_remarks(CheckpointKind.CROSS_ENCODER, E5_MISTRAL, "mistral", "e5-mistral.zip") == []


def test_strange_prompts_are_written_so_that_they_do_no_harm() -> None:
    kind = CheckpointKind.SENTENCE_ENCODER
    (remark,) = prompt_remarks(kind, {"a\u202eb" + "x" * 500: "p" * 2000}, "bert", "x.zip")
    assert "\u202e" not in remark.message + remark.hint
    assert len(remark.sentences()) < 1000
    assert format_prompt("a\n b ") == r"“a\n b ”"
    assert format_prompt("") == "nothing"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.label)
def test_a_family_reads_its_own_form(template: Any) -> None:
    assert template.reads_like(template.query.replace("{task}", "find\nwhat answers"))
    assert not template.reads_like("")


def test_a_prompt_is_chosen_by_its_name() -> None:
    assert select_prompt(E5_MISTRAL, "query", "auto") == ""
    assert select_prompt(E5_MISTRAL, "query", "auto:sts_query") == E5_MISTRAL["sts_query"]
    assert select_prompt(E5_MISTRAL, "document", "passage: ") == "passage: "
    with pytest.raises(InvalidParameter, match="no prompt of this name; its prompts are sts_query, web_search_query"):
        select_prompt(E5_MISTRAL, "query", "auto:query")
    with pytest.raises(InvalidParameter, match=r"document_prompt = 'auto:x' .* it has none"):
        select_prompt({}, "document", "auto:x")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with two prompts of other names."""
    prompts = {"web_search_query": "stock market: ", "sts_query": "heart: "}
    folder = tmp_path_factory.mktemp("named")
    return rebuilt(folder, tiny_models.tiny_dense, CheckpointKind.SENTENCE_ENCODER, prompts=prompts)


def test_every_prompt_of_a_checkpoint_is_kept_by_its_name(named: Path) -> None:
    prompts = CheckpointDescription.read(named).prompts
    assert {name: prompts[name] for name in ("web_search_query", "sts_query")} == {
        "web_search_query": "stock market: ",
        "sts_query": "heart: ",
    }
    assert not set(SIDES) & {name for name in prompts if prompts[name]}


def test_a_named_prompt_is_put_before_queries(named: Path, tmp_path: Path) -> None:
    scores = {}
    for prompt in ("auto", "auto:web_search_query", "stock market: "):
        (tmp_path / prompt.replace(" ", "")).mkdir()
        engine = created("dense", named, query_prompt=prompt)
        engine.build(DOCUMENTS, tmp_path / prompt.replace(" ", ""))
        scores[prompt] = searched(engine, QUERIES)
    assert scores["auto:web_search_query"] == scores["stock market: "] != scores["auto"]
    with pytest.raises(InvalidParameter, match="no prompt of this name"):
        created("dense", named, document_prompt="auto:passage")


@pytest.mark.parametrize("engine", ["dense", "learned-sparse", "late-interaction"])
def test_an_unknown_name_is_refused_once_the_checkpoint_is_known(engine: str, named: Path) -> None:
    description, known = describe(engine), CheckpointDescription.read(named)
    asked = description.complete({"query_prompt": "auto:web_search"})
    description.check_parameters(asked, None)
    with pytest.raises(InvalidParameter, match="its prompts are sts_query, web_search_query"):
        description.check_parameters(asked, known)


def test_pack_says_what_is_to_be_known_of_prompts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny_models.tiny_dense(tmp_path / "bge-base-en-v1.5", prompts={"retrieval_query": "x: "})
    assert main(["pack", str(folder), "--no-trial", "--out", str(tmp_path / "m.tar.zst")]) == 0
    told = capsys.readouterr().err
    assert "warning: prompt_names" in told
    assert "query_prompt=auto:retrieval_query" in told
    assert "warning: prompt_template" in told
    assert json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"]


def test_a_re_rankers_prompt_stands_before_the_query_as_it_is_written(tmp_path: Path) -> None:
    """Also where it begins like the word that means the checkpoint's own."""
    checkpoint = rebuilt(tmp_path, tiny_models.tiny_cross_encoder, CheckpointKind.CROSS_ENCODER)
    plain, prompted = (
        created("cross-encoder", checkpoint, reranking_depths="", **chosen).scorer
        for chosen in ({}, {"query_prompt": "automatic heart "})
    )
    texts = [document.text for document in DOCUMENTS]
    expected = plain.score(["automatic heart stock"] * len(texts), texts)
    assert prompted.score(["stock"] * len(texts), texts).tolist() == pytest.approx(expected.tolist())
    assert expected.tolist() != pytest.approx(plain.score(["stock"] * len(texts), texts).tolist())
    with pytest.raises(InvalidParameter, match="no prompt of this name"):
        created("cross-encoder", checkpoint, query_prompt="auto:instruction")
