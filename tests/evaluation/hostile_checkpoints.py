"""Checkpoints that must be refused, by name: every way known to reach code, files or memory that are not the model's.

`HOSTILE[name].make(folder)` writes an archive into an empty folder and returns its path; `code` is what the report has
to hold. Archives point at `CANARY`, beside the folder that they are unpacked into, which nothing may touch.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.evaluation.hostile_archives import ARCHIVES, CANARY
from tests.evaluation.small_checkpoint import arrays, files, safetensors, tokenizer, zipped

Files = dict[str, bytes]


@dataclass(frozen=True, slots=True)
class HostileCheckpoint:
    """How to make it, what it is refused for, and what its sender says that it is.

    `deep`: its files are typed values within bounds, and only the library can say what is wrong.
    """

    make: Callable[[Path], Path]
    code: str
    kind: str = "sentence-encoder"
    deep: bool = False


HOSTILE: dict[str, HostileCheckpoint] = {}


def _zip_of(edit: Callable[[Files], None], base: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        content = files(base)  # type: ignore[arg-type]
        edit(content)
        return zipped(content, folder / "checkpoint.zip")

    return make


def _add(
    name: str,
    code: str,
    edit: Callable[[Files], None],
    kind: str = "sentence-encoder",
    base: str = "base",
    deep: bool = False,
) -> None:
    HOSTILE[name] = HostileCheckpoint(_zip_of(edit, base), code, kind, deep)


def _extra(name: str, code: str, file: str, data: bytes = b"\x80\x04K\x01.") -> None:
    """A good checkpoint and one file more."""
    _add(name, code, lambda content: content.__setitem__(file, data))


def _json(name: str, code: str, file: str, change: Mapping[str, Any], *, deep: bool = False) -> None:
    """A good checkpoint with keys of a JSON file changed."""

    def edit(content: Files) -> None:
        content[file] = json.dumps({**json.loads(content.get(file, b"{}")), **change}).encode()

    _add(name, code, edit, deep=deep)


def _replaced(name: str, code: str, file: str, data: bytes | None, *, deep: bool = False) -> None:
    """A good checkpoint with other bytes in a file, or without it."""

    def edit(content: Files) -> None:
        content.pop(file)
        if data is not None:
            content[file] = data

    _add(name, code, edit, deep=deep)


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
    _extra("adapter-configuration", "adapter", "adapter_config.json", b'{"base_model_name_or_path": "/etc"}')
    _extra("adapter-weights", "adapter", "adapter_model.safetensors", safetensors({}))


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
        _json(name, "forbidden_key", "config.json", change)
    custom = {"model_type": "custom", "auto_map": {"AutoModel": "modeling_custom.Model"}}
    _json("auto-map", "model_type", "config.json", custom, deep=True)
    _json("unknown-model-type", "model_type", "config.json", {"model_type": "lightglue"}, deep=True)
    _json("no-model-type", "model_type", "config.json", {"model_type": None})
    _json("model-type-a-list", "model_type", "config.json", {"model_type": ["bert"]})
    _json("huge-vocabulary", "dimension_cap", "config.json", {"vocab_size": 20_000_000})
    _json("huge-depth", "dimension_cap", "config.json", {"num_hidden_layers": 100_000})
    _json("huge-blocks", "dimension_cap", "config.json", {"block_sizes": [100_000]})
    _json("huge-networks", "dimension_cap", "config.json", {"num_feedforward_networks": 1_000_000})
    _json("huge-waves", "dimension_cap", "config.json", {"posterior_encoder_num_wavenet_layers": 1_000_000})
    _json("negative-size", "value", "config.json", {"hidden_size": -8})
    _json("size-a-truth", "configuration", "config.json", {"num_hidden_layers": True}, deep=True)
    _json("vocabulary-over-weights", "weights_shape", "config.json", {"vocab_size": 50})
    _json("layers-without-weights", "missing_weights", "config.json", {"num_hidden_layers": 2}, deep=True)
    _json("odd-heads", "configuration", "config.json", {"num_attention_heads": 3}, deep=True)
    _json("decoder", "value", "config.json", {"is_decoder": True})
    for name, data in {
        "not-a-number": b'{"model_type": "bert", "hidden_size": NaN}',
        "key-twice": b'{"model_type": "bert", "model_type": "t5"}',
        "deep-nesting": b"[" * 100_000, "endless-number": b'{"hidden_size": ' + b"9" * 5000 + b"}",
        "not-an-object": b'["bert"]', "half-a-character": b'{"model_type": "bert", "x": "\\ud800"}',
        "not-text": b"\xff\xfe{}",
        "empty-json": b"",
    }.items():  # fmt: skip
        _replaced(name, "json_damaged", "config.json", data)
    _replaced("too-large-json", "file_too_large", "config.json", b" " * (5 << 20))
    _replaced("no-configuration", "missing_config", "config.json", None)


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
        ("explosive-expression", "tokenizer_regex", changed(pre_tokenizer=_split("(a+)+$"))),
        ("looking-behind", "tokenizer_regex", changed(normalizer=_replace(r"(?<=(x+x+)+)y"))),
        ("tokenizer-key", "tokenizer_value", changed(auto_map="x")),
        ("tokenizer-too-large", "file_too_large", b" " * (33 << 20)),
        ("tokenizer-of-brackets", "json_damaged", b"[" + b"[]," * 4_000_000 + b"[]]"),
    ):
        _replaced(name, code, "tokenizer.json", data)
    beyond = changed(post_processor=_template(4_000_000))
    _replaced("template-beyond-embeddings", "tokenizer_vocabulary", "tokenizer.json", beyond, deep=True)
    for name, data in (
        ("no-unknown-token", changed(model={**model, "unk_token": "nowhere"})),
        ("tokenizer-type", changed(pre_tokenizer={"type": "Python"})),
        ("tokenizer-model-type", changed(model={"type": "Remote", "vocab": model["vocab"]})),
        ("tokenizer-setting", changed(normalizer={"type": "BertNormalizer", "path": "/etc"})),
    ):
        _replaced(name, "tokenizer_value", "tokenizer.json", data, deep=True)
    for name, change in {
        "tokenizer-vocabulary-file": {"vocab_file": "/etc/passwd"},
        "tokenizer-file-elsewhere": {"tokenizer_file": "../other/tokenizer.json"},
    }.items():
        _json(name, "forbidden_key", "tokenizer_config.json", change)
    _json("special-token-unknown", "tokenizer_vocabulary", "tokenizer_config.json", {"pad_token": "[NEW]"})
    _json("no-padding", "tokenizer_value", "tokenizer_config.json", {"pad_token": None})


def _nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "Lowercase"}
    for _ in range(depth):
        part = {"type": "Sequence", "normalizers": [part]}
    return part


def _split(expression: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Removed", "invert": False}


def _replace(expression: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": expression}, "content": ""}


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
        _add(name, "module_type", _module_edit(1, "type", path))
    words = _module_edit(1, "type", "sentence_transformers.models.WordEmbeddings")
    _add("module-word-embeddings", "module_not_run", words)
    _add("module-path-up", "value", _module_edit(1, "path", "../other"))
    _add("module-path-absolute", "value", _module_edit(1, "path", "/etc"))
    _add("module-folder-twice", "value", _twice)
    _add("module-folder-twice-by-slash", "value", lambda content: _twice(content, "/"))
    _add("module-in-the-first-ones-folder", "value", _module_edit(1, "path", "."))
    _add("module-arguments", "forbidden_key", _module_edit(0, "model_kwargs", {"weights_only": False}))
    _add("module-key", "unknown_key", _module_edit(0, "state", "x"))
    _replaced("modules-an-object", "json_damaged", "modules.json", b'{"type": "x"}')
    _replaced("modules-without-pooling", "module_order", "modules.json", _only("Transformer"))
    _replaced("modules-router-gadget", "module_type", "modules.json", _only("Router", "1_Pooling"))
    HOSTILE["modules-router-gadget"] = HostileCheckpoint(_zip_of(_router, "base"), "module_type")
    _json(
        "arguments-for-loading",
        "forbidden_key",
        "sentence_bert_config.json",
        {"model_args": {"trust_remote_code": True}},
    )
    _json("kernels-for-loading", "forbidden_key", "sentence_bert_config.json", {"allow_all_kernels": True})
    _json(
        "tokenizer-elsewhere",
        "forbidden_key",
        "sentence_bert_config.json",
        {"tokenizer_name_or_path": "/var/other"},
    )
    _json("unknown-setting", "unknown_key", "sentence_bert_config.json", {"backend": "onnx"})
    _json("unknown-pooling", "unknown_key", "1_Pooling/config.json", {"pooling_mode_exec": True}, deep=True)
    _json("no-pooling", "value", "1_Pooling/config.json", {"pooling_mode_mean_tokens": False})
    _json("pooling-too-wide", "dimension_mismatch", "1_Pooling/config.json", {"word_embedding_dimension": 16})
    _json(
        "prompts-too-long", "value", "config_sentence_transformers.json", {"prompts": {"query": "x" * 5000}}
    )
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
        _add(name, code, _dense_edit({**dense, **config}, weights), deep=deep)


def _module_edit(place: int, key: str, value: object) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        modules = json.loads(content["modules.json"])
        modules[place][key] = value
        content["modules.json"] = json.dumps(modules).encode()

    return edit


def _twice(content: Files, mark: str = "") -> None:
    """The same weights as module after module: each would be written again."""
    _dense_edit(
        {"in_features": 8, "out_features": 8, "bias": False}, {"linear.weight": np.ones((8, 8), np.float32)}
    )(content)
    modules = json.loads(content["modules.json"])
    again = {**modules[-1], "path": modules[-1]["path"] + mark}
    content["modules.json"] = json.dumps([*modules, *([again] * (1 if mark else 6))]).encode()


def _only(name: str, path: str = "") -> bytes:
    return json.dumps(
        [{"idx": 0, "name": "0", "path": path, "type": f"sentence_transformers.models.{name}"}]
    ).encode()


def _router(content: Files) -> None:
    content["modules.json"] = _only("Router")
    types = {"query_0": "subprocess.Popen", "document_0": "sentence_transformers.models.Transformer"}
    structure = {"query": ["query_0"], "document": ["document_0"]}
    content["router_config.json"] = json.dumps(
        {"types": types, "structure": structure, "parameters": {}}
    ).encode()


def _dense_edit(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        modules = json.loads(content["modules.json"])
        modules.append(
            {"idx": 3, "name": "3", "path": "3_Dense", "type": "sentence_transformers.models.Dense"}
        )
        content["modules.json"] = json.dumps(modules).encode()
        content["3_Dense/config.json"] = json.dumps(config).encode()
        content["3_Dense/model.safetensors"] = safetensors(tensors)

    return edit


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
        _replaced(name, code, "model.safetensors", data)
    without = safetensors({n: a for n, a in arrays().items() if n != "embeddings.LayerNorm.bias"})
    _replaced("weights-missing", "missing_weights", "model.safetensors", without, deep=True)
    for name, code, place in (
        ("index-path-up", "weights_index", f"../{CANARY}"),
        ("index-path-absolute", "weights_index", f"/tmp/{CANARY}"),
        ("index-path-a-number", "weights_index", 3),
        ("index-to-pickle", "weights_index", "pytorch_model.bin"),
        ("index-to-nowhere", "missing_weights", "model-00001-of-00001.safetensors"),
    ):
        _add(name, code, _index_edit({"weight_map": {word: place}}))
    _add("index-not-naming-a-tensor", "weights_index", _extra_tensor)
    many = {f"t{number}": f"model-{number}.safetensors" for number in range(65)}
    _add("index-of-many-files", "weights_index", _index_edit({"weight_map": many}))
    _add("many-tensors-in-shards", "weights_header", _shards(40, 260))
    _add("large-headers-in-shards", "weights_header", _shards(20, 1, padding=300_000))
    _add("index-without-map", "weights_index", _index_edit({"metadata": {}}))


def _index_edit(index: Mapping[str, Any]) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        del content["model.safetensors"]
        content["model.safetensors.index.json"] = json.dumps(index).encode()

    return edit


def _many_tensors() -> bytes:
    header = {
        f"t{number}": {"dtype": "U8", "shape": [1], "data_offsets": [number, number + 1]}
        for number in range(10_001)
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
        name: {"dtype": "F32", "shape": [4], "data_offsets": place}
        for name, place in (("a", [0, 16]), ("b", [8, 24]))
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(24)


def _kinds() -> None:
    _add("colbert-without-projection", "missing_projection", lambda content: None, "multi-vector")
    _add("encoder-as-cross-encoder", "wrong_kind", lambda content: None, "cross-encoder")
    for name, change in {
        "activation-for-scores": {"sentence_transformers": {"activation_fn": "os.system"}},
        "activation-for-scores-as-function": {"sentence_transformers": {"activation_function": "os.system"}},
        "activation-for-scores-of-old": {"sbert_ce_default_activation_function": "torch.hub.load"},
        "activation-for-scores-a-list": {"sentence_transformers": {"activation_fn": ["os", "system"]}},
    }.items():
        _add(name, "activation", _config_edit(change), "cross-encoder", "sequence")
    nothing = _config_edit({"sentence_transformers": "os.system"})
    _add("settings-for-scores-a-text", "value", nothing, "cross-encoder", "sequence")
    three = {"id2label": {"0": "a", "1": "b", "2": "c"}}
    _add("three-labels", "labels", _config_edit(three), "cross-encoder", "sequence")
    two = {"id2label": {"0": "a", "1": "b"}}
    _add("labels-without-weights", "weights_shape", _config_edit(two), "cross-encoder", "sequence", deep=True)
    _add("masked-model-without-pooling", "pooling_needed", lambda content: None, "sparse-encoder", "masked")


def _config_edit(change: Mapping[str, Any]) -> Callable[[Files], None]:
    def edit(content: Files) -> None:
        content["config.json"] = json.dumps({**json.loads(content["config.json"]), **change}).encode()

    return edit


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


def _of_any_architecture() -> None:
    for name, code, key, value in _OUT_OF_BOUNDS:
        _json(f"{name}-claimed", code, "config.json", {key: value})
    for name, code, key, value in _NOT_THE_LIBRARYS:
        _json(f"{name}-claimed", code, "config.json", {key: value}, deep=True)
    weights = arrays()
    word, dense = "embeddings.word_embeddings.weight", "encoder.layer.0.intermediate.dense.weight"
    fewer = safetensors({**weights, word: weights[word][:30]})
    _replaced("tokenizer-over-embeddings", "tokenizer_vocabulary", "model.safetensors", fewer)
    _replaced("weights-of-doubles", "weights_type", "model.safetensors",
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
        _replaced(name, code, "model.safetensors", safetensors(changed), deep=True)


#: Expressions that can be tried in many ways, or do more than match.
_EXPRESSIONS = (
    r"(a|a)*b", r"(\s*)*x", r"^(([a-z])+.)+[A-Z]([a-z])+$", r"(.*a){20}", r"\p{L}+\p{L}+\p{L}+$", r"(a)\1+",
    r"(?<n>a\g<n>?)",
    r"(?=(a+))a*b\1", r"[a-z]*[a-z]*[a-z]*!", "a" * 201, "(?{exec})",
)  # fmt: skip


def _tokenizers_of_any_architecture() -> None:
    own = tokenizer()

    def add(name: str, code: str, deep: bool = False, **parts: Any) -> None:
        _replaced(name, code, "tokenizer.json", json.dumps({**own, **parts}).encode(), deep=deep)

    for number, expression in enumerate(_EXPRESSIONS):
        part = _split(expression) if number % 2 else _replace(expression)
        role = "pre_tokenizer" if number % 2 else "normalizer"
        lists = {"pre_tokenizer": "pretokenizers", "normalizer": "normalizers"}
        add(f"expression-{number}", "tokenizer_regex", **{role: {"type": "Sequence", lists[role]: [part]}})
    add("expression-of-a-decoder", "tokenizer_regex", decoder=_replace("(a+)+$"))
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
        pre_tokenizer={**_split("a"), "behavior": "Explode"},
    )
    add("prefix-a-number", "tokenizer_value", deep=True, model={**model, "continuing_subword_prefix": 7})


def _modules_of_any_release() -> None:
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
        _add(name, code, _dense_edit({**dense, **change}, tensors), deep=deep)
    _json(
        "pooling-without-end", "dimension_cap", "1_Pooling/config.json", {"word_embedding_dimension": 10**9}
    )
    for name, code in (
        ("BoW", "module_not_run"),
        ("CLIPModel", "module_not_run"),
        ("Trainer", "module_type"),
    ):
        _add(f"module-{name}", code, _module_edit(1, "type", f"sentence_transformers.models.{name}"))


_GROUPS = (
    _dangerous_files, _configurations, _tokenizers, _modules, _weights, _kinds, _of_any_architecture,
    _tokenizers_of_any_architecture, _modules_of_any_release,
)  # fmt: skip
for _group in _GROUPS:
    _group()
HOSTILE |= {name: HostileCheckpoint(make, code) for name, (code, make) in ARCHIVES.items()}
