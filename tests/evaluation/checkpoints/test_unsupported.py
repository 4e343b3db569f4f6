"""Models of images, listwise re-rankers, and LLM2Vec are refused by name, with one finding and the ways in."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from evaluation.checkpoints.findings import CODES
from evaluation.checkpoints.rebuilding import validate_archive, validate_folder
from tests.evaluation.tiny_families import byte_tokenizer, save_encoder

#: config.json of published models, by name, as far as it matters here.
VISUAL: dict[str, dict[str, Any]] = {
    "colpali": {"model_type": "colpali", "vlm_config": {"model_type": "paligemma"}, "embedding_dim": 128},
    "colqwen2": {"model_type": "colqwen2", "architectures": ["ColQwen2ForRetrieval"]},
    "jina-embeddings-v4": {
        "model_type": "qwen2_5_vl",
        "architectures": ["JinaEmbeddingsV4Model"],
        "auto_map": {"AutoModel": "modeling_jina_embeddings_v4.JinaEmbeddingsV4Model"},
        "vision_config": {"depth": 32},
    },
    "gme-Qwen2-VL-2B-Instruct": {"model_type": "qwen2_vl", "vision_config": {"depth": 32}},
    "Qwen3-VL-Reranker-2B": {"model_type": "qwen3_vl", "text_config": {}, "vision_config": {}},
    "llama-nemotron-rerank-vl-1b-v2": {
        "model_type": "llama_nemotron_vl_rerank",
        "auto_map": {"AutoModel": "modeling_llama_nemotron_vl.LlamaNemotronVLModel"},
    },
}
LISTWISE: dict[str, tuple[str, dict[str, Any]]] = {
    "model": (
        "JinaForRanking",
        {
            "model_type": "qwen3",
            "architectures": ["JinaForRanking"],
            "auto_map": {"AutoModel": "modeling.JinaForRanking"},
        },
    ),
    "castorini_rank_zephyr_7b_v1_full@0123456789ab.zip": ("rank_zephyr", {"model_type": "mistral"}),
    "first_mistral": ("first_mistral", {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}),
}


def write(folder: Path, config: dict[str, Any], **files: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text("raise SystemExit")  # another finding, which would not help anyone
    for name, text in files.items():
        (folder / f"{name}.json").write_text(text)
    return folder


def only_problem(folder: Path) -> Any:
    validation = validate_folder(folder)
    assert not validation.valid
    (problem,) = validation.report.problems
    assert problem.hint == CODES[problem.code]
    return problem


@pytest.mark.parametrize("name", VISUAL)
def test_a_visual_model_gets_one_finding_with_its_type(name: str, tmp_path: Path) -> None:
    problem = only_problem(write(tmp_path / name, VISUAL[name]))
    assert problem.code == "visual_model"
    assert f"“{VISUAL[name]['model_type']}”" in problem.message
    assert "only texts are searched" in problem.message
    assert "container image" in problem.hint
    assert "--open-weights" in problem.hint


def test_a_processor_of_images_shows_a_visual_model(tmp_path: Path) -> None:
    folder = tmp_path / "model" / "0_Own"
    write(folder, {"model_type": "own_type"}, preprocessor_config='{"image_processor_type": "Own"}')
    (tmp_path / "model" / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "0_Own", "type": "own.Model"}]')
    problem = only_problem(tmp_path / "model")
    assert (problem.code, problem.message.partition(":")[0]) == ("visual_model", "0_Own/config.json")


@pytest.mark.parametrize("name", LISTWISE)
def test_a_listwise_reranker_gets_one_finding_with_its_name(name: str, tmp_path: Path) -> None:
    expected, config = LISTWISE[name]
    problem = only_problem(write(tmp_path / name, config))
    assert problem.code == "listwise_model"
    assert f"“{expected}”" in problem.message
    assert f"“{config['model_type']}”" in problem.message
    assert "scores several documents together" in problem.message
    assert "runboard rerank --endpoint" in problem.hint


@pytest.mark.parametrize(
    ("name", "files"),
    [("LLM2Vec-Mistral-7B-Instruct-v2-mntp-supervised", {}), ("mine", {"llm2vec_config": '{"pooling_mode": "mean"}'})],
)
def test_llm2vec_gets_one_finding(name: str, files: dict[str, str], tmp_path: Path) -> None:
    problem = only_problem(write(tmp_path / name, {"model_type": "mistral"}, **files))
    assert problem.code == "own_reading"
    assert "container image" in problem.hint


def test_the_name_of_an_archive_counts(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "RankZephyr.zip", "w") as archive:
        archive.writestr("config.json", '{"model_type": "mistral"}')
    report = validate_archive(tmp_path / "RankZephyr.zip", tmp_path / "scratch").report
    assert [problem.code for problem in report.problems] == ["listwise_model"]


@pytest.mark.parametrize("name", ["frankgpt", "distance-first", "colbert-small", "my-llm2vec"])
def test_text_models_are_not_mistaken(name: str, tmp_path: Path) -> None:
    save_encoder(tmp_path / name, "roberta", "cls", byte_tokenizer(begin=True))
    (tmp_path / name / "preprocessor_config.json").write_text("{}")
    assert validate_folder(tmp_path / name).valid


@pytest.mark.parametrize("code", ["own_code", "file_too_large", "hub_too_large"])
def test_refusals_name_the_other_ways_in(code: str) -> None:
    assert "container image" in CODES[code]
    assert "runboard retrieve --endpoint" in CODES[code]
