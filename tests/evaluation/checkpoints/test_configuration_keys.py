"""Keys of configurations of transformers: none that changes outputs is lost, ignored, or run as another model."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evaluation.checkpoints.configuration import library_models, read_configuration
from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.files import list_model_files
from evaluation.checkpoints.findings import Findings
from evaluation.checkpoints.rebuilding import rebuild, validate_folder
from evaluation.engines.neural.checking import check_checkpoint
from tests.evaluation import tiny_models
from tests.evaluation.checkpoints.test_families import DECODERS, ENCODERS, save

TYPES = sorted({each for types in library_models().types.values() for each in types})
#: Keys that are left out of a rebuilt configuration: engines set them, or only writing and other heads read them.
_LEFT_OUT_TEXT = """
architectures auto_map chunk_size_feed_forward dtype early_stopping encoder_no_repeat_ngram_size id2label label2id
length_penalty max_length num_beams problem_type return_dict temperature transformers_version use_cache
"""
LEFT_OUT = frozenset(_LEFT_OUT_TEXT.split())
dense = partial(validate_folder, acceptable_kinds=CheckpointKind.SENTENCE_ENCODER, pooling="mean")


def change(folder: Path, name: str = "config.json", **values: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return folder


def outcome(folder: Path, scratch: Path) -> set[tuple[str, str]]:
    """Codes and messages of what either check refuses."""
    validation = dense(folder)
    report = validation.report
    if validation.valid:
        scratch.mkdir(exist_ok=True)
        rebuild(validation, scratch / "rebuilt")
        report = check_checkpoint(scratch / "rebuilt")
    return {(problem.code, problem.message) for problem in report.errors}


def other_value(name: str, value: Any) -> Any:
    """Another value of a field, that could be in a file."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int) and not name.endswith("_id"):
        return value + 1
    if isinstance(value, float):
        return value / 2
    return "relu" if isinstance(value, str) and "act" in name else value


@pytest.mark.parametrize("model_type", TYPES)
def test_every_declared_field_is_rebuilt_or_refused_by_its_name(model_type: str, tmp_path: Path) -> None:
    """A field that a new version of the library brings has to reach the library, or be classified in LEFT_OUT."""
    import transformers

    config = transformers.CONFIG_MAPPING[model_type]().to_dict()
    names = {field.name for field in fields(transformers.CONFIG_MAPPING[model_type])} - LEFT_OUT
    changed = {
        name: other_value(name, value)
        for name, value in config.items()
        if name in names and name not in ("is_decoder", "add_cross_attention")
    }
    text = json.dumps({**changed, "model_type": model_type}, default=str)
    (tmp_path / "config.json").write_text(text.replace("Infinity", "1e9"))
    findings = Findings()

    found = read_configuration(list_model_files(tmp_path, findings), None)

    stated = json.loads((tmp_path / "config.json").read_text())
    refused = " ".join(problem.message for problem in findings.report().errors)
    for name in changed:
        kept = found is not None and found.values.get(name, "absent") == stated[name]
        unset = name.startswith("_") and not stated[name]
        assert kept or unset or f"{name}" in refused, name
    assert "keys_not_read" not in {problem.code for problem in findings.report().warnings}


BEHAVIOR: list[tuple[str, dict[str, Any]]] = [
    ("bert", {"position_embedding_type": "relative_key"}),
    ("bert", {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}),
    ("bert", {"is_causal": True}),
    ("openai-gpt", {"is_causal": False}),
    ("bert", {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("roberta", {"position_embedding_type": "relative_key_query"}),
    ("xlm-roberta", {"position_embedding_type": "rotary"}),
    ("modernbert", {"causal_mask": True}),
    ("distilbert", {"hidden_act": "relu"}),
    ("llama", {"sliding_window": 4}),
    ("llama", {"use_bidirectional_attention": True}),
    ("llama", {"partial_rotary_factor": 0.5}),
    ("llama", {"layer_types": ["sliding_attention", "full_attention"]}),
    ("qwen2", {"use_alibi": True}),
    ("qwen3", {"attn_logit_softcapping": 50.0}),
    ("gemma", {"use_bidirectional_attention": True}),
    ("mistral", {"num_local_experts": 4}),
    ("gte", {"use_rms_norm": True}),
    ("nomic_bert", {"moe_every_n_layers": 2}),
]


@pytest.mark.parametrize(("model_type", "keys"), BEHAVIOR)
def test_a_key_that_the_class_ignores_is_refused(model_type: str, keys: dict[str, Any], tmp_path: Path) -> None:
    other = {"openai-gpt": {"n_embd": 32, "n_layer": 2, "n_head": 2}}
    folder = save(model_type, {**ENCODERS, **DECODERS, **other}[model_type], tmp_path / "raw")
    assert outcome(folder, tmp_path / "before") == set()

    errors = outcome(change(folder, **keys), tmp_path)

    assert {code for code, _ in errors} == {"ignored_key"}
    for key in keys:
        assert any(f"config.json: {key}: " in message for _, message in errors), key


def test_keys_without_effect_are_taken_and_others_named(tmp_path: Path) -> None:
    folder = save("bert", ENCODERS["bert"], tmp_path / "raw")
    usual = {
        "position_embedding_type": "absolute",
        "is_causal": False,
        "rope_scaling": None,
        "pooler_fc_size": 768,
    }
    assert dense(change(folder, **usual, gradient_checkpointing=False)).report.problems == ()

    (problem,) = dense(change(folder, note="v2", horizon=3)).report.problems

    assert (problem.severity, problem.code) == ("warning", "keys_not_read")
    assert "note, horizon" in problem.message


def test_a_setting_may_be_named_twice(tmp_path: Path) -> None:
    """https://huggingface.co/BAAI/bge-multilingual-gemma2 names its activation and its window twice."""
    folder = save("gemma2", {**DECODERS["gemma2"], "sliding_window": 64}, tmp_path / "raw")
    twice = {"hidden_act": "gelu_pytorch_tanh", "sliding_window_size": 64}
    assert dense(change(folder, **twice)).report.problems == ()
    assert not dense(change(folder, hidden_act="silu")).valid


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_decoder_attends_as_its_configuration_says(is_causal: bool, tmp_path: Path) -> None:
    import transformers

    folder = save("qwen3", {**DECODERS["qwen3"], "is_causal": is_causal}, tmp_path / "raw")
    rebuild(dense(folder), tmp_path / "rebuilt")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "rebuilt" / "model").is_causal is is_causal


def test_a_private_field_that_changes_the_model_is_refused(tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 32,
        "ffn_dim": 64,
        "num_attention_heads": 2,
        "word_embed_proj_dim": 32,
        "num_hidden_layers": 2,
    }
    folder = save("opt", sizes, tmp_path / "raw")
    assert outcome(folder, tmp_path / "before") == set()
    (error,) = outcome(change(folder, _remove_final_layer_norm=True), tmp_path)
    assert "_remove_final_layer_norm" in error[1]


CODE = [
    ("bert", "jinaai/jina-bert-implementation--modeling_bert.JinaBertModel"),
    ("qwen2", "modeling_qwen.Qwen2Model"),
    ("llama", "modeling_llama_encoder.LlamaEncoderModel"),
    ("xlm-roberta", "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"),
    ("gte", "modeling_hf_alibaba_nlp_gte.GteModel"),
    ("nomic_bert", "modeling.OtherModel"),
]


@pytest.mark.parametrize(("model_type", "code"), CODE)
def test_code_beside_the_weights_is_refused_until_its_sender_removes_it(
    model_type: str, code: str, tmp_path: Path
) -> None:
    folder = save(model_type, {**ENCODERS, **DECODERS}[model_type], tmp_path / "raw")
    change(folder, auto_map={"AutoModel": code})
    (error,) = dense(folder).report.errors
    assert (error.code, code[:40] in error.message) == ("own_code", True)
    assert "remove auto_map" in error.hint
    assert dense(change(folder, auto_map={})).valid


@pytest.mark.parametrize(
    ("model_type", "published", "code"),
    [
        ("gte", "new", "Alibaba-NLP/new-impl--modeling.NewModel"),
        ("nomic_bert", "nomic_bert", "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel"),
    ],
)
def test_code_that_the_library_has_is_taken(model_type: str, published: str, code: str, tmp_path: Path) -> None:
    folder = save(model_type, ENCODERS[model_type], tmp_path / "raw")
    assert outcome(change(folder, model_type=published, auto_map={"AutoModel": code}), tmp_path) == set()


def test_a_tokenizer_with_code_is_refused(tmp_path: Path) -> None:
    """The tokenizer of gte-Qwen2 ends texts with a token that tokenizer.json does not add."""
    folder = save("qwen2", DECODERS["qwen2"], tmp_path / "raw")
    change(
        folder,
        "tokenizer_config.json",
        auto_map={"AutoTokenizer": [None, "tokenization_qwen.Qwen2TokenizerFast"]},
    )
    (error,) = dense(folder).report.errors
    assert error.code == "own_code"
    assert error.message.startswith("tokenizer_config.json: auto_map: ")


def test_weights_of_layers_that_the_class_does_not_have_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file
    from torch import ones

    folder = tiny_models.tiny_dense(tmp_path / "raw")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.0.attention.self.distance_embedding.weight"] = ones(7, 16)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    (error,) = outcome(folder, tmp_path)

    assert error[0] == "weights_unknown"
    assert "distance_embedding" in error[1]


#: Values that make a model of any type tiny, by key.
_SMALL = (
    (r"vocab_size", 64), (r".*(num_hidden_layers|num_layers|n_layers?|(en|de)coder_layers|num_decoder_layers)", 2),
    (r"((num|n|encoder|decoder)_)?(attention_)?heads?|num_attention_heads", 4), (r"num_(key_value|kv)_heads", 2),
    (r"hidden_size|d_model|n_embd|dim|embedding_size|emb_dim", 32), (r".*head_dim|d_kv|d_head|kv_channels", 8),
    (r".*(intermediate_size|ffn_dim|ffn_hidden_size)|d_ff|n_inner|hidden_dim|d_inner", 48),
    (r"max_position_embeddings|n_positions|n_ctx", 128), (r"(num|n)_((local|routed)_)?experts", 4),
    (r"num_experts_per_tok|moe_(topk|k)|top_k", 2),
)  # fmt: skip
#: Types that stay large, two that fail where attention is not causal, and one that takes words for its direction.
_NOT_TRIED_TEXT = """
gemma4_text gemma4_unified_text longcat_flash luke roc_bert muse_spark_text modernbert-decoder tipsv2_text_model
"""
_NOT_TRIED = frozenset(_NOT_TRIED_TEXT.split())
#: Values of keys by which models compute otherwise.
_PROBES: dict[str, Any] = {
    "position_embedding_type": "relative_key", "alibi": True, "is_causal": False,
    "use_bidirectional_attention": True, "sliding_window": 4, "attn_logit_softcapping": 1.0, "hidden_act": "relu",
    "rope_theta": 50.0, "use_rms_norm": True, "use_qk_norm": True, "parallel_attn": True, "embedding_multiplier": 3.0,
}  # fmt: skip


def tiny_output(model_type: str, **more: Any) -> Any:
    """Token vectors of a tiny model of this type with weights that the seed decides."""
    import torch
    import transformers
    from sentence_transformers.base.modules.transformer import _ENCODER_ONLY_MODELS
    from transformers.models.auto.auto_factory import _get_model_class

    config_class = transformers.CONFIG_MAPPING[model_type]
    sizes = {}
    for name in (field.name for field in fields(config_class)):
        default = getattr(config_class, name, None)
        small = 1 if name.endswith("_token_id") else next((n for k, n in _SMALL if re.fullmatch(k, name)), None)
        if small and type(default) is int and default > small:
            sizes[name] = small
    config = config_class(**{**sizes, **more})
    config._attn_implementation = "eager"
    alone = next((each for each in _ENCODER_ONLY_MODELS if isinstance(config, each[0])), None)
    kind = (
        getattr(importlib.import_module(alone[1]), alone[2])
        if alone
        else _get_model_class(config, transformers.AutoModel._model_mapping)
    )
    with torch.inference_mode():
        model = kind(config).eval()
        torch.manual_seed(1)
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.2 + (weight.dim() == 1))
        tokens = torch.arange(4, 28)[None]
        return model(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state


@pytest.mark.long
@pytest.mark.parametrize("model_type", sorted(set(library_models().types["encoder"]) - _NOT_TRIED))
def test_the_library_ignores_the_keys_that_are_refused_and_no_others(model_type: str) -> None:
    import torch

    try:
        before = tiny_output(model_type)
        assert before.isfinite().all()
    except Exception:
        pytest.skip("smaller numbers alone make no model of this type")
    read = library_models().keys_read(model_type)
    unread = {key: value for key, value in _PROBES.items() if key not in read}
    if model_type in library_models().types["writer"]:  # their decoders follow it
        unread.pop("is_causal", None)
    torch.testing.assert_close(tiny_output(model_type, **unread), before)
    for key in ("is_causal", "use_bidirectional_attention") if model_type in library_models().causal else ():
        if key in read:
            assert not tiny_output(model_type, **{key: _PROBES[key]}).allclose(before), key
