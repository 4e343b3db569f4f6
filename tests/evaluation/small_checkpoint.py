"""A small checkpoint written by hand: no library of models is needed to make it, or to spoil it."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Head = Literal["base", "masked", "sequence"]
Shape = tuple[int, ...]
Arrays = Mapping[str, NDArray[Any]]
_DTYPES = {"float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64", "float64": "F64"}
SIZES = {
    "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 32, "type_vocab_size": 2,
}  # fmt: skip
_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]


def arrays(head: Head = "base", seed: int = 0, sizes: Mapping[str, int] = SIZES) -> dict[str, NDArray[Any]]:
    """Weights of a small BERT by name, as its library saves them without a head, or with one."""
    random = np.random.default_rng(seed)
    prefix = "" if head == "base" else "bert."
    shapes = {prefix + name: shape for name, shape in _encoder(sizes)}
    if head == "sequence":
        shapes |= {f"bert.{name}": shape for name, shape in _linear("pooler.dense", sizes["hidden_size"])}
    shapes |= _HEADS[head](sizes["vocab_size"], sizes["hidden_size"])
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _linear(name: str, rows: int, columns: int = 0) -> list[tuple[str, Shape]]:
    return [(f"{name}.weight", (rows, columns or rows)), (f"{name}.bias", (rows,))]


def _norm(name: str, size: int) -> list[tuple[str, Shape]]:
    return [(f"{name}.weight", (size,)), (f"{name}.bias", (size,))]


def _encoder(sizes: Mapping[str, int]) -> Iterator[tuple[str, Shape]]:
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    for name, size in (
        ("word", "vocab_size"),
        ("position", "max_position_embeddings"),
        ("token_type", "type_vocab_size"),
    ):
        yield f"embeddings.{name}_embeddings.weight", (sizes[size], hidden)
    yield from _norm("embeddings.LayerNorm", hidden)
    for number in range(sizes["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            yield from _linear(f"{layer}.attention.{name}", hidden)
        yield from _norm(f"{layer}.attention.output.LayerNorm", hidden)
        yield from _linear(f"{layer}.intermediate.dense", inner, hidden)
        yield from _linear(f"{layer}.output.dense", hidden, inner)
        yield from _norm(f"{layer}.output.LayerNorm", hidden)


_HEADS: dict[Head, Callable[[int, int], dict[str, Shape]]] = {
    "base": lambda vocabulary, hidden: {},
    "masked": lambda vocabulary, hidden: {
        "cls.predictions.bias": (vocabulary,),
        **dict(_linear("cls.predictions.transform.dense", hidden)),
        **dict(_norm("cls.predictions.transform.LayerNorm", hidden)),
        "cls.predictions.decoder.weight": (vocabulary, hidden),
    },
    "sequence": lambda vocabulary, hidden: dict(_linear("classifier", 1, hidden)),
}


def safetensors(tensors: Arrays, header: Mapping[str, Any] | None = None) -> bytes:
    """A file of weights; `header` changes entries of its header."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        content = array.tobytes()
        place = [len(data), len(data) + len(content)]
        entries[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": place,
        }
        data += content
    text = json.dumps({**entries, **(header or {})}).encode()
    return struct.pack("<Q", len(text)) + text + data


def tokenizer() -> dict[str, Any]:
    """tokenizer.json over letters."""
    special = [{"id": number, "content": token, "special": True, "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False} for number, token in enumerate(_TOKENS[:5])]  # fmt: skip
    ends = {token: {"id": token, "ids": [number], "tokens": [token]} for number, token in ((2, "[CLS]"), (3, "[SEP]"))}
    around = [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    ]
    pair = [*around, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    vocabulary = {token: number for number, token in enumerate([*_TOKENS, *(f"##{c}" for c in "abcdefghi")])}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": around, "pair": pair, "special_tokens": ends},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocabulary},
    }  # fmt: skip


def files(head: Head = "base") -> dict[str, bytes]:
    """A sentence encoder's files by name; with another head, the plain folder of such a model."""
    classes = {"base": "BertModel", "masked": "BertForMaskedLM", "sequence": "BertForSequenceClassification"}
    config = {"model_type": "bert", "architectures": [classes[head]], **SIZES}
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}} if head == "sequence" else {}
    roles = ("unk", "sep", "pad", "cls", "mask")
    special = {f"{role}_token": f"[{role.upper()}]" for role in roles}
    result = {
        "README.md": b"# A model\n",
        "config.json": _json({**config, **labels}),
        "model.safetensors": safetensors(arrays(head)),
        "tokenizer.json": _json(tokenizer()),
        "tokenizer_config.json": _json({"tokenizer_class": "BertTokenizer", "model_max_length": 32, **special}),
    }
    if head == "base":
        types = ["Transformer", "Pooling", "Normalize"]
        modules = [
            {"idx": number, "name": str(number), "path": f"{number}_{name}" if number else "",
             "type": f"sentence_transformers.models.{name}"}
            for number, name in enumerate(types)
        ]  # fmt: skip
        result["modules.json"] = _json(modules)
        pooling = {
            "word_embedding_dimension": 8,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": False,
        }
        result["1_Pooling/config.json"] = _json(pooling)
        result["sentence_bert_config.json"] = _json({"max_seq_length": 32, "do_lower_case": False})
    return result


def write(content: Mapping[str, bytes], folder: Path) -> Path:
    """The files in a folder."""
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def zipped(content: Mapping[str, bytes], path: Path) -> Path:
    """The files in a zip, always with the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return path


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1).encode()
