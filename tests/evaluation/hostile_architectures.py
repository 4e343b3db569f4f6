"""Checkpoints of any architecture that must be refused: values of config.json, tokenizers and modules out of bounds, or
that the library's classes are not made of.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tests.evaluation.hostile_edits import (
    add_checkpoint,
    add_with_file,
    add_with_json,
    dense_edit,
    module_edit,
    replace_what,
    split_on,
)
from tests.evaluation.small_checkpoint import arrays, safetensors, tokenizer

#: Values in config.json: name, code, key, value. Each is typed; the first lot is out of bounds.
_OUT_OF_BOUNDS: tuple[tuple[str, str, str, Any], ...] = (
    ("a-million-layers", "dimension_cap", "num_hidden_layers", 10**6),
    ("layers-over-tensors", "weights_shape", "num_hidden_layers", 200),
    ("a-million-experts", "dimension_cap", "num_local_experts", 10**6),
    ("experts-over-tensors", "weights_shape", "num_experts", 1000),
    ("groups-in-groups", "weights_shape", "inner_group_num", 200),
    ("a-million-dimensions", "dimension_cap", "hidden_size", 10**6),
    ("dimensions-over-tensors", "weights_shape", "hidden_size", 16_384),
    ("middle-too-wide", "dimension_cap", "intermediate_size", 10**9),
    ("heads-too-many", "dimension_cap", "num_attention_heads", 10**5),
    ("groups-too-many", "dimension_cap", "num_hidden_groups", 10**5),
    ("a-billion-tokens", "dimension_cap", "vocab_size", 10**9),
    ("a-billion-positions", "dimension_cap", "max_position_embeddings", 10**9),
    ("window-too-wide", "dimension_cap", "sliding_window", 10**9),
    ("token-types-too-many", "dimension_cap", "type_vocab_size", 1000),
    ("padding-beyond-all-tokens", "dimension_cap", "pad_token_id", 10**9),
    ("rope-theta", "value", "rope_theta", 1e30),
    ("rope-theta-negative", "value", "rope_theta", -1.0),
    ("rope-factor", "value", "rope_scaling", {"rope_type": "linear", "factor": 1e9}),
    ("rope-factor-whole", "dimension_cap", "rope_parameters", {"rope_type": "yarn", "factor": 10**9}),
    ("rope-factor-negative", "value", "rope_scaling", {"rope_type": "linear", "factor": -2}),
    (
        "rope-factor-by-layer",
        "value",
        "rope_parameters",
        {"full_attention": {"rope_type": "linear", "factor": 1e9}},
    ),
    (
        "rope-factors-in-a-list",
        "value",
        "rope_scaling",
        {"rope_type": "longrope", "long_factor": [1.0, 1e12]},
    ),
    *(
        (f"rope-factors-{words}", "value", "rope_scaling", {"rope_type": "longrope", name: [1.0, factor]})
        for words, name, factor in (
            ("of-zero", "long_factor", 0.0),
            ("next-to-zero", "short_factor", 1e-300),
            ("negative", "short_factor", -1.0),
        )
    ),
    (
        "rope-factors-of-zero-by-layer",
        "value",
        "rope_parameters",
        {"local_attention": {"rope_type": "longrope", "long_factor": [1, 0]}},
    ),
    ("rope-factor-of-zero", "value", "rope_scaling", {"rope_type": "linear", "factor": 0}),
    ("rope-beta", "value", "rope_scaling", {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1e9}),
    ("rope-positions", "dimension_cap", "rope_scaling", {"original_max_position_embeddings": 10**12}),
    ("layer-types-over-tensors", "weights_shape", "layer_types", ["full_attention"] * 100),
    ("epsilon", "value", "layer_norm_eps", 1e9),
    ("dropout-over-one", "value", "hidden_dropout_prob", 5.0),
    ("dropout-negative", "value", "attention_probs_dropout_prob", -1.0),
    ("size-a-fraction", "value", "num_hidden_layers", 1.5),
    ("any-number", "value", "initializer_range", 1e300),
    ("type-up", "model_type", "model_type", "../bert"),
    ("type-of-a-path", "model_type", "model_type", "owner/bert"),
    ("type-empty", "model_type", "model_type", ""),
    ("kernels-by-configuration", "forbidden_key", "kernel_config", {"kernels": "owner/kernel"}),
    ("fused-by-configuration", "forbidden_key", "fusion_config", {"mlp": True}),
    ("experts-from-elsewhere", "forbidden_key", "experts_implementation", "owner/kernel"),
)


#: Within bounds, and not what the library's classes are made of.
_NOT_THE_LIBRARYS: tuple[tuple[str, str, str, Any], ...] = (
    ("positions-without-weights", "weights_shape", "max_position_embeddings", 200_000),
    ("a-method-replaced", "configuration", "to_dict", 1),
    ("a-class-method-replaced", "configuration", "from_pretrained", "x"),
    ("a-property-replaced", "configuration", "use_return_dict", True),
    ("activation-of-a-system", "configuration", "hidden_act", "os.system"),
    ("activation-of-torch-hub", "configuration", "hidden_act", "torch.hub.load"),
    ("size-a-text", "configuration", "hidden_size", "8"),
    ("padding-beyond-embeddings", "configuration", "pad_token_id", 900),
    ("type-of-pictures", "model_type", "model_type", "vit"),
    ("type-of-sounds", "model_type", "model_type", "wav2vec2"),
    ("type-of-both", "model_type", "model_type", "llava"),
    ("type-of-two-models", "wrong_kind", "model_type", "encoder-decoder"),
    ("another-type", "missing_weights", "model_type", "gpt2"),
)


def add_architectures() -> None:
    for name, code, key, value in _OUT_OF_BOUNDS:
        add_with_json(f"{name}-claimed", code, "config.json", {key: value})
    for name, code, key, value in _NOT_THE_LIBRARYS:
        add_with_json(f"{name}-claimed", code, "config.json", {key: value}, deep=True)
    weights = arrays()
    word, dense = "embeddings.word_embeddings.weight", "encoder.layer.0.intermediate.dense.weight"
    fewer = safetensors({**weights, word: weights[word][:30]})
    add_with_file("tokenizer-over-embeddings", "tokenizer_vocabulary", "model.safetensors", fewer)
    add_with_file("weights-of-doubles", "weights_type", "model.safetensors",
              safetensors({**weights, word: weights[word].astype(np.float64)}))  # fmt: skip
    for name, code, changed in (
        ("weights-turned", "weights_shape", {**weights, dense: weights[dense].T.copy()}),
        ("weights-of-somebody-else", "missing_weights", {f"tower.{n}.x": a for n, a in weights.items()}),
        (
            "weights-without-a-layer",
            "missing_weights",
            {n: a for n, a in weights.items() if "layer.0.output" not in n},
        ),
    ):
        add_with_file(name, code, "model.safetensors", safetensors(changed), deep=True)


#: Expressions that can be tried in many ways, or do more than match.
_EXPRESSIONS = (
    r"(a|a)*b", r"(\s*)*x", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(.*a){20}", r"\p{L}+\p{L}+\p{L}+$", r"(a)\1+",
    r"(?<n>a\g<n>?)",
    r"(?=(a+))a*b\1", r"[a-z]*[a-z]*[a-z]*!", "a" * 201, "(?{exec})",
)  # fmt: skip


def add_tokenizers() -> None:
    own = tokenizer()

    def add(name: str, code: str, deep: bool = False, **parts: Any) -> None:
        add_with_file(name, code, "tokenizer.json", json.dumps({**own, **parts}).encode(), deep=deep)

    for number, expression in enumerate(_EXPRESSIONS):
        part = split_on(expression) if number % 2 else replace_what(expression)
        role = "pre_tokenizer" if number % 2 else "normalizer"
        lists = {"pre_tokenizer": "pretokenizers", "normalizer": "normalizers"}
        add(f"expression-{number}", "tokenizer_regex", **{role: {"type": "Sequence", lists[role]: [part]}})
    add("expression-of-a-decoder", "tokenizer_regex", decoder=replace_what("(a+)+$"))
    model, vocabulary = own["model"], own["model"]["vocab"]
    pieces = {"type": "BPE", "vocab": vocabulary}
    add("merges-of-nothing", "tokenizer_value", deep=True, model={**pieces, "merges": [["a", "zz"]]})
    add("merges-of-numbers", "tokenizer_value", deep=True, model={**pieces, "merges": [[1, 2]]})
    add("dropout-of-pieces", "tokenizer_value", model={**pieces, "merges": [], "dropout": 0.5})
    add("words-without-end", "tokenizer_value", model={**model, "max_input_chars_per_word": 10**9})
    add("vocabulary-a-list", "tokenizer_vocabulary", model={**model, "vocab": ["a"]})
    add("token-without-end", "tokenizer_vocabulary", model={**model, "vocab": {**vocabulary, "x" * 5000: 39}})
    add(
        "parts-without-end",
        "tokenizer_value",
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 80},
    )
    add("added-token-beyond-all", "tokenizer_value", added_tokens=[{"id": 10**12, "content": "x"}])
    template = own["post_processor"]
    add("template-of-nobody", "tokenizer_value", deep=True, post_processor={**template, "special_tokens": {}})
    charsmap = {"type": "Precompiled", "precompiled_charsmap": "!!not base64!!"}
    add("map-of-characters", "tokenizer_value", deep=True, normalizer=charsmap)
    add(
        "behaviour-unknown",
        "tokenizer_value",
        deep=True,
        pre_tokenizer={**split_on("a"), "behavior": "Explode"},
    )
    add("prefix-a-number", "tokenizer_value", deep=True, model={**model, "continuing_subword_prefix": 7})


def add_modules() -> None:
    dense = {"in_features": 8, "out_features": 4, "bias": False}
    weight = {"linear.weight": np.ones((4, 8), np.float32)}
    for name, code, change, tensors in (
        ("dense-without-end", "dimension_cap", {"out_features": 10**9}, weight),
        ("dense-of-a-file", "forbidden_key", {"path": "idf.json"}, weight),
        ("dense-without-bias", "missing_weights", {"bias": True}, weight),
        ("dense-with-more", "weights_unknown", {}, {**weight, "extra": np.ones(3, np.float32)}),
        ("dense-without-sizes", "value", {"in_features": None}, weight),
        ("dense-of-another-key", "unknown_key", {"init_weight": [1.0]}, weight),
    ):
        deep = code not in ("dimension_cap", "forbidden_key")
        add_checkpoint(name, code, dense_edit({**dense, **change}, tensors), deep=deep)
    add_with_json("pooling-without-end", "dimension_cap", "1_Pooling/config.json", {"word_embedding_dimension": 10**9})
    for name, code in (
        ("BoW", "module_not_run"),
        ("CLIPModel", "module_not_run"),
        ("Trainer", "module_type"),
    ):
        add_checkpoint(f"module-{name}", code, module_edit(1, "type", f"sentence_transformers.models.{name}"))
