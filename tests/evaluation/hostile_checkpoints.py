"""Checkpoints that must be refused, by name: every way known to reach code, files or memory that are not the model's.

`HOSTILE[name].make(folder)` writes an archive into an empty folder and returns its path; `code` is what the report has
to hold. Archives point at `CANARY`, beside the folder that they are unpacked into, which nothing may touch.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.evaluation.hostile_architectures import add_architectures, add_modules, add_tokenizers
from tests.evaluation.hostile_archives import ARCHIVES, CANARY
from tests.evaluation.hostile_edits import (
    HOSTILE,
    Files,
    HostileCheckpoint,
    add_checkpoint,
    add_with_file,
    add_with_json,
    dense_edit,
    module_edit,
    replace_what,
    split_on,
    zip_of,
)
from tests.evaluation.small_checkpoint import arrays, safetensors, tokenizer


def _extra(name: str, code: str, file: str, data: bytes = b"\x80\x04K\x01.") -> None:
    """A good checkpoint and one file more."""
    add_checkpoint(name, code, lambda content: content.__setitem__(file, data))


def _as_adapter(file: str, data: bytes) -> Callable[[Files], None]:
    """Change a good checkpoint to an adapter's file in place of its weights."""

    def edit(content: Files) -> None:
        del content["model.safetensors"]
        content[file] = data

    return edit


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("open('canary-touched', 'w')",)


_PICKLE = pickle.dumps(_Evil())


def _dangerous_files() -> None:
    for name, file in {
        "pickle-weights": "pytorch_model.bin", "pickle-pt": "model.pt", "pickle-pkl": "extra/notes.pkl",
        "pickle-training-arguments": "training_args.bin", "pickle-checkpoint": "last.ckpt", "numpy-objects": "w.npy",
    }.items():  # fmt: skip
        _extra(name, "pickle_weights", file, _PICKLE)
    for name, file in {
        "python-module": "modeling_custom.py", "onnx": "onnx/model.onnx", "gguf": "model.gguf",
        "flax": "flax_model.msgpack",
        "tensorflow": "tf_model.h5", "shared-library": "kernel.so", "shell-script": "setup.sh", "notebook": "run.ipynb",
    }.items():  # fmt: skip
        _extra(name, "dangerous_file", file)
    _extra("nested-zip", "nested_archive", "weights.zip")
    _extra("nested-tarball", "nested_archive", "weights.tar.gz")
    _extra("unknown-file", "unknown_file", "model.weights")
    for name, file, data in (
        ("adapter-configuration", "adapter_config.json", b'{"base_model_name_or_path": "/etc"}'),
        ("adapter-weights", "adapter_model.safetensors", safetensors({})),
        ("adapter-pickled", "adapter_model.bin", _PICKLE),
    ):
        add_checkpoint(name, "adapter", _as_adapter(file, data))


def _configurations() -> None:
    for name, change in {
        "nested-remote-code": {"text_config": {"backbone": {"trust_remote_code": True}}},
        "internal-attention": {"_attn_implementation_internal": "owner/kernel"},
        "attention-from-elsewhere": {"attn_implementation": "owner/kernel"},
        "weights-from-elsewhere": {"transformers_weights": "../other/model.safetensors"},
        "quantised": {"quantization_config": {"quant_method": "awq"}},
        "custom-pipeline": {"custom_pipelines": {"x": {"impl": "x.py"}}},
        "base-model-elsewhere": {"base_model_name_or_path": "/var/other"},
        "device-map": {"device_map": {"": "disk"}},
        "offload-folder": {"offload_folder": "/tmp"},
        "keys-by-other-names": {"attribute_map": {"zzz": "auto_map"}, "zzz": "flex_attention"},
        "parts-of-another-class": {"sub_configs_defaults": {"text_config": {}}},
    }.items():
        add_with_json(name, "forbidden_key", "config.json", change)
    custom = {"model_type": "custom", "auto_map": {"AutoModel": "modeling_custom.Model"}}
    add_with_json("auto-map", "own_code", "config.json", custom)
    add_with_json("unknown-model-type", "model_type", "config.json", {"model_type": "lightglue"}, deep=True)
    add_with_json("no-model-type", "model_type", "config.json", {"model_type": None})
    add_with_json("model-type-a-list", "model_type", "config.json", {"model_type": ["bert"]})
    add_with_json("huge-vocabulary", "dimension_cap", "config.json", {"vocab_size": 20_000_000})
    add_with_json("huge-depth", "dimension_cap", "config.json", {"num_hidden_layers": 100_000})
    add_with_json("huge-blocks", "dimension_cap", "config.json", {"block_sizes": [100_000]})
    add_with_json("huge-networks", "dimension_cap", "config.json", {"num_feedforward_networks": 1_000_000})
    add_with_json("huge-waves", "dimension_cap", "config.json", {"posterior_encoder_num_wavenet_layers": 1_000_000})
    add_with_json("negative-size", "value", "config.json", {"hidden_size": -8})
    add_with_json("size-a-truth", "configuration", "config.json", {"num_hidden_layers": True}, deep=True)
    add_with_json("vocabulary-over-weights", "weights_shape", "config.json", {"vocab_size": 50})
    add_with_json("layers-without-weights", "missing_weights", "config.json", {"num_hidden_layers": 2}, deep=True)
    add_with_json("odd-heads", "configuration", "config.json", {"num_attention_heads": 3}, deep=True)
    add_with_json("decoder", "value", "config.json", {"is_decoder": True})
    for name, data in {
        "not-a-number": b'{"model_type": "bert", "hidden_size": NaN}',
        "key-twice": b'{"model_type": "bert", "model_type": "t5"}',
        "deep-nesting": b"[" * 100_000, "endless-number": b'{"hidden_size": ' + b"9" * 5000 + b"}",
        "not-an-object": b'["bert"]', "half-a-character": b'{"model_type": "bert", "x": "\\ud800"}',
        "not-text": b"\xff\xfe{}",
        "empty-json": b"",
    }.items():  # fmt: skip
        add_with_file(name, "json_damaged", "config.json", data)
    add_with_file("too-large-json", "file_too_large", "config.json", b" " * (5 << 20))
    add_with_file("no-configuration", "missing_config", "config.json", None)


def _tokenizers() -> None:
    def changed(**parts: Any) -> bytes:
        return json.dumps({**tokenizer(), **parts}).encode()

    model = tokenizer()["model"]
    for name, code, data in (
        ("no-tokenizer", "missing_tokenizer", None),
        (
            "token-beyond-embeddings",
            "tokenizer_vocabulary",
            changed(added_tokens=[{"id": 40, "content": "x"}]),
        ),
        ("token-ids-twice", "tokenizer_vocabulary", changed(model={**model, "vocab": {"[UNK]": 1, "a": 1}})),
        ("token-id-a-text", "tokenizer_vocabulary", changed(model={**model, "vocab": {"[UNK]": "1"}})),
        ("tokenizer-nesting", "tokenizer_value", changed(normalizer=_nested(60))),
        ("explosive-expression", "tokenizer_regex", changed(pre_tokenizer=split_on("(a+)+$"))),
        ("looking-behind", "tokenizer_regex", changed(normalizer=replace_what(r"(?<=(x+x+)+)y"))),
        ("tokenizer-key", "tokenizer_value", changed(auto_map="x")),
        ("tokenizer-too-large", "file_too_large", b" " * (33 << 20)),
        ("tokenizer-of-brackets", "json_damaged", b"[" + b"[]," * 4_000_000 + b"[]]"),
    ):
        add_with_file(name, code, "tokenizer.json", data)
    beyond = changed(post_processor=_template(4_000_000))
    add_with_file("template-beyond-embeddings", "tokenizer_vocabulary", "tokenizer.json", beyond, deep=True)
    for name, data in (
        ("no-unknown-token", changed(model={**model, "unk_token": "nowhere"})),
        ("tokenizer-type", changed(pre_tokenizer={"type": "Python"})),
        ("tokenizer-model-type", changed(model={"type": "Remote", "vocab": model["vocab"]})),
        ("tokenizer-setting", changed(normalizer={"type": "BertNormalizer", "path": "/etc"})),
    ):
        add_with_file(name, "tokenizer_value", "tokenizer.json", data, deep=True)
    for name, change in {
        "tokenizer-vocabulary-file": {"vocab_file": "/etc/passwd"},
        "tokenizer-file-elsewhere": {"tokenizer_file": "../other/tokenizer.json"},
    }.items():
        add_with_json(name, "forbidden_key", "tokenizer_config.json", change)
    add_with_json("special-token-unknown", "tokenizer_vocabulary", "tokenizer_config.json", {"pad_token": "[NEW]"})
    add_with_json("no-padding", "tokenizer_value", "tokenizer_config.json", {"pad_token": None})


def _nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


def _template(number: int) -> dict[str, Any]:
    part = tokenizer()["post_processor"]
    part["special_tokens"]["[CLS]"]["ids"] = [number]
    return dict(part)


def _modules() -> None:
    for name, path in {
        "module-pickle": "sentence_transformers.sentence_transformer.model.pickle",
        "module-torch": "sentence_transformers.base.modules.module.torch",
        "module-system": "os.system",
        "module-of-theirs": "modeling_custom.Encoder",
        "module-a-number": 7,
    }.items():
        add_checkpoint(name, "module_type", module_edit(1, "type", path))
    words = module_edit(1, "type", "sentence_transformers.models.WordEmbeddings")
    add_checkpoint("module-word-embeddings", "module_not_run", words)
    add_checkpoint("module-path-up", "value", module_edit(1, "path", "../other"))
    add_checkpoint("module-path-absolute", "value", module_edit(1, "path", "/etc"))
    add_checkpoint("module-folder-twice", "value", _twice)
    add_checkpoint("module-folder-twice-by-slash", "value", lambda content: _twice(content, "/"))
    add_checkpoint("module-in-the-first-ones-folder", "value", module_edit(1, "path", "."))
    add_checkpoint("module-arguments", "forbidden_key", module_edit(0, "model_kwargs", {"weights_only": False}))
    add_checkpoint("module-key", "unknown_key", module_edit(0, "state", "x"))
    add_with_file("modules-an-object", "json_damaged", "modules.json", b'{"type": "x"}')
    add_with_file("modules-without-pooling", "module_order", "modules.json", _only("Transformer"))
    add_with_file("modules-router-gadget", "module_type", "modules.json", _only("Router", "1_Pooling"))
    HOSTILE["modules-router-gadget"] = HostileCheckpoint(zip_of(_router, "base"), "module_type")


def _module_settings() -> None:
    add_with_json(
        "arguments-for-loading",
        "forbidden_key",
        "sentence_bert_config.json",
        {"model_args": {"trust_remote_code": True}},
    )
    add_with_json("kernels-for-loading", "forbidden_key", "sentence_bert_config.json", {"allow_all_kernels": True})
    add_with_json(
        "tokenizer-elsewhere",
        "forbidden_key",
        "sentence_bert_config.json",
        {"tokenizer_name_or_path": "/var/other"},
    )
    add_with_json("unknown-setting", "unknown_key", "sentence_bert_config.json", {"backend": "onnx"})
    add_with_json("unknown-pooling", "unknown_key", "1_Pooling/config.json", {"pooling_mode_exec": True}, deep=True)
    add_with_json("no-pooling", "value", "1_Pooling/config.json", {"pooling_mode_mean_tokens": False})
    add_with_json("pooling-too-wide", "dimension_mismatch", "1_Pooling/config.json", {"word_embedding_dimension": 16})
    add_with_json("prompts-too-long", "value", "config_sentence_transformers.json", {"prompts": {"query": "x" * 5000}})
    dense = {"in_features": 8, "out_features": 4, "bias": False}
    tensors = {"linear.weight": np.ones((4, 8), np.float32)}
    for name, code, config, weights in (
        ("activation-system", "activation", {"activation_function": "os.system"}, tensors),
        ("activation-of-torch", "activation", {"activation_function": "torch.hub.load"}, tensors),
        ("dense-of-another-width", "dimension_mismatch", {"in_features": 7}, tensors),
        ("dense-too-narrow", "weights_shape", {"out_features": 5}, tensors),
        ("dense-without-weights", "missing_weights", {}, {}),
    ):
        deep = code.endswith(("shape", "weights"))
        add_checkpoint(name, code, dense_edit({**dense, **config}, weights), deep=deep)


def _twice(content: Files, mark: str = "") -> None:
    """The same weights as module after module: each would be written again."""
    dense_edit({"in_features": 8, "out_features": 8, "bias": False}, {"linear.weight": np.ones((8, 8), np.float32)})(
        content
    )
    modules = json.loads(content["modules.json"])
    again = {**modules[-1], "path": modules[-1]["path"] + mark}
    content["modules.json"] = json.dumps([*modules, *([again] * (1 if mark else 6))]).encode()


def _only(name: str, path: str = "") -> bytes:
    return json.dumps([{"idx": 0, "name": "0", "path": path, "type": f"sentence_transformers.models.{name}"}]).encode()


def _router(content: Files) -> None:
    content["modules.json"] = _only("Router")
    types = {"query_0": "subprocess.Popen", "document_0": "sentence_transformers.models.Transformer"}
    structure = {"query": ["query_0"], "document": ["document_0"]}
    content["router_config.json"] = json.dumps({"types": types, "structure": structure, "parameters": {}}).encode()


def _weights() -> None:
    good = safetensors(arrays())
    (length,) = struct.unpack("<Q", good[:8])
    word = "embeddings.word_embeddings.weight"

    def entry(**change: Any) -> bytes:
        header = json.loads(good[8 : 8 + length])
        header[word] |= change
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + good[8 + length :]

    bad = {name: array.copy() for name, array in arrays().items()}
    bad["encoder.layer.0.output.dense.weight"][0, 0] = np.nan
    large = {name: array.astype(np.float16) for name, array in arrays().items()}
    large["embeddings.LayerNorm.bias"][3] = np.inf
    for name, code, data in (
        ("header-too-large", "weights_header", struct.pack("<Q", 17 << 20) + b" " * (17 << 20)),
        ("header-longer-than-file", "weights_header", struct.pack("<Q", 1 << 62) + b"{}"),
        ("header-not-json", "weights_header", struct.pack("<Q", 8) + b"notjson!"),
        ("header-a-list", "weights_header", struct.pack("<Q", 2) + b"[]"),
        ("pickle-by-another-name", "weights_header", _PICKLE),
        ("gap-between-tensors", "weights_header", entry(data_offsets=[8, 1288])),
        ("shape-not-the-bytes", "weights_header", entry(shape=[40, 9])),
        ("shape-endless", "weights_header", entry(shape=[1 << 40] * 8)),
        ("offsets-negative", "weights_header", entry(data_offsets=[-1280, 0])),
        ("offsets-a-truth", "weights_header", entry(data_offsets=[False, 1280])),
        ("tensor-type-unknown", "weights_header", entry(dtype="PICKLE")),
        ("tensor-with-more-keys", "weights_header", entry(path="/etc/passwd")),
        ("bytes-after-tensors", "weights_header", good + b"x"),
        ("weights-cut-off", "weights_header", good[:-1]),
        ("weights-empty", "weights_header", b""),
        ("too-many-tensors", "weights_header", _many_tensors()),
        ("tensor-without-values", "weights_header", entry(shape=[0, 8], data_offsets=[0, 0])),
        ("tensor-of-nothing", "weights_header", safetensors({**arrays(), "x": np.ones((3, 0), np.float32)})),
        ("overlapping-tensors", "weights_header", _overlapping()),
        ("weights-not-a-number", "nan_weights", safetensors(bad)),
        ("weights-infinite", "nan_weights", safetensors(large)),
        (
            "weights-of-bytes",
            "weights_type",
            safetensors({n: a.astype(np.int8) for n, a in arrays().items()}),
        ),
        ("no-weights", "missing_weights", None),
    ):
        add_with_file(name, code, "model.safetensors", data)
    without = safetensors({n: a for n, a in arrays().items() if n != "embeddings.LayerNorm.bias"})
    add_with_file("weights-missing", "missing_weights", "model.safetensors", without, deep=True)


def _indexes() -> None:
    word = "embeddings.word_embeddings.weight"
    for name, code, place in (
        ("index-path-up", "weights_index", f"../{CANARY}"),
        ("index-path-absolute", "weights_index", f"/tmp/{CANARY}"),
        ("index-path-a-number", "weights_index", 3),
        ("index-to-pickle", "weights_index", "pytorch_model.bin"),
        ("index-to-nowhere", "missing_weights", "model-00001-of-00001.safetensors"),
    ):
        add_checkpoint(name, code, _index_edit({"weight_map": {word: place}}))
    add_checkpoint("index-not-naming-a-tensor", "weights_index", _extra_tensor)
    many = {f"t{number}": f"model-{number}.safetensors" for number in range(65)}
    add_checkpoint("index-of-many-files", "weights_index", _index_edit({"weight_map": many}))
    add_checkpoint("many-tensors-in-shards", "weights_header", _shards(40, 260))
    add_checkpoint("large-headers-in-shards", "weights_header", _shards(20, 1, padding=300_000))
    add_checkpoint("index-without-map", "weights_index", _index_edit({"metadata": {}}))


def _index_edit(index: Mapping[str, Any]) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        del content["model.safetensors"]
        content["model.safetensors.index.json"] = json.dumps(index).encode()

    return edit


def _many_tensors() -> bytes:
    header = {
        f"t{number}": {"dtype": "U8", "shape": [1], "data_offsets": [number, number + 1]} for number in range(10_001)
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(len(header))


def _extra_tensor(content: Files) -> None:
    """A shard with a tensor more than the index names."""
    shard = "model-00001-of-00001.safetensors"
    _index_edit({"weight_map": dict.fromkeys(arrays(), shard)})(content)
    content[shard] = safetensors({**arrays(), "unasked": np.ones(1, np.float32)})


def _shards(count: int, tensors: int, padding: int = 0) -> Callable[[Files], None]:
    """Many shards, each as good as can be, of which nobody needs anything."""

    def edit(content: Files) -> None:
        places = {}
        for number in range(count):
            file = f"model-{number}.safetensors"
            names = [f"{number}.{place}" for place in range(tensors)]
            told = {"__metadata__": {"format": "p" * padding}}
            content[file] = safetensors({each: np.ones(1, np.int8) for each in names}, told)
            places |= dict.fromkeys(names, file)
        _index_edit({"weight_map": places})(content)

    return edit


def _overlapping() -> bytes:
    header = {
        name: {"dtype": "F32", "shape": [4], "data_offsets": place} for name, place in (("a", [0, 16]), ("b", [8, 24]))
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(24)


def _kinds() -> None:
    add_checkpoint("colbert-without-projection", "missing_projection", lambda content: None, "multi-vector")
    add_checkpoint("encoder-as-cross-encoder", "wrong_kind", lambda content: None, "cross-encoder")
    for name, change in {
        "activation-for-scores": {"sentence_transformers": {"activation_fn": "os.system"}},
        "activation-for-scores-as-function": {"sentence_transformers": {"activation_function": "os.system"}},
        "activation-for-scores-of-old": {"sbert_ce_default_activation_function": "torch.hub.load"},
        "activation-for-scores-a-list": {"sentence_transformers": {"activation_fn": ["os", "system"]}},
    }.items():
        add_checkpoint(name, "activation", _config_edit(change), "cross-encoder", "sequence")
    nothing = _config_edit({"sentence_transformers": "os.system"})
    add_checkpoint("settings-for-scores-a-text", "value", nothing, "cross-encoder", "sequence")
    three = {"id2label": {"0": "a", "1": "b", "2": "c"}}
    add_checkpoint("three-labels", "labels", _config_edit(three), "cross-encoder", "sequence")
    two = {"id2label": {"0": "a", "1": "b"}}
    add_checkpoint("labels-without-weights", "weights_shape", _config_edit(two), "cross-encoder", "sequence", deep=True)
    add_checkpoint("masked-model-without-pooling", "pooling_needed", lambda content: None, "sparse-encoder", "masked")


def _config_edit(change: Mapping[str, Any]) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        content["config.json"] = json.dumps({**json.loads(content["config.json"]), **change}).encode()

    return edit


_GROUPS = (
    _dangerous_files, _configurations, _tokenizers, _modules, _module_settings, _weights, _indexes, _kinds,
    add_architectures, add_tokenizers, add_modules,
)  # fmt: skip
for _group in _GROUPS:
    _group()
HOSTILE |= {name: HostileCheckpoint(make, code) for name, (code, make) in ARCHIVES.items()}
