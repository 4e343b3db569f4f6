"""The weights of one folder: found in one file or in shards, matched with what the architecture has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from evaluation.checkpoints.architectures import Head, Shape
from evaluation.checkpoints.configuration import Configuration
from evaluation.checkpoints.files import ModelFiles
from evaluation.checkpoints.findings import Findings, listed, quoted
from evaluation.checkpoints.json_reading import read_object
from evaluation.checkpoints.safetensors import NotSafetensors, Tensor, is_finite, is_shard_name, read_tensors

NAME = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MOST_SHARDS = 64
_PREFIXES = ("question_encoder.bert_model.", "ctx_encoder.bert_model.")
#: What is never needed: numbers of positions, copies of embeddings, the pooler of an encoder that is pooled otherwise.
_UNREMARKED = re.compile(
    r".*(position_ids|token_type_ids|inv_freq|linear\.weight|embed_tokens\.weight|decoder\.(weight|bias))"
)

Tensors = dict[str, Tensor]


def read_weights(source: ModelFiles, findings: Findings, name: str = NAME) -> Tensors | None:
    """All tensors in the folder by name, from `name` or the shards that the index lists; None where refused."""
    if source.has(name):
        return read_file(source, name, findings)
    if name == NAME and source.has(INDEX):
        return _read_shards(source, findings)
    findings.refuse("missing_weights", source.shown(name), "the file is missing")
    return None


def read_file(source: ModelFiles, name: str, findings: Findings) -> Tensors | None:
    """The tensors of one file of the folder; None where it is refused."""
    try:
        return read_tensors(source.path(name), source.allowance)
    except NotSafetensors as error:
        findings.refuse("weights_header", source.shown(name), str(error))
        return None


def _read_shards(source: ModelFiles, findings: Findings) -> Tensors | None:
    index = read_object(source, INDEX, findings)
    if index is None:
        return None
    shown = source.shown(INDEX)
    places = index.get("weight_map")
    if not isinstance(places, dict) or not places:
        findings.refuse("weights_index", shown, "it has no weight_map")
        return None
    bad = [file for file in places.values() if not is_shard_name(file)]
    if bad:
        findings.refuse("weights_index", shown, f"{quoted(bad[0])} is no file beside it", "weight_map")
        return None
    named: dict[str, set[str]] = {}
    for tensor, file in places.items():
        named.setdefault(file, set()).add(tensor)
    if len(named) > _MOST_SHARDS:
        what = f"it names {len(named):,} files; at most {_MOST_SHARDS}"
        findings.refuse("weights_index", shown, what, "weight_map")
        return None
    tensors: Tensors = {}
    for file, expected in sorted(named.items()):
        found = _read_shard(source, file, expected, findings)
        if found is None:
            return None
        tensors |= found
    return tensors


def _read_shard(source: ModelFiles, file: str, expected: set[str], findings: Findings) -> Tensors | None:
    """The tensors of one shard, which have to be those that the index names; None where it is refused."""
    if not source.has(file):
        findings.refuse("missing_weights", source.shown(file), "the index names it, and it is missing")
        return None
    found = read_file(source, file, findings)
    if found is None:
        return None
    if missing := sorted(expected - found.keys()):
        what = f"{listed(missing)}: the index says that it is here, and it is not"
    elif more := sorted(found.keys() - expected):
        what = f"{listed(more)}: the index does not say that it is here"
    else:
        return found
    findings.refuse("weights_index", source.shown(file), what)
    return None


def match(
    tensors: Mapping[str, Tensor],
    configuration: Configuration,
    head: Head,
    source: ModelFiles,
    findings: Findings,
) -> Tensors:
    """The tensors that a model with this head needs, under the names that its library gives them."""
    architecture = configuration.architecture
    found = _canonical(tensors, architecture.prefix, source, findings)
    base = dict(architecture.weights(configuration.sizes, "base"))
    wanted = dict(architecture.weights(configuration.sizes, head))
    optional = architecture.tied if configuration.tied else frozenset()
    wanted |= {
        name: shape
        for name, shape in _pooler(configuration.hidden).items()
        if head == "base" and name in found
    }
    taken: Tensors = {}
    missing = []
    for name, shape in wanted.items():
        tensor = found.get(name) or found.get(_other_name(name))
        if tensor is None:
            missing += [] if name in optional else [name]
            continue
        inside = name in base or name.startswith("pooler.")
        taken[architecture.prefix * (inside and head != "base") + name] = tensor
        _check_shape(name, tensor, shape, source, findings)
    if missing:
        findings.refuse("missing_weights", source.shown(NAME), f"there is no {listed(missing)}")
    left = [name for name in found if name not in wanted and not _UNREMARKED.fullmatch(name)]
    if left and not missing:
        findings.remark("weights_left_out", source.shown(NAME), listed(sorted(left)))
    return taken


def _canonical(tensors: Mapping[str, Tensor], prefix: str, source: ModelFiles, findings: Findings) -> Tensors:
    """Names as the base model has them, whatever stood before, and however old the library was that wrote them."""
    found: Tensors = {}
    for name, tensor in tensors.items():
        short = name
        for before in (*_PREFIXES, prefix):
            short = short.removeprefix(before) if before and short == name else short
        short = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", short)
        short = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", short)
        if short in found:
            findings.refuse(
                "weights_header", source.shown(PurePosixPath(tensor.path).name), f"it has {short} twice"
            )
        found[short] = tensor
    return found


def _pooler(hidden: int) -> dict[str, Shape]:
    """What BERT and its kin put over the first token; kept where it is there, because some loaders ask for it."""
    names = ("pooler.dense", "pooler")
    return {
        **{f"{name}.weight": (hidden, hidden) for name in names},
        **{f"{name}.bias": (hidden,) for name in names},
    }


def _other_name(name: str) -> str:
    """Another name that files have for the same weights: a head's bias, and the embeddings of T5's encoder."""
    if name == "shared.weight":
        return "encoder.embed_tokens.weight"
    return (
        name.removesuffix("bias") + "decoder.bias"
        if name.endswith(("predictions.bias", "lm_head.bias"))
        else ""
    )


def check_weights(
    wanted: Mapping[str, Shape], tensors: Tensors, name: str, source: ModelFiles, findings: Findings
) -> bool:
    """Whether exactly these weights are in a module's own file; else say what is wrong."""
    missing = [each for each in wanted if each not in tensors]
    if missing:
        findings.refuse("missing_weights", source.shown(name), f"there is no {listed(missing)}")
    left = sorted(tensors.keys() - wanted.keys())
    if left:
        findings.remark("weights_left_out", source.shown(name), listed(left))
    for each in wanted.keys() & tensors.keys():
        _check_shape(each, tensors[each], wanted[each], source, findings)
    return not missing


def _check_shape(name: str, tensor: Tensor, shape: Shape, source: ModelFiles, findings: Findings) -> None:
    file = source.shown(source.name_at(tensor.path))
    if tensor.shape != shape:
        what = f"its shape is {_sizes(tensor.shape)}, and config.json says {_sizes(shape)}"
        findings.refuse("weights_shape", file, what, name)
    if not tensor.usable:
        findings.refuse("weights_type", file, f"its type is {tensor.dtype}", name)


def _sizes(shape: Shape) -> str:
    return " × ".join(f"{size:,}" for size in shape) or "a single value"


def refuse_not_finite(tensors: Mapping[str, Tensor], source: ModelFiles, findings: Findings) -> None:
    """Read all weights once, and refuse those that hold infinities or what is no number."""
    bad = []
    try:
        bad = [name for name, tensor in tensors.items() if tensor.usable and not is_finite(tensor)]
    except NotSafetensors as error:
        findings.refuse("weights_header", source.shown(NAME), str(error))
    if bad:
        findings.refuse(
            "nan_weights", source.shown(NAME), f"{listed(bad)}: not all values are finite numbers"
        )
