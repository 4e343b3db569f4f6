"""Every module that the library can write into modules.json is taken, or refused with a reason of its own."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.checkpoints.description import CheckpointDescription, CheckpointKind
from evaluation.checkpoints.modules import CLASSES, NOT_RUN, get_role
from evaluation.checkpoints.rebuilding import rebuild, validate_folder
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation import tiny_models
from tests.evaluation.checkpoints.test_families import DECODERS, ENCODERS, TEXTS, save
from tests.evaluation.small_checkpoint import safetensors

HIDDEN = tiny_models.HIDDEN
#: Module types in the spellings of all releases.
SPELLINGS = {
    "sentence_transformers.models.Transformer": "Transformer",
    "sentence_transformers.models.Transformer.Transformer": "Transformer",
    "sentence_transformers.base.modules.transformer.Transformer": "Transformer",
    "sentence_transformers.sparse_encoder.models.MLMTransformer": "Transformer",
    "sentence_transformers.sparse_encoder.models.MLMTransformer.MLMTransformer": "Transformer",
    "sentence_transformers.sparse_encoder.modules.mlm_transformer.MLMTransformer": "Transformer",
    "sentence_transformers.sparse_encoder.models.SparseStaticEmbedding.SparseStaticEmbedding": "SparseStaticEmbedding",
    "sentence_transformers.models.Asym": "Router",
    "pylate.models.Dense.Dense": "Dense",
    "sentence_transformers.models.CLIPModel.CLIPModel": "CLIPModel",
    "sentence_transformers.base.modules.module.torch": "",
    "sentence_transformers.Transformer.__init__": "",
    "sentence_transformers_extra.models.Dense": "",
    "custom_st.Transformer": "",
}


def library_modules() -> set[type]:
    """All classes of modules that the library has, but those that only others are made of."""
    import sentence_transformers
    from sentence_transformers.base.modules import Module

    found = set()
    for info in pkgutil.walk_packages(sentence_transformers.__path__, "sentence_transformers."):
        if ".modules." in info.name:
            members = vars(importlib.import_module(info.name)).values()
            found |= {each for each in members if inspect.isclass(each) and issubclass(each, Module)}
    return {each for each in found if not inspect.isabstract(each)}


def test_every_module_of_the_library_is_known() -> None:
    names = {each.__name__: f"{each.__module__}.{each.__qualname__}" for each in library_modules()}
    assert len(names) > 18
    roles = {name: get_role(full) for name, full in names.items()}
    assert {name for name, role in roles.items() if not role} == set()
    assert {CLASSES[role] for role in roles.values() if role in CLASSES} == set(CLASSES.values())
    refused = {name for name, role in roles.items() if role in NOT_RUN}
    assert refused == {"BoW", "CLIPModel", "LSTM", "LambdaTokenPooling", "WordEmbeddings", "WordWeights"}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings(spelling: str) -> None:
    assert get_role(spelling) == SPELLINGS[spelling]


def _dense_with(*names: str, folder: Path) -> Any:
    """Transformer, Pooling, and further modules by name, between them those that work on tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer import modules

    made: dict[str, Callable[[], Any]] = {
        "Dense": lambda: Dense(HIDDEN, 16), "LayerNorm": lambda: modules.LayerNorm(16), "Normalize": Normalize,
        "Dropout": lambda: modules.Dropout(0.5),
        "CNN": lambda: modules.CNN(HIDDEN, 16, [1, 3, 5]),
        "WeightedLayerPooling": lambda: modules.WeightedLayerPooling(HIDDEN, num_hidden_layers=2, layer_start=1),
        "wide": lambda: modules.Pooling(48, "mean"),
    }  # fmt: skip
    tokens = ("CNN", "WeightedLayerPooling")
    options = {"config_kwargs": {"output_hidden_states": True}} if "WeightedLayerPooling" in names else {}
    first = Transformer(str(tiny_models.tiny_masked_language_model(folder)), **options)
    pooling = made["wide"]() if "CNN" in names else modules.Pooling(HIDDEN, "mean")
    before = [made[name]() for name in names if name in tokens]
    after = [made[name]() for name in names if name not in tokens]
    return SentenceTransformer(modules=[first, *before, pooling, *after], device="cpu", similarity_fn_name="dot")


@pytest.mark.parametrize(
    "names",
    [("Dense", "LayerNorm"), ("Dropout", "Normalize"), ("CNN",), ("WeightedLayerPooling",)],
    ids="-".join,
)  # the first is ANCE's layout
def test_modules_of_dense_encoders_are_taken(names: tuple[str, ...], tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    theirs = _dense_with(*names, folder=tmp_path / "source").eval()
    theirs.save(str(tmp_path / "raw"))

    ours = loading.load_encoder(SentenceTransformer, _taken(tmp_path) / "model", "cpu")

    np.testing.assert_array_equal(theirs.encode(TEXTS), ours.encode(TEXTS))


def _taken(folder: Path) -> Path:
    """The folder `raw` in it, rebuilt, and checked."""
    validation = validate_folder(folder / "raw")
    assert validation.report.errors == ()
    rebuild(validation, folder / "rebuilt")
    assert check_checkpoint(folder / "rebuilt").errors == ()
    return folder / "rebuilt"


def test_an_auto_encoder_is_taken(tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from sentence_transformers.sparse_encoder.modules import SparseAutoEncoder

    from evaluation.engines.neural import loading

    loading.prepare(threads=1)
    first = Transformer(str(tiny_models.tiny_masked_language_model(tmp_path / "source")))
    modules = [first, Pooling(HIDDEN, "mean"), SparseAutoEncoder(HIDDEN, 64, k=8, k_aux=16)]
    theirs = SparseEncoder(modules=modules, device="cpu").eval()
    theirs.save(str(tmp_path / "raw"))

    folder = _taken(tmp_path)

    assert CheckpointDescription.read(folder).dimension == 64
    ours = loading.load_encoder(SparseEncoder, folder / "model", "cpu")
    one, other = (np.asarray(each.encode(TEXTS).to_dense()) for each in (theirs, ours))
    np.testing.assert_array_equal(one, other)


def test_a_language_model_that_scores_by_logits_is_taken(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    source = save("qwen3", DECODERS["qwen3"], tmp_path / "source", "AutoModelForCausalLM")
    modules = [Transformer(str(source), transformer_task="text-generation"), LogitScore(7, 9)]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(tmp_path / "raw"))

    folder = _taken(tmp_path)

    assert json.loads((folder / "model" / "1_LogitScore" / "config.json").read_text())["true_token_id"] == 7
    assert CheckpointDescription.read(folder).kind == "cross-encoder"


def test_late_interaction_that_pools_its_tokens_is_taken(tmp_path: Path) -> None:
    raw = tiny_models.tiny_colbert(tmp_path / "raw")
    modules = json.loads((raw / "modules.json").read_text())
    kind = CLASSES["HierarchicalTokenPooling"]
    modules.append({"idx": 4, "name": "4", "path": "4_Tokens", "type": kind})
    (raw / "modules.json").write_text(json.dumps(modules))
    (raw / "4_Tokens").mkdir()
    (raw / "4_Tokens" / "config.json").write_text('{"pool_factor": 2, "num_protected_tokens": 1}')

    assert CheckpointDescription.read(_taken(tmp_path)).kind == "multi-vector"


@pytest.mark.parametrize("told", ["similarity", "spelling"])
def test_late_interaction_of_pylate_before_it_said_so_is_taken(told: str, tmp_path: Path) -> None:
    """https://huggingface.co/lightonai/GTE-ModernColBERT-v1: no model_type; the similarity and a module tell."""
    raw = tiny_models.tiny_pylate(tmp_path / "raw")
    path = raw / "config_sentence_transformers.json"
    settings = json.loads(path.read_text())
    del settings["model_type"]
    if told == "spelling":
        del settings["similarity_fn_name"]
    path.write_text(json.dumps(settings))

    assert CheckpointDescription.read(_taken(tmp_path)).kind == "multi-vector"


@pytest.mark.parametrize("make", ["tiny_dpr", "tiny_inference_free", "tiny_splade"])
def test_spellings_of_release_5_are_taken(make: str, tmp_path: Path) -> None:
    """module.Class, in modules.json and in a Router's own file."""
    raw = getattr(tiny_models, make)(tmp_path / "raw")
    for path in (raw / "modules.json", raw / "router_config.json"):
        if path.is_file():
            text = path.read_text()
            for name, full in CLASSES.items():
                text = text.replace(full, f"sentence_transformers.models.{name}.{name}")
            path.write_text(text)

    _taken(tmp_path)


def test_an_adapter_beside_a_whole_model_is_left_out(tmp_path: Path) -> None:
    raw = tiny_models.tiny_dense(tmp_path / "raw")
    (raw / "lora").mkdir()
    (raw / "lora" / "adapter_model.bin").write_bytes(b"x")
    (raw / "adapter_config.json").write_text('{"base_model_name_or_path": "/etc"}')
    (raw / "adapter_model.safetensors").write_bytes(b"x")

    validation = validate_folder(raw)

    assert {problem.code for problem in validation.report.warnings} == {
        "left_out",
        "adapter",
    }
    rebuild(validation, tmp_path / "rebuilt")
    assert not list((tmp_path / "rebuilt").rglob("adapter_*"))
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()


@pytest.mark.parametrize("wanted", ["sentence-encoder", "sparse-encoder", "multi-vector"])
def test_heads_beside_an_encoder_make_other_kinds_of_it(wanted: str, tmp_path: Path) -> None:
    """The layout of https://huggingface.co/BAAI/bge-m3, its heads as safetensors."""
    raw = tiny_models.tiny_dense(tmp_path / "raw", pooling="cls")
    for name, rows in (("sparse_linear", 1), ("colbert_linear", HIDDEN)):
        head = {"weight": np.ones((rows, HIDDEN), np.float32), "bias": np.zeros(rows, np.float32)}
        (raw / f"{name}.safetensors").write_bytes(safetensors(head))

    validation = validate_folder(raw, CheckpointKind(wanted))

    assert validation.report.problems == ()
    described = rebuild(validation, tmp_path / "rebuilt")
    assert (described.kind, described.also) == ("sentence-encoder", ("sparse-encoder", "multi-vector"))
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()
    (raw / "colbert_linear.safetensors").write_bytes(safetensors({"weight": np.ones((4, 9), np.float32)}))
    assert [problem.code for problem in validate_folder(raw).report.errors] == ["missing_weights"]


def test_an_encoder_is_taken_as_sparta(tmp_path: Path) -> None:
    raw = save("distilbert", ENCODERS["distilbert"], tmp_path / "raw")

    described = rebuild(validate_folder(raw, CheckpointKind.SPARSE_ENCODER, "sparta"), tmp_path / "rebuilt")

    assert (described.kind, described.pooling, described.similarity) == ("sparse-encoder", "sparta", "dot")
    assert check_checkpoint(tmp_path / "rebuilt").problems == ()


@pytest.mark.parametrize("make", ["tiny_splade", "tiny_dense"])
def test_two_folders_are_one_model(make: str, tmp_path: Path) -> None:
    for role in ("query", "document"):
        (tmp_path / "raw" / role).mkdir(parents=True)
        getattr(tiny_models, make)(tmp_path / "raw" / role, seed=len(role))

    folder = _taken(tmp_path)

    described = CheckpointDescription.read(folder)
    assert described.parts == ("query", "document")
    assert described.kind == {"tiny_splade": "sparse-encoder", "tiny_dense": "sentence-encoder"}[make]


@pytest.mark.parametrize("missing", ["1_Pooling/config.json", "modules.json"])
def test_a_file_of_a_module_that_a_download_left_out_is_named(missing: str, tmp_path: Path) -> None:
    folder = tiny_models.tiny_dense(tmp_path / "encoder")
    (folder / "checkpoint.json").unlink(missing_ok=True)
    (folder / missing).unlink()
    (problem,) = validate_folder(folder).report.errors
    assert problem.code == "missing_config"
    assert problem.message.startswith(f"{missing}: the file is missing")
